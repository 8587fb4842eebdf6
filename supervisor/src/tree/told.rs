//! What many ranks or hosts of a subtree have in common, in one message, and what a sender may say
//! (pure).

use bootstrap::Rank;
use serde::{Deserialize, Serialize};

use super::message::Member;
use crate::agent::machine::deed::{Deed, Run};

/// What is told of ranks or of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum News {
    Did(Deed),
    /// Of hosts: the ranks have ended and no process is left of them.
    Bare,
}

/// Kinds of news. What a subtree tells of one kind is complete once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Hello = 0,
    Exiting = 1,
    Fini = 2,
    Ended = 3,
    Bare = 4,
}

pub(crate) const KINDS: [Kind; 5] =
    [Kind::Hello, Kind::Exiting, Kind::Fini, Kind::Ended, Kind::Bare];

impl News {
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Did(Deed::Hello) => Kind::Hello,
            Self::Did(Deed::Exiting { .. }) => Kind::Exiting,
            Self::Did(Deed::Fini { .. }) => Kind::Fini,
            Self::Did(Deed::Ended { .. }) => Kind::Ended,
            Self::Bare => Kind::Bare,
        }
    }
}

/// One message about many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told {
    /// It is true of these.
    Some { news: News, runs: Vec<Run> },
    /// It is true of all in the subtree of whom nothing of its kind was told. With them all are
    /// told; `count` is how many there are in the subtree.
    Rest { news: News, count: u32 },
    /// All in the subtree are told.
    Complete { kind: Kind, count: u32 },
}

/// What a sender may not say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("it spoke of {count} {what} from number {first} on, which are not all behind it")]
    Foreign { what: &'static str, first: u32, count: u32 },
    #[error("it spoke of {count} {what}, {most} are behind it")]
    Count { what: &'static str, count: u32, most: u32 },
    #[error("it told twice of all ranks that they did the same")]
    Twice,
    #[error("it spoke of its subtree, of which nothing is known")]
    Unknown,
}

/// What an agent speaks for: ranks and hosts, and of which kinds all was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    ranks: Vec<Run>,
    hosts: Vec<Run>,
    complete: [bool; KINDS.len()],
}

/// Ascending numbers as runs; what follows each other is one.
pub(crate) fn runs(numbers: impl IntoIterator<Item = u32>) -> Vec<Run> {
    merged(numbers.into_iter().map(|number| (number, 1)))
}

/// Ascending runs; what touches or overlaps becomes one.
pub(crate) fn merged(all: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut found: Vec<Run> = Vec::new();
    for (first, count) in all {
        match found.last_mut() {
            Some((last, more)) if first <= last.saturating_add(*more) => {
                *more = (*more).max(first.saturating_add(count).saturating_sub(*last));
            }
            _ => found.push((first, count)),
        }
    }
    found
}

fn count(runs: &[Run]) -> u32 {
    runs.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

impl Part {
    /// Of these ranks and hosts, in any order.
    pub(crate) fn new(ranks: &[Rank], hosts: impl IntoIterator<Item = u32>) -> Self {
        let mut ranks: Vec<u32> = ranks.iter().map(|rank| rank.0).collect();
        let mut hosts: Vec<u32> = hosts.into_iter().collect();
        ranks.sort_unstable();
        hosts.sort_unstable();
        Self { ranks: runs(ranks), hosts: runs(hosts), ..Self::default() }
    }

    /// Of the hosts behind a link.
    pub(crate) fn behind(ranks: &[Rank], hosts: &[Member]) -> Self {
        Self::new(ranks, hosts.iter().map(|(host, _)| *host))
    }

    /// Those of whom news of a kind is told.
    pub(crate) fn units(&self, kind: Kind) -> &[Run] {
        if kind == Kind::Bare { &self.hosts } else { &self.ranks }
    }

    pub(crate) fn count(&self, kind: Kind) -> u32 {
        count(self.units(kind))
    }

    /// Whether nobody is left of whom news of this kind may come.
    pub(crate) fn is_complete(&self, kind: Kind) -> bool {
        self.complete[kind as usize] || self.units(kind).is_empty()
    }

    /// News of a kind come anew.
    pub(crate) const fn reopen(&mut self, kind: Kind) {
        self.complete[kind as usize] = false;
    }

    /// Whether all of a run is behind it.
    fn has(&self, kind: Kind, (first, count): Run) -> bool {
        let units = self.units(kind);
        let at = units.partition_point(|(own, _)| *own <= first);
        let Some((own, most)) = at.checked_sub(1).and_then(|at| units.get(at)) else {
            return false;
        };
        let end = u64::from(first) + u64::from(count);
        count > 0 && end <= u64::from(*own) + u64::from(*most)
    }

    /// Books what the agent has told.
    pub(crate) fn take(&mut self, told: &Told) -> Result<(), Refused> {
        let (kind, most) = match *told {
            Told::Some { news, ref runs } => return self.check(news.kind(), runs),
            Told::Rest { news, count } => (news.kind(), count),
            Told::Complete { kind, count } => (kind, count),
        };
        let (what, own) = (name(kind), self.count(kind));
        if most > own {
            return Err(Refused::Count { what, count: most, most: own });
        }
        // A search for processes makes hosts speak again.
        if std::mem::replace(&mut self.complete[kind as usize], true) && kind != Kind::Bare {
            return Err(Refused::Twice);
        }
        Ok(())
    }

    fn check(&self, kind: Kind, runs: &[Run]) -> Result<(), Refused> {
        let what = name(kind);
        match runs.iter().find(|run| !self.has(kind, **run)) {
            Some((first, count)) => Err(Refused::Foreign { what, first: *first, count: *count }),
            None => Ok(()),
        }
    }
}

const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Bare => "hosts",
        _ => "ranks",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part() -> Part {
        Part::new(&[9, 3, 4, 5, 10].map(Rank), [2, 1])
    }

    fn hello(runs: &[Run]) -> Told {
        Told::Some { news: News::Did(Deed::Hello), runs: runs.to_vec() }
    }

    #[test]
    fn who_is_not_behind_the_sender_is_refused() {
        let mut part = part();
        for runs in [&[(3, 3), (9, 1)][..], &[(4, 1)], &[], &[(10, 1)]] {
            assert_eq!(part.take(&hello(runs)), Ok(()), "{runs:?}");
        }
        for (first, count) in [(3, 4), (2, 1), (3, 0), (5, u32::MAX), (u32::MAX, 1), (0, 11)] {
            let refused = part.take(&hello(&[(9, 2), (first, count)])).unwrap_err();
            assert_eq!(refused, Refused::Foreign { what: "ranks", first, count });
        }
        let bare = Told::Some { news: News::Bare, runs: vec![(1, 3)] };
        let text = part.take(&bare).unwrap_err().to_string();
        assert_eq!(text, "it spoke of 3 hosts from number 1 on, which are not all behind it");
    }

    #[test]
    fn a_count_over_the_subtree_and_a_second_completion_are_refused() {
        let mut part = part();
        let rest = |count| Told::Rest { news: News::Did(Deed::Fini { code: 0 }), count };
        let text = part.take(&rest(6)).unwrap_err().to_string();
        assert_eq!(text, "it spoke of 6 ranks, 5 are behind it");
        assert!(!part.is_complete(Kind::Fini));
        assert_eq!(part.take(&rest(5)), Ok(()));
        assert!(part.is_complete(Kind::Fini) && !part.is_complete(Kind::Ended));
        assert_eq!(part.take(&rest(5)), Err(Refused::Twice));
        let complete = Told::Complete { kind: Kind::Fini, count: 5 };
        assert_eq!(part.take(&complete), Err(Refused::Twice));
        let bare = Told::Rest { news: News::Bare, count: 2 };
        assert_eq!((part.take(&bare), part.take(&bare)), (Ok(()), Ok(())));
    }

    proptest! {
        #[test]
        fn runs_hold_what_they_are_made_of(numbers in proptest::collection::btree_set(0u32..60, 0..40)) {
            let made = runs(numbers.iter().copied());
            let back: Vec<u32> = made.iter().flat_map(|(first, count)| *first..first + count).collect();
            prop_assert!(back.iter().eq(numbers.iter()));
            prop_assert!(made.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0));
        }
    }
}
