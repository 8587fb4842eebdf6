//! Where the members of a team are: which of them share memory with this rank, and who speaks for
//! the other neighbourhoods. Pure.

use std::collections::HashMap;

/// The members of a team by neighbourhood, as one of them sees them. Ranks are those of the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Those of this neighbourhood, ascending.
    near: Box<[u32]>,
    /// First member of each neighbourhood that has some, ascending; empty when there is one.
    leaders: Box<[u32]>,
    /// This neighbourhood among them.
    part: u32,
    /// That of every rank, where neighbourhoods are no runs of ranks.
    parts: Option<Box<[u32]>>,
}

impl Places {
    /// All `near` each other.
    pub(crate) fn together(near: Vec<u32>) -> Self {
        Self { near: near.into(), leaders: Box::default(), part: 0, parts: None }
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
        Self { near: near.into(), leaders: leaders.into(), part, parts }
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
        u32::try_from(self.leaders.len()).unwrap_or(u32::MAX).max(1)
    }

    /// The part that a rank is in.
    pub(crate) fn part_of(&self, rank: u32) -> u32 {
        match &self.parts {
            Some(parts) => parts.get(rank as usize).copied().unwrap_or(0),
            None => {
                let upto = self.leaders.partition_point(|leader| *leader <= rank);
                u32::try_from(upto.saturating_sub(1)).unwrap_or(0)
            }
        }
    }

    /// Who speaks for a part.
    pub(crate) fn leader(&self, part: u32) -> u32 {
        let first = self.near.first().copied().unwrap_or(0);
        self.leaders.get(part as usize).copied().unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
