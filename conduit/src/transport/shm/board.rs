//! Where neighbours put small operands of reductions, and find the result.
//!
//! Every rank has a [`Seat`] for each of a few *turns*. Up to [`FEW`] ranks: everybody combines the
//! operands of all, in the order of the ranks. More: the last one of a group that comes combines
//! those of its group and goes on for it, so nobody waits to be of help; the last of all publishes
//! the result.
//!
//! A seat is used again [`TURNS`] later. Ranks see results in the order of the turns, and put
//! nothing down for a turn before they have seen the result of [`AHEAD`] turns before: who has seen
//! that one knows that all have come so far, and so have read everything of twice as many before.

use super::map::SharedLayout;
use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most ranks that look at each other.
const FEW: usize = 8;
/// Ranks, or groups, of a group.
const FAN: usize = 8;
const LEVELS: usize = 3;
/// Most ranks of a board.
pub(crate) const MOST: usize = FAN * FAN * FAN;
/// Turns whose seats are apart.
pub(crate) const TURNS: usize = 4;
/// Turns that a rank may come to before it has seen the result of the first one.
pub(crate) const AHEAD: u32 = 2;
/// One in models, whose threads have small stacks.
const WORDS: usize = if cfg!(loom) { 1 } else { 30 };
/// Most bytes of an operand.
pub(crate) const OPERAND: usize = WORDS * 8;

/// An operand, or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Operand {
    pub(crate) bytes: [u8; OPERAND],
    pub(crate) len: usize,
    /// What all ranks must agree on.
    pub(crate) check: u64,
}

impl Operand {
    pub(crate) fn new(check: u64, bytes: &[u8]) -> Self {
        let mut operand = Self { bytes: [0; OPERAND], len: bytes.len().min(OPERAND), check };
        for (to, from) in operand.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        operand
    }

    fn words(&self) -> usize {
        self.len.div_ceil(8)
    }
}

/// What one rank writes for one turn, all atomics: others read it without trust.
#[repr(C, align(128))]
pub(crate) struct Cell {
    stamp: AtomicU64,
    check: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Cell {
    fn publish(&self, turn: u32, operand: &Operand) {
        self.check.store(operand.check, Ordering::Relaxed);
        let words = operand.bytes.as_chunks().0.iter().take(operand.words());
        for (to, word) in self.words.iter().zip(words) {
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        self.stamp.store(stamp(turn), Ordering::Release);
    }

    fn holds(&self, turn: u32) -> bool {
        self.stamp.load(Ordering::Acquire) == stamp(turn)
    }

    /// What it holds of so many bytes.
    fn read(&self, into: &mut Operand) {
        into.check = self.check.load(Ordering::Relaxed);
        let count = into.words();
        let words = into.bytes.as_chunks_mut().0.iter_mut().take(count);
        for (to, word) in words.zip(&self.words) {
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
}

/// Zero is no turn.
const fn stamp(turn: u32) -> u64 {
    turn as u64 + 1
}

/// A group of ranks, or of groups.
#[repr(C, align(128))]
pub(crate) struct Node {
    arrived: AtomicU32,
    sum: Cell,
}

/// A rank's part of one turn.
#[repr(C, align(128))]
pub(crate) struct Seat {
    own: Cell,
    /// Groups of each level that begin with this rank.
    nodes: [Node; LEVELS],
    result: Cell,
}

// SAFETY: atomics and padding.
unsafe impl SharedLayout for Seat {}

/// Who gives another operand than the others of the turn, as index, and what its check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Differs {
    pub(crate) rank: usize,
    pub(crate) check: u64,
}

/// One turn as a rank sees it.
pub(crate) struct Board<F> {
    pub(crate) ranks: usize,
    pub(crate) me: usize,
    pub(crate) turn: u32,
    /// Seat of a rank in this turn.
    pub(crate) seat: F,
}

impl<'s, F: Fn(usize) -> &'s Seat> Board<F> {
    const fn few(&self) -> bool {
        self.ranks <= FEW
    }

    /// Puts this rank's operand down. `combine`: the first becomes what both are together. Whether
    /// others may have waited for it.
    pub(crate) fn put(
        &self,
        operand: &Operand,
        combine: &mut dyn FnMut(&mut Operand, &mut Operand),
    ) -> Result<bool, Differs> {
        (self.seat)(self.me).own.publish(self.turn, operand);
        if self.few() {
            return Ok(true);
        }
        let (mut at, mut width, mut count) = (self.me, 1, self.ranks);
        for level in 0..LEVELS {
            let first = at / FAN * FAN;
            let members = FAN.min(count - first);
            let node = &(self.seat)(first * width).nodes[level];
            if node.arrived.fetch_add(1, Ordering::AcqRel) as usize + 1 < members {
                return Ok(false);
            }
            // Nobody comes to it again before all have seen the result.
            node.arrived.store(0, Ordering::Relaxed);
            let cell = |child: usize| {
                let seat = (self.seat)((first + child) * width);
                level.checked_sub(1).map_or(&seat.own, |below| &seat.nodes[below].sum)
            };
            let sum = self.fold(operand, members, first * width, width, cell, combine)?;
            if count <= FAN {
                (self.seat)(0).result.publish(self.turn, &sum);
                return Ok(true);
            }
            node.sum.publish(self.turn, &sum);
            (at, width, count) = (at / FAN, width * FAN, count.div_ceil(FAN));
        }
        Ok(false)
    }

    /// What cells hold together, in their order.
    fn fold<'c>(
        &self,
        like: &Operand,
        count: usize,
        first: usize,
        width: usize,
        cell: impl Fn(usize) -> &'c Cell,
        combine: &mut dyn FnMut(&mut Operand, &mut Operand),
    ) -> Result<Operand, Differs> {
        let mut sum = like.clone();
        let mut next = like.clone();
        for at in 0..count {
            let into = if at == 0 { &mut sum } else { &mut next };
            cell(at).read(into);
            if into.check != like.check {
                return Err(Differs { rank: first + at * width, check: into.check });
            }
            if at > 0 {
                combine(&mut sum, &mut next);
            }
        }
        Ok(sum)
    }

    /// Whether the result is there.
    pub(crate) fn is_ready(&self) -> bool {
        if self.few() {
            return (0..self.ranks).all(|rank| (self.seat)(rank).own.holds(self.turn));
        }
        (self.seat)(0).result.holds(self.turn)
    }

    /// The result, when it is there; `like`: this rank's operand.
    pub(crate) fn result(
        &self,
        like: &Operand,
        combine: &mut dyn FnMut(&mut Operand, &mut Operand),
    ) -> Result<Option<Operand>, Differs> {
        if !self.is_ready() {
            return Ok(None);
        }
        if self.few() {
            let cell = |rank| &(self.seat)(rank).own;
            return self.fold(like, self.ranks, 0, 1, cell, combine).map(Some);
        }
        let mut result = like.clone();
        (self.seat)(0).result.read(&mut result);
        Ok(Some(result))
    }
}

#[cfg(any(test, loom))]
impl Seat {
    pub(crate) fn empty() -> Self {
        let cell = || Cell {
            stamp: AtomicU64::new(0),
            check: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let node = |_| Node { arrived: AtomicU32::new(0), sum: cell() };
        Self { own: cell(), nodes: std::array::from_fn(node), result: cell() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Numbers and how many were combined; wrong orders change the number.
    fn join(sum: &mut Operand, next: &mut Operand) {
        let word =
            |operand: &Operand| u64::from_ne_bytes(*operand.bytes.first_chunk().expect("bytes"));
        let (left, right) = (word(sum), word(next));
        let count = (left >> 32) + (right >> 32);
        // Neighbouring runs: first rank and length.
        assert_eq!((left & 0xffff_ffff) + (left >> 32), right & 0xffff_ffff, "operands in order");
        sum.bytes[..8].copy_from_slice(&(count << 32 | left & 0xffff_ffff).to_ne_bytes());
    }

    #[test]
    fn results_are_those_of_all_in_every_turn() {
        for ranks in [2, 3, 8, 9, 20, 65] {
            let seats: Vec<[Seat; TURNS]> =
                (0..ranks).map(|_| std::array::from_fn(|_| Seat::empty())).collect();
            let failed = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for me in 0..ranks {
                    let (seats, failed) = (&seats, &failed);
                    scope.spawn(move || {
                        for turn in 0..40_u32 {
                            let seat = |rank: usize| &seats[rank][turn as usize % TURNS];
                            let board = Board { ranks, me, turn, seat };
                            let own = Operand::new(7, &(1 << 32 | me as u64).to_ne_bytes());
                            board.put(&own, &mut join).expect("they agree");
                            while !board.is_ready() {
                                std::thread::yield_now();
                            }
                            let result = board.result(&own, &mut join).expect("they agree");
                            let result = result.expect("it is there");
                            let right = (ranks as u64) << 32;
                            if result.bytes[..8] != right.to_ne_bytes() {
                                failed.store(true, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            assert!(!failed.into_inner(), "{ranks} ranks");
        }
    }

    #[test]
    fn who_differs_is_named() {
        let seats: Vec<Seat> = (0..3).map(|_| Seat::empty()).collect();
        let board = |me| Board { ranks: 3, me, turn: 5, seat: |rank: usize| &seats[rank] };
        for me in 0..3 {
            let own = Operand::new(u64::from(me == 2), &[1; 8]);
            board(me).put(&own, &mut |_, _| {}).expect("few do not look");
        }
        let said = board(0).result(&Operand::new(0, &[1; 8]), &mut |_, _| {});
        assert_eq!(said, Err(Differs { rank: 2, check: 1 }));
    }
}
