//! Registered memory: the only module of the network with unsafe code.

#![allow(unsafe_code, reason = "memory that devices and peers read and write")]

use std::ptr::NonNull;

/// Memory that lasts as long as the network and that devices and peers may read and write at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastingMemory {
    pub(in crate::net) base: NonNull<u8>,
    pub(in crate::net) len: usize,
}

// SAFETY: the promise of `LastingMemory::new` holds for every thread.
unsafe impl Send for LastingMemory {}
// SAFETY: as above.
unsafe impl Sync for LastingMemory {}

impl LastingMemory {
    /// `len` bytes from `base`; `len` may be 0, then `base` may dangle.
    ///
    /// # Safety
    /// The memory stays mapped and writable until the network is dropped (or the process ends), and no Rust reference to any
    /// of it is made while peers may access it.
    pub(crate) const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }
}

/// The local end of a get, and how much of it was posted.
#[derive(Debug)]
pub(crate) struct RawTarget {
    pub(in crate::net) at: NonNull<u8>,
    pub(in crate::net) left: usize,
    pub(in crate::net) done: u64,
}

impl RawTarget {
    /// `len` bytes at `at` are to be read into.
    ///
    /// # Safety
    /// The memory is writable and used by nobody else until the operation that the target is given to is complete, or the
    /// network is dropped.
    pub(crate) const unsafe fn new(at: NonNull<u8>, len: usize) -> Self {
        Self { at, left: len, done: 0 }
    }
}
