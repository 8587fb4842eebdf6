//! The job ranks of a neighbourhood, without memory for each of them.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use bootstrap::Rank;
use bootstrap::node_shm::NodeShm;

/// Job ranks of a neighbourhood, ascending, by local index. At even distances they are computed;
/// others are read where their host has them once for all its ranks.
#[derive(Clone, Debug)]
pub(crate) struct NeighbourRanks {
    first: u32,
    count: u32,
    /// Distance of each to the next; `None` where distances differ.
    stride: Option<NonZeroU32>,
    /// Index of the first among the ranks of the host.
    base: u32,
    page: Arc<NodeShm>,
}

impl NeighbourRanks {
    /// Those with these indices among the ranks of the host.
    pub(crate) fn new(page: &Arc<NodeShm>, on_host: Range<u32>) -> Self {
        let end = on_host.end.min(page.locals());
        let base = on_host.start.min(end);
        let ranks = (base..end).map(|at| page.local_rank(at).0);
        let (first, page) = (ranks.clone().next().unwrap_or(0), Arc::clone(page));
        Self { first, count: end - base, stride: stride(ranks), base, page }
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Whether no rank is missing between the first and the last.
    pub(crate) fn is_run(&self) -> bool {
        self.stride == Some(NonZeroU32::MIN)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<u32> {
        if index >= self.count {
            return None;
        }
        Some(match self.stride {
            Some(stride) => self.first + index * stride.get(),
            None => self.page.local_rank(self.base + index).0,
        })
    }

    /// Local index of a job rank; `None` for one that is no neighbour.
    pub(crate) fn index_of(&self, rank: u32) -> Option<u32> {
        let index = match self.stride {
            Some(stride) => {
                let after = rank.checked_sub(self.first)?;
                after.is_multiple_of(stride.get()).then(|| after / stride)?
            }
            None => self.page.local_of(Rank(rank))?.checked_sub(self.base)?,
        };
        (index < self.count).then_some(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        (0..self.count).map_while(|index| self.get(index))
    }
}

/// The distance of ascending numbers, if it is the same everywhere; 1 for fewer than two.
fn stride(mut ranks: impl Iterator<Item = u32>) -> Option<NonZeroU32> {
    let (Some(first), Some(second)) = (ranks.next(), ranks.next()) else {
        return Some(NonZeroU32::MIN);
    };
    let stride = NonZeroU32::new(second.checked_sub(first)?)?;
    let mut last = second;
    let even = ranks.all(|rank| {
        let step = rank.checked_sub(last);
        last = rank;
        step == Some(stride.get())
    });
    even.then_some(stride)
}

#[cfg(test)]
pub(super) mod tests {
    use bootstrap::HostId;
    use bootstrap::node_shm::NodeShmSpec;
    use proptest::prelude::*;

    use super::*;

    /// The page of a host of a job.
    pub(crate) fn page(host: u32, host_of: &[u32]) -> Arc<NodeShm> {
        let hosts = host_of.iter().max().map_or(0, |host| host + 1);
        let on_host = (0..).zip(host_of).filter(|(_, on)| **on == host);
        let local_ranks: Vec<Rank> = on_host.map(|(rank, _)| Rank(rank)).collect();
        let host_of: Vec<HostId> = host_of.iter().map(|host| HostId(*host)).collect();
        let (host, local_ranks, host_of) = (HostId(host), &local_ranks[..], &host_of[..]);
        let spec = NodeShmSpec { host, hosts, local_ranks, host_of };
        Arc::new(NodeShm::create(&spec).expect("a page"))
    }

    fn check(ranks: &NeighbourRanks, expected: &[u32], size: u32) {
        assert_eq!(ranks.iter().collect::<Vec<_>>(), expected);
        let run = expected.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert_eq!((ranks.count() as usize, ranks.is_run()), (expected.len(), run));
        assert_eq!(ranks.get(ranks.count()), None);
        for rank in 0..size + 2 {
            let index = expected.iter().position(|other| *other == rank);
            assert_eq!(ranks.index_of(rank).map(|at| at as usize), index);
        }
    }

    #[test]
    fn ranks_at_even_distances_are_computed() {
        for (hosts, each) in [(1, 7), (3, 4), (4, 1)] {
            // In blocks, and in turn.
            let blocks: Vec<u32> = (0..hosts * each).map(|rank| rank / each).collect();
            let turns: Vec<u32> = (0..hosts * each).map(|rank| rank % hosts).collect();
            for host in 0..hosts {
                let of = |placed| NeighbourRanks::new(&page(host, placed), 0..u32::MAX);
                assert!(of(&blocks).is_run());
                assert!(of(&turns).stride.is_some());
            }
        }
        assert_eq!(NeighbourRanks::new(&page(0, &[0, 0, 1, 0]), 0..3).stride, None);
    }

    proptest! {
        #[test]
        fn ranks_are_found_both_ways(
            more in proptest::collection::vec(0_u32..3, 0..20), from in 0_u32..5, most in 1_u32..9,
        ) {
            // No host is without ranks.
            let host_of: Vec<u32> = (0..3).chain(more).collect();
            for host in 0..3 {
                let on_host = (0_u32..).zip(&host_of).filter(|(_, on)| **on == host);
                let part = on_host.map(|(rank, _)| rank).skip(from as usize).take(most as usize);
                let ranks = NeighbourRanks::new(&page(host, &host_of), from..from + most);
                check(&ranks, &part.collect::<Vec<_>>(), u32::try_from(host_of.len()).expect("few"));
            }
        }
    }
}
