//! Neighbourhoods: which ranks share memory with this one, and where all others are.
//!
//! The ranks of a host are cut, in rank order, into *neighbourhoods* of at most
//! `GASNET_SUPERNODE_MAXSIZE` ranks. Only the ranks of one share memory; every other rank is
//! *remote*, on the same host or not. Neighbourhoods are numbered by their first ranks, which are
//! their leaders.
//!
//! Calls name a rank by a *target*: the local index of a neighbour, or [`remote`] of a job rank.

use std::sync::Arc;

use bootstrap::node_shm::NodeShm;
use bootstrap::{Rank, RankInfo};

use super::neighbour_ranks::NeighbourRanks;

/// Marks targets that are job ranks.
const REMOTE: usize = 1 << 31;
/// Subtracted from any job rank it leaves no local index.
const NOWHERE: u32 = 1 << 31;

#[inline]
pub(crate) const fn remote(rank: Rank) -> usize {
    rank.0 as usize | REMOTE
}

#[inline(always)]
pub(crate) fn remote_rank(target: usize) -> Option<Rank> {
    // Neighbours are looked at first everywhere: no rank number reaches the mark.
    (target >= REMOTE).then(|| Rank(u32::try_from(target & (REMOTE - 1)).unwrap_or(u32::MAX)))
}

/// What every call looks at: job rank to local index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Job rank of the first neighbour where all have consecutive ranks, else [`NOWHERE`].
    first: u32,
    pub(crate) locals: u32,
    pub(crate) local: u32,
    /// Index of the first neighbour among the ranks of the host.
    pub(crate) base: u32,
}

impl Span {
    /// Local index of a job rank by arithmetic alone; nothing below `locals` where that cannot be
    /// done.
    #[inline(always)]
    pub(crate) const fn offset(self, rank: u32) -> usize {
        rank.wrapping_sub(self.first) as usize
    }

    /// First rank and number of the ranks that [`Span::offset`] finds.
    pub(crate) const fn contiguous(self) -> (u32, u32) {
        (self.first, if self.first == NOWHERE { 0 } else { self.locals })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Neighbours {
    pub(crate) span: Span,
    most: u32,
    pub(crate) ranks: NeighbourRanks,
    on_host: u32,
    /// This neighbourhood among those of its host.
    part: usize,
    pub(crate) count: u32,
    pub(crate) number: u32,
    /// Leaders of the neighbourhoods at the distances 1, 2, 4 … after this one.
    pub(crate) ahead: Box<[u32]>,
    /// Leaders of those at the same distances before it.
    pub(crate) behind: Box<[u32]>,
}

impl Neighbours {
    /// Cuts the hosts of a job into neighbourhoods of at most `most` ranks (0: no limit).
    pub(crate) fn new(place: RankInfo, page: &Arc<NodeShm>, most: u32) -> Self {
        let most = if most == 0 { u32::MAX } else { most };
        let part = place.local / most;
        let base = part * most;
        let ranks = NeighbourRanks::new(page, base..base.saturating_add(most));
        let locals = ranks.count();
        let leader = ranks.get(0).unwrap_or(place.rank.0);
        let first = if ranks.is_run() { leader } else { NOWHERE };
        let on_host = place.locals;
        let (mut count, mut number) = (0, 0);
        for (rank, at, leads) in numbered(place, page, most) {
            count += u32::from(leads);
            if rank == leader {
                number = at;
            }
        }
        let rounds = rounds(count);
        let mut ahead = vec![leader; rounds].into_boxed_slice();
        let mut behind = ahead.clone();
        for (rank, at, _) in numbered(place, page, most).filter(|(.., leads)| *leads) {
            for round in 0..rounds {
                let step = 1_u32 << round;
                if at == (number + step) % count {
                    ahead[round] = rank;
                }
                if at == (number + count - step % count) % count {
                    behind[round] = rank;
                }
            }
        }
        let span = Span { first, locals, local: place.local - base, base };
        let part = part as usize;
        Self { span, most, ranks, on_host, part, count, number, ahead, behind }
    }

    /// Local index of a job rank, `None` for remote ones.
    #[inline]
    pub(crate) fn local_of(&self, rank: Rank) -> Option<usize> {
        let offset = self.span.offset(rank.0);
        if offset < self.span.locals as usize {
            return Some(offset);
        }
        self.local_outside(rank)
    }

    /// As [`Neighbours::local_of`], of a rank that is not in the span.
    #[inline]
    pub(crate) fn local_outside(&self, rank: Rank) -> Option<usize> {
        if self.span.first != NOWHERE {
            return None;
        }
        self.ranks.index_of(rank.0).map(|index| index as usize)
    }

    #[inline]
    pub(crate) fn rank_of(&self, target: usize) -> Rank {
        let neighbour = u32::try_from(target).ok().and_then(|index| self.ranks.get(index));
        neighbour.or_else(|| Some(remote_rank(target)?.0)).map_or(Rank(u32::MAX), Rank)
    }

    /// Whether this rank speaks for its neighbourhood.
    pub(crate) const fn leads(&self) -> bool {
        self.span.local == 0
    }

    /// Ranks of each neighbourhood of this host, in order, and which of them is this one.
    pub(crate) fn on_host(&self) -> (impl ExactSizeIterator<Item = u32> + Clone, usize) {
        let (all, most) = (self.on_host, self.most);
        let parts = 0..all.div_ceil(most);
        (parts.map(move |part| most.min(all - part * most)), self.part)
    }

    /// Neighbourhood of every rank of the job, in rank order.
    pub(crate) fn of_all(&self, place: RankInfo, page: &NodeShm) -> impl Iterator<Item = u32> {
        numbered(place, page, self.most).map(|(_, number, _)| number)
    }
}

/// Every rank of the job, the number of its neighbourhood, and whether it leads that.
fn numbered(place: RankInfo, page: &NodeShm, most: u32) -> impl Iterator<Item = (u32, u32, bool)> {
    let mut hosts = vec![(0_u32, 0_u32); place.hosts as usize];
    let mut next = 0;
    (0..place.size).filter_map(move |rank| {
        let host = page.host_of(Rank(rank)).map_or(0, |host| host.0);
        let (seen, number) = hosts.get_mut(host as usize)?;
        let leads = seen.is_multiple_of(most);
        if leads {
            *number = next;
            next += 1;
        }
        *seen += 1;
        Some((rank, *number, leads))
    })
}

pub(crate) const fn rounds(count: u32) -> usize {
    (u32::BITS - count.saturating_sub(1).leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::neighbour_ranks::tests::page;
    use super::*;

    /// Every rank's view of a job: the page of its host, its place, its neighbours.
    fn job(host_of: &[u32], most: u32) -> Vec<(Arc<NodeShm>, RankInfo, Neighbours)> {
        let hosts = host_of.iter().max().map_or(0, |host| host + 1);
        let pages: Vec<_> = (0..hosts).map(|host| page(host, host_of)).collect();
        let rank = |(rank, host): (u32, &u32)| {
            let page = &pages[*host as usize];
            let place = page.rank_info(Rank(rank)).expect("on its host");
            (Arc::clone(page), place, Neighbours::new(place, page, most))
        };
        (0..).zip(host_of).map(rank).collect()
    }

    /// Hosts numbered by their first rank, without gaps.
    fn placements() -> impl Strategy<Value = Vec<u32>> {
        proptest::collection::vec(0_u32..5, 1..24).prop_map(|hosts| {
            let mut seen = Vec::new();
            let mut number = |host| {
                seen.iter().position(|other| *other == host).unwrap_or_else(|| {
                    seen.push(host);
                    seen.len() - 1
                })
            };
            hosts.into_iter().map(|host| u32::try_from(number(host)).expect("few")).collect()
        })
    }

    proptest! {
        #[test]
        fn all_ranks_see_the_same_neighbourhoods(host_of in placements(), most in 0_u32..6) {
            let job = job(&host_of, most);
            let (page, place, first) = &job[0];
            let all: Vec<u32> = first.of_all(*place, page).collect();
            for (_, place, mine) in &job {
                let span = mine.span;
                prop_assert_eq!(all[place.rank.0 as usize], mine.number);
                prop_assert!(mine.number < mine.count);
                prop_assert_eq!(mine.rank_of(span.local as usize), place.rank);
                prop_assert!(most == 0 || span.locals <= most);
                prop_assert_eq!(span.base + span.local, place.local);
                let (parts, part) = mine.on_host();
                prop_assert_eq!(parts.clone().nth(part), Some(span.locals));
                prop_assert_eq!(parts.sum::<u32>(), place.locals);
                for (_, other, theirs) in &job {
                    let together = all[other.rank.0 as usize] == mine.number;
                    let local = mine.local_of(other.rank);
                    prop_assert_eq!(local.is_some(), together);
                    prop_assert_eq!(theirs.number == mine.number, together);
                    if let Some(local) = local {
                        prop_assert_eq!(mine.rank_of(local), other.rank);
                        prop_assert_eq!(theirs.span.local as usize, local);
                    }
                    let target = local.unwrap_or_else(|| remote(other.rank));
                    prop_assert_eq!(mine.rank_of(target), other.rank);
                    prop_assert_eq!(remote_rank(target).is_some(), !together);
                    let offset = span.offset(other.rank.0);
                    prop_assert!(offset >= span.locals as usize || Some(offset) == local);
                }
            }
        }

        #[test]
        fn leaders_find_each_other(host_of in placements(), most in 0_u32..6) {
            let job = job(&host_of, most);
            for (_, place, mine) in job.iter().filter(|(.., mine)| mine.leads()) {
                prop_assert_eq!(mine.ahead.len(), rounds(mine.count));
                for round in 0..mine.ahead.len() {
                    let theirs = &job[mine.ahead[round] as usize].2;
                    prop_assert!(theirs.leads());
                    prop_assert_eq!(theirs.behind[round], place.rank.0);
                    prop_assert_eq!(theirs.number, (mine.number + (1 << round)) % mine.count);
                }
            }
        }
    }

    #[test]
    fn rounds_are_the_logarithm() {
        let all: Vec<usize> = (0..10).map(rounds).collect();
        assert_eq!(all, [0, 0, 1, 2, 2, 3, 3, 3, 3, 4]);
    }
}
