//! One-sided operations at remote ranks: how they are started, their events, and those without event. Messages whose payload is
//! still in use after the call complete in the same ways.
//!
//! An event is the number of a row of the core's operations and what of it is meant. Operations without event, and those of
//! an access region, share a row, which is the thread's.

use std::cell::{Cell, RefCell};
use std::ffi::c_uint;
use std::sync::Arc;

use bootstrap::Rank;

use super::fail::Fail;
use super::state::{self, State};
use super::types::{EVENT_DEFER, EVENT_GROUP, EVENT_NOW, EventValue};
use super::{M, am, coll};
use crate::error::Error;
use crate::operations::{Op, Part, Row};
use crate::transport::message::{self, Outcome};
use crate::transport::message::{AmMessage, AmPayload, ZeroCopy};
use crate::transport::remote::Start;

/// Kind of the events of operations; what is meant is in the two bits below.
const OPERATION: usize = 0x20;
const PARTS: [Part; 4] = [Part::All, Part::Local, Part::Puts, Part::Gets];

const fn event(op: Op, part: Part) -> EventValue {
    let number = (op.generation as usize) << 24 | op.row as usize;
    number << 8 | OPERATION | part as usize
}

/// Whether an event is that of an operation.
#[inline]
pub const fn is_operation(event: EventValue) -> bool {
    event & 0xe0 == OPERATION
}

#[expect(clippy::cast_possible_truncation, reason = "24 and 32 bits of the word")]
fn parts(event: EventValue) -> Option<(Op, Part)> {
    let number = event >> 8;
    let op = Op { row: number as u32 & 0xff_ffff, generation: (number >> 24) as u32 };
    PARTS.get(event & 0x1f).map(|part| (op, *part))
}

fn no_event(event: EventValue) -> Fail {
    Fail::bad(format!("{event:#x} is not an event"))
}

/// Whether an event is complete; a root that is gives its row back.
pub fn finish(state: &State, event: EventValue) -> Result<bool, Fail> {
    let (op, part) = parts(event).ok_or_else(|| no_event(event))?;
    let operations = &state.core.operations;
    let done = match part {
        Part::All => operations.finish(op),
        _ => operations.is_complete(op, part),
    };
    done.map_err(|_| no_event(event))
}

/// The leaf of a root, for one category of events.
pub fn leaf(root: EventValue, category: c_uint) -> Result<EventValue, Fail> {
    let (op, part) = parts(root).ok_or_else(|| no_event(root))?;
    if part != Part::All {
        return Err(Fail::bad("this event is a leaf itself"));
    }
    Ok(match category {
        2 => event(op, Part::Local),
        3 => event(op, Part::Puts),
        4 => event(op, Part::Gets),
        _ => 0,
    })
}

/// What a mask of categories waits for.
const fn part_of(mask: c_uint) -> Part {
    match (mask & 4 != 0, mask & 1 != 0, mask & 2 != 0) {
        (true, false, false) => Part::Gets,
        (true, ..) => Part::All,
        (false, true, _) => Part::Puts,
        (false, false, _) => Part::Local,
    }
}

type Held = (Op, Arc<Row>);

/// Rows of a thread.
struct Rows {
    implicit: Cell<Option<Held>>,
    /// Inside an access region: its row, once it has one.
    region: RefCell<Option<Option<Held>>>,
}

impl Drop for Rows {
    fn drop(&mut self) {
        if let (Some((op, _)), Some(state)) = (self.implicit.take(), state::get()) {
            state.core.operations.forget(op);
        }
    }
}

thread_local! {
    static ROWS: Rows =
        const { Rows { implicit: Cell::new(None), region: RefCell::new(None) } };
}

fn new_row(state: &State, call: &'static str) -> Result<Held, Fail> {
    Ok(state.core.operations.begin().ok_or(Error::TooManyOperations { call })?)
}

/// The row that operations without event of this thread count in now.
fn group(state: &State, call: &'static str) -> Result<Arc<Row>, Fail> {
    ROWS.with(|rows| {
        if let Some(region) = &mut *rows.region.borrow_mut() {
            if region.is_none() {
                *region = Some(new_row(state, call)?);
            }
            return region.as_ref().map(|(_, row)| Arc::clone(row)).ok_or_else(Fail::not_init);
        }
        let held = match rows.implicit.take() {
            Some(held) => held,
            None => new_row(state, call)?,
        };
        let row = Arc::clone(&held.1);
        rows.implicit.set(Some(held));
        Ok(row)
    })
}

/// Whether this thread is inside an access region.
pub fn in_region() -> bool {
    ROWS.with(|rows| rows.region.borrow().is_some())
}

pub fn begin_region() {
    ROWS.with(|rows| *rows.region.borrow_mut() = Some(None));
}

/// Ends the region: its event. `None` when there was none.
pub fn end_region() -> Option<EventValue> {
    let region = ROWS.with(|rows| rows.region.borrow_mut().take())?;
    Some(region.map_or(0, |(op, _)| event(op, Part::All)))
}

/// Whether all operations of this thread without event that the mask names are complete.
pub fn implicit_complete(mask: c_uint) -> bool {
    ROWS.with(|rows| {
        let held = rows.implicit.take();
        let complete = held.as_ref().is_none_or(|(_, row)| row.is_complete(part_of(mask)));
        rows.implicit.set(held);
        complete
    })
}

/// How an operation completes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Blocking,
    /// With an event, and that for the source of a put.
    Event(*mut EventValue),
    /// Without event; a put's source is the program's again on return.
    Implicit {
        now: bool,
    },
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    Complete,
    Event(EventValue),
    /// It was not to wait.
    Declined,
}

/// An operation at a remote rank, checked.
#[derive(Clone, Copy)]
pub struct Far {
    pub call: &'static str,
    pub rank: u32,
    /// Offset in the segment of the rank.
    pub offset: u64,
    pub immediate: bool,
}

impl Far {
    fn target(&self, state: &State) -> Result<usize, Fail> {
        Ok(state.core.target(self.call, Rank(self.rank))?)
    }

    fn start(self, target: usize, row: &Row, put: bool) -> Start<'_> {
        let Self { call, offset, immediate, .. } = self;
        let counter = if put { &row.puts } else { &row.gets };
        Start { call, target, offset, counter, immediate, at_once: false }
    }

    pub fn put(self, state: &State, from: *const u8, len: usize, way: Way) -> Result<Begun, Fail> {
        let (core, call, target) = (state.core, self.call, self.target(state)?);
        // SAFETY: readable by the program's promise, and left alone until local completion.
        let source = unsafe { std::slice::from_raw_parts(from, len) };
        match way {
            Way::Blocking => {
                core.put_far::<M>(call, target, self.offset, source)?;
                Ok(Begun::Complete)
            }
            Way::Event(lc_opt) => {
                let (op, row) = new_row(state, call)?;
                let now = lc_opt.addr() == EVENT_NOW;
                let start = Start { at_once: now, ..self.start(target, &row, true) };
                let outcome = core.start_put::<M>(start, source)?;
                if outcome == Outcome::NotSent {
                    core.operations.forget(op);
                    return Ok(Begun::Declined);
                }
                if now {
                    core.wait_far::<M>(call, &row.puts, Part::Local)?;
                }
                if lc_opt.addr() > EVENT_GROUP {
                    let complete = row.is_complete(Part::Local);
                    // SAFETY: room for an event, checked not to be a special value.
                    unsafe { lc_opt.write(if complete { 0 } else { event(op, Part::Local) }) };
                }
                Ok(Begun::Event(root(state, op)))
            }
            Way::Implicit { now } => {
                let row = group(state, call)?;
                let start = Start { at_once: now, ..self.start(target, &row, true) };
                let outcome = core.start_put::<M>(start, source)?;
                if now && outcome == Outcome::Sent {
                    core.wait_far::<M>(call, &row.puts, Part::Local)?;
                }
                Ok(said(outcome))
            }
        }
    }

    pub fn get(self, state: &State, to: *mut u8, len: usize, way: Way) -> Result<Begun, Fail> {
        let (core, call, target) = (state.core, self.call, self.target(state)?);
        // SAFETY: writable by the program's promise, and left alone until the operation is complete.
        let into = unsafe { std::slice::from_raw_parts_mut(to, len) };
        match way {
            Way::Blocking => {
                core.get_far::<M>(call, target, self.offset, into)?;
                Ok(Begun::Complete)
            }
            Way::Event(_) => {
                let (op, row) = new_row(state, call)?;
                let outcome = core.start_get::<M>(self.start(target, &row, false), into)?;
                if outcome == Outcome::NotSent {
                    core.operations.forget(op);
                    return Ok(Begun::Declined);
                }
                Ok(Begun::Event(root(state, op)))
            }
            Way::Implicit { .. } => {
                let row = group(state, call)?;
                Ok(said(core.start_get::<M>(self.start(target, &row, false), into)?))
            }
        }
    }
}

/// The event of an operation that was started; 0 when it is complete already.
fn root(state: &State, op: Op) -> EventValue {
    if state.core.operations.finish(op) == Ok(true) { 0 } else { event(op, Part::All) }
}

const fn said(outcome: Outcome) -> Begun {
    match outcome {
        Outcome::Sent => Begun::Complete,
        Outcome::NotSent => Begun::Declined,
    }
}

/// Sends a message with `post` and sees to its local completion: in most cases the payload is the program's again when `post`
/// returns. A payload that the network reads where it is completes later, if the program gave a way to say when.
#[inline(always)]
pub fn send(
    state: &State,
    call: &'static str,
    message: &AmMessage<'_>,
    lc_opt: *mut EventValue,
    flags: message::Flags,
    post: impl FnOnce(&AmMessage<'_>) -> Result<Outcome, Fail>,
) -> Result<Outcome, Fail> {
    if lc_opt.addr() > EVENT_NOW && state.core.stays(message, flags) {
        return send_later(state, call, message, lc_opt, post);
    }
    let outcome = post(message)?;
    if outcome == Outcome::Sent {
        am::complete(lc_opt);
    }
    Ok(outcome)
}

#[cold]
fn send_later(
    state: &State,
    call: &'static str,
    message: &AmMessage<'_>,
    lc_opt: *mut EventValue,
    post: impl FnOnce(&AmMessage<'_>) -> Result<Outcome, Fail>,
) -> Result<Outcome, Fail> {
    let (payload, dest) = match message.payload {
        AmPayload::Medium(payload) => (payload, None),
        AmPayload::Long { payload, dest } => (payload, Some(dest)),
        _ => return post(message),
    };
    let post = |row: &Row| {
        let later = ZeroCopy { payload, dest, completion: &row.puts };
        post(&AmMessage { payload: AmPayload::ZeroCopy(&later), ..*message })
    };
    if lc_opt.addr() == EVENT_GROUP {
        return post(&*group(state, call)?);
    }
    let (op, row) = new_row(state, call)?;
    let outcome = post(&row);
    let event = root(state, op);
    if matches!(outcome, Ok(Outcome::Sent)) {
        // SAFETY: room for an event, checked not to be null or a special value.
        unsafe { lc_opt.write(event) };
    }
    outcome
}

/// How a put completes whose local completion is asked for like this, with or without event.
pub fn way_of_put(lc_opt: *mut EventValue, implicit: bool) -> Way {
    if implicit {
        Way::Implicit { now: !matches!(lc_opt.addr(), EVENT_DEFER | EVENT_GROUP) }
    } else {
        Way::Event(lc_opt)
    }
}

/// Looks at the network for an event that a program tests again and again.
pub fn look(state: &State, call: &'static str) -> Result<(), Fail> {
    if state.core.networked() && !state.core.in_handler::<M>() {
        state.core.poll::<M>(call)?;
        coll::advance(state);
    }
    Ok(())
}
