//! Active messages over reliable connections.

pub(super) mod credits;
pub(super) mod header;
pub(super) mod pool;
pub(super) mod receive;
pub(super) mod send;
