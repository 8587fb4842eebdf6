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
/// Most words of an operand. One in models, whose threads have small stacks.
pub(crate) const WORDS: usize = if cfg!(loom) { 1 } else { 30 };
/// Most bytes of an operand.
pub(crate) const OPERAND: usize = WORDS * 8;

/// Operands of up to `N` words, combined.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub(crate) struct Operand<const N: usize> {
    words: [[u8; 8]; N],
    len: usize,
}

impl<const N: usize> Operand<N> {
    pub(crate) const fn new(len: usize) -> Self {
        Self { words: [[0; 8]; N], len }
    }

    /// A copy of some bytes, as many as there is room for.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut operand = Self::new(bytes.len());
        operand.bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        operand
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.words.as_flattened_mut().get_mut(..self.len).unwrap_or_default()
    }
}

/// Combines a left operand with a right one; the left one becomes the result.
type Join<'a> = &'a dyn Fn(&mut [u8], &mut [u8]);

/// What one rank writes for one turn, all atomics: others read it without trust.
#[repr(C, align(128))]
pub(crate) struct Cell {
    stamp: AtomicU64,
    check: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Cell {
    fn publish(&self, turn: u32, check: u64, bytes: &[u8]) {
        self.check.store(check, Ordering::Relaxed);
        let (whole, rest) = bytes.as_chunks();
        for (to, word) in self.words.iter().zip(whole) {
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        if let (false, Some(to)) = (rest.is_empty(), self.words.get(whole.len())) {
            let mut word = [0; 8];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        self.stamp.store(stamp(turn), Ordering::Release);
    }

    fn holds(&self, turn: u32) -> bool {
        self.stamp.load(Ordering::Acquire) == stamp(turn)
    }

    /// What it holds of so many bytes; the check.
    fn read<const N: usize>(&self, into: &mut Operand<N>) -> u64 {
        let count = into.len.div_ceil(8);
        for (to, word) in into.words.iter_mut().take(count).zip(&self.words) {
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        self.check.load(Ordering::Relaxed)
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

    /// Puts this rank's operand down, with what all ranks must agree on. Whether others may have
    /// waited for it.
    pub(crate) fn put(&self, check: u64, bytes: &[u8], join: Join<'_>) -> Result<bool, Differs> {
        (self.seat)(self.me).own.publish(self.turn, check, bytes);
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
            let ranks = (first * width, width, members);
            let mut sum = self.fold::<WORDS>((check, bytes.len()), ranks, cell, join)?;
            if count <= FAN {
                (self.seat)(0).result.publish(self.turn, check, sum.bytes());
                return Ok(true);
            }
            node.sum.publish(self.turn, check, sum.bytes());
            (at, width, count) = (at / FAN, width * FAN, count.div_ceil(FAN));
        }
        Ok(false)
    }

    /// What `count` cells hold together, in their order: those of the rank `first` and of each
    /// `width` later.
    #[inline]
    fn fold<'c, const N: usize>(
        &self,
        (check, len): (u64, usize),
        (first, width, count): (usize, usize, usize),
        cell: impl Fn(usize) -> &'c Cell,
        join: Join<'_>,
    ) -> Result<Operand<N>, Differs> {
        let [mut sum, mut next] = [const { Operand::new(0) }; 2];
        (sum.len, next.len) = (len, len);
        for at in 0..count {
            let into = if at == 0 { &mut sum } else { &mut next };
            let found = cell(at).read(into);
            if found != check {
                return Err(Differs { rank: first + at * width, check: found });
            }
            if at > 0 {
                join(sum.bytes(), next.bytes());
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

    /// The result of so many bytes, which is there.
    #[inline]
    pub(crate) fn result<const N: usize>(
        &self,
        check: u64,
        len: usize,
        join: Join<'_>,
    ) -> Result<Operand<N>, Differs> {
        if self.few() {
            let cell = |rank| &(self.seat)(rank).own;
            return self.fold((check, len), (0, 1, self.ranks), cell, join);
        }
        let mut result = Operand::new(len);
        (self.seat)(0).result.read(&mut result);
        Ok(result)
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
    fn join(sum: &mut [u8], next: &mut [u8]) {
        let word = |bytes: &[u8]| u64::from_ne_bytes(*bytes.first_chunk().expect("bytes"));
        let (left, right) = (word(sum), word(next));
        let count = (left >> 32) + (right >> 32);
        // Neighbouring runs: first rank and length.
        assert_eq!((left & 0xffff_ffff) + (left >> 32), right & 0xffff_ffff, "operands in order");
        sum[..8].copy_from_slice(&(count << 32 | left & 0xffff_ffff).to_ne_bytes());
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
                            let own = (1 << 32 | me as u64).to_ne_bytes();
                            board.put(7, &own, &join).expect("they agree");
                            while !board.is_ready() {
                                std::thread::yield_now();
                            }
                            let mut result = board.result::<1>(7, 8, &join).expect("they agree");
                            let right = (ranks as u64) << 32;
                            if *result.bytes() != right.to_ne_bytes() {
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
            board(me).put(u64::from(me == 2), &[1; 8], &|_, _| {}).expect("few do not look");
        }
        let said = board(0).result::<1>(0, 8, &|_, _| {});
        assert_eq!(said, Err(Differs { rank: 2, check: 1 }));
    }

    #[test]
    fn operands_of_any_length_stay_what_they_are() {
        let seats: Vec<Seat> = (0..2).map(|_| Seat::empty()).collect();
        for len in 0..=OPERAND {
            let turn = u32::try_from(len).expect("small");
            let board = |me| Board { ranks: 2, me, turn, seat: |rank: usize| &seats[rank] };
            let own =
                |me: u8| -> Vec<u8> { (0..turn).map(|at| me ^ at.to_le_bytes()[0]).collect() };
            for me in 0..2 {
                assert!(!board(0).is_ready());
                board(me.into()).put(1, &own(me), &|_, _| {}).expect("few do not look");
            }
            assert!(board(1).is_ready());
            let add = |sum: &mut [u8], next: &mut [u8]| {
                sum.iter_mut().zip(next).for_each(|(to, from)| *to = to.wrapping_add(*from));
            };
            let mut sum = board(1).result::<WORDS>(1, len, &add).expect("they agree");
            let right =
                own(0).into_iter().zip(own(1)).map(|(left, right)| left.wrapping_add(right));
            assert_eq!(*sum.bytes(), right.collect::<Vec<_>>());
        }
    }
}
