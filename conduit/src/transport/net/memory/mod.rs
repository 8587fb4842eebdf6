//! Registered memory: message buffers, segments, targets of gets.

pub(crate) mod buffers;
pub(crate) mod pool;
