//! Active messages over reliable connections.

pub(super) mod acks;
pub(super) mod header;
pub(super) mod receive;
pub(super) mod send;
