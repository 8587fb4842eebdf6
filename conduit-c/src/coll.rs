//! Barriers and the broadcast: `gasnet_coll.h`, and the barrier of GASNet-1.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use gasnet_ibv::{BarrierFlags, Error};

use crate::M;
use crate::arguments::{answer, no_flags, payload};
use crate::fail::{BARRIER_MISMATCH, Fail, NOT_READY, OK, ensure, must, status};
use crate::state::{self, State};
use crate::types::{EventValue, Flags, Handle};

#[cold]
#[inline(never)]
fn begin(call: &'static str, tm: Handle, flags: Flags) -> Result<&'static State, Fail> {
    let state = state::team(tm)?;
    no_flags(flags)?;
    // That the job ends is found out by the wait.
    state.inner.check_running(call)?;
    state.inner.check_outside::<M>(call)?;
    Ok(state)
}

/// The state, when there is nothing to object to, which is nearly always; [`begin`] says what there
/// is.
#[inline(always)]
fn begin_at_once(tm: Handle, flags: Flags) -> Option<&'static State> {
    let state = state::get()?;
    let fits = flags == 0 && state::is_whole_team(tm);
    (fits && state.inner.may_call::<M>()).then_some(state)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Coll_BarrierNB(tm: Handle, flags: Flags) -> EventValue {
    let call = "gex_Coll_BarrierNB";
    must(call, || {
        let state = match begin_at_once(tm, flags) {
            Some(state) => state,
            None => begin(call, tm, flags)?,
        };
        state.collectives.begin_barrier()
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Coll_BroadcastNB(
    tm: Handle,
    root: u32,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    flags: Flags,
) -> EventValue {
    let call = "gex_Coll_BroadcastNB";
    must(call, || {
        let state = begin(call, tm, flags)?;
        ensure!(root < state.size, "root {root} is not in the team");
        let number = state.collectives.begin_broadcast();
        if nbytes == 0 {
            return Ok(0);
        }
        ensure!(!dst.is_null(), "dst is null");
        if root != state.rank {
            return state.collectives.receive_parts(number, dst.expose_provenance(), nbytes);
        }
        let others = (0..state.size).filter(|rank| *rank != root);
        let bytes = payload(src, nbytes, usize::MAX)?;
        state.collectives.send_parts(call, number, bytes, others)?;
        // SAFETY: both have `nbytes` bytes by the program's promise; overlap is allowed.
        unsafe { std::ptr::copy(src.cast::<u8>(), dst.cast(), nbytes) };
        Ok(0)
    })
}

/// What the last barrier of the GASNet-1 kind agreed on.
static LAST: AtomicU64 = AtomicU64::new(NO_BARRIER);
const NO_BARRIER: u64 = 0;
const ANONYMOUS: u64 = 1;
const MISMATCH: u64 = 2;
/// With the name in the low half.
const NAMED: u64 = 1 << 32;

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_notify(id: c_int, flags: c_int) {
    must("gasnet_barrier_notify", || notify(id, flags));
}

fn notify(id: c_int, flags: c_int) -> Result<(), Fail> {
    let state = state::open()?;
    state.collectives.advance();
    Ok(state.client.barrier_notify(id, bits(flags))?)
}

const fn bits(flags: c_int) -> BarrierFlags {
    BarrierFlags::from_bits_retain(flags.cast_unsigned())
}

/// Whether a barrier of the GASNet-1 kind is under way. One with an event would not be the
/// program's to wait for here.
fn is_under_way(state: &State) -> bool {
    state.inner.barrier_under_way() && !state.collectives.barriers_under_way()
}

fn under_way() -> Result<&'static State, Fail> {
    let state = state::open()?;
    ensure!(is_under_way(state), "there was no gasnet_barrier_notify before it");
    Ok(state)
}

/// The result of a barrier that may have passed; keeps what was agreed on.
fn passed(call: &str, test: impl FnOnce(&State) -> Result<bool, Error>) -> c_int {
    status(call, || {
        let state = under_way()?;
        let (code, failed) = match test(state) {
            Ok(false) => return Ok(NOT_READY),
            Ok(true) => (OK, false),
            // An outcome that programs ask for: no warning.
            Err(Error::BarrierMismatch) => (BARRIER_MISMATCH, true),
            Err(error) => return Err(error.into()),
        };
        let agreed = match state.client.barrier_result() {
            Ok(Some(name)) => NAMED | u64::from(name.cast_unsigned()),
            _ if failed => MISMATCH,
            _ => ANONYMOUS,
        };
        LAST.store(agreed, Ordering::Relaxed);
        Ok(code)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_wait(id: c_int, flags: c_int) -> c_int {
    let wait = |state: &State| state.client.barrier_wait(id, bits(flags)).map(|()| true);
    passed("gasnet_barrier_wait", wait)
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_try(id: c_int, flags: c_int) -> c_int {
    passed("gasnet_barrier_try", |state| state.client.barrier_try(id, bits(flags)))
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier(id: c_int, flags: c_int) -> c_int {
    status("gasnet_barrier", || notify(id, flags).map(|()| gasnet_barrier_wait(id, flags)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_barrier_result(id: *mut c_int) -> c_int {
    status("gasnet_barrier_result", || {
        let state = state::open()?;
        let agreed = LAST.load(Ordering::Relaxed);
        ensure!(agreed != NO_BARRIER, "there was no barrier before it");
        ensure!(!is_under_way(state), "a barrier is under way");
        if agreed & NAMED == 0 {
            return Ok(c_int::from(agreed == ANONYMOUS));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the name")]
        answer(id, (agreed as u32).cast_signed());
        Ok(OK)
    })
}
