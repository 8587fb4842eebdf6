//! System calls of the examples and of the hand-written references that the benchmarks compare with.

#![expect(
    unsafe_code,
    reason = "signal handlers, crashes on purpose, fork for the references, an allocator that counts"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use nix::unistd::{ForkResult, Pid, fork};

/// Installs `handler` for SIGQUIT, as a client of the conduit may do after initialisation.
///
/// # Errors
/// The system refused.
pub fn on_quit(handler: extern "C" fn(i32)) -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(handler), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handlers of the examples only write to a descriptor and call the conduit's exit, which is written to
    // be called from signal handlers.
    unsafe { sigaction(Signal::SIGQUIT, &action) }.map(drop)
}

/// Dies of SIGSEGV by a store to a page that is not there.
pub fn crash_store() {
    let nowhere = std::ptr::without_provenance_mut::<u32>(16);
    // SAFETY: not sound on purpose: the first page is never mapped, so the store ends the process.
    unsafe { nowhere.write_volatile(1) };
}

/// Dies of SIGBUS by a load beyond the end of a mapped file.
pub fn crash_bus() {
    let Ok(file) = nix::sys::memfd::memfd_create("empty", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
    else {
        return;
    };
    let Some(len) = NonZeroUsize::new(4096) else { return };
    let (prot, flags) = (ProtFlags::PROT_READ, MapFlags::MAP_SHARED);
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let map = unsafe { nix::sys::mman::mmap(None, len, prot, flags, &file, 0) };
    if let Ok(map) = map {
        // SAFETY: the address is mapped; the file has no byte there, so the load raises SIGBUS, which is the purpose.
        unsafe { map.cast::<u8>().as_ptr().read_volatile() };
    }
}

/// Dies of SIGFPE by an integer division.
pub fn crash_division() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the division by zero traps before it writes its outputs, which are declared.
    unsafe {
        std::arch::asm!(
            "idiv {zero:e}",
            zero = in(reg) 0,
            inout("eax") 1 => _,
            inout("edx") 0 => _,
        );
    }
    // Other processors do not trap on integer division.
    let _ = raise(Signal::SIGFPE);
}

/// Runs `child` in a forked process, which ends with status 0 when it returns. Only for programs with one thread.
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

/// So many words, zero at first, which children that are forked later share. They live as long as the process.
///
/// # Errors
/// No memory.
pub fn shared_lines(count: usize) -> nix::Result<&'static [Line]> {
    let len = NonZeroUsize::new(count * size_of::<Line>()).ok_or(nix::Error::EINVAL)?;
    let (prot, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let map = unsafe { nix::sys::mman::mmap_anonymous(None, len, prot, flags) }?;
    // SAFETY: the mapping holds `count` zeroed, aligned words, is never unmapped, and is changed through atomics only.
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

/// The system's allocator, with counts: what a program does without allocating, and what it holds, can be told exactly.
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
