//! Atomics of the lock-free structures that have `loom` models (`conduit/loom`, which puts loom's
//! in their place).

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
