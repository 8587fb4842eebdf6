//! Trees of ranks in equal neighbourhoods, for tests of this program and of the library.

use super::Tree;

/// Of `rank` in a job of `size`, whose neighbourhoods are `each` consecutive ranks (the last
/// may have fewer).
pub(crate) fn of_blocks(rank: u32, size: u32, each: u32) -> Tree {
    let (leader, count) = (rank / each * each, size.div_ceil(each));
    let rank_at = |local| Some(leader + local).filter(|rank| local < each && *rank < size);
    let rounds = 0..u32::BITS - count.saturating_sub(1).leading_zeros();
    let at = |step: u64| {
        let number = (u64::from(rank / each) + step) % u64::from(count);
        u32::try_from(number).unwrap_or(0) * each
    };
    let ahead: Vec<u32> = rounds.clone().map(|round| at(1 << round)).collect();
    let behind: Vec<u32> = rounds.map(|round| at(u64::from(count) - (1 << round))).collect();
    Tree::new(rank_at, rank - leader, &ahead, &behind)
}
