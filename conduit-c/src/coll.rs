//! Collectives: `gasnet_coll.h`, and the barrier of GASNet-1.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use gasnet_ibv::inner::{Buffers, Combine, DataType, Part, ReduceOp, Reduction, Task};
use gasnet_ibv::{BarrierFlags, Error};

use crate::arguments::{answer, no_flags};
use crate::fail::{BARRIER_MISMATCH, Fail, NOT_READY, OK, ensure, must, status};
use crate::state::{self, State, TeamRef};
use crate::types::{EventValue, Flags, Handle};
use crate::{M, checks, events};

#[cold]
#[inline(never)]
fn begin(call: &'static str, tm: Handle, flags: Flags) -> Result<TeamRef, Fail> {
    no_flags(flags)?;
    open_team(call, tm)
}

/// The team of a collective call, when one can be made here.
pub fn open_team(call: &'static str, tm: Handle) -> Result<TeamRef, Fail> {
    let team = state::team(tm)?;
    // That the job ends is found out by the wait.
    team.state.inner.check_running(call)?;
    team.state.inner.check_outside::<M>(call)?;
    Ok(team)
}

/// The state, when there is nothing to object to, which is nearly always; [`begin`] says what there
/// is.
#[inline(always)]
fn begin_at_once(tm: Handle, flags: Flags) -> Option<&'static State> {
    let state = state::get()?;
    let fits = !checks::ON && flags == 0 && state::is_whole_team(tm);
    (fits && state.inner.may_call::<M>()).then_some(state)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Coll_BarrierNB(tm: Handle, flags: Flags) -> EventValue {
    let call = "gex_Coll_BarrierNB";
    must(call, || match begin_at_once(tm, flags) {
        Some(state) => state.collectives.begin_barrier(),
        None => barrier_of(call, tm, flags),
    })
}

#[inline(never)]
fn barrier_of(call: &'static str, tm: Handle, flags: Flags) -> Result<EventValue, Fail> {
    let team = begin(call, tm, flags)?;
    team.begins(call, String::new)?;
    if team.object.is_none() {
        return team.state.collectives.begin_barrier();
    }
    start(call, &team, Task::barrier(team.group()))
}

/// Begins a collective: its event.
fn start(call: &'static str, team: &TeamRef, task: Task) -> Result<EventValue, Fail> {
    let inner = team.state.inner;
    let op = inner.start_collective::<M>(call, team.group(), task)?;
    Ok(events::of(inner, op, Part::ALL))
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
        let team = begin(call, tm, flags)?;
        let is_root = check_root(&team, root)?;
        ensure!(nbytes <= isize::MAX as usize, "{nbytes} bytes are too much");
        ensure!(!dst.is_null() || nbytes == 0, "dst is null");
        ensure!(!src.is_null() || nbytes == 0 || !is_root, "src is null on the root");
        let buffers = Buffers {
            source: if is_root { src.cast() } else { null() },
            contributes: nbytes,
            result: dst.cast(),
            len: nbytes,
        };
        team.begins(call, || format!("root {root}, {nbytes} bytes"))?;
        start(call, &team, Task::broadcast(team.group(), root, nbytes, buffers))
    })
}

/// Whether this rank is the root, which is one of the team.
fn check_root(team: &TeamRef, root: u32) -> Result<bool, Fail> {
    let size = team.size();
    ensure!(root < size, "root {root} is not in the team of {size} ranks");
    Ok(root == team.rank())
}

/// `gex_Coll_ReduceFn_t`.
type ReduceFn = unsafe extern "C" fn(*const c_void, *mut c_void, usize, *const c_void);

/// How a program says what a reduction does: type, bytes of an element, elements, operation,
/// function, its data.
type Wanted = (u32, usize, usize, u32, Option<ReduceFn>, *mut c_void);

const DT_USER: u32 = 1 << 6;
const OP_USER: u32 = 1 << 30;
const OP_USER_NC: u32 = 1 << 31;

const fn operation(op: u32) -> Option<ReduceOp> {
    Some(match op {
        0x01 => ReduceOp::And,
        0x02 => ReduceOp::Or,
        0x04 => ReduceOp::Xor,
        0x08 => ReduceOp::Add,
        0x20 => ReduceOp::Mult,
        0x40 => ReduceOp::Min,
        0x80 => ReduceOp::Max,
        _ => return None,
    })
}

/// Checks what a program asks for.
fn reduction((dt, size, count, op, function, data): Wanted) -> Result<Reduction, Fail> {
    let kind = DataType::from_bit(dt);
    ensure!(kind.is_some() || dt == DT_USER, "dt {dt:#x} is not one data type");
    ensure!(size != 0 && count != 0, "dt_sz {size} and dt_cnt {count} must not be 0");
    if let Some(kind) = kind {
        let its = kind.size();
        ensure!(size == its, "dt_sz {size}: elements of dt {dt:#x} have {its} bytes");
    }
    let len = size.checked_mul(count).filter(|len| *len <= isize::MAX as usize);
    let len =
        len.ok_or_else(|| Fail::bad(format!("{count} elements of {size} bytes are too much")))?;
    let combine = match (op, function) {
        (OP_USER | OP_USER_NC, Some(function)) => called(function, data, size),
        (OP_USER | OP_USER_NC, None) => return Err(Fail::bad("user_op is null")),
        _ => {
            let known = operation(op);
            let found = kind.zip(known).and_then(|(kind, op)| Combine::builtin(kind, op));
            found
                .ok_or_else(|| Fail::bad(format!("dt {dt:#x} has no reduction with op {op:#x}")))?
        }
    };
    let check = u64::from(dt) << 32 | u64::from(op);
    Ok(Reduction { combine, ordered: op == OP_USER_NC, element: size, len, check })
}

/// A function of the program.
fn called(function: ReduceFn, data: *mut c_void, size: usize) -> Combine {
    let data = data.expose_provenance();
    Combine::Function(Box::new(move |left: &[u8], right: &mut [u8]| {
        let data = std::ptr::with_exposed_provenance(data);
        let count = left.len().min(right.len()) / size;
        // SAFETY: the program gave the function for such elements, of which there are so many.
        unsafe { function(left.as_ptr().cast(), right.as_mut_ptr().cast(), count, data) };
    }))
}

/// Buffers of a reduction; `receives`: this rank gets the result.
fn operands(
    dst: *mut c_void,
    src: *const c_void,
    len: usize,
    receives: bool,
) -> Result<Buffers, Fail> {
    ensure!(!src.is_null(), "src is null");
    ensure!(!receives || !dst.is_null(), "dst is null");
    let (contributes, source, result) =
        (len, src.cast(), if receives { dst.cast() } else { null_mut() });
    Ok(Buffers { source, result, contributes, len })
}

/// What all members of a reduction give alike, in words.
fn alike(dt: u32, size: usize, count: usize, op: u32) -> String {
    format!("dt {dt:#x}, {count} elements of {size} bytes, op {op:#x}")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Coll_ReduceToOneNB(
    tm: Handle,
    root: u32,
    dst: *mut c_void,
    src: *const c_void,
    dt: u32,
    dt_sz: usize,
    dt_cnt: usize,
    op: u32,
    user_op: Option<ReduceFn>,
    user_cdata: *mut c_void,
    flags: Flags,
) -> EventValue {
    let call = "gex_Coll_ReduceToOneNB";
    must(call, || {
        let team = begin(call, tm, flags)?;
        let is_root = check_root(&team, root)?;
        let reduction = reduction((dt, dt_sz, dt_cnt, op, user_op, user_cdata))?;
        let buffers = operands(dst, src, reduction.len, is_root)?;
        team.begins(call, || format!("root {root}, {}", alike(dt, dt_sz, dt_cnt, op)))?;
        start(call, &team, Task::reduce_to_one(team.group(), root, reduction, buffers))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Coll_ReduceToAllNB(
    tm: Handle,
    dst: *mut c_void,
    src: *const c_void,
    dt: u32,
    dt_sz: usize,
    dt_cnt: usize,
    op: u32,
    user_op: Option<ReduceFn>,
    user_cdata: *mut c_void,
    flags: Flags,
) -> EventValue {
    let call = "gex_Coll_ReduceToAllNB";
    must(call, || {
        let team = match begin_at_once(tm, flags) {
            Some(state) => TeamRef { state, object: None },
            None => begin(call, tm, flags)?,
        };
        let reduction = reduction((dt, dt_sz, dt_cnt, op, user_op, user_cdata))?;
        let buffers = operands(dst, src, reduction.len, true)?;
        team.begins(call, || alike(dt, dt_sz, dt_cnt, op))?;
        let inner = team.state.inner;
        // The debug library sees events that are consumed twice by the numbers of operations.
        if !checks::ON && team.group().has_turns(reduction.len) {
            let turn = inner.start_meeting::<M>(call, reduction, buffers)?;
            return Ok(team.state.collectives.event_of(turn));
        }
        let op = inner.start_reduction::<M>(call, team.group(), reduction, buffers)?;
        Ok(events::of(inner, op, Part::ALL))
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

/// Flags of barriers of the GASNet-1 kind.
pub const fn bits(flags: c_int) -> BarrierFlags {
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
