//! System calls of the examples and of the hand-written references that the benchmarks compare with.

#![expect(
    unsafe_code,
    reason = "signal handlers, crashes on purpose, fork and shared memory for the references"
)]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
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

/// Restricts this thread to one processor.
///
/// # Errors
/// The processor does not exist or is not allowed.
pub fn pin(cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
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

/// Zeroed memory shared with the processes that are forked later. Never unmapped.
#[derive(Clone, Copy, Debug)]
pub struct SharedMemory {
    base: *mut u8,
    len: usize,
}

impl SharedMemory {
    /// Maps `len` bytes, at least 1.
    ///
    /// # Errors
    /// No memory.
    pub fn new(len: usize) -> nix::Result<Self> {
        let (prot, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
        let size = NonZeroUsize::new(len).ok_or(nix::errno::Errno::EINVAL)?;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(None, size, prot, flags) }?;
        Ok(Self { base: base.cast().as_ptr(), len })
    }

    /// Address of the byte at `offset`, which has `len` bytes behind it.
    fn place(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.len, "{offset} + {len} of {} bytes", self.len);
        // SAFETY: inside the mapping by the assertion; it is never unmapped.
        unsafe { self.base.add(offset) }
    }

    /// The word at the start of 128-byte line `line`.
    ///
    /// # Panics
    /// When the line is outside the memory.
    #[must_use]
    pub fn word(&self, line: usize) -> &'static AtomicU64 {
        let place = self.place(line * 128, 128);
        // SAFETY: `place` is inside a mapping that is never unmapped, aligned because a mapping starts on a page, and
        // used as an atomic everywhere, because `copy_in` and `copy_out` are given other lines.
        unsafe { AtomicU64::from_ptr(place.cast()) }
    }

    /// Copies `from` into the memory at `offset`.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        let place = self.place(offset, from.len());
        // SAFETY: `place` has room by `place()`; the other process does not touch these bytes until a word told it to
        // (release and acquire), and no reference to them exists.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), place, from.len()) };
    }

    /// Copies bytes at `offset` out of the memory.
    ///
    /// # Panics
    /// When they are not inside.
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        let place = self.place(offset, to.len());
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::copy_nonoverlapping(place, to.as_mut_ptr(), to.len()) };
    }
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
