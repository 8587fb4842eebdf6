//! The lanes of a rank that are under way, by number, and the answers that came for them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::lane::{Chunk, Lane};
use super::ledger::LoanId;
use crate::rma::operations::OpCounters;
use crate::transport::net::{LentParts, Refusals};
use crate::transport::op_counter::OpCounter;
use crate::vis::memory::Region;
use crate::vis::ticket::Ticket;

/// Chunks end at multiples of this at the owner, which are those of its blocks, so that one loan has
/// the memory of most of them.
pub(super) const CHUNK: u64 = 1 << 20;
/// Most lanes of a transfer.
pub(super) const MOST_LANES: usize = 4;

thread_local! {
    static DRIVES: Cell<bool> = const { Cell::new(false) };
}

/// A put or get of one range.
#[derive(Debug)]
pub(super) struct Transfer {
    /// What the program called.
    pub(super) call: &'static str,
    pub(super) target: usize,
    /// Where it is at the target: an offset or an address.
    pub(super) place: u64,
    pub(super) local: Region,
    pub(super) put: bool,
    /// Counts its lanes.
    pub(super) counter: Arc<OpCounter>,
    /// Bytes that lanes have taken.
    pub(super) taken: AtomicUsize,
}

impl Transfer {
    /// The next chunk for a lane.
    pub(super) fn take(&self) -> Option<Chunk> {
        let all = self.local.extent().len;
        let cut = |at: usize| {
            let to_end = CHUNK - self.place.wrapping_add(at as u64) % CHUNK;
            (all - at).min(usize::try_from(to_end).unwrap_or(usize::MAX))
        };
        let next = |at: usize| (at < all).then(|| at + cut(at));
        let at = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Chunk { at, len: cut(at) })
    }
}

/// A lane of a transfer.
#[derive(Debug)]
pub(super) struct Borrowing {
    pub(super) transfer: Arc<Transfer>,
    pub(super) lane: Lane,
    /// What the owner lent last.
    pub(super) parts: LentParts,
    /// Counts what is under way.
    pub(super) row: OpCounters,
}

/// What an owner says.
#[derive(Debug)]
pub(super) enum Answer {
    Lent(LoanId, Box<LentParts>),
    /// Whether what went with the request is where it belongs.
    Refused(bool),
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// Who answers.
    target: usize,
    expects: bool,
    answer: Option<Answer>,
    /// `None` also while it is driven.
    lane: Option<Box<Borrowing>>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
    live: Vec<u32>,
    refusals: Refusals,
    /// The network is shut: answers are of no consequence.
    closed: bool,
}

/// All lanes of a rank.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    slots: Mutex<Slots>,
    /// Held by the thread that drives them, with the numbers that it goes through.
    driver: Mutex<Vec<u32>>,
    /// Whether memory of callers may be in use.
    driven: AtomicBool,
}

/// The right to drive the lanes.
pub(super) struct Driver<'a> {
    lanes: &'a Lanes,
    pub(super) numbers: MutexGuard<'a, Vec<u32>>,
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        DRIVES.set(false);
        self.lanes.driven.store(false, Ordering::Release);
    }
}

impl Lanes {
    fn open(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lane. `false`: the network is shut, and its transfer never ends.
    pub(super) fn add(&self, borrowing: Borrowing) -> bool {
        let mut slots = self.open();
        if slots.closed {
            return false;
        }
        let number = slots.free.pop().unwrap_or_else(|| {
            let (target, expects, answer, lane) = (0, false, None, None);
            slots.all.push(Slot { generation: 0, target, expects, answer, lane });
            u32::try_from(slots.all.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(slot) = slots.all.get_mut(number as usize) {
            (slot.target, slot.expects, slot.answer) = (borrowing.transfer.target, false, None);
            slot.lane = Some(Box::new(borrowing));
        }
        slots.live.push(number);
        true
    }

    /// The right to drive the lanes that are there now; `None`: another thread does.
    pub(super) fn driver(&self) -> Option<Driver<'_>> {
        let mut numbers = match self.driver.try_lock() {
            Ok(numbers) => numbers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // In this order: who forgets looks at them the other way round.
        self.driven.store(true, Ordering::SeqCst);
        DRIVES.set(true);
        numbers.clear();
        let slots = self.open();
        if !slots.closed {
            numbers.extend(&slots.live);
        }
        drop(slots);
        Some(Driver { lanes: self, numbers })
    }

    /// Takes a lane out to drive it, with its answer if one came.
    pub(super) fn take(&self, number: u32) -> Option<(Ticket, Box<Borrowing>, Option<Answer>)> {
        let mut slots = self.open();
        let slot = slots.all.get_mut(number as usize)?;
        let lane = slot.lane.take()?;
        let ticket = Ticket { slot: number, generation: slot.generation };
        Some((ticket, lane, slot.answer.take()))
    }

    /// Puts a lane back.
    pub(super) fn put_back(&self, ticket: Ticket, lane: Box<Borrowing>) {
        let mut slots = self.open();
        if slots.closed {
            return;
        }
        if let Some(slot) = slots.all.get_mut(ticket.slot as usize) {
            slot.lane = Some(lane);
        }
    }

    /// A lane that was taken out is over.
    pub(super) fn end(&self, ticket: Ticket) {
        let mut slots = self.open();
        if let Some(slot) = slots.all.get_mut(ticket.slot as usize) {
            slot.generation = slot.generation.wrapping_add(1);
            slots.free.push(ticket.slot);
        }
        slots.live.retain(|number| *number != ticket.slot);
    }

    /// Whether an answer may come for a lane that is being driven.
    pub(super) fn expect(&self, ticket: Ticket, expects: bool) {
        if let Some(slot) = self.open().all.get_mut(ticket.slot as usize) {
            slot.expects = expects;
        }
    }

    /// Keeps an answer. `None`: `source` was not asked.
    pub(super) fn answer(&self, ticket: Ticket, source: usize, answer: Answer) -> Option<()> {
        let mut slots = self.open();
        if slots.closed {
            return Some(());
        }
        let slot = slots.all.get_mut(ticket.slot as usize)?;
        let asked = slot.generation == ticket.generation && slot.target == source && slot.expects;
        if !asked {
            return None;
        }
        (slot.expects, slot.answer) = (false, Some(answer));
        Some(())
    }

    /// Whether not to ask for memory that was refused a short time ago.
    pub(super) fn leaves_out(&self, target: usize, place: u64) -> bool {
        self.open().refusals.leaves_out(refused(target, place))
    }

    pub(super) fn was_refused(&self, target: usize, place: u64) {
        self.open().refusals.add(refused(target, place));
    }

    /// From now on no memory of a caller is touched, except by the network.
    #[cold]
    pub(super) fn forget(&self) {
        {
            let mut slots = self.open();
            slots.closed = true;
            slots.live.clear();
            slots.all.iter_mut().for_each(|slot| (slot.lane, slot.answer) = (None, None));
        }
        // Who drives sees it closed, or is waited for; the network posts nothing more.
        while self.driven.load(Ordering::SeqCst) && !DRIVES.get() {
            std::thread::yield_now();
        }
    }
}

/// A number for a chunk at a target.
const fn refused(target: usize, place: u64) -> u64 {
    (place / CHUNK) ^ (target as u64).rotate_left(40)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(place: u64, bytes: &[u8]) -> Transfer {
        let (local, counter) = (Region::source(bytes), Arc::default());
        let taken = AtomicUsize::new(0);
        Transfer { call: "test", target: 5, place, local, put: true, counter, taken }
    }

    fn borrowing() -> Borrowing {
        let transfer = Arc::new(transfer(0, &[0; 100]));
        let lane = Lane::new(Chunk { at: 0, len: 100 }, 0);
        Borrowing { transfer, lane, parts: LentParts::new(), row: OpCounters::default() }
    }

    #[test]
    fn chunks_end_where_blocks_of_the_owner_do() {
        let bytes = vec![0; 2 << 20];
        let transfer = transfer((1 << 20) - 100, &bytes);
        let chunks: Vec<Chunk> = std::iter::from_fn(|| transfer.take()).collect();
        let lens: Vec<usize> = chunks.iter().map(|chunk| chunk.len).collect();
        assert_eq!(lens, [100, 1 << 20, (1 << 20) - 100]);
        assert_eq!(chunks[2].at, 100 + (1 << 20));
        assert_eq!(transfer.take(), None);
    }

    #[test]
    fn an_answer_is_taken_once_from_who_was_asked() {
        let lanes = Lanes::default();
        assert!(lanes.add(borrowing()));
        let answer = |ticket, source| lanes.answer(ticket, source, Answer::Refused(true));
        let (ticket, lane, none) = lanes.take(0).expect("there");
        assert!(none.is_none() && lanes.take(0).is_none(), "it is out");
        assert_eq!(answer(ticket, 5), None, "nobody was asked");
        lanes.expect(ticket, true);
        assert_eq!(answer(ticket, 4), None, "another rank");
        assert_eq!(answer(Ticket { generation: 7, ..ticket }, 5), None);
        assert_eq!(answer(Ticket { slot: 7, ..ticket }, 5), None);
        assert_eq!(answer(ticket, 5), Some(()));
        assert_eq!(answer(ticket, 5), None, "twice");
        lanes.put_back(ticket, lane);
        let (ticket, lane, answer) = lanes.take(0).expect("there");
        assert!(matches!(answer, Some(Answer::Refused(true))));
        drop(lane);
        lanes.end(ticket);
        assert!(lanes.driver().expect("free").numbers.is_empty());
    }

    #[test]
    fn one_thread_drives_and_who_forgets_waits_for_it() {
        let lanes = Lanes::default();
        assert!(lanes.add(borrowing()));
        let driver = lanes.driver().expect("free");
        assert_eq!(*driver.numbers, [0]);
        std::thread::scope(|scope| {
            let forgets = scope.spawn(|| {
                assert!(lanes.driver().is_none());
                lanes.forget();
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!forgets.is_finished());
            drop(driver);
        });
        assert!(!lanes.add(borrowing()));
        assert_eq!(
            lanes.answer(Ticket { slot: 0, generation: 0 }, 5, Answer::Refused(true)),
            Some(())
        );
        let driver = lanes.driver().expect("free");
        assert!(driver.numbers.is_empty());
        lanes.forget();
        drop(driver);
    }

    #[test]
    fn refused_chunks_are_known_by_rank_and_place() {
        let lanes = Lanes::default();
        lanes.was_refused(3, 5 << 20);
        assert!(lanes.leaves_out(3, (5 << 20) + 77));
        assert!(!lanes.leaves_out(4, 5 << 20) && !lanes.leaves_out(3, 6 << 20));
    }
}
