//! Atomics of the lock-free structures: those of the standard library, or of `loom` where their
//! models run: `RUSTFLAGS="--cfg loom" cargo test -p fabric --lib loom --release`.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};

/// Loom takes sequentially consistent accesses for acquire and release. In a model this gives the
/// accesses around it the order that they have; otherwise it does nothing.
#[inline]
pub(crate) fn order_in_models() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
