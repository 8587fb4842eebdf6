//! Questions that are put to all hosts (pure): who is still to answer, and until when.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::look::RankLook;
use super::stacks::Stack;

/// What hosts are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Subject {
    Ranks,
    Stacks,
}

/// What a host answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Seen {
    Ranks(Vec<RankLook>),
    Stacks(Vec<Stack>),
}

/// A question that is over.
#[derive(Debug, PartialEq)]
pub(crate) struct Complete<W> {
    pub(crate) who: W,
    pub(crate) subject: Subject,
    pub(crate) looks: Vec<RankLook>,
    pub(crate) stacks: Vec<Stack>,
    /// Hosts that did not answer.
    pub(crate) silent: Vec<u32>,
}

#[derive(Debug)]
struct Open<W> {
    number: u32,
    until: u64,
    waiting: BTreeSet<u32>,
    so_far: Complete<W>,
}

impl<W> Open<W> {
    fn is_over(&self, now: u64) -> bool {
        self.waiting.is_empty() || now >= self.until
    }
}

/// The questions that are open; `W` says who asked.
#[derive(Debug)]
pub(crate) struct Questions<W> {
    last: u32,
    open: Vec<Open<W>>,
}

impl<W> Default for Questions<W> {
    fn default() -> Self {
        Self { last: 0, open: Vec::new() }
    }
}

impl<W> Questions<W> {
    /// A question to these hosts; its number.
    pub(crate) fn ask(
        &mut self,
        who: W,
        subject: Subject,
        hosts: impl IntoIterator<Item = u32>,
        until: u64,
    ) -> u32 {
        self.last = self.last.wrapping_add(1);
        let (looks, stacks, silent) = (Vec::new(), Vec::new(), Vec::new());
        let so_far = Complete { who, subject, looks, stacks, silent };
        let waiting = hosts.into_iter().collect();
        self.open.push(Open { number: self.last, until, waiting, so_far });
        self.last
    }

    /// What a host says. Answers that were not asked for, or of the wrong kind, change nothing.
    pub(crate) fn answer(&mut self, number: u32, host: u32, seen: Seen) {
        let Some(open) = self.open.iter_mut().find(|open| open.number == number) else { return };
        match (seen, open.so_far.subject) {
            (Seen::Ranks(looks), Subject::Ranks) if open.waiting.remove(&host) => {
                open.so_far.looks.extend(looks);
            }
            (Seen::Stacks(stacks), Subject::Stacks) if open.waiting.remove(&host) => {
                open.so_far.stacks.extend(stacks);
            }
            _ => {}
        }
    }

    /// These hosts will not answer any more.
    pub(crate) fn lost(&mut self, hosts: &[u32]) {
        for open in &mut self.open {
            let gone = hosts.iter().filter(|host| open.waiting.remove(host));
            open.so_far.silent.extend(gone);
        }
    }

    /// When the next question ends for want of answers.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.open.iter().map(|open| open.until).min()
    }

    /// Whether a question is over.
    pub(crate) fn has_complete(&self, now: u64) -> bool {
        self.open.iter().any(|open| open.is_over(now))
    }

    /// The next question that is over.
    pub(crate) fn next_complete(&mut self, now: u64) -> Option<Complete<W>> {
        let mut open = self.open.remove(self.open.iter().position(|open| open.is_over(now))?);
        open.so_far.silent.extend(open.waiting);
        open.so_far.silent.sort_unstable();
        open.so_far.looks.sort_unstable_by_key(|look| look.rank);
        open.so_far.stacks.sort_by_key(|stack| stack.rank);
        Some(open.so_far)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::look::Run;
    use super::*;

    fn look(rank: u32) -> RankLook {
        let (run, sleeps, waits_for) = (Run::Ready, false, None);
        RankLook { rank, pid: 1, run, sleeps, waits_for, cpu_ms: 0, resident_kib: 0, messages: 0 }
    }

    #[test]
    fn an_answer_of_the_wrong_kind_or_from_a_stranger_changes_nothing() {
        let mut questions = Questions::default();
        let number = questions.ask((), Subject::Ranks, [1, 2], 10);
        questions.answer(number, 1, Seen::Stacks(Vec::new()));
        questions.answer(number, 3, Seen::Ranks(vec![look(9)]));
        questions.answer(number + 1, 1, Seen::Ranks(vec![look(9)]));
        assert_eq!(questions.next_complete(9), None);
        questions.answer(number, 1, Seen::Ranks(vec![look(4)]));
        questions.answer(number, 1, Seen::Ranks(vec![look(5)]));
        let complete = questions.next_complete(10).unwrap();
        assert_eq!((complete.looks, complete.silent), (vec![look(4)], vec![2]));
        assert_eq!(questions.deadline(), None);
    }

    proptest! {
        /// Every host that was asked has answered, or is named silent; never both.
        #[test]
        fn every_host_is_accounted_for(
            hosts in proptest::collection::btree_set(0u32..20, 0..12),
            answers in proptest::collection::vec((0u32..20, any::<bool>()), 0..40),
        ) {
            let mut questions = Questions::default();
            let number = questions.ask('w', Subject::Ranks, hosts.iter().copied(), 5);
            let (mut heard, mut silent) = (BTreeSet::new(), BTreeSet::new());
            for (host, lost) in answers {
                let fresh = hosts.contains(&host) && !heard.contains(&host) && !silent.contains(&host);
                if lost {
                    questions.lost(&[host]);
                } else {
                    questions.answer(number, host, Seen::Ranks(vec![look(host)]));
                }
                if fresh {
                    let _ = if lost { silent.insert(host) } else { heard.insert(host) };
                }
            }
            let complete = questions.next_complete(5).unwrap();
            let looked: BTreeSet<u32> = complete.looks.iter().map(|look| look.rank).collect();
            prop_assert_eq!(&looked, &heard);
            let named: BTreeSet<u32> = complete.silent.into_iter().collect();
            prop_assert_eq!(&named | &looked, hosts);
            prop_assert!(named.is_disjoint(&looked));
        }
    }
}
