//! What is known of each rank, and the sums that decide. The sums are kept while ranks change, so
//! that no event makes the machine look at every rank of a large job. What all ranks of a group do
//! alike is written down once, and into a rank when that is looked at.

use bootstrap::{ExitPath, Rank};

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
    /// How much of what its group did is written down here.
    read: u32,
}

/// What the running ranks of a group do alike, those that have not done it yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Hello,
    Exiting(u32, ExitPath),
    Fini(u32),
    /// Nobody had told them to end.
    Ended(End, bool),
    /// Those that run end because of us.
    Killed,
}

impl Member {
    pub(super) const fn running(&self) -> bool {
        self.started && self.end.is_none()
    }

    /// The largest code that it announced, by exit or farewell.
    pub(super) fn said(&self) -> Option<u32> {
        self.fini.max(self.exiting.map(|(code, _)| code))
    }

    fn apply(&mut self, change: Change) {
        if !self.running() {
            return;
        }
        match change {
            Change::Hello => self.hello = true,
            Change::Exiting(code, path) => _ = self.exiting.get_or_insert((code, path)),
            Change::Fini(code) => _ = self.fini.get_or_insert(code),
            Change::Ended(end, free) => {
                self.killed &= !free;
                self.end = Some(end);
            }
            Change::Killed => self.killed = true,
        }
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
    /// Running, an exit announced and no farewell said.
    pub(super) parting: usize,
    /// Running, has not opened the bootstrap.
    pub(super) unopened: usize,
    /// Has opened the bootstrap, at any time.
    pub(super) hello: usize,
}

impl Counts {
    const fn parts(&mut self) -> [&mut usize; 7] {
        let Self { pending, running, mute, staying, parting, unopened, hello } = self;
        [pending, running, mute, staying, parting, unopened, hello]
    }

    /// Where one rank counts, in the order of [`Counts::parts`].
    const fn of(member: &Member) -> [bool; 7] {
        let (running, mute) = (member.running(), member.exiting.is_none());
        let silent = running && member.fini.is_none();
        [
            !member.started,
            running,
            running && mute,
            silent && mute,
            silent && !mute,
            running && !member.hello,
            member.hello,
        ]
    }

    /// A rank counts elsewhere than before.
    fn moves(&mut self, before: [bool; 7], now: [bool; 7]) {
        for ((sum, before), now) in self.parts().into_iter().zip(before).zip(now) {
            *sum = *sum + usize::from(now) - usize::from(before);
        }
    }

    /// A group counts elsewhere than before.
    fn replace(&mut self, before: Self, now: Self) {
        let (mut before, mut now) = (before, now);
        for ((sum, before), now) in self.parts().into_iter().zip(before.parts()).zip(now.parts()) {
            *sum = *sum + *now - *before;
        }
    }
}

/// Ranks that may change as one.
#[derive(Debug, Default)]
struct Group {
    counts: Counts,
    /// What they did, in order.
    log: Vec<Change>,
    /// Where the first of them is.
    from: usize,
}

/// The ranks that a machine decides about.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Their numbers in the job, ascending; `None`: from 0, all of them.
    numbers: Option<Vec<u32>>,
    all: Vec<Member>,
    /// By place; empty: all are in the first group.
    group_of: Vec<u32>,
    groups: Vec<Group>,
    counts: Counts,
    /// Largest code said by a rank that has announced its exit, and by any.
    largest: Option<u32>,
    said: Option<u32>,
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
        let groups = vec![Group { counts, ..Group::default() }];
        Self { numbers, all: vec![Member::default(); size], groups, counts, ..Self::default() }
    }

    /// Makes new groups of ranks. Those in none of them get one of their own, behind the others.
    pub(super) fn group<'a>(&mut self, groups: impl IntoIterator<Item = &'a [Rank]>) {
        self.all = (0..self.all.len()).map(|place| Member { read: 0, ..self.at(place) }).collect();
        let groups: Vec<&[Rank]> = groups.into_iter().collect();
        let rest = u32::try_from(groups.len()).unwrap_or(u32::MAX);
        self.group_of = vec![rest; self.all.len()];
        for (number, ranks) in (0..rest).zip(&groups) {
            for place in ranks.iter().filter_map(|rank| self.place(rank.0)).collect::<Vec<_>>() {
                self.group_of[place] = number;
            }
        }
        let from = self.all.len();
        self.groups = (0..=groups.len()).map(|_| Group { from, ..Group::default() }).collect();
        for (place, (number, member)) in self.group_of.iter().zip(&self.all).enumerate() {
            let group = &mut self.groups[*number as usize];
            group.from = group.from.min(place);
            group.counts.moves([false; 7], Counts::of(member));
        }
    }

    fn group_at(&self, place: usize) -> usize {
        self.group_of.get(place).map_or(0, |group| *group as usize)
    }

    fn place(&self, rank: u32) -> Option<usize> {
        match &self.numbers {
            Some(numbers) => numbers.binary_search(&rank).ok(),
            None => usize::try_from(rank).ok().filter(|at| *at < self.all.len()),
        }
    }

    fn number(&self, place: usize) -> u32 {
        let all = || u32::try_from(place).unwrap_or(u32::MAX);
        self.numbers.as_ref().map_or_else(all, |numbers| numbers[place])
    }

    /// A rank with all that its group did.
    fn at(&self, place: usize) -> Member {
        let mut member = self.all[place];
        let log = &self.groups[self.group_at(place)].log;
        for change in log.get(member.read as usize..).unwrap_or_default() {
            member.apply(*change);
        }
        member.read = u32::try_from(log.len()).unwrap_or(u32::MAX);
        member
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn counts_of(&self, group: usize) -> Option<Counts> {
        self.groups.get(group).map(|group| group.counts)
    }

    pub(super) const fn size(&self) -> usize {
        self.all.len()
    }

    pub(super) const fn largest(&self) -> Option<u32> {
        self.largest
    }

    /// The largest code that any rank said.
    pub(super) const fn said(&self) -> Option<u32> {
        self.said
    }

    pub(super) fn get(&self, rank: u32) -> Option<Member> {
        self.place(rank).map(|place| self.at(place))
    }

    /// Numbers and states of all.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Member)> {
        (0..self.all.len()).map(|place| (self.number(place), self.at(place)))
    }

    /// Numbers of the ranks of a group of which something is true.
    pub(super) fn of_group(
        &self,
        group: usize,
        is: impl Fn(&Member) -> bool,
    ) -> impl Iterator<Item = u32> {
        let from = self.groups.get(group).map_or(self.all.len(), |group| group.from);
        let places = (from..self.all.len()).filter(move |place| self.group_at(*place) == group);
        places.filter(move |place| is(&self.at(*place))).map(|place| self.number(place))
    }

    /// Changes one rank, if it is one of these.
    pub(super) fn change<T>(
        &mut self,
        rank: u32,
        change: impl FnOnce(&mut Member) -> T,
    ) -> Option<T> {
        let place = self.place(rank)?;
        let mut member = self.at(place);
        let before = Counts::of(&member);
        let outcome = change(&mut member);
        let now = Counts::of(&member);
        self.counts.moves(before, now);
        let group = self.group_at(place);
        self.groups[group].counts.moves(before, now);
        self.all[place] = member;
        if member.exiting.is_some() {
            self.largest = self.largest.max(member.said());
        }
        self.said = self.said.max(member.said());
        Some(outcome)
    }

    /// Changes all ranks of a group that a change concerns.
    pub(super) fn change_group(&mut self, group: usize, change: Change) {
        let Some(Group { counts, log, .. }) = self.groups.get_mut(group) else { return };
        if matches!(change, Change::Exiting(..)) && counts.mute > counts.staying {
            // Some have said farewell with a code that now counts.
            let ranks: Vec<u32> = self.of_group(group, |_| true).collect();
            return ranks.into_iter().for_each(|rank| {
                self.change(rank, |member| member.apply(change));
            });
        }
        let (before, silent) = (*counts, counts.staying + counts.parting);
        let (mut largest, mut said) = (None, None);
        match change {
            Change::Hello => (counts.hello, counts.unopened) = (before.hello + before.unopened, 0),
            Change::Exiting(code, _) => {
                largest = (before.mute > 0).then_some(code);
                said = largest;
                (counts.parting, counts.mute, counts.staying) = (silent, 0, 0);
            }
            Change::Fini(code) => {
                largest = (before.parting > 0).then_some(code);
                said = (silent > 0).then_some(code);
                (counts.parting, counts.staying) = (0, 0);
            }
            Change::Ended(..) => {
                *counts =
                    Counts { pending: before.pending, hello: before.hello, ..Counts::default() };
            }
            Change::Killed => {}
        }
        log.push(change);
        self.counts.replace(before, *counts);
        self.largest = self.largest.max(largest);
        self.said = self.said.max(said);
    }

    /// Those that run end because of us.
    pub(super) fn mark_killed(&mut self) {
        (0..self.groups.len()).for_each(|group| self.change_group(group, Change::Killed));
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
            parting: count(|m| {
                m.started && m.end.is_none() && m.exiting.is_some() && m.fini.is_none()
            }),
            unopened: count(|m| m.started && m.end.is_none() && !m.hello),
            hello: count(|m| m.hello),
        };
        (counts, codes.max())
    }

    /// All that is known of each rank, but for how it came to be known.
    fn seen(members: &Members) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
        let each = |(rank, m): (u32, Member)| {
            (rank, [m.started, m.hello, m.killed], m.exiting.map(|(code, _)| code), m.fini, m.end)
        };
        members.iter().map(each).collect()
    }

    fn change(deed: u8, code: u32) -> Change {
        match deed {
            0 => Change::Hello,
            1 => Change::Exiting(code, ExitPath::Explicit),
            2 => Change::Fini(code),
            3 => Change::Ended(End::Code(0), code == 0),
            _ => Change::Killed,
        }
    }

    proptest! {
        /// What a group does as one is what its ranks do one by one.
        #[test]
        fn a_group_changes_as_its_ranks_do(
            deeds in proptest::collection::vec((0u32..12, 0u8..6, 0u32..4, any::<bool>()), 0..60),
            some in any::<bool>(),
        ) {
            let of = |numbers: &[u32]| numbers.iter().copied().map(Rank).collect::<Vec<_>>();
            let groups = if some { [of(&[1, 9]), of(&[4])] } else { [of(&[0, 3, 1]), of(&[2, 5])] };
            let blank = || if some { Members::some(vec![1, 4, 5, 9]) } else { Members::whole(8) };
            let (mut lazy, mut model) = (blank(), blank());
            for (rank, deed, code, whole) in deeds {
                let group = rank as usize % 2;
                match (deed, whole) {
                    (5, true) => lazy.group(groups.iter().map(Vec::as_slice)),
                    (5, false) => [&mut lazy, &mut model].into_iter().for_each(|members| {
                        members.change(rank, |m| m.started = true);
                    }),
                    (_, true) if lazy.groups.len() == 3 => {
                        lazy.change_group(group, change(deed, code));
                        for rank in &groups[group] {
                            model.change(rank.0, |m| m.apply(change(deed, code)));
                        }
                    }
                    _ => [&mut lazy, &mut model].into_iter().for_each(|members| {
                        members.change(rank, |m| m.apply(change(deed, code)));
                    }),
                }
                prop_assert_eq!(seen(&lazy), seen(&model));
                prop_assert_eq!((lazy.counts(), lazy.largest()), counted(&model));
                prop_assert_eq!((lazy.said(), lazy.largest()), (model.said(), model.largest()));
                let sums = lazy.groups.iter().fold(Counts::default(), |mut sum, group| {
                    sum.replace(Counts::default(), group.counts);
                    sum
                });
                prop_assert_eq!(sums, lazy.counts());
            }
        }

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
