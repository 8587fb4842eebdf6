//! Active messages over reliable connections.

pub(super) mod acks;
mod admission;
mod draft;
pub(super) mod header;
mod moving;
pub(super) mod polls;
pub(super) mod receive;
mod ring;
pub(super) mod send;
mod short;
