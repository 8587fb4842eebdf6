//! Events of operations, by number, and the rows that operations without event share.
//!
//! An event is the number of a row of the conduit's operations and what of it is meant. Operations
//! without event, and those of an access region, share a row, which is the thread's.

use std::cell::{Cell, RefCell};
use std::ffi::c_uint;
use std::sync::Arc;

use gasnet_ibv::inner::{Inner, Lender, Op, OpCounters, Part};
use gasnet_ibv::{Error, Outcome};

use crate::fail::{Fail, ensure};
use crate::types::{EVENT_GROUP, EVENT_NOW, EventValue};

/// Kind of the events of operations; what is meant is in the bits below.
const OPERATION: usize = 0x20;

const fn event(op: Op, part: Part) -> EventValue {
    let number = (op.generation as usize) << 24 | op.row as usize;
    number << 8 | OPERATION | part.bits() as usize
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
    Part::from_bits(event as u8 & 0x1f).filter(|part| !part.is_empty()).map(|part| (op, part))
}

/// What is said of a number that no event has.
#[cold]
pub fn no_event(event: EventValue) -> Fail {
    Fail::bad(format!("{event:#x} is not an event"))
}

/// Whether an event is complete; a root that is gives its row back.
pub fn finish(inner: Inner, event: EventValue) -> Result<bool, Fail> {
    let (op, part) = parts(event).ok_or_else(|| no_event(event))?;
    inner.finish(op, part).ok_or_else(|| no_event(event))
}

/// The root of an event of an operation, which may be the event itself.
pub const fn root(event: EventValue) -> Option<EventValue> {
    if is_operation(event) { Some(event & !0x1f | Part::ALL.bits() as usize) } else { None }
}

/// The event of a part of an operation; 0 when that is complete already.
pub fn of(inner: Inner, op: Op, part: Part) -> EventValue {
    if inner.finish(op, part) == Some(true) { 0 } else { event(op, part) }
}

/// The leaf of a root, for one category of events.
pub fn leaf(root: EventValue, category: c_uint) -> Result<EventValue, Fail> {
    let (op, part) = parts(root).ok_or_else(|| no_event(root))?;
    ensure!(part == Part::ALL, "this event is a leaf itself");
    Ok(match category {
        2 => event(op, Part::LOCAL),
        3 => event(op, Part::PUTS),
        4 => event(op, Part::GETS),
        8 => event(op, Part::RMWS),
        _ => 0,
    })
}

/// What a mask of categories waits for.
fn part_of(mask: c_uint) -> Part {
    let chosen = |bit, part| if mask & bit != 0 { part } else { Part::empty() };
    let (local, puts) = (chosen(2, Part::LOCAL), chosen(1, Part::PUTS));
    local.union(puts).union(chosen(4, Part::GETS)).union(chosen(8, Part::RMWS))
}

/// The row of a thread's operations without event; given back when the thread ends.
struct Implicit {
    inner: Inner,
    op: Op,
    row: Arc<OpCounters>,
}

impl Drop for Implicit {
    fn drop(&mut self) {
        let _complete = self.inner.finish(self.op, Part::ALL);
    }
}

/// The row of an access region, once it has one.
type Region = Option<(Op, Arc<OpCounters>)>;

thread_local! {
    static IMPLICIT: RefCell<Option<Implicit>> = const { RefCell::new(None) };
    /// Inside an access region.
    static REGION: RefCell<Option<Region>> = const { RefCell::new(None) };
}

/// What a slot holds, made where it is empty.
fn fill<T>(slot: &mut Option<T>, make: impl FnOnce() -> Result<T, Error>) -> Result<&T, Error> {
    let held = slot.take().map_or_else(make, Ok)?;
    Ok(slot.insert(held))
}

/// The row that operations without event of this thread count in now.
pub fn group(inner: Inner, call: &'static str) -> Result<Arc<OpCounters>, Error> {
    let begin = || inner.begin(call);
    REGION.with_borrow_mut(|region| match region {
        Some(region) => fill(region, begin).map(|(_, row)| Arc::clone(row)),
        None => IMPLICIT.with_borrow_mut(|slot| {
            let held = fill(slot, || begin().map(|(op, row)| Implicit { inner, op, row }));
            held.map(|held| Arc::clone(&held.row))
        }),
    })
}

/// Whether this thread is inside an access region.
pub fn in_region() -> bool {
    REGION.with_borrow(Option::is_some)
}

pub fn begin_region() {
    REGION.set(Some(None));
}

/// Ends the region: its event. `None` when there was none.
pub fn end_region() -> Option<EventValue> {
    Some(REGION.take()?.map_or(0, |(op, _)| event(op, Part::ALL)))
}

/// Whether all operations of this thread without event that the mask names are complete.
pub fn implicit_complete(mask: c_uint) -> bool {
    IMPLICIT
        .with_borrow(|held| held.as_ref().is_none_or(|held| held.row.is_complete(part_of(mask))))
}

/// Writes an event where a program asked for one.
#[inline]
pub fn write(lc_opt: *mut EventValue, event: impl FnOnce() -> EventValue) {
    if lc_opt.addr() > EVENT_GROUP {
        // SAFETY: room for an event, checked not to be null or a special value.
        unsafe { lc_opt.write(event()) };
    }
}

/// Local completion of a message, as a program asks for it with an `lc_opt` that was checked: in
/// most cases the payload is the program's again on return. A payload that the network reads where
/// it is completes later, if the program gave a way to say when.
pub struct Leaf {
    inner: Inner,
    call: &'static str,
    lc_opt: *mut EventValue,
    op: Cell<Option<Op>>,
}

impl Leaf {
    #[inline]
    pub const fn new(inner: Inner, call: &'static str, lc_opt: *mut EventValue) -> Self {
        Self { inner, call, lc_opt, op: Cell::new(None) }
    }

    /// Sees to the event when the message was sent, and to the row when it was not.
    #[inline]
    pub fn settle(&self, outcome: Result<Outcome, Error>) -> Result<Outcome, Fail> {
        let event = self.op.get().map_or(0, |op| of(self.inner, op, Part::ALL));
        if matches!(outcome, Ok(Outcome::Sent)) {
            write(self.lc_opt, || event);
        }
        Ok(outcome?)
    }
}

impl Lender for Leaf {
    #[inline]
    fn lends(&self) -> bool {
        self.lc_opt.addr() > EVENT_NOW
    }

    fn counters(&self) -> Result<Arc<OpCounters>, Error> {
        if self.lc_opt.addr() == EVENT_GROUP {
            return group(self.inner, self.call);
        }
        let (op, row) = self.inner.begin(self.call)?;
        self.op.set(Some(op));
        Ok(row)
    }
}
