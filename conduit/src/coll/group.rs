//! A team as its member knows it: who is in it, and how many collectives it has begun.

use std::sync::atomic::{AtomicU32, Ordering};

use super::hierarchy::Member;
use super::members::Members;
use super::places::Places;
use crate::transport::shm::MOST;

/// Number of a team in the job: job rank of its first member, and a number that this one gave. The
/// team of all ranks has 0.
pub(crate) type TeamId = u64;

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
    /// Where all members are neighbours and no other team has their seats: turns of reductions in
    /// shared memory that were begun, and those whose result was seen.
    turns: Option<[AtomicU32; 2]>,
}

impl Group {
    pub(crate) const fn new(id: TeamId, members: Members, rank: u32, places: Places) -> Self {
        Self { id, members, rank, places, begun: AtomicU32::new(0), turns: None }
    }

    /// The team of all ranks, whose seats are its own.
    pub(crate) fn whole(rank: u32, size: u32, places: Places) -> Self {
        let small = (2..=u32::try_from(MOST).unwrap_or(0)).contains(&size);
        let turns = (small && places.count() < 2).then(Default::default);
        Self { turns, ..Self::new(0, Members::all(size), rank, places) }
    }

    /// Whether small reductions have seats.
    pub(super) const fn has_seats(&self) -> bool {
        self.turns.is_some()
    }

    /// The number of the turn that begins now.
    pub(super) fn next_turn(&self) -> u32 {
        self.turns.as_ref().map_or(0, |[begun, _]| begun.fetch_add(1, Ordering::Relaxed))
    }

    /// Turns whose result was seen.
    pub(super) fn seen(&self) -> u32 {
        self.turns.as_ref().map_or(0, |[_, seen]| seen.load(Ordering::Relaxed))
    }

    /// One more.
    pub(super) fn see(&self) {
        if let Some([_, seen]) = &self.turns {
            seen.fetch_add(1, Ordering::Relaxed);
        }
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
    pub(super) fn is_together(&self) -> bool {
        self.places.count() < 2
    }

    /// The number of the collective that begins now, the same on all members.
    pub(super) fn next(&self) -> u32 {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the collective with this number was begun here.
    pub(super) fn has_begun(&self, number: u32) -> bool {
        // Older by less than half of all numbers.
        self.begun.load(Ordering::Relaxed).wrapping_sub(number).wrapping_sub(1) < 1 << 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_are_numbered_in_order() {
        let group = Group::new(0, Members::all(1), 0, Places::together(vec![0]));
        assert!(!group.has_begun(0));
        assert_eq!((group.next(), group.next()), (0, 1));
        assert!(group.has_begun(0) && group.has_begun(1) && !group.has_begun(2));
        let group = Group { begun: AtomicU32::new(u32::MAX), ..group };
        assert_eq!((group.next(), group.next()), (u32::MAX, 0));
        assert!(group.has_begun(0) && group.has_begun(u32::MAX) && !group.has_begun(1));
    }
}
