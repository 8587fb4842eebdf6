//! Whom a rank's reduction talks with: in each neighbourhood a tree over shared memory, between
//! the leaders of neighbourhoods the rounds of a dissemination.
#![forbid(unsafe_code)]

/// Most children of a rank. With 4, a neighbourhood of 64 ranks has three levels, and no rank has
/// to keep more than a few messages that came early.
pub(super) const FAN_OUT: u32 = 4;

/// The ranks next to one rank in the reduction. Which rank said something tells what it means, so a
/// message from anybody else is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    pub(super) parent: Option<u32>,
    pub(super) children: Box<[u32]>,
    /// Leaders at the distances 1, 2, 4 … after this one; none at a rank with a parent.
    pub(super) ahead: Box<[u32]>,
    /// Leaders at the same distances before it.
    pub(super) behind: Box<[u32]>,
}

impl Tree {
    /// Of the rank with index `local` in a neighbourhood, whose leader is the first; `rank_at` tells
    /// its ranks. The leaders of others are at the distances 1, 2, 4 … `ahead` of that and `behind`
    /// it.
    #[must_use]
    pub fn new(
        rank_at: impl Fn(u32) -> Option<u32>,
        local: u32,
        ahead: &[u32],
        behind: &[u32],
    ) -> Self {
        let parent = local.checked_sub(1).and_then(|at| rank_at(at / FAN_OUT));
        let first = local.saturating_mul(FAN_OUT).saturating_add(1);
        let children = (first..first.saturating_add(FAN_OUT)).map_while(rank_at).collect();
        let (ahead, behind) = if parent.is_none() { (ahead, behind) } else { (&[][..], &[][..]) };
        Self { parent, children, ahead: ahead.into(), behind: behind.into() }
    }

    /// Rounds between leaders.
    #[expect(clippy::cast_possible_truncation, reason = "at most 32")]
    pub(super) const fn rounds(&self) -> u8 {
        self.ahead.len() as u8
    }

    /// Which child a rank is.
    pub(super) fn child(&self, rank: u32) -> Option<usize> {
        self.children.iter().position(|child| *child == rank)
    }
}

#[cfg(test)]
#[path = "../../tests/shared/blocks.rs"]
pub(super) mod blocks;

#[cfg(test)]
mod tests {
    use super::blocks::of_blocks;

    #[test]
    fn every_rank_but_leaders_is_a_child_once() {
        for size in [1, 2, 5, 6, 21, 64, 100] {
            for each in [1, 2, 5, 7, size] {
                let tree = |rank| of_blocks(rank, size, each);
                let mut parents = vec![None; size as usize];
                for rank in 0..size {
                    for child in tree(rank).children {
                        assert_eq!(parents[child as usize].replace(rank), None, "{child}");
                    }
                }
                for rank in 0..size {
                    let it = tree(rank);
                    assert_eq!(it.parent, parents[rank as usize], "{rank} of {size} by {each}");
                    assert_eq!(it.parent.is_none(), rank % each == 0);
                    assert!(it.parent.is_none() || it.rounds() == 0);
                    for (round, ahead) in it.ahead.iter().enumerate() {
                        assert_eq!(tree(*ahead).behind[round], rank);
                    }
                }
            }
        }
    }
}
