//! Where the members of a team are: which of them share memory with this rank, and who speaks for
//! the other neighbourhoods. Pure.

use std::collections::HashMap;

use super::members::Members;

/// The first member of each neighbourhood that has some, ascending, from rank 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Leaders {
    /// Every so-manieth rank, as where neighbourhoods are equally large: no memory for each.
    Strided {
        stride: u32,
        count: u32,
    },
    Listed(Box<[u32]>),
}

impl Leaders {
    fn new(ranks: Vec<u32>) -> Self {
        match Members::strided(&ranks) {
            Some(Members::Strided { first: 0, stride, count }) => Self::Strided { stride, count },
            _ => Self::Listed(ranks.into()),
        }
    }

    fn count(&self) -> u32 {
        match self {
            Self::Strided { count, .. } => *count,
            Self::Listed(ranks) => u32::try_from(ranks.len()).unwrap_or(u32::MAX),
        }
    }

    fn get(&self, part: u32) -> Option<u32> {
        match self {
            Self::Strided { stride, count } => (part < *count).then(|| stride * part),
            Self::Listed(ranks) => ranks.get(part as usize).copied(),
        }
    }

    /// Which of them is the last one up to `rank`.
    fn last_upto(&self, rank: u32) -> u32 {
        match self {
            Self::Strided { stride, count } => (rank / stride).min(count.saturating_sub(1)),
            Self::Listed(ranks) => {
                let upto = ranks.partition_point(|leader| *leader <= rank);
                u32::try_from(upto.saturating_sub(1)).unwrap_or(0)
            }
        }
    }
}

/// The members of a team by neighbourhood, as one of them sees them. Ranks are those of the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Those of this neighbourhood, ascending.
    near: Box<[u32]>,
    /// None when there is one neighbourhood.
    leaders: Leaders,
    /// This neighbourhood among them.
    part: u32,
    /// That of every rank, where neighbourhoods are no runs of ranks.
    parts: Option<Box<[u32]>>,
}

impl Places {
    /// All `near` each other.
    pub(crate) fn together(near: Vec<u32>) -> Self {
        Self { near: near.into(), leaders: Leaders::Listed(Box::default()), part: 0, parts: None }
    }

    /// `numbers`: that of the neighbourhood of each rank of the team, in order.
    pub(crate) fn new(rank: u32, numbers: impl Iterator<Item = u32>) -> Self {
        let mut seen = HashMap::new();
        let (mut leaders, mut parts, mut runs) = (Vec::new(), Vec::<u32>::new(), true);
        for (at, number) in (0_u32..).zip(numbers) {
            let next = u32::try_from(seen.len()).unwrap_or(u32::MAX);
            let part = *seen.entry(number).or_insert(next);
            if part == next {
                leaders.push(at);
            } else {
                runs &= parts.last() == Some(&part);
            }
            parts.push(part);
        }
        let part = parts.get(rank as usize).copied().unwrap_or(0);
        let near = (0..).zip(&parts).filter(|(_, other)| **other == part);
        let near: Vec<u32> = near.map(|(at, _)| at).collect();
        if leaders.len() < 2 {
            return Self::together(near);
        }
        let parts = (!runs).then(|| parts.into());
        Self { near: near.into(), leaders: Leaders::new(leaders), part, parts }
    }

    pub(crate) const fn near(&self) -> &[u32] {
        &self.near
    }

    pub(crate) const fn part(&self) -> u32 {
        self.part
    }

    /// Whether each neighbourhood's members are a run of ranks.
    pub(crate) const fn are_runs(&self) -> bool {
        self.parts.is_none()
    }

    /// How many neighbourhoods have members.
    pub(crate) fn count(&self) -> u32 {
        self.leaders.count().max(1)
    }

    /// The part that a rank is in.
    pub(crate) fn part_of(&self, rank: u32) -> u32 {
        match &self.parts {
            Some(parts) => parts.get(rank as usize).copied().unwrap_or(0),
            None => self.leaders.last_upto(rank),
        }
    }

    /// Who speaks for a part.
    pub(crate) fn leader(&self, part: u32) -> u32 {
        let first = self.near.first().copied().unwrap_or(0);
        self.leaders.get(part).unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_neighbourhoods_take_no_memory_for_each() {
        let places = Places::new(3, (0..12).map(|rank| rank / 2));
        assert_eq!(places.leaders, Leaders::Strided { stride: 2, count: 6 });
        assert!(matches!(Places::new(0, [0, 0, 1, 2].into_iter()).leaders, Leaders::Listed(_)));
    }

    proptest! {
        #[test]
        fn members_agree_on_who_leads(numbers in proptest::collection::vec(0_u32..4, 1..20)) {
            let size = u32::try_from(numbers.len()).expect("few");
            let all: Vec<_> =
                (0..size).map(|rank| Places::new(rank, numbers.iter().copied())).collect();
            for (rank, places) in all.iter().enumerate() {
                prop_assert_eq!(places.count(), all[0].count());
                prop_assert_eq!(places.are_runs(), all[0].are_runs());
                let near: Vec<u32> =
                    (0..size).filter(|other| numbers[*other as usize] == numbers[rank]).collect();
                prop_assert_eq!(places.near(), &near);
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
