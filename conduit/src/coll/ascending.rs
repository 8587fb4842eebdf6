//! Ascending ranks, which take no memory for each where they are at even distances. Pure.

/// Ranks, ascending, by their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ascending {
    /// `first`, `first + stride`, … (`stride` at least 1).
    Even {
        first: u32,
        stride: u32,
        count: u32,
    },
    Listed(Vec<u32>),
}

impl Default for Ascending {
    fn default() -> Self {
        Self::run(0)
    }
}

impl Ascending {
    /// The ranks from 0 on.
    pub(super) const fn run(count: u32) -> Self {
        Self::Even { first: 0, stride: 1, count }
    }

    /// Adds one that is larger than all.
    pub(super) fn push(&mut self, rank: u32) {
        match self {
            Self::Even { first, count: count @ 0, .. } => (*first, *count) = (rank, 1),
            Self::Even { first, stride, count: count @ 1 } => {
                (*stride, *count) = ((rank - *first).max(1), 2);
            }
            Self::Even { first, stride, count } if *first + *stride * *count == rank => *count += 1,
            Self::Even { .. } => *self = Self::Listed(self.iter().chain([rank]).collect()),
            Self::Listed(ranks) => ranks.push(rank),
        }
    }

    pub(super) fn count(&self) -> u32 {
        match self {
            Self::Even { count, .. } => *count,
            // Ranks are counted with 32 bits.
            Self::Listed(ranks) => u32::try_from(ranks.len()).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn get(&self, at: u32) -> Option<u32> {
        match self {
            Self::Even { first, stride, count } => (at < *count).then(|| first + stride * at),
            Self::Listed(ranks) => ranks.get(at as usize).copied(),
        }
    }

    /// Place of a rank; `None` for one that is not there.
    pub(super) fn index_of(&self, rank: u32) -> Option<u32> {
        let at = self.last_upto(rank);
        (self.get(at) == Some(rank)).then_some(at)
    }

    /// Place of the last one up to `rank`; 0 when there is none.
    pub(super) fn last_upto(&self, rank: u32) -> u32 {
        match self {
            Self::Even { first, stride, count } => {
                (rank.saturating_sub(*first) / stride).min(count.saturating_sub(1))
            }
            Self::Listed(ranks) => {
                let upto = ranks.partition_point(|other| *other <= rank);
                u32::try_from(upto.saturating_sub(1)).unwrap_or(0)
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.count()).map_while(|at| self.get(at))
    }

    #[cfg(test)]
    pub(super) const fn is_even(&self) -> bool {
        matches!(self, Self::Even { .. })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pushed(ranks: &[u32]) -> Ascending {
        let mut all = Ascending::default();
        ranks.iter().for_each(|rank| all.push(*rank));
        all
    }

    proptest! {
        #[test]
        fn ranks_are_found_both_ways(steps in proptest::collection::vec(1_u32..4, 0..12)) {
            let mut next = 0;
            let ranks: Vec<u32> = steps
                .iter()
                .map(|step| {
                    next += step;
                    next
                })
                .collect();
            let all = pushed(&ranks);
            let even = steps.iter().skip(1).all(|step| Some(step) == steps.get(1));
            prop_assert_eq!(all.is_even(), even);
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), ranks.clone());
            for rank in 0..next + 3 {
                let at = ranks.iter().position(|other| *other == rank);
                prop_assert_eq!(all.index_of(rank).map(|at| at as usize), at);
                let upto = ranks.iter().filter(|other| **other <= rank).count();
                prop_assert_eq!(all.last_upto(rank) as usize, upto.saturating_sub(1));
            }
        }
    }
}
