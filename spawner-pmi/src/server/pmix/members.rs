//! Sets of ranks, as short as such sets are.

use bootstrap::Rank;
use serde::{Deserialize, Serialize};

/// A set of ranks: runs (first rank, number of ranks), ascending and apart from each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Members(Vec<(u32, u32)>);

impl Members {
    /// All ranks of a job.
    #[must_use]
    pub fn all(size: u32) -> Self {
        Self(vec![(0, size)])
    }

    /// These ranks.
    #[must_use]
    pub fn of(mut ranks: Vec<u32>) -> Self {
        ranks.sort_unstable();
        ranks.dedup();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for rank in ranks {
            match runs.last_mut() {
                Some((first, count)) if first.checked_add(*count) == Some(rank) => *count += 1,
                _ => runs.push((rank, 1)),
            }
        }
        Self(runs)
    }

    /// Whether it is a set of ranks of a job of that size, with one at least.
    pub(super) fn is_valid(&self, size: u32) -> bool {
        let mut next = 0;
        let fits = self.0.iter().all(|(first, count)| {
            let starts = u64::from(*first);
            let good = *count > 0 && (starts > next || next == 0);
            next = starts + u64::from(*count);
            good && next <= u64::from(size)
        });
        fits && !self.0.is_empty()
    }

    /// Number of ranks.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, count)| *count as usize).sum()
    }

    /// Whether a rank is one of them.
    pub(super) fn has(&self, rank: Rank) -> bool {
        let at = self.0.partition_point(|(first, _)| *first <= rank.0);
        at.checked_sub(1)
            .and_then(|at| self.0.get(at))
            .is_some_and(|(first, count)| u64::from(rank.0) < u64::from(*first) + u64::from(*count))
    }

    /// How many of `ranks`, which are ascending, are in it.
    pub(super) fn count_in(&self, ranks: &[Rank]) -> usize {
        let below = |bound: u64| ranks.partition_point(|rank| u64::from(rank.0) < bound);
        let run = |(first, count): &(u32, u32)| {
            let (first, count) = (u64::from(*first), u64::from(*count));
            below(first + count) - below(first)
        };
        self.0.iter().map(run).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_has_what_was_put_into_it(
            ranks in proptest::collection::btree_set(0u32..40, 1..20),
            others in proptest::collection::btree_set(0u32..40, 0..20),
        ) {
            let set = Members::of(ranks.iter().rev().copied().collect());
            prop_assert!(set.is_valid(40));
            prop_assert_eq!(set.len(), ranks.len());
            for rank in 0..41 {
                prop_assert_eq!(set.has(Rank(rank)), ranks.contains(&rank));
            }
            let others: Vec<Rank> = others.into_iter().map(Rank).collect();
            let both = others.iter().filter(|rank| ranks.contains(&rank.0)).count();
            prop_assert_eq!(set.count_in(&others), both);
        }

        /// What comes from a wire is looked at before it is used.
        #[test]
        fn any_runs_are_judged_without_harm(runs in proptest::collection::vec(any::<(u32, u32)>(), 0..5)) {
            let set = Members(runs);
            let good = set.is_valid(100);
            set.has(Rank(7));
            set.count_in(&[Rank(1), Rank(7)]);
            if good {
                let ranks = (0..100).filter(|rank| set.has(Rank(*rank))).collect();
                prop_assert_eq!(&Members::of(ranks), &set);
            }
        }
    }

    #[test]
    fn sets_that_cannot_be_are_refused() {
        assert_eq!(Members::all(3), Members::of(vec![0, 1, 2]));
        for bad in [vec![], vec![(0, 0)], vec![(0, 5)], vec![(1, 1), (1, 1)], vec![(2, 1), (0, 1)]]
        {
            assert!(!Members(bad.clone()).is_valid(4), "{bad:?}");
        }
        // Runs that touch are one.
        assert!(!Members(vec![(0, 1), (1, 1)]).is_valid(4));
    }
}
