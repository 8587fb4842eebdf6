//! Active messages over reliable connections.

pub(super) mod pool;
