//! The order of collective calls, for who compares it: the debug library. Members of a team tell each
//! other what they call, as text, before they begin it; who hears of two calls that differ under one
//! number names both. In a large team all tell the first member alone.

use std::sync::{Mutex, PoisonError};

use bootstrap::Rank;

use super::group::{Group, TeamId};
use super::quick_hash::QuickMap;
use crate::error::Error;
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass};

const HANDLER: u8 = 65;
/// Team, number, members that tell this rank.
const WORDS: usize = 4;
/// Members that all tell each other.
const FEW: u32 = 32;

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
struct Calls {
    /// Calls of this rank, by team.
    made: QuickMap<TeamId, u32>,
    heard: QuickMap<(TeamId, u32), Call>,
}

impl Calls {
    /// The number of the call that this rank makes now.
    fn next(&mut self, team: TeamId) -> u32 {
        let made = self.made.entry(team).or_default();
        *made = made.wrapping_add(1);
        *made
    }

    /// A member makes a call, of which `members` tell this rank; what is wrong if another one calls
    /// something else.
    fn hear(
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
    fn with<T>(&self, use_it: impl FnOnce(&mut Calls) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
const fn encode((team, number): (TeamId, u32), members: u32) -> [i32; WORDS] {
    let words = [(team >> 32) as u32, team as u32, number, members];
    [words[0].cast_signed(), words[1].cast_signed(), words[2].cast_signed(), words[3].cast_signed()]
}

fn decode(words: &[i32]) -> Option<((TeamId, u32), u32)> {
    let [high, low, number, members] = words.as_array::<WORDS>()?.map(i32::cast_unsigned);
    Some(((u64::from(high) << 32 | u64::from(low), number), members))
}

/// The handler of what members say.
pub(crate) fn order_handler() -> Registered {
    let hear: Function = Function::Medium(Box::new(|token, bytes, args| {
        let (context, rank) = (token.context, token.source());
        match decode(args) {
            Some((key, members)) => {
                context.hear(key, members, (rank.0, &String::from_utf8_lossy(bytes)));
            }
            None => context.fatal(&format!("rank {rank} sent words of a call that are none")),
        }
    }));
    Registered::new(HANDLER, "collective call".to_owned(), WORDS, Role::Request, hear)
}

impl RankContext {
    fn hear(&self, key: (TeamId, u32), members: u32, said: (u32, &str)) {
        if let Err(problem) = self.order.with(|calls| calls.hear(key, members, said)) {
            self.fatal(&format!(
                "{problem}; all members of a team must make the same collective calls in the same \
                 order"
            ));
        }
    }

    /// Says that this rank makes a collective call: its name with what all members must give alike.
    /// Ends the job when another member makes another one in its place. Does not wait for others,
    /// only for room for messages.
    ///
    /// # Errors
    /// A call inside a handler; the end of the job.
    pub fn compare_order<M: Mode>(
        &self,
        call: &'static str,
        group: &Group,
        text: &str,
    ) -> Result<(), Error> {
        let key = (group.id, self.order.with(|calls| calls.next(group.id)));
        let (all, few) = (group.size(), group.size() <= FEW);
        if few || group.rank() == 0 {
            self.hear(key, all, (self.rank_info.rank.0, text));
        }
        let others = (0..if few { all } else { 1 }).filter(|rank| *rank != group.rank());
        for rank in others.filter_map(|rank| group.job_rank(rank)) {
            let (class, target) = (MessageClass::Request, self.target(call, Rank(rank))?);
            let (args, payload) = (&encode(key, all), AmPayload::Medium(text.as_bytes()));
            let message = AmMessage { class, target, handler: HANDLER, args, payload };
            let _sent = self.request::<M>(call, &message, Flags::NONE)?;
        }
        Ok(())
    }
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
