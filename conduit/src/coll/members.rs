//! Which ranks of the job a team has, in its order. Pure.
//!
//! Most teams are runs of ranks, or take every so-manieth; those need no memory however large they
//! are. Others keep their ranks twice: in their order, and sorted for the way back.

/// The members of a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    /// `first`, `first + stride`, … (`stride` at least 1).
    Strided { first: u32, stride: u32, count: u32 },
    /// Any other order or choice.
    Listed {
        /// Job ranks by team rank.
        ranks: Box<[u32]>,
        /// Job ranks, ascending, with their team ranks.
        sorted: Box<[(u32, u32)]>,
    },
}

impl Members {
    /// All ranks of a job.
    pub(crate) const fn all(size: u32) -> Self {
        Self::Strided { first: 0, stride: 1, count: size }
    }

    /// The team of these job ranks; `None` when one is there twice.
    pub(crate) fn new(ranks: &[u32]) -> Option<Self> {
        if let Some(strided) = Self::strided(ranks) {
            return Some(strided);
        }
        let mut sorted: Box<[(u32, u32)]> =
            ranks.iter().zip(0..).map(|(job, rank)| (*job, rank)).collect();
        sorted.sort_unstable();
        let twice = sorted.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
        (!twice).then(|| Self::Listed { ranks: ranks.into(), sorted })
    }

    /// These ranks without memory, where they are a run or every so-manieth.
    pub(super) fn strided(ranks: &[u32]) -> Option<Self> {
        let count = u32::try_from(ranks.len()).ok()?;
        let first = ranks.first().copied().unwrap_or(0);
        let stride = match ranks {
            [first, second, ..] => second.checked_sub(*first)?,
            _ => 1,
        };
        let even = ranks.windows(2).all(|pair| match pair {
            [a, b] => b.checked_sub(*a) == Some(stride),
            _ => false,
        });
        (even && stride > 0).then_some(Self::Strided { first, stride, count })
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::Strided { count, .. } => *count,
            // Ranks are counted with 32 bits.
            Self::Listed { ranks, .. } => u32::try_from(ranks.len()).unwrap_or(u32::MAX),
        }
    }

    /// Job rank of a team rank; `None` for one that is not in the team.
    #[inline]
    pub(crate) fn job_rank(&self, rank: u32) -> Option<u32> {
        match self {
            Self::Strided { first, stride, count } => {
                (rank < *count).then(|| first + stride * rank)
            }
            Self::Listed { ranks, .. } => ranks.get(rank as usize).copied(),
        }
    }

    /// Team rank of a job rank; `None` for one that is not a member.
    #[inline]
    pub(crate) fn rank_of(&self, job: u32) -> Option<u32> {
        match self {
            Self::Strided { first, stride, count } => {
                let from_first = job.checked_sub(*first)?;
                let rank = from_first / stride;
                (from_first % stride == 0 && rank < *count).then_some(rank)
            }
            Self::Listed { sorted, .. } => {
                let at = sorted.binary_search_by_key(&job, |(job, _)| *job).ok()?;
                sorted.get(at).map(|(_, rank)| *rank)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(ranks: &[u32], members: &Members) {
        let count = u32::try_from(ranks.len()).expect("few");
        assert_eq!(members.count(), count);
        for (rank, job) in (0..).zip(ranks) {
            assert_eq!(members.job_rank(rank), Some(*job));
            assert_eq!(members.rank_of(*job), Some(rank));
        }
        assert_eq!(members.job_rank(count), None);
        for job in (0..120).filter(|job| !ranks.contains(job)) {
            assert_eq!(members.rank_of(job), None);
        }
    }

    #[test]
    fn a_rank_twice_is_no_team() {
        assert_eq!(Members::new(&[3, 1, 3]), None);
        assert_eq!(Members::new(&[4, 4]), None);
        assert_eq!(Members::new(&[4, 4, 4]), None);
    }

    proptest! {
        #[test]
        fn runs_and_strides_are_translated_without_memory(
            first in 0_u32..50, stride in 1_u32..9, count in 0_u32..9,
        ) {
            let ranks: Vec<u32> = (0..count).map(|rank| first + stride * rank).collect();
            let members = Members::new(&ranks).expect("members");
            let is_strided = matches!(members, Members::Strided { .. });
            prop_assert!(is_strided);
            check(&ranks, &members);
        }

        #[test]
        fn any_order_is_translated_both_ways(
            ranks in Just((0_u32..100).collect::<Vec<_>>()).prop_shuffle(), count in 0_usize..100,
        ) {
            let ranks = ranks.get(..count).expect("so many");
            check(ranks, &Members::new(ranks).expect("members"));
        }
    }
}
