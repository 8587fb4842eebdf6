//! Small jobs in virtual time, each twice: every event by itself, and brought together. The root
//! decides the same. Commands, questions and answers take no time; ranks react after 1 ms.

use std::collections::BTreeMap;

use bootstrap::ExitPath;
use bootstrap::collective::groups;
use proptest::prelude::*;

use super::*;
use crate::agent::machine::deed::Who;
use crate::agent::machine::{Command, Event, Machine, Rules};
use crate::report::CauseKind;

/// What a rank does by itself, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Stay,
    /// Announces its exit with this code.
    Exit(i32),
    /// Ends with this code, without a word.
    Code(i32),
    Die(i32),
    Abort(i32),
}

#[derive(Clone, Debug)]
struct Job {
    hosts: u32,
    degree: usize,
    /// Ranks follow the hosts in turn, and not each host's one after the other.
    cyclic: bool,
    /// They open the bootstrap.
    gasnet: bool,
    plans: Vec<(Plan, u64)>,
}

struct World<'a> {
    job: &'a Job,
    machine: Machine,
    agents: Vec<Aggregate>,
    /// Who is above each host: the agent (`None`: the root) and the number of the branch there.
    above: Vec<(Option<usize>, usize)>,
    parts: Vec<Part>,
    queue: BTreeMap<(u64, usize), RankEvent>,
    sent: usize,
    exiting: Vec<Option<i32>>,
    gone: Vec<bool>,
    reduced: bool,
    /// Messages that the root got, and when the job's end was decided.
    heard: usize,
    decided: Option<u64>,
    finished: bool,
}

impl Job {
    fn host(&self, rank: u32) -> u32 {
        let size = u32::try_from(self.plans.len()).unwrap();
        if self.cyclic { rank % self.hosts } else { rank * self.hosts / size }
    }

    fn ranks(&self, hosts: std::ops::Range<usize>) -> Vec<Rank> {
        let size = u32::try_from(self.plans.len()).unwrap();
        let mut ranks: Vec<Rank> = (0..size).map(Rank).collect();
        ranks.retain(|rank| hosts.contains(&(self.host(rank.0) as usize)));
        ranks
    }

    fn part(&self, hosts: std::ops::Range<usize>) -> Part {
        let numbers = hosts.clone().map(|host| u32::try_from(host).unwrap());
        Part::new(&self.ranks(hosts), numbers)
    }

    fn play(&self, together: bool) -> World<'_> {
        let mut world = World::new(self, together);
        let mut now = 0;
        while now < 20_000 && !world.finished {
            world.step(now);
            now = world.next(now);
        }
        world
    }
}

impl<'a> World<'a> {
    fn new(job: &'a Job, together: bool) -> Self {
        let size = job.plans.len();
        let rules = Rules { exit_bound: 3000, timeout_at: None };
        let mut world = World {
            job,
            machine: Machine::new(u32::try_from(size).unwrap(), rules),
            agents: (0..job.hosts).map(Aggregate::new).collect(),
            above: vec![(None, 0); job.hosts as usize],
            parts: Vec::new(),
            queue: BTreeMap::new(),
            sent: 0,
            exiting: vec![None; size],
            gone: vec![false; size],
            reduced: false,
            heard: 0,
            decided: None,
            finished: false,
        };
        world.tree(together);
        for (rank, (plan, at)) in (0..).zip(&job.plans) {
            world.at(0, RankEvent::Started { rank, pid: 1, at: 0.0 });
            if job.gasnet {
                world.at(u64::from(rank % 3), RankEvent::Hello { rank });
            }
            world.begin(rank, *plan, *at);
        }
        world
    }

    fn tree(&mut self, together: bool) {
        let job = self.job;
        let mut open = vec![(None, 0..job.hosts as usize)];
        while let Some((at, below)) = open.pop() {
            let below: Vec<_> = groups(below, job.degree).collect();
            let parts: Vec<Part> = below.iter().map(|group| job.part(group.clone())).collect();
            for (branch, group) in below.into_iter().enumerate() {
                self.above[group.start] = (at, branch);
                open.push((Some(group.start), group.start + 1..group.end));
            }
            match at {
                Some(host) if together => self.agents[host].join(&job.ranks(host..host + 1), parts),
                Some(_) => {}
                None => {
                    let ranks: Vec<Vec<Rank>> = groups(0..job.hosts as usize, job.degree)
                        .map(|group| job.ranks(group))
                        .collect();
                    self.machine.group(ranks.iter().map(Vec::as_slice));
                    self.parts = parts;
                }
            }
        }
    }

    fn begin(&mut self, rank: u32, plan: Plan, at: u64) {
        let end = |end| RankEvent::Ended { rank, end, at: 0.0 };
        match plan {
            Plan::Stay => {}
            Plan::Exit(code) => {
                let path = ExitPath::Explicit as u32;
                self.at(at, RankEvent::Exiting { rank, code, path });
            }
            Plan::Code(code) => self.at(at, end(End::Code(code))),
            Plan::Die(signal) => self.at(at, end(End::Signal(signal))),
            Plan::Abort(code) => self.at(at, RankEvent::Abort { rank, code }),
        }
    }

    fn at(&mut self, time: u64, event: RankEvent) {
        self.sent += 1;
        self.queue.insert((time, self.sent), event);
    }

    fn step(&mut self, now: u64) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= now) {
            let event = entry.remove();
            self.happens(now, event);
        }
        self.carry(now);
        if self.machine.deadline().is_some_and(|at| now >= at) {
            self.root(now, Event::Tick);
        }
    }

    /// When something happens next.
    fn next(&self, now: u64) -> u64 {
        let queued = self.queue.keys().next().map(|(at, _)| *at);
        let agents = self.agents.iter().filter_map(Aggregate::deadline);
        let times = agents.chain(queued).chain(self.machine.deadline());
        times.min().unwrap_or(u64::MAX).max(now + 1)
    }

    fn happens(&mut self, now: u64, event: RankEvent) {
        let rank = event.rank().unwrap();
        if std::mem::replace(
            &mut self.gone[rank as usize],
            matches!(event, RankEvent::Ended { .. }),
        ) {
            self.gone[rank as usize] = true;
            return;
        }
        if let RankEvent::Exiting { code, .. } = event {
            if self.exiting[rank as usize].is_some() {
                return;
            }
            self.exiting[rank as usize] = Some(code);
        }
        let host = self.job.host(rank) as usize;
        let ended = matches!(event, RankEvent::Ended { .. });
        self.agents[host].happened(now, event);
        let left =
            self.job.ranks(host..host + 1).into_iter().any(|rank| !self.gone[rank.0 as usize]);
        if ended && !left {
            self.agents[host].own_left(now, false);
        }
        // The ranks' own reduction.
        if !self.reduced && self.exiting.iter().all(Option::is_some) {
            self.reduced = true;
            let code = self.exiting.iter().flatten().copied().max().unwrap();
            (0..).zip(&self.job.plans).for_each(|(rank, _)| self.leave(now + 1, rank, code));
        }
    }

    fn leave(&mut self, at: u64, rank: u32, code: i32) {
        self.at(at, RankEvent::Exiting { rank, code, path: ExitPath::Remote as u32 });
        self.at(at, RankEvent::Fini { rank, code });
        self.at(at + u64::from(rank % 4), RankEvent::Ended { rank, end: End::Code(code), at: 0.0 });
    }

    /// Everything that is to be told now goes up, from below.
    fn carry(&mut self, now: u64) {
        for host in (0..self.agents.len()).rev() {
            for up in self.agents[host].take(now) {
                self.deliver(now, host, up);
            }
        }
    }

    fn deliver(&mut self, now: u64, host: usize, up: Up) {
        let (above, branch) = self.above[host];
        if let Some(above) = above.map(|above| &mut self.agents[above]) {
            return match up {
                Up::Events(events) => above.heard(now, events),
                Up::Told(told) => above.told(now, branch, told).unwrap(),
                Up::Orphans { host, left } => above.left_below(now, branch, (host, left)),
                up => panic!("{up:?}"),
            };
        }
        self.heard += 1;
        match up {
            Up::Events(events) => {
                events.into_iter().for_each(|event| self.root(now, Event::Rank(event)));
            }
            Up::Told(told) => {
                self.parts[branch].take(&told).unwrap();
                match told {
                    Told::Some { news: News::Did(deed), runs } => {
                        self.root(now, Event::Alike { deed, who: Who::Runs(runs) });
                    }
                    Told::Rest { news: News::Did(deed), .. } => {
                        self.root(now, Event::Alike { deed, who: Who::Rest(branch) });
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn root(&mut self, now: u64, event: Event) {
        let mut commands = Vec::new();
        self.machine.handle(now, event, &mut commands);
        if self.machine.is_ending() {
            self.decided.get_or_insert(now);
        }
        for command in commands {
            self.act(now, command);
        }
    }

    fn act(&mut self, now: u64, command: Command) {
        let present: Vec<u32> =
            (0..).zip(&self.gone).filter(|(_, gone)| !**gone).map(|(r, _)| r).collect();
        match command {
            Command::SampleCpu { .. } => {
                for host in (0..self.agents.len()).rev() {
                    self.agents[host].flush(now);
                    for up in self.agents[host].take(now) {
                        self.deliver(now, host, up);
                    }
                }
                self.root(now, Event::CpuSampled { starved: false });
            }
            Command::ExitDecision { code, .. } if self.job.gasnet => {
                present.into_iter().for_each(|rank| self.leave(now + 1, rank, code));
            }
            Command::End(signal) => {
                self.agents.iter_mut().for_each(Aggregate::kills);
                for rank in present {
                    let end = End::Signal(signal);
                    self.at(now + 1, RankEvent::Ended { rank, end, at: 0.0 });
                }
            }
            Command::FindOrphans => self.root(now, Event::Orphans { left: false }),
            Command::Finish => self.finished = true,
            _ => {}
        }
    }
}

/// Codes of exits alike or not, and at most one rank that fails, so that there is one first cause.
fn jobs() -> impl Strategy<Value = Job> {
    let exit = prop_oneof![3 => Just(Plan::Exit(0)), 1 => (0..4).prop_map(Plan::Exit)];
    let plain = prop_oneof![3 => Just(Plan::Code(0)), 1 => Just(Plan::Stay)];
    let fails = prop_oneof![
        (1..4).prop_map(Plan::Code),
        Just(Plan::Die(11)),
        (0..4).prop_map(Plan::Abort),
        Just(Plan::Code(0)),
    ];
    let shape = (1u32..8, 1usize..4, any::<bool>(), any::<bool>(), 0u8..3);
    let ranks = proptest::collection::vec((exit, plain, 0u64..8), 8..24);
    let failing = proptest::option::of((fails, 0usize..24, 0u64..12));
    let stays = proptest::collection::vec(0usize..24, 0..4);
    (shape, ranks, failing, stays).prop_map(|(shape, ranks, failing, stays)| {
        let (hosts, degree, cyclic, gasnet, spread) = shape;
        let plan = |(exit, plain, at): (Plan, Plan, u64)| {
            (if gasnet { exit } else { plain }, if spread == 0 { 5 } else { at })
        };
        let mut plans: Vec<(Plan, u64)> = ranks.into_iter().map(plan).collect();
        let size = plans.len();
        if spread == 2 {
            stays.into_iter().for_each(|rank| plans[rank % size].0 = Plan::Stay);
        }
        if let Some((fails, rank, at)) = failing {
            plans[rank % size] = (fails, at);
        }
        Job { hosts, degree, cyclic, gasnet, plans }
    })
}

/// Who of several ranks was the first is for the order of arrival to say.
fn is_first_of_many(kind: CauseKind) -> bool {
    matches!(kind, CauseKind::NonCollectiveExit)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_root_decides_the_same(job in jobs()) {
        let (each, together) = (job.play(false), job.play(true));
        let causes = [&each, &together].map(|world| world.machine.cause());
        let [mut expected, mut found] = causes;
        for cause in [&mut expected, &mut found].into_iter().flatten() {
            if is_first_of_many(cause.kind) {
                (cause.rank, cause.path) = (None, None);
            }
        }
        prop_assert_eq!(expected, found);
        prop_assert_eq!(each.finished, together.finished);
        prop_assert_eq!(each.machine.progress()[1], together.machine.progress()[1]);
        let size = u32::try_from(job.plans.len()).unwrap();
        for rank in 0..size {
            // An end that was held when the root decided is known for a free one.
            prop_assert!(each.machine.is_killed(rank) || !together.machine.is_killed(rank));
            prop_assert_eq!(each.machine.is_exiting(rank), together.machine.is_exiting(rank));
        }
        // Each level may wait for one window.
        let levels = u64::from(job.hosts);
        if let (Some(at), Some(with)) = (each.decided, together.decided) {
            prop_assert!(with <= at + levels * HOLD.ms() && with + levels * HOLD.ms() >= at, "{} {}", at, with);
        }
    }
}

fn whole(hosts: u32, ranks: usize, plan: Plan) -> Job {
    Job { hosts, degree: 2, cyclic: false, gasnet: true, plans: vec![(plan, 5); ranks] }
}

#[test]
fn a_collective_exit_is_a_few_messages_of_each_link() {
    let job = whole(15, 600, Plan::Exit(0));
    let (each, together) = (job.play(false), job.play(true));
    assert!(each.finished && together.finished);
    assert_eq!(together.machine.exit_code(), 0);
    // Starts, and of each of four kinds the first ones and the rest, for two links.
    assert!(together.heard <= 30 && each.heard >= 30, "{} {}", each.heard, together.heard);
}

fn agent() -> Aggregate {
    let mut agent = Aggregate::new(0);
    agent.join(&[Rank(0), Rank(1)], vec![Part::new(&[Rank(2), Rank(3)], [1])]);
    agent
}

fn exiting(rank: u32) -> RankEvent {
    RankEvent::Exiting { rank, code: 0, path: 0 }
}

const EXITS: News = News::Did(Deed::Exiting { code: 0, path: 0 });

#[test]
fn the_first_exit_is_told_at_once_and_others_after_a_window() {
    let mut agent = agent();
    agent.happened(7, exiting(1));
    let some = |runs: &[Run]| Up::Told(Told::Some { news: EXITS, runs: runs.to_vec() });
    assert_eq!(agent.take(7), [some(&[(1, 1)])]);
    agent.told(8, 0, Told::Some { news: EXITS, runs: vec![(3, 1)] }).unwrap();
    assert_eq!((agent.take(8), agent.deadline()), (vec![], Some(7 + BATCH.ms())));
    assert_eq!(agent.take(7 + BATCH.ms()), [some(&[(3, 1)])]);
    // The rest is one message without a wait.
    agent.told(20, 0, Told::Complete { kind: Kind::Exiting, count: 2 }).unwrap();
    agent.happened(20, exiting(0));
    assert_eq!(agent.take(20), [Up::Told(Told::Rest { news: EXITS, count: 4 })]);
}

#[test]
fn codes_that_differ_are_told_apart() {
    let mut agent = agent();
    let news = News::Did(Deed::Exiting { code: 3, path: 0 });
    agent.happened(7, exiting(0));
    agent.happened(7, exiting(1));
    agent.told(7, 0, Told::Rest { news, count: 2 }).unwrap();
    let [own, below] = [(EXITS, vec![(0, 2)]), (news, vec![(2, 2)])];
    let some = |(news, runs)| Up::Told(Told::Some { news, runs });
    let complete = Up::Told(Told::Complete { kind: Kind::Exiting, count: 4 });
    assert_eq!(agent.take(7), [some(own), some(below), complete]);
}

#[test]
fn a_failure_is_told_by_itself_behind_what_was_held() {
    let mut agent = agent();
    agent.happened(1, RankEvent::Fini { rank: 0, code: 0 });
    agent.happened(1, RankEvent::Ended { rank: 0, end: End::Code(0), at: 0.5 });
    assert_eq!(agent.take(1), []);
    let failed = RankEvent::Ended { rank: 1, end: End::Signal(11), at: 0.75 };
    agent.happened(2, failed.clone());
    let told = agent.take(2);
    let fini = News::Did(Deed::Fini { code: 0 });
    let ended = News::Did(Deed::Ended { end: End::Code(0), orderly: true, free: true });
    let some = |news| Up::Told(Told::Some { news, runs: vec![(0, 1)] });
    assert_eq!(told, [some(fini), some(ended), Up::Events(vec![failed])]);
    assert_eq!(agent.times, [(0, 0.5)]);
}

#[test]
fn a_farewell_is_never_told_before_the_exit() {
    let mut agent = agent();
    agent.happened(7, exiting(0));
    let _ = agent.take(7);
    agent.happened(8, exiting(1));
    for rank in [0, 1] {
        agent.happened(8, RankEvent::Fini { rank, code: 0 });
    }
    agent.told(8, 0, Told::Rest { news: News::Did(Deed::Fini { code: 0 }), count: 2 }).unwrap();
    let kinds: Vec<Kind> = agent.take(8).iter().filter_map(kind_of).collect();
    assert_eq!(kinds, [Kind::Exiting, Kind::Fini]);
}

fn kind_of(up: &Up) -> Option<Kind> {
    match up {
        Up::Told(Told::Some { news, .. } | Told::Rest { news, .. }) => Some(news.kind()),
        Up::Told(Told::Complete { kind, .. }) => Some(*kind),
        _ => None,
    }
}

#[test]
fn hosts_with_nothing_left_are_one_message() {
    let mut agent = agent();
    agent.own_left(1, false);
    assert_eq!(agent.take(1), []);
    agent.told(2, 0, Told::Rest { news: News::Bare, count: 1 }).unwrap();
    let all = Up::Told(Told::Rest { news: News::Bare, count: 2 });
    assert_eq!(agent.take(2), std::slice::from_ref(&all));
    // A search begins anew; something that is left is told at once, behind what was held.
    agent.search(3);
    agent.told(3, 0, Told::Rest { news: News::Bare, count: 1 }).unwrap();
    agent.left_below(4, 0, (1, true));
    agent.own_left(4, true);
    let below = Up::Told(Told::Some { news: News::Bare, runs: vec![(1, 1)] });
    let left = |host| Up::Orphans { host, left: true };
    assert_eq!(agent.take(4), [below, left(1), left(0)]);
    agent.search(5);
    agent.own_left(5, false);
    agent.done(0);
    assert_eq!(agent.take(5), [all]);
}

#[test]
fn without_a_subtree_every_event_is_told() {
    let mut agent = Aggregate::new(3);
    agent.happened(1, exiting(0));
    agent.happened(1, exiting(1));
    agent.own_left(1, false);
    let events = Up::Events(vec![exiting(0), exiting(1)]);
    assert_eq!(agent.take(1), [events, Up::Orphans { host: 3, left: false }]);
    let refused = agent.told(1, 0, Told::Complete { kind: Kind::Fini, count: 1 });
    assert_eq!(refused, Err(Refused::Unknown));
}

#[test]
fn a_lost_branch_is_not_waited_for() {
    let mut agent = agent();
    agent.told(1, 0, Told::Some { news: EXITS, runs: vec![(2, 1)] }).unwrap();
    let _ = agent.take(1);
    agent.told(1, 0, Told::Some { news: EXITS, runs: vec![(3, 1)] }).unwrap();
    agent.happened(1, exiting(0));
    agent.flush_branch(0);
    assert_eq!(agent.take(1).len(), 1, "what it told goes up before its loss");
    agent.lost(0);
    agent.happened(2, exiting(1));
    assert_eq!(agent.take(2), [Up::Told(Told::Rest { news: EXITS, count: 4 })]);
}
