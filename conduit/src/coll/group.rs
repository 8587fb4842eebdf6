//! A team as its member knows it: who is in it, and how many collectives it has begun.

use std::sync::atomic::{AtomicU32, Ordering};

use super::hierarchy::Member;
use super::members::Members;
use super::places::Places;
use crate::transport::shm::{MOST, OPERAND};

/// Number of a team in the job: job rank of its first member, and a number that this one gave. The
/// team of all ranks has 0.
pub(crate) type TeamId = u64;

/// That of all ranks.
pub(super) const WHOLE: TeamId = 0;

/// Makes the number of a team.
pub(crate) const fn team_id(first: u32, number: u32) -> TeamId {
    (first as u64) << 32 | number as u64
}

/// A team that this rank is a member of.
#[derive(Debug)]
pub struct Group {
    pub(crate) id: TeamId,
    pub(crate) members: Members,
    /// This rank in it.
    pub(crate) rank: u32,
    pub(crate) places: Places,
    /// Collectives that were begun.
    begun: AtomicU32,
    /// Where small reductions to all go through seats or mailboxes, which no other team has: turns
    /// that were begun, and those whose result was seen.
    turns: Option<[AtomicU32; 2]>,
    /// Most bytes of one of them.
    turn_bytes: usize,
}

impl Group {
    pub(crate) const fn new(id: TeamId, members: Members, rank: u32, places: Places) -> Self {
        Self { id, members, rank, places, begun: AtomicU32::new(0), turns: None, turn_bytes: 0 }
    }

    /// The team of all ranks, whose seats are its own. `mailbox`: bytes of an operand in a mailbox, 0
    /// where members have none.
    pub(crate) fn whole(rank: u32, size: u32, places: Places, mailbox: usize) -> Self {
        let few = (2..=u32::try_from(MOST).unwrap_or(0)).contains(&size);
        let seats = few && places.count() < 2;
        let turns = (seats || mailbox > 0).then(Default::default);
        let turn_bytes = if seats { OPERAND } else { mailbox };
        Self { turns, turn_bytes, ..Self::new(WHOLE, Members::all(size), rank, places) }
    }

    /// Whether reductions to all of so many bytes are turns, through seats or mailboxes.
    #[must_use]
    #[inline]
    pub const fn has_turns(&self, len: usize) -> bool {
        self.turns.is_some() && len <= self.turn_bytes
    }

    /// The number of the turn that begins now. Who calls it, or [`Group::see`], has the lock of all
    /// collectives.
    pub(super) fn next_turn(&self) -> u32 {
        self.turns.as_ref().map_or(0, |[begun, _]| count_up(begun))
    }

    /// Turns whose result was seen.
    #[inline]
    pub(super) fn seen(&self) -> u32 {
        self.turns.as_ref().map_or(0, |[_, seen]| seen.load(Ordering::Acquire))
    }

    /// One more, whose result is where it belongs.
    pub(super) fn see(&self) {
        if let Some([_, seen]) = &self.turns {
            count_up(seen);
        }
    }

    /// Whether the reduction of a turn is complete; `None` for one that was not begun.
    #[must_use]
    #[inline]
    pub fn has_seen(&self, turn: u32) -> Option<bool> {
        let [begun, seen] = self.turns.as_ref()?.each_ref().map(|count| is_before(turn, count));
        begun.then_some(seen)
    }

    /// Whether a turn is under way.
    #[inline]
    pub(super) fn meets(&self) -> bool {
        let turns = self.turns.as_ref();
        turns.is_some_and(|[begun, _]| begun.load(Ordering::Relaxed) != self.seen())
    }

    /// This process's rank in the team.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks in the team.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.members.count()
    }

    /// Job rank of a rank of the team; `None` for one that is not in it.
    #[must_use]
    #[inline]
    pub fn job_rank(&self, rank: u32) -> Option<u32> {
        self.members.job_rank(rank)
    }

    /// Rank in the team of a rank of the job; `None` for one that is no member.
    #[must_use]
    #[inline]
    pub fn rank_of(&self, job: u32) -> Option<u32> {
        self.members.rank_of(job)
    }

    /// This rank as schedules see it.
    pub(super) fn member(&self) -> Member<'_> {
        Member { rank: self.rank, size: self.size(), places: &self.places }
    }

    /// Whether all members share memory.
    #[must_use]
    pub fn is_together(&self) -> bool {
        self.places.count() < 2
    }

    /// The number of the collective that begins now, the same on all members. Who calls it has the
    /// lock of all collectives.
    pub(super) fn next(&self) -> u32 {
        count_up(&self.begun)
    }

    /// Whether the collective with this number was begun here.
    pub(super) fn has_begun(&self, number: u32) -> bool {
        is_before(number, &self.begun)
    }
}

/// Counts what one thread at a time counts; the count before.
fn count_up(count: &AtomicU32) -> u32 {
    let before = count.load(Ordering::Relaxed);
    count.store(before.wrapping_add(1), Ordering::Release);
    before
}

/// Whether a number is that of something counted: older by less than half of all numbers.
#[inline]
fn is_before(number: u32, count: &AtomicU32) -> bool {
    count.load(Ordering::Acquire).wrapping_sub(number).wrapping_sub(1) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_numbered_in_order() {
        let group = Group::new(0, Members::all(1), 0, Places::together(1));
        assert!(!group.has_begun(0));
        assert_eq!((group.next(), group.next()), (0, 1));
        assert!(group.has_begun(0) && group.has_begun(1) && !group.has_begun(2));
        let group = Group { begun: AtomicU32::new(u32::MAX), ..group };
        assert_eq!((group.next(), group.next()), (u32::MAX, 0));
        assert!(group.has_begun(0) && group.has_begun(u32::MAX) && !group.has_begun(1));
    }
    #[test]
    fn turns_complete_in_order() {
        let group = Group::whole(0, 2, Places::together(2), 0);
        assert_eq!((group.has_seen(0), group.meets()), (None, false));
        assert_eq!((group.next_turn(), group.next_turn()), (0, 1));
        assert_eq!((group.has_seen(0), group.meets()), (Some(false), true));
        group.see();
        assert_eq!([0, 1, 2].map(|turn| group.has_seen(turn)), [Some(true), Some(false), None]);
        group.see();
        assert!(!group.meets());
    }
}
