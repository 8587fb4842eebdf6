//! What is known of each rank, and the sums that decide. The sums are kept while ranks change, so
//! that no event makes the machine look at every rank of a large job.

use bootstrap::ExitPath;

use crate::report::End;

/// One rank.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Member {
    pub(super) started: bool,
    pub(super) hello: bool,
    /// Has begun to speak PMI and not finalized it.
    pub(super) in_pmi: bool,
    /// Code and path of an announced exit.
    pub(super) exiting: Option<(u32, ExitPath)>,
    /// Code of the farewell.
    pub(super) fini: Option<u32>,
    pub(super) end: Option<End>,
    pub(super) killed: bool,
}

impl Member {
    pub(super) const fn running(&self) -> bool {
        self.started && self.end.is_none()
    }

    /// The largest code that it announced, by exit or farewell.
    pub(super) fn said(&self) -> Option<u32> {
        self.fini.max(self.exiting.map(|(code, _)| code))
    }
}

/// How many ranks are what; a rank counts in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Not started.
    pub(super) pending: usize,
    /// Started and not ended.
    pub(super) running: usize,
    /// Running, no exit announced.
    pub(super) mute: usize,
    /// Running, neither an exit announced nor a farewell said.
    pub(super) staying: usize,
    /// Has opened the bootstrap, at any time.
    pub(super) hello: usize,
}

impl Counts {
    fn parts(&mut self) -> [&mut usize; 5] {
        let Self { pending, running, mute, staying, hello } = self;
        [pending, running, mute, staying, hello]
    }

    /// Where one rank counts, in the order of [`Counts::parts`].
    const fn of(member: &Member) -> [bool; 5] {
        let (running, mute) = (member.running(), member.exiting.is_none());
        [
            !member.started,
            running,
            running && mute,
            running && mute && member.fini.is_none(),
            member.hello,
        ]
    }
}

/// The ranks that a machine decides about.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Their numbers in the job, ascending; `None`: from 0, all of them.
    numbers: Option<Vec<u32>>,
    all: Vec<Member>,
    counts: Counts,
    /// Largest code said by a rank that has announced its exit.
    largest: Option<u32>,
}

impl Members {
    /// Every rank of a job of this size, none of them started.
    pub(super) fn whole(size: u32) -> Self {
        Self::blank(None, size as usize)
    }

    /// These ranks alone (ascending), none of them started.
    pub(super) fn some(numbers: Vec<u32>) -> Self {
        let size = numbers.len();
        Self::blank(Some(numbers), size)
    }

    fn blank(numbers: Option<Vec<u32>>, size: usize) -> Self {
        let counts = Counts { pending: size, ..Counts::default() };
        Self { numbers, all: vec![Member::default(); size], counts, largest: None }
    }

    fn place(&self, rank: u32) -> Option<usize> {
        match &self.numbers {
            Some(numbers) => numbers.binary_search(&rank).ok(),
            None => usize::try_from(rank).ok().filter(|at| *at < self.all.len()),
        }
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) const fn largest(&self) -> Option<u32> {
        self.largest
    }

    pub(super) fn get(&self, rank: u32) -> Option<&Member> {
        self.all.get(self.place(rank)?)
    }

    /// Numbers and states of all.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Member)> {
        let number = |at: u32| self.numbers.as_ref().map_or(at, |numbers| numbers[at as usize]);
        (0..).zip(&self.all).map(move |(at, member)| (number(at), member))
    }

    /// Changes one rank, if it is one of these.
    pub(super) fn change<T>(
        &mut self,
        rank: u32,
        change: impl FnOnce(&mut Member) -> T,
    ) -> Option<T> {
        let place = self.place(rank)?;
        let member = &mut self.all[place];
        let before = Counts::of(member);
        let outcome = change(member);
        for ((sum, before), now) in
            self.counts.parts().into_iter().zip(before).zip(Counts::of(member))
        {
            *sum = *sum + usize::from(now) - usize::from(before);
        }
        if member.exiting.is_some() {
            self.largest = self.largest.max(member.said());
        }
        Some(outcome)
    }

    /// Those that run end because of us.
    pub(super) fn mark_killed(&mut self) {
        for member in self.all.iter_mut().filter(|member| member.running()) {
            member.killed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(members: &Members) -> (Counts, Option<u32>) {
        let count = |is: fn(&Member) -> bool| members.iter().filter(|(_, m)| is(m)).count();
        let codes =
            members.iter().filter(|(_, m)| m.exiting.is_some()).filter_map(|(_, m)| m.said());
        let counts = Counts {
            pending: count(|m| !m.started),
            running: count(|m| m.started && m.end.is_none()),
            mute: count(|m| m.started && m.end.is_none() && m.exiting.is_none()),
            staying: count(|m| {
                m.started && m.end.is_none() && m.exiting.is_none() && m.fini.is_none()
            }),
            hello: count(|m| m.hello),
        };
        (counts, codes.max())
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_ranks(
            deeds in proptest::collection::vec((0u32..12, 0u8..5, 0u32..4), 0..80),
            some in any::<bool>(),
        ) {
            let numbers = vec![1, 4, 5, 9];
            let mut members =
                if some { Members::some(numbers.clone()) } else { Members::whole(8) };
            for (rank, deed, code) in deeds {
                let known = members.change(rank, |m| match deed {
                    0 => m.started = true,
                    1 => m.hello = true,
                    2 => _ = m.exiting.get_or_insert((code, ExitPath::Explicit)),
                    3 => _ = m.fini.get_or_insert(code),
                    _ => m.end = m.started.then_some(End::Code(0)),
                });
                let expected = if some { numbers.contains(&rank) } else { rank < 8 };
                prop_assert_eq!(known.is_some(), expected);
                prop_assert_eq!(members.get(rank).is_some(), expected);
                prop_assert_eq!((members.counts(), members.largest()), counted(&members));
            }
            if some {
                prop_assert!(members.iter().map(|(rank, _)| rank).eq(numbers));
            }
        }
    }
}
