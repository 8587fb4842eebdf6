//! Neighbourhoods: which ranks share memory with this one, and where all others are.
//!
//! The ranks of a host are cut, in rank order, into *neighbourhoods* of at most
//! `GASNET_SUPERNODE_MAXSIZE` ranks. Only the ranks of one share memory; every other rank is
//! *remote*, on the same host or not. Neighbourhoods are numbered by their first ranks, which are
//! their leaders.
//!
//! Calls name a rank by a *target*: the local index of a neighbour, or [`remote`] of a job rank.

use bootstrap::node_shm::NodeShm;
use bootstrap::{Rank, RankInfo};

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Neighbours {
    pub(crate) span: Span,
    most: u32,
    pub(crate) ranks: Box<[u32]>,
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
    pub(crate) fn new(place: RankInfo, page: &NodeShm, most: u32) -> Self {
        let host_ranks: Vec<u32> = (0..place.locals).map(|at| page.local_rank(at).0).collect();
        let host_of = |rank| page.host_of(Rank(rank)).map_or(0, |host| host.0);
        Self::of(place, &host_ranks, host_of, most)
    }

    fn of(place: RankInfo, host_ranks: &[u32], host_of: impl Fn(u32) -> u32, most: u32) -> Self {
        let most = if most == 0 { u32::MAX } else { most };
        let part = place.local / most;
        let base = part * most;
        let ranks: Box<[u32]> =
            host_ranks.iter().copied().skip(base as usize).take(most as usize).collect();
        let locals = length(ranks.len());
        let leader = ranks.first().copied().unwrap_or(place.rank.0);
        let contiguous = ranks.last().is_none_or(|last| last - leader + 1 == locals);
        let first = if contiguous { leader } else { NOWHERE };
        let on_host = length(host_ranks.len());
        let (mut count, mut number) = (0, 0);
        each_rank(place, &host_of, most, |rank, at, leads| {
            count += u32::from(leads);
            if rank == leader {
                number = at;
            }
        });
        let rounds = rounds(count);
        let mut ahead = vec![leader; rounds].into_boxed_slice();
        let mut behind = ahead.clone();
        each_rank(place, &host_of, most, |rank, at, leads| {
            for round in (0..rounds).filter(|_| leads) {
                let step = 1_u32 << round;
                if at == (number + step) % count {
                    ahead[round] = rank;
                }
                if at == (number + count - step % count) % count {
                    behind[round] = rank;
                }
            }
        });
        let span = Span { first, locals, local: place.local - base, base };
        let part = part as usize;
        Self { span, most, ranks, on_host, part, count, number, ahead, behind }
    }

    /// Local index of a job rank, `None` for remote ones.
    #[inline]
    pub(crate) fn local_of(&self, rank: Rank) -> Option<usize> {
        let offset = self.span.offset(rank.0);
        if offset < self.ranks.len() {
            return Some(offset);
        }
        if self.span.first != NOWHERE {
            return None;
        }
        self.ranks.binary_search(&rank.0).ok()
    }

    #[inline]
    pub(crate) fn rank_of(&self, target: usize) -> Rank {
        match self.ranks.get(target) {
            Some(rank) => Rank(*rank),
            None => remote_rank(target).unwrap_or(Rank(u32::MAX)),
        }
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
    pub(crate) fn of_all(&self, place: RankInfo, host_of: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut numbers = Vec::with_capacity(place.size as usize);
        each_rank(place, host_of, self.most, |_, number, _| numbers.push(number));
        numbers
    }
}

/// Calls `each` with every rank of the job, the number of its neighbourhood, and whether it leads
/// that.
fn each_rank(
    place: RankInfo,
    host_of: impl Fn(u32) -> u32,
    most: u32,
    mut each: impl FnMut(u32, u32, bool),
) {
    let mut hosts = vec![(0_u32, 0_u32); place.hosts as usize];
    let mut next = 0;
    for rank in 0..place.size {
        let Some((seen, number)) = hosts.get_mut(host_of(rank) as usize) else { continue };
        let leads = seen.is_multiple_of(most);
        if leads {
            *number = next;
            next += 1;
        }
        *seen += 1;
        each(rank, *number, leads);
    }
}

pub(crate) const fn rounds(count: u32) -> usize {
    (u32::BITS - count.saturating_sub(1).leading_zeros()) as usize
}

fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use bootstrap::HostId;
    use proptest::prelude::*;

    use super::*;

    /// Every rank's view of a job.
    fn job(host_of: &[u32], most: u32) -> Vec<(RankInfo, Neighbours)> {
        let hosts = host_of.iter().max().map_or(0, |host| host + 1);
        let ranks_on = |host| -> Vec<u32> {
            (0..).zip(host_of).filter(|(_, on)| **on == host).map(|(rank, _)| rank).collect()
        };
        (0..)
            .zip(host_of)
            .map(|(rank, host)| {
                let on_host = ranks_on(*host);
                let local = on_host.iter().position(|other| *other == rank).expect("on its host");
                let place = RankInfo {
                    rank: Rank(rank),
                    size: length(host_of.len()),
                    host: HostId(*host),
                    hosts,
                    local: length(local),
                    locals: length(on_host.len()),
                };
                let host = |rank: u32| host_of[rank as usize];
                (place, Neighbours::of(place, &on_host, host, most))
            })
            .collect()
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
            hosts.into_iter().map(|host| length(number(host))).collect()
        })
    }

    proptest! {
        #[test]
        fn all_ranks_see_the_same_neighbourhoods(host_of in placements(), most in 0_u32..6) {
            let job = job(&host_of, most);
            let all = job[0].1.of_all(job[0].0, |rank| host_of[rank as usize]);
            for (place, mine) in &job {
                let span = mine.span;
                prop_assert_eq!(all[place.rank.0 as usize], mine.number);
                prop_assert!(mine.number < mine.count);
                prop_assert_eq!(mine.rank_of(span.local as usize), place.rank);
                prop_assert!(most == 0 || span.locals <= most);
                prop_assert_eq!(span.base + span.local, place.local);
                let (parts, part) = mine.on_host();
                prop_assert_eq!(parts.clone().nth(part), Some(span.locals));
                prop_assert_eq!(parts.sum::<u32>(), place.locals);
                for (other, theirs) in &job {
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
            for (place, mine) in job.iter().filter(|(_, mine)| mine.leads()) {
                prop_assert_eq!(mine.ahead.len(), rounds(mine.count));
                for round in 0..mine.ahead.len() {
                    let theirs = &job[mine.ahead[round] as usize].1;
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
