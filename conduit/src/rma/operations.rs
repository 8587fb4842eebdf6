//! One-sided operations in flight, by number.
//!
//! An operation has a row with the counters that the network counts down; its number is that of the
//! row and the row's *generation*, which changes when the operation has been seen complete. So a
//! number is never taken for a later operation's, and an old one says "complete". Rows are used
//! again: in the steady state nothing is allocated.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bitflags::bitflags;

use crate::transport::op_counter::OpCounter;

/// Rows that there can be: their numbers have 24 bits.
const MOST: usize = 1 << 24;

/// Number of an operation, or of a group of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Row of the table.
    pub row: u32,
    /// Use of the row.
    pub generation: u32,
}

bitflags! {
    /// What of an operation is asked about. A group has operations of every kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Part: u8 {
        /// Source buffers of the puts.
        const LOCAL = 1;
        /// Puts, with their source buffers.
        const PUTS = 3;
        /// Gets.
        const GETS = 4;
        /// Atomic operations that read and write.
        const RMWS = 8;
        /// Everything.
        const ALL = 15;
    }
}

/// Counters of one operation or group.
#[derive(Debug)]
pub struct OpCounters {
    generation: AtomicU32,
    pub(crate) puts: Arc<OpCounter>,
    pub(crate) gets: Arc<OpCounter>,
    pub(crate) rmws: Arc<OpCounter>,
}

impl Default for OpCounters {
    fn default() -> Self {
        let [puts, gets, rmws] = [(); 3].map(|()| Arc::new(OpCounter::lasting()));
        Self { generation: AtomicU32::new(0), puts, gets, rmws }
    }
}

impl OpCounters {
    /// Whether nothing of `part` is in flight.
    #[must_use]
    pub fn is_complete(&self, part: Part) -> bool {
        (!part.contains(Part::LOCAL) || self.puts.is_local_complete())
            && (!part.contains(Part::PUTS) || self.puts.is_complete())
            && (!part.contains(Part::GETS) || self.gets.is_complete())
            && (!part.contains(Part::RMWS) || self.rmws.is_complete())
    }

    /// Whether `part` of the operation that has these counters is complete, or was seen so.
    pub(crate) fn is_over(&self, op: Op, part: Part) -> bool {
        self.generation.load(Ordering::Relaxed) != op.generation || self.is_complete(part)
    }
}

#[derive(Default)]
struct Rows {
    all: Vec<Arc<OpCounters>>,
    free: Vec<u32>,
}

#[derive(Default)]
pub(crate) struct Operations {
    rows: Mutex<Rows>,
    /// For a call that waits for its operation: it needs no number.
    unnumbered: Arc<OpCounters>,
    lent: AtomicBool,
}

impl Operations {
    fn open(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row for a new operation. `None`: there are too many in flight.
    pub(crate) fn begin(&self) -> Option<(Op, Arc<OpCounters>)> {
        let mut rows = self.open();
        let number = match rows.free.pop() {
            Some(number) => number,
            None if rows.all.len() < MOST => {
                let number = u32::try_from(rows.all.len()).ok()?;
                rows.all.push(Arc::default());
                number
            }
            None => return None,
        };
        let row = Arc::clone(rows.all.get(number as usize)?);
        let generation = row.generation.load(Ordering::Relaxed);
        Some((Op { row: number, generation }, row))
    }

    /// Counters for a call that waits for its operation; `None` while another thread has them.
    pub(crate) fn borrow(&self) -> Option<&Arc<OpCounters>> {
        (!self.lent.swap(true, Ordering::Acquire)).then_some(&self.unnumbered)
    }

    /// Takes them back. What nobody waits for because of an error, as the job ends, keeps them.
    pub(crate) fn take_back(&self) {
        if self.unnumbered.is_complete(Part::ALL) {
            self.lent.store(false, Ordering::Release);
        }
    }

    /// The counters of an operation that has not been seen complete.
    pub(crate) fn watch(&self, op: Op) -> Option<Arc<OpCounters>> {
        self.row(op).ok().flatten()
    }

    /// The row of an operation that has not been seen complete; an error for a number that was
    /// never given.
    fn row(&self, op: Op) -> Result<Option<Arc<OpCounters>>, ()> {
        let rows = self.open();
        let row = rows.all.get(op.row as usize).ok_or(())?;
        match row.generation.load(Ordering::Relaxed).wrapping_sub(op.generation) {
            0 => Ok(Some(Arc::clone(row))),
            // Older by less than half of all numbers.
            old if old < 1 << 31 => Ok(None),
            _ => Err(()),
        }
    }

    /// Whether `part` of an operation is complete; an error for a number that was never given.
    pub(crate) fn is_complete(&self, op: Op, part: Part) -> Result<bool, ()> {
        Ok(self.row(op)?.is_none_or(|row| row.is_complete(part)))
    }

    /// As [`Operations::is_complete`] of everything; a complete operation gives its row back.
    pub(crate) fn finish(&self, op: Op) -> Result<bool, ()> {
        let Some(row) = self.row(op)? else { return Ok(true) };
        if !row.is_complete(Part::ALL) {
            return Ok(false);
        }
        let mut rows = self.open();
        let next = op.generation.wrapping_add(1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        if row.generation.compare_exchange(op.generation, next, set, fetch).is_ok() {
            rows.free.push(op.row);
        }
        Ok(true)
    }

    /// Gives the row of an operation back that nothing was posted for.
    pub(crate) fn forget(&self, op: Op) {
        let _complete = self.finish(op);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_means_one_operation() {
        let table = Operations::default();
        let (first, row) = table.begin().expect("room");
        row.puts.begin(true);
        assert_eq!(table.finish(first), Ok(false));
        assert_eq!(table.is_complete(first, Part::LOCAL), Ok(false));
        assert_eq!(table.is_complete(first, Part::GETS), Ok(true));
        row.puts.end(true);
        assert_eq!(table.finish(first), Ok(true));
        let (second, row) = table.begin().expect("room");
        assert_eq!((second.row, second.generation), (first.row, first.generation + 1));
        row.gets.begin(false);
        assert_eq!(table.finish(first), Ok(true), "the old number stays complete");
        assert_eq!(table.finish(second), Ok(false));
        let later = Op { generation: second.generation + 1, ..second };
        assert_eq!(table.finish(later), Err(()));
        assert_eq!(table.finish(Op { row: 7, generation: 0 }), Err(()));
    }

    #[test]
    fn counters_without_a_number_are_lent_to_one_call() {
        let table = Operations::default();
        let row = table.borrow().expect("nobody has them");
        assert!(table.borrow().is_none());
        row.puts.begin(false);
        table.take_back();
        assert!(table.borrow().is_none(), "something is in flight");
        row.puts.end(false);
        table.take_back();
        assert!(table.borrow().is_some());
    }

    #[test]
    fn an_operation_that_is_watched_is_over_when_it_was_seen_complete() {
        let table = Operations::default();
        let (op, row) = table.begin().expect("room");
        row.gets.begin(false);
        let watched = table.watch(op).expect("in flight");
        assert!(!watched.is_over(op, Part::ALL) && watched.is_over(op, Part::PUTS));
        row.gets.end(false);
        assert_eq!(table.finish(op), Ok(true));
        let (next, row) = table.begin().expect("room");
        row.gets.begin(false);
        assert!(watched.is_over(op, Part::ALL) && !watched.is_over(next, Part::ALL));
        assert!(table.watch(op).is_none());
    }

    #[test]
    fn a_group_says_which_kinds_are_complete() {
        let row = OpCounters::default();
        let busy = |part: Part| !row.is_complete(part);
        assert!(!busy(Part::ALL) && !busy(Part::empty()));
        row.rmws.begin(false);
        assert!(busy(Part::RMWS) && busy(Part::ALL) && busy(Part::GETS | Part::RMWS));
        assert!(!busy(Part::PUTS | Part::GETS) && !busy(Part::LOCAL));
        row.rmws.end(false);
        row.puts.begin(false);
        assert!(busy(Part::PUTS) && !busy(Part::LOCAL | Part::GETS | Part::RMWS));
        row.puts.begin(true);
        assert!(busy(Part::LOCAL | Part::RMWS));
        assert!(!busy(Part::empty()));
    }

    proptest! {
        #[test]
        fn rows_are_used_again(steps in proptest::collection::vec((0_u8..4, any::<u8>()), 0..300)) {
            let table = Operations::default();
            let mut open: Vec<(Op, Arc<OpCounters>, bool)> = Vec::new();
            let mut most = 0;
            for (step, choice) in steps {
                let at = if open.is_empty() { 0 } else { choice as usize % open.len() };
                match step {
                    0 | 1 => {
                        let (op, row) = table.begin().expect("room");
                        prop_assert!(open.iter().all(|(other, ..)| other.row != op.row));
                        row.gets.begin(true);
                        open.push((op, row, true));
                    }
                    2 if !open.is_empty() && open[at].2 => {
                        open[at].1.gets.end(true);
                        open[at].2 = false;
                    }
                    3 if !open.is_empty() => {
                        let done = table.finish(open[at].0);
                        prop_assert_eq!(done, Ok(!open[at].2));
                        if done == Ok(true) {
                            let (op, ..) = open.swap_remove(at);
                            prop_assert_eq!(table.finish(op), Ok(true));
                        }
                    }
                    _ => {}
                }
                most = most.max(open.len());
                prop_assert!(table.open().all.len() <= most, "more rows than operations at once");
            }
        }
    }
}
