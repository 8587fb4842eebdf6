//! What is known of the collective calls of a team's members: who hears of two calls that differ
//! under one number names both. Pure; `compare` tells and hears.

use std::sync::{Mutex, PoisonError};

use super::group::TeamId;
use super::quick_hash::QuickMap;

/// Team, number, members that tell this rank.
pub(super) const WORDS: usize = 4;

/// What was said about one call of a team.
#[derive(Debug)]
struct Call {
    /// By whom first, as rank of the job, and what.
    rank: u32,
    text: String,
    /// Members that have not said anything yet.
    missing: u32,
}

/// What is known of calls that not all members have made. Pure.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Calls of this rank, by team.
    made: QuickMap<TeamId, u32>,
    heard: QuickMap<(TeamId, u32), Call>,
}

impl Calls {
    /// The number of the call that this rank makes now.
    pub(super) fn next(&mut self, team: TeamId) -> u32 {
        let made = self.made.entry(team).or_default();
        *made = made.wrapping_add(1);
        *made
    }

    /// A member makes a call, of which `members` tell this rank; what is wrong if another one calls
    /// something else.
    pub(super) fn hear(
        &mut self,
        key: (TeamId, u32),
        members: u32,
        (rank, text): (u32, &str),
    ) -> Result<(), String> {
        let first = || Call { rank, text: text.to_owned(), missing: members };
        let call = self.heard.entry(key).or_insert_with(first);
        if call.text != text {
            return Err(format!(
                "collective call {} of a team: rank {} calls {}, rank {rank} calls {text}",
                key.1, call.rank, call.text
            ));
        }
        call.missing = call.missing.saturating_sub(1);
        if call.missing == 0 {
            self.heard.remove(&key);
        }
        Ok(())
    }
}

/// The calls of a rank.
#[derive(Default)]
pub(crate) struct Order(Mutex<Calls>);

impl Order {
    pub(super) fn with<T>(&self, use_it: impl FnOnce(&mut Calls) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
pub(super) const fn encode((team, number): (TeamId, u32), members: u32) -> [i32; WORDS] {
    let words = [(team >> 32) as u32, team as u32, number, members];
    [words[0].cast_signed(), words[1].cast_signed(), words[2].cast_signed(), words[3].cast_signed()]
}

pub(super) fn decode(words: &[i32]) -> Option<((TeamId, u32), u32)> {
    let [high, low, number, members] = words.as_array::<WORDS>()?.map(i32::cast_unsigned);
    Some(((u64::from(high) << 32 | u64::from(low), number), members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_differ_are_named_with_their_ranks_whoever_is_first() {
        let mut calls = Calls::default();
        assert_eq!((calls.next(7), calls.next(7), calls.next(8)), (1, 2, 1));
        calls.hear((7, 1), 3, (4, "barrier()")).unwrap();
        // Another team, another number.
        calls.hear((8, 1), 3, (5, "broadcast()")).unwrap();
        calls.hear((7, 2), 3, (5, "broadcast()")).unwrap();
        calls.hear((7, 1), 3, (6, "barrier()")).unwrap();
        let problem = calls.hear((7, 1), 3, (5, "broadcast()")).unwrap_err();
        assert!(problem.contains("rank 4 calls barrier(), rank 5 calls broadcast()"), "{problem}");
    }

    #[test]
    fn what_all_have_said_is_forgotten() {
        let mut calls = Calls::default();
        for number in 0..100 {
            (0..5).for_each(|rank| calls.hear((1, number), 5, (rank, "a")).unwrap());
        }
        assert!(calls.heard.is_empty());
    }

    #[test]
    fn words_come_back() {
        let key = (0x8765_4321_0fed_cba9, 0xffff_fff0);
        assert_eq!(decode(&encode(key, 77)), Some((key, 77)));
        assert_eq!(decode(&[1, 2, 3]), None);
    }
}
