//! Ranks of this host and how many of them libpmix waits for in a fence of all. Pure.
//!
//! libpmix counts who comes, and waits for a rank that has finalized like for any other. So it is told
//! a smaller number: the fence then comes to the agent without that rank, which names it. A rank may
//! begin anew (programs of one script, one after the other) and its children may speak for it, so what
//! counts is whether it has a client now.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct Standing {
    /// Clients that have connected and not finalized.
    clients: u32,
    finalized: bool,
    ended: bool,
}

impl Standing {
    /// It has gone, though it may come again.
    const fn is_away(&self) -> bool {
        self.ended || (self.finalized && self.clients == 0)
    }
}

/// The ranks of this host.
#[derive(Debug)]
pub(super) struct Locals {
    standings: BTreeMap<u32, Standing>,
    expected: usize,
}

impl Locals {
    /// Ranks that have not begun, all of which are waited for.
    pub(super) fn new(ranks: &[u32]) -> Self {
        let standings = ranks.iter().map(|rank| (*rank, Standing::default()));
        Self { standings: standings.collect(), expected: ranks.len() }
    }

    /// A client of the rank has connected.
    pub(super) fn connected(&mut self, rank: u32) {
        self.change(rank, |standing| standing.clients = standing.clients.saturating_add(1));
    }

    /// A client of the rank has finalized.
    pub(super) fn finalized(&mut self, rank: u32) {
        self.change(rank, |standing| {
            standing.clients = standing.clients.saturating_sub(1);
            standing.finalized = true;
        });
    }

    /// The process of the rank has ended.
    pub(super) fn ended(&mut self, rank: u32) {
        self.change(rank, |standing| standing.ended = true);
    }

    fn change(&mut self, rank: u32, how: impl FnOnce(&mut Standing)) {
        if let Some(standing) = self.standings.get_mut(&rank) {
            how(standing);
        }
    }

    /// Whether the rank has a client.
    pub(super) fn is_open(&self, rank: u32) -> bool {
        self.standings.get(&rank).is_some_and(|standing| standing.clients > 0)
    }

    /// Whether every rank has finalized or ended once. Then those that live may all begin anew, and
    /// nobody waits for them before that.
    fn have_all_gone(&self) -> bool {
        self.standings.values().all(|standing| standing.finalized || standing.ended)
    }

    /// Who is not waited for.
    pub(super) fn absent(&self) -> Vec<u32> {
        let gone = self.have_all_gone();
        let is_absent =
            |standing: &Standing| if gone { standing.ended } else { standing.is_away() };
        let absent = self.standings.iter().filter(|(_, standing)| is_absent(standing));
        absent.map(|(rank, _)| *rank).collect()
    }

    /// How many are to be waited for, if that is another number than before. Once nobody is left it no
    /// longer matters.
    pub(super) fn news(&mut self) -> Option<usize> {
        let expected = self.standings.len() - self.absent().len();
        if expected == 0 || expected == self.expected {
            return None;
        }
        self.expected = expected;
        Some(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(ranks: &[u32]) -> Locals {
        let mut locals = Locals::new(ranks);
        ranks.iter().for_each(|rank| locals.connected(*rank));
        assert_eq!(locals.news(), None);
        locals
    }

    #[test]
    fn who_has_finalized_before_the_others_is_not_waited_for() {
        let mut locals = begun(&[3, 5, 8]);
        locals.finalized(5);
        assert_eq!((locals.news(), locals.absent()), (Some(2), vec![5]));
        // Its end changes nothing, and is told once.
        locals.ended(5);
        assert_eq!((locals.news(), locals.absent()), (None, vec![5]));
        // A rank that has not begun, and one that is none of this host.
        let mut locals = Locals::new(&[0, 1]);
        locals.connected(1);
        locals.finalized(7);
        assert_eq!(locals.news(), None);
        locals.finalized(1);
        assert_eq!((locals.news(), locals.absent()), (Some(1), vec![1]));
    }

    #[test]
    fn who_begins_anew_is_waited_for_again() {
        let mut locals = begun(&[0, 1]);
        locals.finalized(0);
        assert_eq!(locals.news(), Some(1));
        locals.connected(0);
        assert_eq!((locals.news(), locals.absent()), (Some(2), vec![]));
        // All have finalized: whoever lives may come again, in any order.
        locals.finalized(0);
        assert_eq!(locals.news(), Some(1));
        locals.finalized(1);
        assert_eq!((locals.news(), locals.absent()), (Some(2), vec![]));
        locals.connected(0);
        assert_eq!((locals.news(), locals.absent()), (None, vec![]));
        // One that has ended does not.
        locals.ended(1);
        assert_eq!((locals.news(), locals.absent()), (Some(1), vec![1]));
    }

    #[test]
    fn children_of_a_rank_speak_for_it() {
        let mut locals = begun(&[0, 1]);
        locals.connected(1);
        locals.finalized(1);
        assert!(locals.is_open(1));
        assert_eq!((locals.news(), locals.absent()), (None, vec![]));
        locals.finalized(1);
        assert!(!locals.is_open(1));
        assert_eq!((locals.news(), locals.absent()), (Some(1), vec![1]));
    }
}
