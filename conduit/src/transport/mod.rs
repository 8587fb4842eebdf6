//! How messages and one-sided operations travel: shared memory inside a neighbourhood, the network between them.

pub(crate) mod message;
pub(crate) mod neighbours;
pub(crate) mod net;
pub(crate) mod op_counter;
pub(crate) mod remote;
pub(crate) mod shm;
