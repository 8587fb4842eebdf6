//! One member's part of a small reduction to all over the network: the steps of recursive doubling,
//! one after the other. Pure.

use super::mailboxes::Data;
use super::schedule::{Step, Then};

/// Combines what is here with what came; the flag says that what came is the left operand.
type Join<'a> = &'a dyn Fn(&mut [u8], &mut [u8], bool);

/// How the others are reached.
pub(super) trait Post {
    /// Sends; `false`: not now.
    fn send(&mut self, to: u32, tag: u8, bytes: &[u8]) -> bool;
    /// What the rank `from` has left under a tag; what is wrong with it.
    fn heard(&mut self, from: u32, tag: u8) -> Result<Option<Data>, String>;
}

/// How far one has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// It is complete.
    End,
    /// It waits for what comes at this step.
    Waits(usize),
    /// It could not send.
    NoRoom,
}

/// One under way.
#[derive(Debug)]
pub(super) struct Doubling {
    at: usize,
    /// What it knows of the result.
    pub(super) sum: Data,
    /// Messages that have come, with sender and tag.
    arrived: Vec<(u32, u8, Data)>,
}

impl Doubling {
    /// Begins with this rank's operand.
    pub(super) fn new(operand: &[u8]) -> Self {
        Self { at: 0, sum: Data::of(operand), arrived: Vec::new() }
    }

    /// Keeps a message; `false` for one that nobody waits for, or of another length.
    pub(super) fn arrive(&mut self, steps: &[Step], from: u32, tag: u8, bytes: &[u8]) -> bool {
        let left = steps.get(self.at..).unwrap_or_default();
        let is_it = |step: &Step| match *step {
            Step::Receive { from: of, tag: under, .. } => (of, under) == (from, tag),
            _ => false,
        };
        let twice = self.arrived.iter().any(|(of, under, _)| (*of, *under) == (from, tag));
        if twice || bytes.len() != self.sum.bytes().len() || !left.iter().any(is_it) {
            return false;
        }
        self.arrived.push((from, tag, Data::of(bytes)));
        true
    }

    /// Goes on as far as possible.
    pub(super) fn advance(
        &mut self,
        steps: &[Step],
        join: Join<'_>,
        post: &mut impl Post,
    ) -> Result<Reached, String> {
        while let Some(step) = steps.get(self.at) {
            match *step {
                Step::Send { to, tag, .. } => {
                    if !post.send(to, tag, self.sum.bytes()) {
                        return Ok(Reached::NoRoom);
                    }
                }
                Step::Receive { from, tag, then, .. } => {
                    let Some(mut data) = self.take(from, tag, post)? else {
                        return Ok(Reached::Waits(self.at));
                    };
                    match then {
                        Then::Store => self.sum = data,
                        _ => join(self.sum.bytes(), data.bytes(), then == Then::Left),
                    }
                }
                Step::Lend { .. } => {}
            }
            self.at += 1;
        }
        Ok(Reached::End)
    }

    fn take(&mut self, from: u32, tag: u8, post: &mut impl Post) -> Result<Option<Data>, String> {
        let is_it = |(of, under, _): &(u32, u8, Data)| (*of, *under) == (from, tag);
        match self.arrived.iter().position(is_it) {
            Some(at) => Ok(Some(self.arrived.swap_remove(at).2)),
            None => post.heard(from, tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::coll::schedule::{ToAll, reduce_to_all};

    /// What was written, and messages on their way; every third sender sends messages.
    #[derive(Default)]
    struct World {
        written: HashMap<(u32, u32, u8), Data>,
        flying: Vec<(u32, u32, u8, Vec<u8>)>,
    }

    struct At<'a>(u32, bool, &'a mut World);

    impl Post for At<'_> {
        fn send(&mut self, to: u32, tag: u8, bytes: &[u8]) -> bool {
            let Self(me, refuse, world) = self;
            if *refuse {
                return false;
            }
            if me.is_multiple_of(3) {
                world.flying.push((to, *me, tag, bytes.to_vec()));
            } else {
                let before = world.written.insert((to, *me, tag), Data::of(bytes));
                assert!(before.is_none(), "a message twice");
            }
            true
        }

        fn heard(&mut self, from: u32, tag: u8) -> Result<Option<Data>, String> {
            Ok(self.2.written.remove(&(self.0, from, tag)))
        }
    }

    proptest! {
        #[test]
        fn all_get_the_operands_in_order(
            size in 2_u32..20, choices in proptest::collection::vec(any::<u32>(), 0..400),
        ) {
            // Every operand is a run of ranks; two that are no neighbours do not combine.
            let join = |mine: &mut [u8], came: &mut [u8], left: bool| {
                let (low, high) = if left { (&*came, &*mine) } else { (&*mine, &*came) };
                assert_eq!(low[1] + 1, high[0], "out of order");
                let run = [low[0], high[1]];
                mine.copy_from_slice(&run);
            };
            let steps: Vec<_> =
                (0..size).map(|rank| reduce_to_all(rank, size, ToAll::Doubling)).collect();
            let rank_of = |rank: u32| u8::try_from(rank).expect("few");
            let mut ranks: Vec<_> =
                (0..size).map(|rank| Doubling::new(&[rank_of(rank); 2])).collect();
            let mut world = World::default();
            let rest = (0..10_000_u32).map(|turn| turn * 2 + 1);
            for choice in choices.into_iter().chain(rest) {
                let at = choice / 4 % size;
                if choice % 4 == 3 && !world.flying.is_empty() {
                    let place = choice as usize / 4 % world.flying.len();
                    let (to, from, tag, bytes) = world.flying.swap_remove(place);
                    let (rank, steps) = (&mut ranks[to as usize], &steps[to as usize]);
                    prop_assert!(rank.arrive(steps, from, tag, &bytes));
                    prop_assert!(!rank.arrive(steps, from, tag, &bytes), "twice");
                    prop_assert!(!rank.arrive(steps, from, 200, &bytes), "nobody waits for it");
                    continue;
                }
                let mut post = At(at, choice % 4 == 0, &mut world);
                let rank = &mut ranks[at as usize];
                rank.advance(&steps[at as usize], &join, &mut post).expect("no problem");
            }
            for (rank, steps) in (0..size).zip(&steps) {
                let mut post = At(rank, false, &mut world);
                let one = &mut ranks[rank as usize];
                prop_assert_eq!(one.advance(steps, &join, &mut post), Ok(Reached::End));
                prop_assert_eq!(one.sum.bytes(), &[0, rank_of(size - 1)]);
            }
            prop_assert!(world.flying.is_empty() && world.written.is_empty());
        }
    }
}
