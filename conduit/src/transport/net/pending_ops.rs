//! Operations that were posted and are not complete: what happens when each is.

use std::fmt;
use std::num::NonZeroU8;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bootstrap::Rank;

use super::lockfree::IndexStack;
use super::memory::cache::Held;
use super::memory::pool::{CopyOut, Inbox};
use super::numbered_counters::NumberedCounters;
use super::signal::Signal;
use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sys::tally::Sharing;
use crate::transport::op_counter::OpCounter;

/// What an operation in flight is, for its completion and for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum OpKind {
    Message = 1,
    Internal,
    Ack,
    Put,
    Get,
    LongPayload,
    Flag,
    Atomic,
    Fence,
    /// One that tells of silent ones before it (`silent.rs`).
    Puts,
}

impl OpKind {
    #[inline]
    const fn of(number: u64) -> Option<Self> {
        Some(match number & KIND {
            1 => Self::Message,
            2 => Self::Internal,
            3 => Self::Ack,
            4 => Self::Put,
            5 => Self::Get,
            6 => Self::LongPayload,
            7 => Self::Flag,
            8 => Self::Atomic,
            9 => Self::Fence,
            10 => Self::Puts,
            _ => return None,
        })
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Message => "an active message",
            Self::Internal => "a message of the library",
            Self::Ack => "a return of credits",
            Self::Put => "a put",
            Self::Get => "a get",
            Self::LongPayload => "the payload of a Long",
            Self::Flag => "words of a barrier or a reduction",
            Self::Atomic => "an atomic",
            Self::Fence => "the fence of a put",
            Self::Puts => "puts",
        }
    }
}

/// Who is told the old values of words.
pub(crate) trait Fetched: fmt::Debug + Send + Sync {
    /// The operation that was given as `slot` is complete.
    fn fetched(&self, slot: u32, old: u64);
}

/// Where an old value goes: whom to tell, and the operation's slot there.
pub(crate) type FetchedBy = (Arc<dyn Fetched>, u32);

/// What happens when an operation is complete, beyond giving back what it used.
#[derive(Debug)]
pub(super) enum OnComplete {
    Count {
        counter: Arc<OpCounter>,
        local: bool,
    },
    /// The device used memory outside segments, which was registered for it.
    Held {
        counter: Arc<OpCounter>,
        held: Held,
    },
    CopyOut {
        counter: Arc<OpCounter>,
        target: CopyOut,
        len: usize,
    },
    Fetched {
        counter: Arc<OpCounter>,
        by: FetchedBy,
    },
}

/// What a request that is about to be posted shall do at its end.
#[derive(Debug)]
pub(super) enum End<'c> {
    Nothing,
    /// Counts as one part of what a counter counts; `local`: whose local memory was in use.
    Counts {
        counter: &'c Arc<OpCounter>,
        local: bool,
    },
    Does(OnComplete),
}

impl End<'_> {
    fn in_row(self) -> Option<OnComplete> {
        match self {
            Self::Nothing => None,
            Self::Counts { counter, local } => {
                Some(OnComplete::Count { counter: Arc::clone(counter), local })
            }
            Self::Does(end) => Some(end),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingOp {
    pub(super) kind: OpKind,
    pub(super) peer: Rank,
    pub(super) connection: usize,
    /// On the queue pair of requests, where they have one.
    pub(super) for_requests: bool,
    pub(super) buffer: Option<u32>,
    /// Something happens when it is complete; without an [`OnComplete`] and a counter with a number
    /// it is the [`Lone`] one.
    pub(super) has_end: bool,
}

// The number of an operation, from bit 0 on: kind (4 bits), connection (8), queue pair, whether there
// is an end; of one that a counter with a number counts, whether that is local, and the number (7);
// [`Signal`] (9), [`SELF_CONTAINED`], rank (32).
const KIND: u64 = 0xf;
const CONNECTION: u32 = 4;
/// Of puts: how many are before the last of them, in place of the upper half of the connection.
const BEFORE: u32 = 8;
const FOR_REQUESTS: u32 = 12;
const HAS_END: u32 = 13;
const LOCAL: u32 = 14;
const COUNTER: u32 = 15;
const COUNTERS: u64 = NumberedCounters::MOST as u64;
const RANK: u32 = 32;

const _: () = assert!(
    OpKind::Puts as u64 <= KIND
        && PutNumber::MOST_BEFORE.count_ones() + BEFORE == FOR_REQUESTS
        && COUNTERS.count_ones() + COUNTER <= Signal::SHIFT
        && (COUNTERS + 1).is_power_of_two()
);

/// What the puts of few bytes by one connection have in common, and by whom their ends are counted: their
/// number without its [`Signal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PutNumber(u64);

impl PutNumber {
    /// Puts before the last one that its number has room for.
    pub(super) const MOST_BEFORE: u32 = 0xf;

    /// By a connection with a peer, by its index; nobody counts them.
    pub(super) fn new(peer: Rank, connection: u16) -> Self {
        let op = PendingOp::plain(OpKind::Put, peer, connection.into(), true);
        Self(op.number(Signal::End { before: 0 }))
    }

    /// Counted by the counter of a number.
    #[inline(always)]
    pub(super) const fn counted_by(self, counter: NonZeroU8) -> Self {
        Self(self.0 | (counter.get() as u64) << COUNTER)
    }

    /// Of a put that tells of so many silent ones before it.
    #[inline(always)]
    pub(super) const fn number(self, signal: Signal, before: u32) -> u64 {
        let kind = if before == 0 { 0 } else { OpKind::Put as u64 ^ OpKind::Puts as u64 };
        (self.0 | signal.bits() | (before as u64) << BEFORE) ^ kind
    }

    /// Whether there is room in a number for puts before it.
    #[inline(always)]
    pub(super) const fn has_room(self) -> bool {
        self.0 >> BEFORE & Self::MOST_BEFORE as u64 == 0
    }

    pub(super) const fn peer(self) -> Rank {
        Rank((self.0 >> RANK) as u32)
    }

    /// As a word, which is not 0.
    #[inline(always)]
    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// What [`PutNumber::word`] made; `None` for 0.
    #[inline(always)]
    pub(super) const fn of_word(word: u64) -> Option<Self> {
        if word == 0 { None } else { Some(Self(word)) }
    }
}

impl PendingOp {
    /// One without a buffer, on the main queue pair of a connection.
    #[inline(always)]
    pub(super) const fn plain(kind: OpKind, peer: Rank, connection: usize, has_end: bool) -> Self {
        Self { kind, peer, connection, for_requests: false, buffer: None, has_end }
    }

    /// All but the buffer, the end and the signal, as a number.
    #[inline]
    const fn packed(&self) -> u64 {
        self.kind as u64
            | (self.connection as u64 & 0xff) << CONNECTION
            | (self.for_requests as u64) << FOR_REQUESTS
            | (self.has_end as u64) << HAS_END
            | (self.peer.0 as u64) << RANK
    }

    /// The number that says all of it, where it has neither buffer nor [`OnComplete`].
    #[inline]
    pub(super) const fn number(&self, signal: Signal) -> u64 {
        self.packed() | signal.bits() | SELF_CONTAINED
    }

    /// As [`PendingOp::number`], of one that the counter of a number counts.
    #[inline]
    pub(super) const fn number_counted(
        &self,
        signal: Signal,
        counter: NonZeroU8,
        local: bool,
    ) -> u64 {
        self.number(signal) | (local as u64) << LOCAL | (counter.get() as u64) << COUNTER
    }

    /// How many parts of what it counts for end with the operation of this number.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "four bits of it")]
    pub(super) fn parts_of(id: u64) -> u32 {
        let before = if id & KIND == OpKind::Puts as u64 { id >> BEFORE & 0xf } else { 0 };
        before as u32 + 1
    }

    /// The operation whose number says all of it.
    #[inline]
    pub(super) fn of_number(id: u64) -> Option<Self> {
        if id & SELF_CONTAINED == 0 { None } else { Self::unpacked(id, None) }
    }

    /// What [`PendingOp::packed`] made; `None` for 0.
    #[inline]
    fn unpacked(info: u64, buffer: Option<u32>) -> Option<Self> {
        let kind = OpKind::of(info)?;
        let connections = if kind == OpKind::Puts { 0xf } else { 0xff };
        Some(Self {
            kind,
            peer: Rank((info >> RANK) as u32),
            connection: (info >> CONNECTION & connections) as usize,
            for_requests: info >> FOR_REQUESTS & 1 == 1,
            buffer,
            has_end: info >> HAS_END & 1 == 1,
        })
    }
}

/// The small operation that a call waits for (`small.rs`).
#[derive(Debug, Default)]
pub(super) struct Lone {
    /// A call has it.
    pub(super) lent: AtomicBool,
    under_way: AtomicBool,
    /// Where what it reads arrives, of the first rail; made on first use.
    pub(super) words: OnceLock<Inbox>,
}

impl Lone {
    /// It is about to be posted.
    #[inline]
    pub(super) fn begin(&self) {
        self.under_way.store(true, Ordering::Relaxed);
    }

    /// It is complete, or was not posted after all.
    #[inline]
    pub(super) fn end(&self) {
        self.under_way.store(false, Ordering::Release);
    }

    /// Whether nothing is under way, and what was read is in the words.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        !self.under_way.load(Ordering::Acquire)
    }
}

/// Marks the number of an operation that says all of it. No index of a row is so great.
const SELF_CONTAINED: u64 = 1 << 31;

#[derive(Debug, Default)]
struct Row {
    /// 0, or [`PendingOp::packed`].
    info: AtomicU64,
    /// 0, or one more than the buffer.
    buffer: AtomicU32,
    next: AtomicU32,
    end: Mutex<Option<OnComplete>>,
}

/// Operations in flight; their numbers are what completions carry.
#[derive(Debug)]
pub(super) struct PendingOps {
    rows: Box<[Row]>,
    free: IndexStack,
    counters: NumberedCounters,
}

impl PendingOps {
    pub(super) fn new(count: u32) -> Self {
        let rows = (0..count).map(|_| Row::default()).collect();
        let pending = Self { rows, free: IndexStack::new(), counters: NumberedCounters::default() };
        (0..count).rev().for_each(|index| pending.release(index));
        pending
    }

    #[inline]
    fn release(&self, index: u32) {
        self.free.push(index, |index| &self.rows[index as usize].next);
    }

    /// Books an operation. `None` cannot be when the caller holds a completion queue slot.
    #[inline(always)]
    pub(super) fn begin(&self, op: &PendingOp, end: End<'_>, signal: Signal) -> Option<u64> {
        match end {
            End::Nothing if op.buffer.is_none() => Some(op.number(signal)),
            End::Counts { counter, local } if op.buffer.is_none() => {
                match self.number_of(counter) {
                    Some(number) => Some(op.number_counted(signal, number, local)),
                    None => self.begin_in_row(op, end.in_row(), signal),
                }
            }
            end => self.begin_in_row(op, end.in_row(), signal),
        }
    }

    /// The number of a counter, for those of the operations that it counts; `None`: they have rows.
    #[inline(always)]
    pub(super) fn number_of(&self, counter: &Arc<OpCounter>) -> Option<NonZeroU8> {
        self.counters.number_of(counter)
    }

    /// Counts the end of the operation whose number says all of it; `false`: no counter has it.
    #[inline(always)]
    pub(super) fn end_counted(&self, id: u64, by: Sharing) -> bool {
        let counter = self.counters.get((id >> COUNTER & COUNTERS) as usize);
        counter
            .map(|one| one.end_parts(by, id >> LOCAL & 1 == 1, PendingOp::parts_of(id)))
            .is_some()
    }

    #[inline(never)]
    fn begin_in_row(&self, op: &PendingOp, end: Option<OnComplete>, signal: Signal) -> Option<u64> {
        let index = self.free.pop(|index| &self.rows[index as usize].next)?;
        let row = &self.rows[index as usize];
        if let Some(end) = end {
            *row.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        }
        row.buffer.store(op.buffer.map_or(0, |buffer| buffer + 1), Ordering::Relaxed);
        row.info.store(op.packed() | signal.bits(), Ordering::Release);
        Some(u64::from(index))
    }

    /// Takes an operation out. `None` when the number is of none.
    #[inline]
    pub(super) fn end(&self, id: u64) -> Option<(PendingOp, Signal, Option<OnComplete>)> {
        match PendingOp::of_number(id) {
            Some(op) => Some((op, Signal::of(id), None)),
            None => self.end_in_row(id),
        }
    }

    fn end_in_row(&self, id: u64) -> Option<(PendingOp, Signal, Option<OnComplete>)> {
        let index = u32::try_from(id).ok()?;
        let row = self.rows.get(index as usize)?;
        let info = row.info.swap(0, Ordering::AcqRel);
        let buffer = row.buffer.load(Ordering::Relaxed).checked_sub(1);
        let op = PendingOp::unpacked(info, buffer)?;
        let end = if op.has_end {
            row.end.lock().unwrap_or_else(PoisonError::into_inner).take()
        } else {
            None
        };
        self.release(index);
        Some((op, Signal::of(info), end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_is_known_by_its_number() {
        let counter = u8::try_from(COUNTERS).ok().and_then(NonZeroU8::new).expect("seven bits");
        for (connection, before) in [(0, 0), (15, 1), (3, PutNumber::MOST_BEFORE), (255, 0)] {
            let put = PutNumber::new(Rank(u32::MAX), connection).counted_by(counter);
            assert_eq!(PutNumber::of_word(put.word()), Some(put));
            assert_eq!((put.peer(), put.has_room()), (Rank(u32::MAX), connection < 16));
            for signal in [Signal::Failure, Signal::End { before: 7 }] {
                let id = put.number(signal, before);
                let op = PendingOp::of_number(id).expect("its number says all of it");
                let kind = if before == 0 { OpKind::Put } else { OpKind::Puts };
                assert_eq!((op.kind, op.peer), (kind, Rank(u32::MAX)));
                assert_eq!((op.connection, op.has_end), (connection.into(), true));
                assert_eq!((Signal::of(id), PendingOp::parts_of(id)), (signal, before + 1));
                assert_eq!(id >> COUNTER & COUNTERS, counter.get().into());
            }
        }
    }
}
