//! Registered memory: message buffers, segments, targets of gets.

pub(crate) mod pool;
