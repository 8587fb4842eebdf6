//! Registered memory: message buffers, segments, targets of gets, memory of the program.

pub(crate) mod buffers;
pub(crate) mod cache;
pub(crate) mod lend;
pub(crate) mod lists;
pub(crate) mod loan_parts;
pub(crate) mod making;
pub(crate) mod pool;
pub(crate) mod refusals;
pub(crate) mod regions;
pub(crate) mod registrar;
pub(crate) mod ring;
pub(crate) mod uses;
pub(crate) mod watch;
