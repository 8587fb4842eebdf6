//! Registered memory: message buffers, segments, targets of gets, memory of the program.

pub(crate) mod buffers;
pub(crate) mod cache;
pub(crate) mod pool;
pub(crate) mod regions;
pub(crate) mod ring;
pub(crate) mod watch;
