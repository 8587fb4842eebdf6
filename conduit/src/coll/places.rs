//! Where the members of a team are: which of them share memory with this rank, and who speaks for
//! the other neighbourhoods. Pure.

use super::ascending::Ascending;
use super::numbering::Numbering;
use crate::transport::neighbour_ranks::NeighbourRanks;

/// The members in one neighbourhood, by their ranks in the team.
#[derive(Clone, Debug)]
enum Near {
    /// All neighbours of this rank, in the team of all ranks.
    All(NeighbourRanks),
    Some(Ascending),
}

/// The part that each rank of a team is in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Parts {
    /// Neighbourhoods are runs of ranks: the last leader up to it tells.
    Runs,
    Listed(Box<[u32]>),
}

/// The members of a team by neighbourhood, as one of them sees them. Ranks are those of the team.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    near: Near,
    /// The first member of each neighbourhood that has some, from rank 0 on; none when there is
    /// one neighbourhood.
    leaders: Ascending,
    /// This neighbourhood among them.
    part: u32,
    parts: Parts,
}

impl Places {
    /// All near each other: the ranks from 0 on.
    pub(crate) fn together(count: u32) -> Self {
        let near = Near::Some(Ascending::run(count));
        Self { near, leaders: Ascending::default(), part: 0, parts: Parts::Runs }
    }

    /// `numbers`: that of the neighbourhood of each rank of the team, in order; `mine` is that of
    /// this rank.
    pub(crate) fn new(mine: u32, numbers: impl Iterator<Item = u32>) -> Self {
        let (mut numbering, mut part, mut count) = (Numbering::default(), 0, 0);
        let (mut leaders, mut near) = (Ascending::default(), Ascending::default());
        let mut parts: Option<Vec<u32>> = None;
        let mut last = 0;
        for (at, number) in (0_u32..).zip(numbers) {
            let (of, first) = numbering.part_of(number);
            if first {
                leaders.push(at);
            } else if of != last && parts.is_none() {
                // No runs: what was computed so far is written down.
                parts = Some((0..at).map(|rank| leaders.last_upto(rank)).collect());
            }
            if let Some(parts) = &mut parts {
                parts.push(of);
            }
            if number == mine {
                near.push(at);
                part = of;
            }
            (last, count) = (of, at + 1);
        }
        if leaders.count() < 2 {
            return Self::together(count);
        }
        let parts = parts.map_or(Parts::Runs, |parts| Parts::Listed(parts.into()));
        Self { near: Near::Some(near), leaders, part, parts }
    }

    /// The same for the team of all ranks, in which these are near.
    pub(crate) fn with_neighbours(self, ranks: &NeighbourRanks) -> Self {
        Self { near: Near::All(ranks.clone()), ..self }
    }

    /// How many members are near each other here.
    pub(crate) fn near_count(&self) -> u32 {
        match &self.near {
            Near::All(ranks) => ranks.count(),
            Near::Some(ranks) => ranks.count(),
        }
    }

    /// The rank of one of them.
    pub(crate) fn near_rank(&self, at: u32) -> Option<u32> {
        match &self.near {
            Near::All(ranks) => ranks.get(at),
            Near::Some(ranks) => ranks.get(at),
        }
    }

    /// Place of a rank among them, if it is one.
    pub(crate) fn near_index(&self, rank: u32) -> Option<u32> {
        match &self.near {
            Near::All(ranks) => ranks.index_of(rank),
            Near::Some(ranks) => ranks.index_of(rank),
        }
    }

    pub(crate) fn near(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        (0..self.near_count()).map_while(|at| self.near_rank(at))
    }

    pub(crate) const fn part(&self) -> u32 {
        self.part
    }

    /// Whether each neighbourhood's members are a run of ranks.
    pub(crate) fn are_runs(&self) -> bool {
        self.parts == Parts::Runs
    }

    /// How many neighbourhoods have members.
    pub(crate) fn count(&self) -> u32 {
        self.leaders.count().max(1)
    }

    /// The part that a rank is in.
    pub(crate) fn part_of(&self, rank: u32) -> u32 {
        match &self.parts {
            Parts::Runs => self.leaders.last_upto(rank),
            Parts::Listed(parts) => parts.get(rank as usize).copied().unwrap_or(0),
        }
    }

    /// Who speaks for a part.
    pub(crate) fn leader(&self, part: u32) -> u32 {
        self.leaders.get(part).or_else(|| self.near_rank(0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_neighbourhoods_take_no_memory_for_each() {
        let places = Places::new(1, (0..12).map(|rank| rank / 2));
        assert!(places.leaders.is_even() && places.are_runs());
        assert!(matches!(&places.near, Near::Some(near) if near.is_even()));
        assert!(!Places::new(0, [0, 0, 1, 2].into_iter()).leaders.is_even());
    }

    proptest! {
        #[test]
        fn members_agree_on_who_leads(numbers in proptest::collection::vec(0_u32..4, 1..20)) {
            let size = u32::try_from(numbers.len()).expect("few");
            let all: Vec<_> =
                numbers.iter().map(|mine| Places::new(*mine, numbers.iter().copied())).collect();
            for (rank, places) in all.iter().enumerate() {
                prop_assert_eq!(places.count(), all[0].count());
                prop_assert_eq!(places.are_runs(), all[0].are_runs());
                let near: Vec<u32> =
                    (0..size).filter(|other| numbers[*other as usize] == numbers[rank]).collect();
                prop_assert_eq!(&places.near().collect::<Vec<_>>(), &near);
                for (at, other) in (0..).zip(&near) {
                    prop_assert_eq!(places.near_index(*other), Some(at));
                    prop_assert_eq!(places.near_rank(at), Some(*other));
                }
                prop_assert_eq!(places.leader(places.part()), near[0]);
                for part in 0..places.count() {
                    prop_assert_eq!(places.leader(part), all[0].leader(part));
                    prop_assert_eq!(all[places.leader(part) as usize].part(), part);
                }
                for other in 0..size {
                    prop_assert_eq!(places.part_of(other), all[other as usize].part());
                }
                let runs = near.windows(2).all(|pair| pair[1] == pair[0] + 1);
                prop_assert!(runs || !places.are_runs());
            }
        }
    }
}
