//! Locks, waiting, and the helpers that tools headers take from the library.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use gasnet_ibv::WaitMode;
use gasnet_ibv::inner::Waiter;

use crate::fail::{Fail, code};
use crate::{state, types::Flags};

pub const PAGE: usize = 4096;

/// Tries before a thread sleeps for a lock.
const TRIES: u32 = 100;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_HSL_LockSlow(state: *mut u32) {
    // SAFETY: the word of a lock of the program, which lives as long as it is used.
    let word = unsafe { AtomicU32::from_ptr(state) };
    for _ in 0..TRIES {
        let (set, fetch) = (Ordering::Acquire, Ordering::Relaxed);
        if word.load(Ordering::Relaxed) == 0 && word.compare_exchange(0, 1, set, fetch).is_ok() {
            return;
        }
        std::hint::spin_loop();
    }
    while word.swap(2, Ordering::Acquire) != 0 {
        // Returns when the word is not 2, when it was woken, or on a signal: it looks again in each
        // case. SAFETY: the word is valid; no time-out.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                state,
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                2,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_HSL_Wake(state: *mut u32) {
    // SAFETY: only the address is used.
    unsafe {
        libc::syscall(libc::SYS_futex, state, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
    };
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_wait_hook(turn: c_uint) {
    let Some(state) = state::get() else { return };
    let idle = if turn == 0 { 0 } else { FRUITLESS.get().saturating_add(1) };
    FRUITLESS.set(idle);
    state.inner.idle(&mut Waiter::turn(idle), || state.inner.has_work());
}

thread_local! {
    /// Turns of this thread's wait since a poll found something.
    static FRUITLESS: Cell<u32> = const { Cell::new(0) };
}

/// A poll of this thread found something: a wait around it spins again before it rests. One that
/// serves a stream of messages would otherwise rest after each of them once it has lasted for a
/// while.
#[inline]
pub fn progressed() {
    FRUITLESS.set(0);
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_set_waitmode(mode: c_int) -> c_int {
    let set = || {
        let mode = match mode {
            0 => WaitMode::Spin,
            1 => WaitMode::Block,
            2 => WaitMode::SpinBlock,
            _ => return Err(Fail::bad(format!("wait mode {mode} does not exist"))),
        };
        state::open()?.client.set_wait_mode(mode);
        Ok(())
    };
    code("gasnet_set_waitmode", set())
}

/// Zeroed memory of whole pages.
pub fn fresh_memory(size: usize) -> Option<*mut c_void> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: fresh memory at an address of the system's choice affects no other memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size, access, kind, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at)
}

/// Frees what [`fresh_memory`] made.
pub fn free_memory(address: usize, size: usize) {
    let at = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: exactly such memory, which the program has given back.
    unsafe { libc::munmap(at, size) };
}

#[unsafe(no_mangle)]
pub extern "C" fn gasneti_mmap(size: usize) -> *mut c_void {
    let size = size.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
    fresh_memory(size).unwrap_or(libc::MAP_FAILED)
}

const OPS: [(u32, &str); 26] = [
    (0, "AND"),
    (1, "OR"),
    (2, "XOR"),
    (3, "ADD"),
    (4, "SUB"),
    (5, "MULT"),
    (6, "MIN"),
    (7, "MAX"),
    (8, "INC"),
    (9, "DEC"),
    (10, "SET"),
    (11, "CAS"),
    (15, "FAND"),
    (16, "FOR"),
    (17, "FXOR"),
    (18, "FADD"),
    (19, "FSUB"),
    (20, "FMULT"),
    (21, "FMIN"),
    (22, "FMAX"),
    (23, "FINC"),
    (24, "FDEC"),
    (25, "SWAP"),
    (26, "FCAS"),
    (27, "GET"),
    (30, "USER"),
];
const DTS: [(u32, &str); 7] =
    [(0, "I32"), (1, "U32"), (2, "I64"), (3, "U64"), (4, "FLT"), (5, "DBL"), (6, "USER")];
const TIS: [(u32, &str); 5] =
    [(0, "SRCRANK"), (1, "ENTRY"), (2, "IS_REQ"), (3, "IS_LONG"), (4, "EP")];

/// Names of the bits that are set, or the number when a bit has no name.
fn text(prefix: &str, names: &[(u32, &str)], bits: u32) -> String {
    let known = names.iter().fold(0, |known, (bit, _)| known | 1 << bit);
    if bits == 0 || bits & !known != 0 {
        return format!("{bits:#x}");
    }
    let set = names.iter().filter(|(bit, _)| bits >> bit & 1 == 1);
    set.map(|(_, name)| format!("{prefix}{name}")).collect::<Vec<_>>().join("|")
}

/// Writes a text with its final zero when there is room; the room that it needs.
fn write(buffer: *mut c_char, text: &str) -> usize {
    if !buffer.is_null() {
        let to = buffer.cast::<u8>();
        // SAFETY: the program has asked for the size before, or has room for every text.
        unsafe { to.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        let end = to.wrapping_add(text.len());
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
    text.len() + 1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_format_op(buffer: *mut c_char, op: u32) -> usize {
    const USER_NC: u32 = 1 << 31;
    let text = if op == USER_NC { "GEX_OP_USER_NC".into() } else { text("GEX_OP_", &OPS, op) };
    write(buffer, &text)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_format_dt(buffer: *mut c_char, dt: u32) -> usize {
    write(buffer, &text("GEX_DT_", &DTS, dt))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_format_ti(buffer: *mut c_char, ti: Flags) -> usize {
    write(buffer, &text("GEX_TI_", &TIS, ti))
}
