//! Barriers and the broadcast over the team of all ranks.
//!
//! Events of collectives are numbers: a sequence number and a kind. Barriers complete in order, so a count says which are
//! complete. Only one of them is under way between the ranks: the next one arrives when it has passed.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bootstrap::Rank;

use super::M;
use super::am::payload;
use super::fail::{BARRIER_MISMATCH, Fail, NOT_READY, OK, must};
use super::far;
use super::state::{self, State};
use super::types::{EventValue, Flags};
use crate::barrier::{BarrierFlags, verdict};
use crate::client::WaitMode;
use crate::error::Error;
use crate::gate::{Name, Which};
use crate::mode::Mode;
use crate::sys;
use crate::transport::message::MessageClass;
use crate::transport::message::{AmMessage, AmPayload};
use crate::transport::message::{Flags as Options, LUB_MEDIUM};
use crate::wait::Waiter;

const BARRIER: usize = 0x80;
const BROADCAST: usize = 0x40;
/// Handler index of a broadcast's parts; below the client's range.
const PART: u8 = 64;
/// Times that a rank gives its processor away before it polls, where ranks share processors.
const YIELDS_BEFORE_POLL: u32 = 4;

/// Says that no barrier has been; no name is encoded so.
const NO_BARRIER: u64 = u64::MAX;

/// A broadcast between the first word of it here and its completion.
enum Broadcast {
    /// Parts that came before the call: place and bytes.
    Early(Vec<(usize, Vec<u8>)>),
    /// Waits for this many more of its bytes.
    Begun { dst: usize, len: usize, missing: usize },
}

pub struct Coll {
    advancing: Mutex<()>,
    begun: AtomicU64,
    arrived: AtomicU64,
    done: AtomicU64,
    /// Name of the last barrier of the GASNet-1 kind; `None` before the first.
    last: AtomicU64,
    broadcasts: Mutex<HashMap<u64, Broadcast>>,
    broadcasts_begun: AtomicU64,
}

impl Coll {
    pub fn new() -> Self {
        Self {
            advancing: Mutex::new(()),
            begun: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            done: AtomicU64::new(0),
            last: AtomicU64::new(NO_BARRIER),
            broadcasts: Mutex::new(HashMap::new()),
            broadcasts_begun: AtomicU64::new(0),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Broadcast>> {
        self.broadcasts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn barriers_under_way(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != self.done.load(Ordering::Acquire)
    }
}

/// Adds one without a locked instruction where one thread at a time is in the library.
#[inline]
fn count(word: &AtomicU64) -> u64 {
    if <M as Mode>::THREADED {
        return word.fetch_add(1, Ordering::AcqRel) + 1;
    }
    let next = word.load(Ordering::Relaxed) + 1;
    word.store(next, Ordering::Relaxed);
    next
}

/// Moves the barriers on as far as the other ranks let it.
#[inline]
pub fn advance(state: &State) {
    if state.coll.barriers_under_way() && (!<M as Mode>::THREADED || may_move(state)) {
        let _alone = alone(&state.coll);
        advance_barriers(state);
    }
}

/// Only one thread moves barriers on.
#[inline]
fn alone(coll: &Coll) -> Option<MutexGuard<'_, ()>> {
    <M as Mode>::THREADED.then(|| coll.advancing.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether there may be something to do for who takes the lock: threads that wait look without it. Only a hint, as
/// another thread may be about to do it.
#[inline]
fn may_move(state: &State) -> bool {
    let (coll, arrived) = (&state.coll, state.coll.arrived.load(Ordering::Relaxed));
    if arrived > coll.done.load(Ordering::Relaxed) {
        return state.core.is_open(Which::Client);
    }
    coll.begun.load(Ordering::Relaxed) > arrived
}

/// The caller is `alone`.
#[inline]
fn advance_barriers(state: &State) {
    let (coll, core) = (&state.coll, state.core);
    let mut passed = false;
    loop {
        let (arrived, done) =
            (coll.arrived.load(Ordering::Relaxed), coll.done.load(Ordering::Relaxed));
        if arrived > done {
            if core.try_pass(Which::Client).is_none() {
                break;
            }
            coll.done.store(done + 1, Ordering::Release);
            passed = true;
        } else if coll.begun.load(Ordering::Relaxed) > arrived
            && !core.progress_of(Which::Client).under_way()
        {
            core.arrive(Which::Client, Name::Anonymous);
            coll.arrived.store(arrived + 1, Ordering::Relaxed);
        } else {
            break;
        }
    }
    if <M as Mode>::THREADED && passed {
        // Another thread of this rank may sleep for it.
        fence(Ordering::SeqCst);
        core.slot().ring_if_sleeping();
    }
}

/// Whether an event, not 0, is complete.
#[inline]
pub fn is_complete(state: &State, event: EventValue) -> Result<bool, Fail> {
    if far::is_operation(event) {
        return far::finish(state, event);
    }
    advance(state);
    seen_complete(state, event)
}

/// The same without looking whether the other ranks have arrived.
#[inline]
fn seen_complete(state: &State, event: EventValue) -> Result<bool, Fail> {
    if far::is_operation(event) {
        return far::finish(state, event);
    }
    let (number, kind) = (event as u64 >> 8, event & 0xff);
    let coll = &state.coll;
    if kind == BARRIER && number >= 1 && number <= coll.begun.load(Ordering::Relaxed) {
        return Ok(coll.done.load(Ordering::Acquire) >= number);
    }
    broadcast_complete(coll, event)
}

#[inline(never)]
fn broadcast_complete(coll: &Coll, event: EventValue) -> Result<bool, Fail> {
    let (number, kind) = (event as u64 >> 8, event & 0xff);
    if kind == BROADCAST && number >= 1 && number <= coll.broadcasts_begun.load(Ordering::Relaxed) {
        return Ok(!coll.open().contains_key(&number));
    }
    Err(Fail::bad(format!("{event:#x} is not an event")))
}

/// Waits (and polls) for an event.
#[inline]
pub fn wait_for(state: &State, call: &'static str, event: EventValue) -> Result<(), Fail> {
    let (coll, core) = (&state.coll, state.core);
    if <M as Mode>::THREADED || !is_last_barrier(coll, event) || core.in_handler::<M>() {
        return wait_for_any(state, call, event);
    }
    // Nobody else moves it on.
    core.pass::<M>(Which::Client, call)?;
    coll.done.store(event as u64 >> 8, Ordering::Release);
    Ok(())
}

#[inline(never)]
fn wait_for_any(state: &State, call: &'static str, event: EventValue) -> Result<(), Fail> {
    if event == 0 || is_complete(state, event)? {
        return Ok(());
    }
    state.core.check_outside::<M>(call)?;
    if event & 0xff == BARRIER && !state.core.may_spin() && state.core.wait_mode() != WaitMode::Spin
    {
        // As for the barriers of the core: others need this processor to arrive.
        for _ in 0..YIELDS_BEFORE_POLL {
            sys::give_way();
            if is_complete(state, event)? {
                return Ok(());
            }
        }
    }
    wait_until(state, call, || seen_complete(state, event))
}

/// Whether an event is the barrier that was begun last, this rank has arrived at it, and it was not seen complete.
#[inline]
fn is_last_barrier(coll: &Coll, event: EventValue) -> bool {
    let (number, kind) = (event as u64 >> 8, event & 0xff);
    let number_is = |word: &AtomicU64| word.load(Ordering::Relaxed) == number;
    kind == BARRIER
        && number_is(&coll.begun)
        && number_is(&coll.arrived)
        && coll.done.load(Ordering::Relaxed) < number
}

/// Waits (and polls) until `done` says so, which is asked after the barriers were moved on.
pub fn wait_until(
    state: &State,
    call: &'static str,
    mut done: impl FnMut() -> Result<bool, Fail>,
) -> Result<(), Fail> {
    let core = state.core;
    let mut waiter = Waiter::new();
    loop {
        let before = state.coll.done.load(Ordering::Relaxed);
        advance(state);
        if done()? {
            return Ok(());
        }
        let delivered = core.poll::<M>(call)?;
        if delivered > 0 || before != state.coll.done.load(Ordering::Relaxed) {
            waiter.progressed();
        } else {
            let open = || state.coll.barriers_under_way() && core.is_open(Which::Client);
            waiter.idle(core, || core.has_work() || open());
        }
    }
}

#[cold]
#[inline(never)]
fn begin(call: &'static str, tm: *const c_void, flags: Flags) -> Result<&'static State, Fail> {
    let state = state::open()?;
    state.team(tm)?;
    if flags != 0 {
        return Err(Fail::bad("flags must be 0"));
    }
    // That the job ends is found out by the wait.
    state.core.check_running(call)?;
    state.core.check_outside::<M>(call)?;
    Ok(state)
}

/// The state, when there is nothing to object to, which is nearly always; [`begin`] says what there is.
#[inline(always)]
fn begin_at_once(tm: *const c_void, flags: Flags) -> Option<&'static State> {
    let state = state::get()?;
    let fits = flags == 0 && state::is_whole_team(tm);
    (fits && !state.core.is_closed() && !state.core.in_handler::<M>()).then_some(state)
}

#[expect(clippy::cast_possible_truncation, reason = "56 bits are never counted up to")]
const fn event(number: u64, kind: usize) -> EventValue {
    (number as usize) << 8 | kind
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Coll_BarrierNB(tm: *const c_void, flags: Flags) -> EventValue {
    let call = "gex_Coll_BarrierNB";
    let barrier = || {
        let state = match begin_at_once(tm, flags) {
            Some(state) => state,
            None => begin(call, tm, flags)?,
        };
        let coll = &state.coll;
        let _alone = alone(coll);
        let under_way = coll.barriers_under_way();
        if !under_way && state.core.progress_of(Which::Client).under_way() {
            return Err(Fail::bad("gasnet_barrier_notify was called and not waited for"));
        }
        let number = coll.begun.load(Ordering::Relaxed) + 1;
        coll.begun.store(number, Ordering::Relaxed);
        if under_way {
            advance_barriers(state);
        } else {
            state.core.arrive(Which::Client, Name::Anonymous);
            coll.arrived.store(number, Ordering::Relaxed);
            if state.core.try_pass(Which::Client).is_some() {
                coll.done.store(number, Ordering::Release);
            }
        }
        Ok(event(number, BARRIER))
    };
    must(call, barrier())
}

/// Whether a handler index is that of the library's own messages.
pub const fn is_collective(index: u8) -> bool {
    index == PART
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Coll_BroadcastNB(
    tm: *const c_void,
    root: u32,
    dst: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    flags: Flags,
) -> EventValue {
    let call = "gex_Coll_BroadcastNB";
    let broadcast = || {
        let state = begin(call, tm, flags)?;
        if root >= state.size {
            return Err(Fail::bad(format!("root {root} is not in the team")));
        }
        let number = count(&state.coll.broadcasts_begun);
        if nbytes == 0 {
            return Ok(0);
        }
        if dst.is_null() {
            return Err(Fail::bad("dst is null"));
        }
        if root == state.rank {
            send_parts(state, call, number, payload(src, nbytes, usize::MAX)?)?;
            // SAFETY: both have `nbytes` bytes by the program's promise; overlap is allowed.
            unsafe { std::ptr::copy(src.cast::<u8>(), dst.cast(), nbytes) };
            return Ok(0);
        }
        let mut open = state.coll.open();
        let mut missing = nbytes;
        if let Some(Broadcast::Early(parts)) = open.remove(&number) {
            for (at, bytes) in parts {
                let stored = store(dst.expose_provenance(), nbytes, at, &bytes);
                let stored = stored.filter(|stored| *stored <= missing);
                missing -= stored.ok_or_else(|| Fail::bad("the root broadcasts more bytes"))?;
            }
        }
        if missing == 0 {
            return Ok(0);
        }
        let begun = Broadcast::Begun { dst: dst.expose_provenance(), len: nbytes, missing };
        open.insert(number, begun);
        Ok(event(number, BROADCAST))
    };
    must(call, broadcast())
}

fn send_parts(state: &State, call: &'static str, number: u64, bytes: &[u8]) -> Result<(), Fail> {
    for rank in (0..state.size).filter(|rank| *rank != state.rank) {
        for (turn, part) in bytes.chunks(LUB_MEDIUM).enumerate() {
            let at = (turn * LUB_MEDIUM) as u64;
            let args = [low(number), high(number), low(at), high(at)];
            let (target, payload) = (state.core.target(call, Rank(rank))?, AmPayload::Medium(part));
            let message = AmMessage {
                class: MessageClass::Request,
                target,
                handler: PART,
                args: &args,
                payload,
            };
            let _sent = state.core.request::<M>(call, &message, Options::NONE)?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "the low half")]
const fn low(word: u64) -> i32 {
    (word as u32).cast_signed()
}

const fn high(word: u64) -> i32 {
    low(word >> 32)
}

fn joined(low: i32, high: i32) -> u64 {
    u64::from(high.cast_unsigned()) << 32 | u64::from(low.cast_unsigned())
}

/// Writes a part to its place in a buffer of the program; `None` when it does not fit.
fn store(dst: usize, len: usize, at: usize, bytes: &[u8]) -> Option<usize> {
    if at.checked_add(bytes.len())? > len {
        return None;
    }
    let to = std::ptr::with_exposed_provenance_mut::<u8>(dst + at);
    // SAFETY: inside the buffer of `len` bytes at `dst`, which the program leaves to the call until it is complete.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Some(bytes.len())
}

/// A part of a broadcast has arrived.
pub fn arrived(source: Rank, args: &[i32], bytes: &[u8]) {
    let (Some(state), &[low, high, at_low, at_high]) = (state::get(), args) else { return };
    let (number, at) = (joined(low, high), joined(at_low, at_high));
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let mut open = state.coll.open();
    let row = open.entry(number).or_insert_with(|| Broadcast::Early(Vec::new()));
    match row {
        Broadcast::Early(parts) => parts.push((at, bytes.to_vec())),
        Broadcast::Begun { dst, len, missing } => match store(*dst, *len, at, bytes) {
            Some(stored) if stored <= *missing => {
                *missing -= stored;
                if *missing == 0 {
                    open.remove(&number);
                }
            }
            _ => state.core.fatal(&format!(
                "gex_Coll_BroadcastNB: rank {source} broadcasts more bytes than this rank expects: nbytes must be the same everywhere"
            )),
        },
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_notify(id: c_int, flags: c_int) {
    let call = "gasnet_barrier_notify";
    must(call, notify(call, id, flags));
}

fn notify(call: &'static str, id: c_int, flags: c_int) -> Result<(), Fail> {
    let state = state::open()?;
    state.core.check_running(call)?;
    state.core.check_outside::<M>(call)?;
    advance(state);
    if state.core.progress_of(Which::Client).under_way() {
        return Err(Fail::bad("a barrier is under way: notified and not waited for"));
    }
    state.core.arrive(Which::Client, bits(flags).name(id));
    Ok(())
}

const fn bits(flags: c_int) -> BarrierFlags {
    BarrierFlags::from_bits(flags.cast_unsigned())
}

fn under_way(state: &State) -> Result<(), Fail> {
    if state.core.progress_of(Which::Client).under_way() && !state.coll.barriers_under_way() {
        return Ok(());
    }
    Err(Fail::bad("there was no gasnet_barrier_notify before it"))
}

fn passed(state: &State, agreed: Name, id: c_int, flags: c_int) -> c_int {
    state.coll.last.store(agreed.encode(), Ordering::Relaxed);
    match verdict(agreed, bits(flags).name(id)) {
        Ok(()) => OK,
        // An outcome that programs ask for: no warning.
        Err(Error::BarrierMismatch) => BARRIER_MISMATCH,
        Err(error) => Fail::from(error).report("gasnet_barrier_wait"),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_wait(id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_barrier_wait";
    let wait = || {
        let state = state::open()?;
        under_way(state)?;
        let agreed = state.core.pass::<M>(Which::Client, call)?;
        Ok(passed(state, agreed, id, flags))
    };
    wait().unwrap_or_else(|fail: Fail| fail.report(call))
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier_try(id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_barrier_try";
    let attempt = || {
        let state = state::open()?;
        under_way(state)?;
        state.core.poll::<M>(call)?;
        Ok(match state.core.try_pass(Which::Client) {
            None => NOT_READY,
            Some(agreed) => passed(state, agreed, id, flags),
        })
    };
    attempt().unwrap_or_else(|fail: Fail| fail.report(call))
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_barrier(id: c_int, flags: c_int) -> c_int {
    let call = "gasnet_barrier";
    match notify(call, id, flags) {
        Ok(()) => gasnet_barrier_wait(id, flags),
        Err(fail) => fail.report(call),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_barrier_result(id: *mut c_int) -> c_int {
    let call = "gasnet_barrier_result";
    let answer = || {
        let state = state::open()?;
        let word = state.coll.last.load(Ordering::Relaxed);
        if word == NO_BARRIER {
            return Err(Fail::bad("there was no barrier before it"));
        }
        if state.core.progress_of(Which::Client).under_way() && !state.coll.barriers_under_way() {
            return Err(Fail::bad("a barrier is under way"));
        }
        let Name::Named(name) = Name::decode(word) else {
            return Ok(c_int::from(Name::decode(word) == Name::Anonymous));
        };
        if !id.is_null() {
            // SAFETY: room for an answer, by the program's promise.
            unsafe { id.write(name) };
        }
        Ok(OK)
    };
    answer().unwrap_or_else(|fail: Fail| fail.report(call))
}
