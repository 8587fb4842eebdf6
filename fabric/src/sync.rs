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

/// A mark that any thread sets, and that is taken away once.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    /// Whether it was set before.
    pub(crate) fn set(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn store(&self, set: bool) {
        self.0.store(set, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Whether it was set; now it is not. While it is not, this only reads.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::SeqCst)
    }
}
