//! Locks, waiting, and the helpers that tools headers take from the library.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use gasnet_ibv::WaitMode;
use gasnet_ibv::inner::{Waiter, lock_waited};

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
    let _wait = lock_waited();
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
    FRUITLESS.with(|turns| turns.set(idle));
    // Without a fruitless poll since it was armed there is no sleep.
    let armed = if idle > 1 { ARMED.get() } else { None };
    let mut waiter = Waiter::turn(idle, armed);
    waiter.idle(&state.inner, || state.inner.has_work());
    ARMED.set(waiter.armed());
}

thread_local! {
    /// Turns of this thread's wait since a poll found something.
    static FRUITLESS: Cell<u32> = const { Cell::new(0) };
    /// Whether the last of them armed the network.
    static ARMED: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A poll of this thread found something: a wait around it spins again before it rests. One that
/// serves a stream of messages would otherwise rest after each of them once it has lasted for a
/// while.
#[inline]
pub fn progressed() {
    // `LocalKey::set` is not inlined.
    FRUITLESS.with(|turns| turns.set(0));
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_set_waitmode(mode: c_int) -> c_int {
    code("gasnet_set_waitmode", || {
        let mode = match mode {
            0 => WaitMode::Spin,
            1 => WaitMode::Block,
            2 => WaitMode::SpinBlock,
            _ => return Err(Fail::bad(format!("wait mode {mode} does not exist"))),
        };
        state::open()?.client.set_wait_mode(mode);
        Ok(())
    })
}

/// A size in whole pages.
pub fn whole_pages(size: usize) -> usize {
    size.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)
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
    fresh_memory(whole_pages(size)).unwrap_or(libc::MAP_FAILED)
}

/// Names of the bits of operators, data types and fields of tokens, from the lowest on.
const OPS: [&str; 31] = [
    "AND", "OR", "XOR", "ADD", "SUB", "MULT", "MIN", "MAX", "INC", "DEC", "SET", "CAS", "", "", "",
    "FAND", "FOR", "FXOR", "FADD", "FSUB", "FMULT", "FMIN", "FMAX", "FINC", "FDEC", "SWAP", "FCAS",
    "GET", "", "", "USER",
];
const DTS: [&str; 7] = ["I32", "U32", "I64", "U64", "FLT", "DBL", "USER"];
const TIS: [&str; 5] = ["SRCRANK", "ENTRY", "IS_REQ", "IS_LONG", "EP"];

/// Names of the bits that are set, or the number when a bit has no name.
fn text(prefix: &str, names: &[&str], bits: u32) -> String {
    let set = (0..u32::BITS).filter(|bit| bits >> bit & 1 == 1);
    let name = |bit: u32| names.get(bit as usize).filter(|name| !name.is_empty());
    let named: Option<Vec<_>> = set.map(|bit| Some(format!("{prefix}{}", name(bit)?))).collect();
    named.filter(|named| !named.is_empty()).map_or_else(|| format!("{bits:#x}"), |n| n.join("|"))
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
