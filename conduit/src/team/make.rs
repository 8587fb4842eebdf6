//! How members of a team agree on new teams: each tells all what it wants, in one exchange, and
//! finds its team in what all have said.

use std::sync::Arc;

use crate::coll::{Group, Members, refused, team_id};
use crate::error::Error;
use crate::mode::Mode;
use crate::rank::RankContext;

/// What a member says: what it wants, as three words, and a number for a team that begins with it.
const WORDS: usize = 4;
const ROW: usize = WORDS * size_of::<u32>();

type Row = [u32; WORDS];

fn bytes(row: Row) -> [u8; ROW] {
    let mut bytes = [0; ROW];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(row) {
        *place = word.to_le_bytes();
    }
    bytes
}

fn rows(bytes: &[u8]) -> Vec<Row> {
    let row = |row: &[u8; ROW]| {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(row.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        words
    };
    bytes.as_chunks().0.iter().map(row).collect()
}

/// A key whose order as a word is that of keys.
const fn order(key: i32) -> u32 {
    key.cast_unsigned() ^ 1 << 31
}

/// Ranks, of those that said `rows`, that chose this color, in their new order. Rows of a split are
/// whether there is a color, the color, and the order.
fn chosen(rows: &[Row], color: u32) -> Vec<u32> {
    let mut found: Vec<(u32, u32)> = (0..)
        .zip(rows)
        .filter(|(_, [joins, of, ..])| *joins == 1 && *of == color)
        .map(|(rank, [.., order, _])| (*order, rank))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, rank)| rank).collect()
}

/// A number that differs, in all likelihood, for lists that differ.
fn fingerprint(ranks: &[u32]) -> [u32; 2] {
    let mix = |seed: u64, rank: &u32| {
        let mixed = (seed ^ u64::from(*rank)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 29 ^ 1 << 63
    };
    let print = ranks.iter().fold(0x5eed, mix).to_le_bytes();
    let [low, high] = [print.first_chunk::<4>(), print.last_chunk::<4>()];
    [low, high].map(|half| half.map_or(0, |half| u32::from_le_bytes(*half)))
}

impl RankContext {
    /// The team that this rank gets of a split; see `Team::split`.
    pub fn split<M: Mode>(
        &self,
        call: &'static str,
        parent: &Arc<Group>,
        choice: Option<(u32, i32)>,
    ) -> Result<Option<Arc<Group>>, Error> {
        let (color, key) = choice.unwrap_or_default();
        let row = [choice.is_some().into(), color, order(key), self.collectives.new_team()];
        let rows = rows(&self.gather_all::<M>(call, parent, &bytes(row))?);
        match choice {
            None => Ok(None),
            Some(_) => self.made(call, parent, &chosen(&rows, color), &rows).map(Some),
        }
    }

    /// The team that this rank gets of a list; see `Team::create`.
    pub fn create<M: Mode>(
        &self,
        call: &'static str,
        parent: &Arc<Group>,
        ranks: &[u32],
    ) -> Result<Option<Arc<Group>>, Error> {
        let wrong = |problem| refused(call, problem);
        if let Some(rank) = ranks.iter().find(|rank| **rank >= parent.size()) {
            let size = parent.size();
            return Err(wrong(format!(
                "rank {rank} of the list is not in the team of {size} ranks"
            )));
        }
        if !ranks.is_empty() && !ranks.contains(&parent.rank()) {
            let rank = parent.rank();
            return Err(wrong(format!("rank {rank} gives a list that it is not in itself")));
        }
        let [low, high] = fingerprint(ranks);
        let row = [u32::from(!ranks.is_empty()), low, high, self.collectives.new_team()];
        let rows = rows(&self.gather_all::<M>(call, parent, &bytes(row))?);
        if ranks.is_empty() {
            return Ok(None);
        }
        for rank in ranks {
            let said = rows.get(*rank as usize);
            if said.is_none_or(|[joins, a, b, _]| (*joins, *a, *b) != (1, low, high)) {
                let rank_here = parent.rank();
                return Err(wrong(format!("ranks {rank_here} and {rank} give different lists")));
            }
        }
        self.made(call, parent, ranks, &rows).map(Some)
    }

    /// The team of these ranks of its parent, which said `rows`.
    fn made(
        &self,
        call: &'static str,
        parent: &Group,
        ranks: &[u32],
        rows: &[Row],
    ) -> Result<Arc<Group>, Error> {
        let wrong = |problem: &str| refused(call, problem.to_owned());
        let job: Option<Vec<u32>> = ranks.iter().map(|rank| parent.job_rank(*rank)).collect();
        let job = job.ok_or_else(|| wrong("a rank of the list is not in the team"))?;
        let members = Members::new(&job).ok_or_else(|| wrong("a rank is in the list twice"))?;
        let first = ranks.first().and_then(|first| rows.get(*first as usize));
        let number = first.map_or(0, |[.., number]| *number);
        let id = team_id(job.first().copied().unwrap_or(0), number);
        let rank = members.rank_of(self.rank_info.rank.0);
        let rank = rank.ok_or_else(|| wrong("this rank is not in the list"))?;
        let places = self.places(&members);
        let group = Arc::new(Group::new(id, members, rank, places));
        self.collectives.know(&group);
        Ok(group)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn members_of_a_color_come_in_the_order_of_keys_and_ranks(
            said in proptest::collection::vec((proptest::option::of(0_u32..4), -3_i32..4), 1..60),
        ) {
            let all: Vec<Row> = said
                .iter()
                .map(|(color, key)| [color.is_some().into(), color.unwrap_or(0), order(*key), 7])
                .collect();
            let packed: Vec<u8> = all.iter().flat_map(|row| bytes(*row)).collect();
            prop_assert_eq!(&rows(&packed), &all);
            let mut found = 0;
            for color in 0..4 {
                let ranks = chosen(&all, color);
                found += ranks.len();
                let place = |rank: &u32| (said[*rank as usize].1, *rank);
                prop_assert!(ranks.is_sorted_by_key(place));
                prop_assert!(ranks.iter().all(|rank| said[*rank as usize].0 == Some(color)));
            }
            prop_assert_eq!(found, said.iter().filter(|(color, _)| color.is_some()).count());
        }
    }

    #[test]
    fn lists_that_differ_have_other_fingerprints() {
        let lists = [&[][..], &[0], &[1], &[0, 1], &[1, 0], &[0, 0], &[2, 1, 0]];
        for (at, a) in lists.iter().enumerate() {
            for (other, b) in lists.iter().enumerate() {
                assert_eq!(fingerprint(a) == fingerprint(b), at == other);
            }
        }
    }
}
