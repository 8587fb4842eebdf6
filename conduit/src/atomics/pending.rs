//! Operations whose reply has not come, by slot: where their result goes and what counts them.

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::types::{AtomicOp, Update};
use super::wire::Refusal;
use super::word::AtomicWord;
use crate::rma::operations::OpCounters;
use crate::transport::net::Fetched;
use crate::transport::op_counter::OpCounter;

/// Where the old value of a word goes.
pub enum ResultPlace {
    /// Nowhere.
    Nowhere,
    /// To whoever waits for the operation.
    Cell(Arc<AtomicU64>),
    /// Memory of another language: its address, and what writes the bits there. It is valid until
    /// the operation is complete.
    Foreign(AtomicPtr<()>, fn(*mut (), u64)),
}

impl ResultPlace {
    fn write(&self, bits: u64) {
        match self {
            Self::Nowhere => {}
            Self::Cell(cell) => cell.store(bits, Ordering::Relaxed),
            Self::Foreign(at, write) => write(at.load(Ordering::Relaxed), bits),
        }
    }
}

impl fmt::Debug for ResultPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nowhere => "Nowhere",
            Self::Cell(_) => "Cell",
            Self::Foreign(..) => "Foreign",
        })
    }
}

impl OpCounters {
    /// What counts an operation: a plain set is a put, a plain get is a get.
    pub(super) fn of_atomic(&self, op: AtomicOp) -> &Arc<OpCounter> {
        match (op.update(), op.fetches()) {
            (Update::Set, false) => &self.puts,
            (Update::Get, _) => &self.gets,
            _ => &self.rmws,
        }
    }
}

/// An operation on its way. Counted as long as it is.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) call: &'static str,
    /// Whose reply is waited for.
    pub(super) target: usize,
    op: AtomicOp,
    row: Arc<OpCounters>,
    domain: Arc<AtomicU32>,
    result: ResultPlace,
}

impl InFlight {
    pub(super) fn begin(
        (call, target): (&'static str, usize),
        op: AtomicOp,
        row: &Arc<OpCounters>,
        domain: &Arc<AtomicU32>,
        result: ResultPlace,
    ) -> Self {
        row.of_atomic(op).begin(false);
        domain.fetch_add(1, Ordering::Relaxed);
        let (row, domain) = (Arc::clone(row), Arc::clone(domain));
        Self { call, target, op, row, domain, result }
    }

    /// Whether a reply has what the operation gives.
    pub(super) const fn fits(&self, old: Option<u64>) -> bool {
        old.is_some() == self.op.fetches()
    }

    /// The operation is complete, or was not sent.
    pub(super) fn end(self, old: Option<u64>) {
        if let Some(old) = old {
            self.result.write(old);
        }
        self.domain.fetch_sub(1, Ordering::Release);
        self.row.of_atomic(self.op).end(false);
    }
}

#[derive(Default)]
struct Slots {
    all: Vec<Option<InFlight>>,
    free: Vec<u32>,
}

/// The operations of one rank. Slots are used again: in the steady state nothing is allocated.
#[derive(Default)]
pub(super) struct Pending {
    slots: Mutex<Slots>,
}

impl Pending {
    fn open(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an operation: its slot. The operation itself when there are too many.
    pub(super) fn keep(&self, operation: InFlight) -> Result<u32, InFlight> {
        let mut slots = self.open();
        if let Some(slot) = slots.free.pop()
            && let Some(place) = slots.all.get_mut(slot as usize)
        {
            *place = Some(operation);
            return Ok(slot);
        }
        match u32::try_from(slots.all.len()) {
            Ok(slot) => {
                slots.all.push(Some(operation));
                Ok(slot)
            }
            Err(_) => Err(operation),
        }
    }

    /// Takes the operation of a slot, which must be on its way to `target`.
    pub(super) fn take(&self, slot: u32, target: usize) -> Option<InFlight> {
        self.take_if(slot, |operation| operation.target == target)
    }

    fn take_if(&self, slot: u32, is_it: impl FnOnce(&mut InFlight) -> bool) -> Option<InFlight> {
        let mut slots = self.open();
        let taken = slots.all.get_mut(slot as usize)?.take_if(is_it)?;
        slots.free.push(slot);
        Some(taken)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

/// An adapter has done it.
impl Fetched for Pending {
    fn fetched(&self, slot: u32, old: u64) {
        if let Some(operation) = self.take_if(slot, |_| true) {
            let fetches = operation.op.fetches();
            operation.end(fetches.then_some(old));
        }
    }
}

/// How a rank finds a word of its own that another one asks for: by endpoint, place and size.
pub type Memory = fn(u16, u64, usize) -> Result<AtomicWord<'static>, Refusal>;

/// What a rank has for atomics.
#[derive(Default)]
pub(crate) struct Atomics {
    pub(super) pending: Arc<Pending>,
    pub(super) memory: OnceLock<Memory>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::operations::Part;

    #[test]
    fn an_operation_is_counted_until_its_reply_has_come() {
        let (pending, row, domain) = (Pending::default(), Arc::default(), Arc::default());
        let cell = Arc::new(AtomicU64::new(7));
        let begin = |op, target| {
            let place = ResultPlace::Cell(Arc::clone(&cell));
            let begun = InFlight::begin(("test", target), op, &row, &domain, place);
            pending.keep(begun).expect("room")
        };
        let (first, second) = (begin(AtomicOp::FAdd, 3), begin(AtomicOp::Set, 4));
        assert_ne!(first, second);
        assert!(!row.is_complete(Part::RMWS) && !row.is_complete(Part::PUTS));
        assert!(row.is_complete(Part::GETS) && row.is_complete(Part::LOCAL));
        // From another rank, from nowhere, of no operation.
        assert!(pending.take(first, 4).is_none());
        assert!(pending.take(2, 3).is_none());
        let operation = pending.take(first, 3).expect("in flight");
        assert!(operation.fits(Some(1)) && !operation.fits(None));
        operation.end(Some(99));
        assert!(pending.take(first, 3).is_none(), "a second reply");
        assert!(row.is_complete(Part::RMWS) && !row.is_complete(Part::ALL));
        assert_eq!((cell.load(Ordering::Relaxed), domain.load(Ordering::Relaxed)), (99, 1));
        assert_eq!(begin(AtomicOp::Get, 5), first, "slots are used again");
        assert!(!row.is_complete(Part::GETS));
        pending.take(second, 4).expect("in flight").end(None);
        pending.take(first, 5).expect("in flight").end(Some(1));
        assert!(row.is_complete(Part::ALL));
        assert_eq!(domain.load(Ordering::Relaxed), 0);
    }
}
