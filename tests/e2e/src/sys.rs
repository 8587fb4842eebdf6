//! System calls of the programs that end in unusual ways.

#![expect(
    unsafe_code,
    reason = "signal handlers, crashes on purpose, an end without exit handlers"
)]

use std::num::NonZeroUsize;

use nix::sys::mman::{MapFlags, ProtFlags};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

/// Installs `handler` for SIGQUIT, as a client of the conduit may do after initialisation.
///
/// # Errors
/// The system refused.
pub fn on_quit(handler: extern "C" fn(i32)) -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(handler), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handlers of these programs only write to a descriptor and call the conduit's
    // exit, which is written to be called from signal handlers.
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
        // SAFETY: the address is mapped; the file has no byte there, so the load raises SIGBUS,
        // which is the purpose.
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

/// Ends the process at once, without exit handlers.
pub fn leave(code: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { nix::libc::_exit(code) }
}
