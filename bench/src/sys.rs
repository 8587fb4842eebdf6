//! System calls of the hand-written references that the benchmarks compare with.

#![expect(
    unsafe_code,
    reason = "fork and shared memory for the references, an allocator that counts"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags};
use nix::unistd::{ForkResult, Pid, fork};

/// Runs `child` in a forked process, which ends with status 0 when it returns. Only for programs
/// with one thread.
///
/// # Errors
/// The system refused.
pub fn fork_child(child: impl FnOnce()) -> nix::Result<Pid> {
    // SAFETY: the callers are programs with a single thread, so the child may do anything.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            child();
            leave(0)
        }
    }
}

/// Ends the process at once, without exit handlers.
pub fn leave(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { nix::libc::_exit(code) }
}

/// A word on cache lines of its own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Line(pub AtomicU32);

/// So many words, zero at first, which children that are forked later share. They live as long as
/// the process.
///
/// # Errors
/// No memory.
pub fn shared_lines(count: usize) -> nix::Result<&'static [Line]> {
    let len = NonZeroUsize::new(count * size_of::<Line>()).ok_or(nix::Error::EINVAL)?;
    let (prot, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let map = unsafe { nix::sys::mman::mmap_anonymous(None, len, prot, flags) }?;
    // SAFETY: the mapping holds `count` zeroed, aligned words, is never unmapped, and is changed
    // through atomics only.
    Ok(unsafe { std::slice::from_raw_parts(map.cast().as_ptr(), count) })
}

/// Sleeps as long as `word` is `seen`; may return early.
pub fn futex_wait(word: &AtomicU32, seen: u32) {
    let forever = std::ptr::null::<nix::libc::timespec>();
    let (number, wait) = (nix::libc::SYS_futex, nix::libc::FUTEX_WAIT);
    // SAFETY: `word` is a live aligned word; without a time limit the pointer is null.
    unsafe { nix::libc::syscall(number, word.as_ptr(), wait, seen, forever) };
}

/// Wakes all that sleep on `word`.
pub fn futex_wake_all(word: &AtomicU32) {
    let (number, wake) = (nix::libc::SYS_futex, nix::libc::FUTEX_WAKE);
    // SAFETY: `word` is a live aligned word; waking has no effect on memory.
    unsafe { nix::libc::syscall(number, word.as_ptr(), wake, i32::MAX) };
}

/// Waits on `word` until it is at least `least`, spinning.
pub fn spin_until(word: &AtomicU64, least: u64) {
    while word.load(Ordering::Acquire) < least {
        std::hint::spin_loop();
    }
}

/// Nanoseconds of the clock that all processes of a machine share.
///
/// # Panics
/// Never on Linux.
#[must_use]
pub fn now_ns() -> u64 {
    testkit::tree::now_ns()
}

/// The system's allocator, with counts: what a program does without allocating, and what it holds,
/// can be told exactly.
#[derive(Debug, Default)]
pub struct CountingAllocator {
    calls: AtomicU64,
    live: AtomicU64,
}

impl CountingAllocator {
    /// Nothing counted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { calls: AtomicU64::new(0), live: AtomicU64::new(0) }
    }

    /// Allocations and reallocations so far, of all threads.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Bytes that are allocated now.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    fn count(&self, block: *mut u8, size: usize) -> *mut u8 {
        if !block.is_null() {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.live.fetch_add(size as u64, Ordering::Relaxed);
        }
        block
    }
}

// SAFETY: every call goes to the system's allocator as it came; the counters change nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promised.
        self.count(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promised.
        self.count(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promised.
        let moved = self.count(unsafe { System.realloc(block, layout, size) }, size);
        if !moved.is_null() {
            self.live.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        }
        moved
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}
