//! The world: hosts, links and ranks around the root's machine.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use bootstrap::collective::groups;
use bootstrap::{ExitPath, Rank};
use settings::deadlines::tree::{CHILD_SILENT, PARENT_SILENT};

use crate::agent::local_ranks::CpuSample;
use crate::agent::machine::deed::{Deed, Run, Who};
use crate::agent::machine::{Command, Event, Machine, RankEvent, Rules};
use crate::report::End;
use crate::root::search::Search;
use crate::tree::aggregate::Aggregate;
use crate::tree::message::{Down, HostCommand, Loss, Up, encode};
use crate::tree::told::{News, Part, Told, merged};

/// Nanoseconds; the machines count milliseconds.
pub(super) type Time = u64;

pub(super) const MS: Time = 1_000_000;
/// One way over a link, work for each message and for each of its bytes: as for collective calls
/// (`scripts/bench --ssh ssh-hop`: 170 µs for a message, 10.6 ns for a byte).
pub(super) const LATENCY: Time = MS * 15 / 100;
pub(super) const WORK: Time = MS / 50;
const BYTE: Time = 10;
/// The root's work for each message, and for each event of a rank in it.
pub(super) const EVENT: Time = MS / 1000;
/// Its work for each rank that it is told of in runs
/// (`cargo test --release -p supervisor alike -- --ignored --nocapture` measures it), and for each host.
pub(super) const EACH: Time = 100;
const HOST: Time = 25;
pub(super) const DEGREE: usize = 32;
pub(super) const EXIT_BOUND: u64 = 3000;
/// The ranks' own reduction of their codes.
const REDUCTION: Time = 2 * MS;
/// Code of the rank that leaves alone.
pub(super) const LONE: i32 = 3;
const ROOT: usize = usize::MAX;

/// What the ranks do when hosts are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum During {
    /// They are being started.
    Start,
    /// They compute or wait in a collective call: nothing that the supervisor sees.
    Work,
    CollectiveExit,
    NonCollectiveExit,
}

/// How a loss is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Closed,
    Silent,
}

enum Mail {
    Up {
        from: usize,
        to: usize,
        message: Up,
    },
    Down {
        to: usize,
        command: HostCommand,
    },
    /// What the ranks of a host do by themselves.
    Ranks {
        host: usize,
        events: Vec<RankEvent>,
    },
    /// The agent of a host hears nothing more from its parent.
    Orphaned {
        host: usize,
    },
    /// An agent sends what has come together while it was busy.
    Turn {
        host: usize,
    },
    Tick {
        host: usize,
    },
    /// An agent looks at its ranks for a question that left them time.
    Look {
        host: usize,
    },
}

#[derive(Default)]
pub(super) struct Agent {
    above: usize,
    below: Vec<usize>,
    /// One past the last host of its subtree.
    end: usize,
    busy: Time,
    pub(super) dead: bool,
    /// When it learned that the job ends.
    pub(super) told: Option<Time>,
    pub(super) left: Vec<u32>,
    bare: bool,
    /// Ranks of `left` that have announced their exit.
    announced: Vec<u32>,
    aggregate: Aggregate,
    /// Its next turn is due; when it wakes up by itself.
    turning: bool,
    wakes: Option<Time>,
    /// The agents below it at the beginning.
    branches: Vec<usize>,
    own: Option<Machine>,
    /// The last question about CPU times, answers that are still to come, and when the own ranks are
    /// looked at.
    question: u32,
    waiting: HashSet<usize>,
    look: Option<Time>,
}

impl Agent {
    /// Which branch leads to this agent below.
    fn branch(&self, below: usize) -> Option<usize> {
        self.branches.iter().position(|other| *other == below)
    }

    const fn obeys(&self) -> bool {
        !self.dead && self.own.is_none()
    }
}

pub(super) struct World {
    pub(super) agents: Vec<Agent>,
    top: Vec<usize>,
    pub(super) depth: u32,
    ranks: u32,
    pub(super) machine: Machine,
    root_busy: Time,
    root_waiting: Option<HashSet<usize>>,
    questions: u32,
    search: Option<Search>,
    /// What each link speaks for, and the hosts that have nothing left.
    parts: Vec<(usize, Part)>,
    bare: Vec<bool>,
    next_tick: Time,
    now: Time,
    heap: BinaryHeap<Reverse<(Time, usize)>>,
    mail: Vec<Option<Mail>>,
    free: Vec<usize>,
    lost: Vec<bool>,
    /// When the machine first had a cause or had heard every exit, and when it had finished.
    pub(super) decided: Option<Time>,
    pub(super) finished: Option<Time>,
}

/// All ranks of these hosts.
fn of_hosts(hosts: std::ops::Range<usize>, ranks: u32) -> Vec<Rank> {
    let [from, until] = [hosts.start, hosts.end].map(|host| u32::try_from(host).unwrap() * ranks);
    (from..until).map(Rank).collect()
}

/// How a rank ends that reads a decision.
fn leave(rank: u32, code: i32, announced: bool) -> Vec<RankEvent> {
    let path = ExitPath::Remote as u32;
    let announces = (!announced).then_some(RankEvent::Exiting { rank, code, path });
    let end = End::Code(code);
    let ends = [RankEvent::Fini { rank, code }, RankEvent::Ended { rank, end, at: 0.0 }];
    announces.into_iter().chain(ends).collect()
}

const fn ms(time: Time) -> u64 {
    time / MS
}

const fn rules() -> Rules {
    Rules { exit_bound: EXIT_BOUND, timeout_at: None }
}

impl World {
    /// A job whose ranks have opened the bootstrap, or are still to be started.
    pub(super) fn new(hosts: usize, ranks: u32, started: bool) -> Self {
        let mut agents: Vec<Agent> = (0..hosts).map(|_| Agent::default()).collect();
        let (mut top, mut depth) = (Vec::new(), 0);
        let mut open = vec![(ROOT, 0..hosts, 1)];
        while let Some((at, below, level)) = open.pop() {
            for group in groups(below, DEGREE) {
                depth = depth.max(level);
                let first = group.start;
                (agents[first].above, agents[first].end) = (at, group.end);
                match at {
                    ROOT => top.push(first),
                    at => agents[at].below.push(first),
                }
                open.push((first, first + 1..group.end, level + 1));
            }
        }
        let size = u32::try_from(hosts).unwrap() * ranks;
        let mut machine = Machine::new(size, rules());
        for rank in (0..size).filter(|_| started) {
            for event in [RankEvent::Started { rank, pid: 1, at: 0.0 }, RankEvent::Hello { rank }] {
                machine.handle(0, Event::Rank(event), &mut Vec::new());
            }
        }
        let parts = Self::join(&mut agents, &top, ranks);
        let each: Vec<Vec<Rank>> =
            top.iter().map(|host| of_hosts(*host..agents[*host].end, ranks)).collect();
        machine.group(each.iter().map(Vec::as_slice));
        if !started {
            agents.iter_mut().for_each(|agent| agent.left.clear());
        }
        Self {
            agents,
            top,
            depth,
            ranks,
            machine,
            root_busy: 0,
            root_waiting: None,
            questions: 0,
            search: None,
            parts,
            bare: vec![false; hosts],
            next_tick: Time::MAX,
            now: 0,
            heap: BinaryHeap::new(),
            mail: Vec::new(),
            free: Vec::new(),
            lost: vec![false; hosts],
            decided: None,
            finished: None,
        }
    }

    /// Every agent learns what it and those below it speak for; those of the root's links.
    fn join(agents: &mut [Agent], top: &[usize], ranks: u32) -> Vec<(usize, Part)> {
        let part = |agents: &[Agent], host: usize| {
            let hosts = (host..agents[host].end).map(|host| u32::try_from(host).unwrap());
            Part::new(&of_hosts(host..agents[host].end, ranks), hosts)
        };
        for host in 0..agents.len() {
            let number = u32::try_from(host).unwrap();
            let below = agents[host].below.clone();
            let mut aggregate = Aggregate::new(number);
            let parts = below.iter().map(|below| part(agents, *below)).collect();
            // They have started, which goes up by itself.
            aggregate.join(&of_hosts(host..host + 1, ranks), parts);
            let agent = &mut agents[host];
            agent.left = (number * ranks..(number + 1) * ranks).collect();
            (agent.aggregate, agent.branches) = (aggregate, below);
        }
        top.iter().map(|host| (*host, part(agents, *host))).collect()
    }

    fn at(&mut self, time: Time, mail: Mail) {
        let number = self.free.pop().unwrap_or(self.mail.len());
        self.heap.push(Reverse((time, number)));
        match self.mail.get_mut(number) {
            Some(place) => *place = Some(mail),
            None => self.mail.push(Some(mail)),
        }
    }

    /// When a message of so many bytes that `from` sends now arrives.
    fn sent(&mut self, from: usize, bytes: usize) -> Time {
        let now = self.now;
        let busy = self.busy(from);
        *busy = now.max(*busy) + WORK + BYTE * bytes as Time;
        *busy + LATENCY
    }

    fn busy(&mut self, of: usize) -> &mut Time {
        match of {
            ROOT => &mut self.root_busy,
            of => &mut self.agents[of].busy,
        }
    }

    fn up(&mut self, from: usize, message: Up) {
        if self.agents[from].obeys() {
            let (to, arrives) = (self.agents[from].above, self.sent(from, encode(&message).len()));
            self.at(arrives, Mail::Up { from, to, message });
        }
    }

    fn below(&self, of: usize) -> Vec<usize> {
        match of {
            ROOT => self.top.clone(),
            of => self.agents[of].below.clone(),
        }
    }

    fn down(&mut self, from: usize, command: HostCommand) {
        let bytes = encode(&Down::HostCommand(command)).len();
        for to in self.below(from) {
            let arrives = self.sent(from, bytes);
            self.at(arrives, Mail::Down { to, command });
        }
    }

    /// What an agent has to tell goes up with its next turn.
    fn stir(&mut self, host: usize) {
        let (now, agent) = (self.now, &mut self.agents[host]);
        if agent.aggregate.is_due(ms(now)) {
            if !std::mem::replace(&mut agent.turning, true) {
                let turn = now.max(agent.busy);
                self.at(turn, Mail::Turn { host });
            }
        } else if let Some(due) = agent.aggregate.deadline() {
            let due = (due * MS).max(now + 1);
            if agent.wakes.is_none_or(|at| at <= now || at > due) {
                agent.wakes = Some(due);
                self.at(due, Mail::Turn { host });
            }
        }
    }

    fn turn(&mut self, host: usize) {
        self.agents[host].turning = false;
        for up in self.agents[host].aggregate.take(ms(self.now)) {
            self.up(host, up);
        }
        self.stir(host);
    }

    /// Everything that an agent knows goes up.
    fn turn_all(&mut self, host: usize) {
        self.agents[host].aggregate.flush(ms(self.now));
        self.turn(host);
    }

    pub(super) fn size(&self) -> usize {
        self.agents.len() * self.ranks as usize
    }

    fn root_event(&mut self, event: Event) {
        let mut commands = Vec::new();
        self.machine.handle(ms(self.now), event, &mut commands);
        if self.decided.is_none() && (self.machine.is_ending() || self.machine.all_exit()) {
            self.decided = Some(self.now.max(self.root_busy));
        }
        for command in commands {
            match command {
                Command::SampleCpu { rest } => self.ask_cpu(rest * MS),
                Command::FindOrphans => {
                    self.find_orphans();
                    self.answer_orphans();
                }
                Command::Finish => self.finished = Some(self.now.max(self.root_busy)),
                command => self.down(ROOT, HostCommand::Ranks(command)),
            }
        }
        if let Some(due) = self.machine.deadline() {
            let due = (due * MS).max(self.now + 1);
            if due < self.next_tick {
                self.next_tick = due;
                self.at(due, Mail::Tick { host: ROOT });
            }
        }
    }

    fn ask_cpu(&mut self, rest: Time) {
        if rest == 0 && self.root_waiting.is_some() {
            return self.root_event(Event::CpuSampled { starved: true });
        }
        self.root_waiting = Some(self.top.iter().copied().collect());
        self.questions += 1;
        self.ask_below(ROOT, self.questions, self.now + rest);
        self.answer_cpu();
    }

    /// Passes a question on with the time that is left of it.
    fn ask_below(&mut self, from: usize, number: u32, until: Time) {
        for to in self.below(from) {
            let rest = until.saturating_sub(self.now.max(*self.busy(from))) / 1000;
            let command = HostCommand::SampleCpu { number, rest };
            let arrives = self.sent(from, encode(&Down::HostCommand(command)).len());
            self.at(arrives, Mail::Down { to, command });
        }
    }

    fn answer_cpu(&mut self) {
        if self.root_waiting.take_if(|waiting| waiting.is_empty()).is_some() {
            self.root_event(Event::CpuSampled { starved: false });
        }
    }

    fn find_orphans(&mut self) {
        self.root_works(HOST * self.agents.len() as Time);
        let hosts = (0..).zip(self.lost.iter().zip(&self.bare)).filter(|(_, (lost, _))| !**lost);
        let search = Search::new(hosts.map(|(host, (_, bare))| (host, bare.then_some(false))));
        if search.outcome().is_none() {
            self.down(ROOT, HostCommand::Ranks(Command::FindOrphans));
        }
        self.search = Some(search);
    }

    fn root_works(&mut self, time: Time) {
        self.root_busy = self.now.max(self.root_busy) + time;
    }

    fn root_told(&mut self, from: usize, told: Told) {
        self.root_works(EVENT);
        let branch = self.parts.iter().position(|(host, _)| *host == from).unwrap();
        let part = &mut self.parts[branch].1;
        part.take(&told).unwrap();
        let count = |runs: &[Run]| runs.iter().map(|(_, count)| Time::from(*count)).sum::<Time>();
        match told {
            Told::Some { news: News::Did(deed), runs } => {
                self.root_works(EACH * count(&runs));
                self.root_event(Event::Alike { deed, who: Who::Runs(runs) });
            }
            Told::Rest { news: News::Did(deed), .. } => {
                self.root_event(Event::Alike { deed, who: Who::Rest(branch) });
            }
            Told::Some { news: News::Bare, runs } => self.root_bare(&runs),
            Told::Rest { news, .. } => {
                let runs = part.units(news.kind()).to_vec();
                self.root_bare(&runs);
            }
            Told::Complete { .. } => {}
        }
    }

    fn root_bare(&mut self, hosts: &[Run]) {
        let mut asked = false;
        for host in hosts.iter().flat_map(|(first, count)| *first..first + count) {
            self.root_works(HOST);
            self.bare[host as usize] = true;
            asked |= self.search.as_mut().is_some_and(|search| search.answer(host, false));
        }
        if asked {
            self.answer_orphans();
        }
    }

    fn answer_orphans(&mut self) {
        if let Some(left) = self.search.as_ref().and_then(Search::outcome)
            && self.machine.is_cleaning_up()
        {
            self.root_event(Event::Orphans { left });
        }
    }

    fn root_hears(&mut self, from: usize, message: Up) {
        match message {
            Up::Events(events) => {
                for event in events {
                    let host = event.rank().map_or(0, |rank| (rank / self.ranks) as usize);
                    if !self.lost[host] {
                        self.root_works(EVENT);
                        self.root_event(Event::Rank(event));
                    }
                }
            }
            Up::CpuSampled { number, .. } if number == self.questions => {
                if let Some(waiting) = &mut self.root_waiting {
                    waiting.remove(&from);
                }
                self.answer_cpu();
            }
            Up::Told(told) => self.root_told(from, told),
            Up::Lost { hosts, loss } => {
                let lost = hosts.first().map(|host| *host as usize);
                self.top.retain(|top| Some(*top) != lost);
                self.root_loses(&hosts, &loss);
            }
            _ => {}
        }
    }

    fn root_loses(&mut self, hosts: &[u32], loss: &Loss) {
        for host in hosts {
            self.lost[*host as usize] = true;
            if let Some(waiting) = &mut self.root_waiting {
                waiting.remove(&(*host as usize));
            }
        }
        self.root_event(Event::HostLost { silent: loss.silent });
        let (ranks, end) = (self.ranks, End::Signal(libc::SIGKILL));
        let (deed, runs) = (
            Deed::Ended { end, orderly: false, free: false },
            merged(hosts.iter().map(|host| (host * ranks, ranks))),
        );
        self.root_works(EACH * hosts.len() as Time * Time::from(ranks));
        self.root_event(Event::Alike { deed, who: Who::Runs(runs) });
        for host in hosts {
            if self.search.as_mut().is_some_and(|search| search.answer(*host, false)) {
                self.answer_orphans();
            }
        }
        self.answer_cpu();
    }

    fn start_on(&mut self, host: usize) {
        let first = u32::try_from(host).unwrap() * self.ranks;
        let ranks = first..first + self.ranks;
        self.agents[host].left = ranks.clone().collect();
        let started = |rank| RankEvent::Started { rank, pid: 1, at: 0.0 };
        self.ranks_did(host, ranks.map(started).collect());
    }

    /// The ranks of a host obey: those that a command ends are gone at once.
    fn obey(&mut self, host: usize, command: Command) {
        let (now, agent) = (ms(self.now), &mut self.agents[host]);
        let (left, told) = (std::mem::take(&mut agent.left), Some(self.now));
        let events = match command {
            Command::ExitDecision { code, .. } => {
                agent.aggregate.decided();
                let leaves = |rank| leave(rank, code, agent.announced.contains(&rank));
                left.into_iter().flat_map(leaves).collect()
            }
            Command::End(signal) => {
                agent.aggregate.kills();
                let end = End::Signal(signal);
                left.into_iter().map(|rank| RankEvent::Ended { rank, end, at: 0.0 }).collect()
            }
            Command::FindOrphans => {
                agent.left = left;
                agent.aggregate.search(now);
                agent.aggregate.own_left(now, false);
                return self.stir(host);
            }
            _ => {
                agent.left = left;
                return;
            }
        };
        agent.told = agent.told.or(told);
        self.ranks_did(host, events);
    }

    fn ranks_did(&mut self, host: usize, events: Vec<RankEvent>) {
        let now = ms(self.now);
        for event in events {
            let agent = &mut self.agents[host];
            match event {
                RankEvent::Exiting { rank, .. } => agent.announced.push(rank),
                RankEvent::Ended { rank, .. } => agent.left.retain(|left| *left != rank),
                _ => {}
            }
            agent.aggregate.happened(now, event.clone());
            if matches!(event, RankEvent::Ended { .. }) {
                self.own_event(host, Event::Rank(event));
            }
        }
        let agent = &mut self.agents[host];
        if agent.left.is_empty() && !std::mem::replace(&mut agent.bare, true) {
            agent.aggregate.own_left(now, false);
        }
        self.stir(host);
    }

    fn own_event(&mut self, host: usize, event: Event) {
        let mut commands = Vec::new();
        let Some(machine) = &mut self.agents[host].own else { return };
        machine.handle(ms(self.now), event, &mut commands);
        let due = machine.deadline();
        for command in commands {
            match command {
                Command::FindOrphans => self.own_event(host, Event::Orphans { left: false }),
                command => self.obey(host, command),
            }
        }
        if let Some(due) = due {
            self.at((due * MS).max(self.now + 1), Mail::Tick { host });
        }
    }

    /// As an agent does that has lost its parent: it decides for its ranks, those below for theirs.
    fn orphaned(&mut self, host: usize) {
        if !self.agents[host].obeys() {
            return;
        }
        let left = self.agents[host].left.clone();
        let mut machine = Machine::of_some(left.clone(), rules());
        for rank in left {
            let started = RankEvent::Started { rank, pid: 0, at: 0.0 };
            machine.handle(ms(self.now), Event::Rank(started), &mut Vec::new());
        }
        self.agents[host].told.get_or_insert(self.now);
        self.agents[host].own = Some(machine);
        for below in self.agents[host].below.clone() {
            self.at(self.now + LATENCY, Mail::Orphaned { host: below });
        }
        self.own_event(host, Event::LauncherLost);
    }

    /// Hosts die; what is seen of it above and below them.
    pub(super) fn lose(&mut self, hosts: &[usize], seen: Seen) {
        for host in hosts {
            self.agents[*host].dead = true;
        }
        for host in hosts {
            let (above, end) = (self.agents[*host].above, self.agents[*host].end);
            let (up, down, silent) = match seen {
                Seen::Closed => (LATENCY, LATENCY, 0),
                Seen::Silent => {
                    (CHILD_SILENT.ms() * MS, PARENT_SILENT.ms() * MS, CHILD_SILENT.ms())
                }
            };
            let from = *host;
            let whole = (from..end).map(|host| u32::try_from(host).unwrap()).collect();
            let loss = Loss { seen: "its connection was closed".to_owned(), silent };
            let message = Up::Lost { hosts: whole, loss };
            self.at(self.now + up, Mail::Up { from, to: above, message });
            for below in self.agents[*host].below.clone() {
                self.at(self.now + down, Mail::Orphaned { host: below });
            }
        }
    }

    /// An agent hears from below.
    fn hears(&mut self, at: usize, from: usize, message: Up) {
        match message {
            Up::Events(events) => {
                self.agents[at].aggregate.heard(ms(self.now), events);
                self.stir(at);
            }
            Up::Told(told) => {
                let branch = self.agents[at].branch(from).unwrap();
                self.agents[at].aggregate.told(ms(self.now), branch, told).unwrap();
                self.stir(at);
            }
            Up::CpuSampled { number, .. } => {
                let asked = number == self.agents[at].question;
                if asked && self.agents[at].waiting.remove(&from) {
                    self.answer_cpu_of(at);
                }
            }
            Up::Lost { ref hosts, .. } => {
                let lost = hosts.first().map(|host| *host as usize);
                let agent = &mut self.agents[at];
                agent.below.retain(|below| Some(*below) != lost);
                let waited = lost.is_some_and(|lost| agent.waiting.remove(&lost));
                let branch = agent.branch(from).unwrap();
                agent.aggregate.flush_branch(branch);
                self.turn(at);
                self.up(at, message);
                if lost == Some(from) {
                    self.agents[at].aggregate.lost(branch);
                    self.stir(at);
                }
                if waited {
                    self.answer_cpu_of(at);
                }
            }
            message => self.up(at, message),
        }
    }

    fn answer_cpu_of(&mut self, at: usize) {
        if self.agents[at].waiting.is_empty() && self.agents[at].look.is_none() {
            // What was heard before goes up first.
            self.turn_all(at);
            let number = self.agents[at].question;
            self.up(at, Up::CpuSampled { number, sample: CpuSample::default() });
        }
    }

    /// An agent looks at its ranks after the whole milliseconds of the time.
    fn asked(&mut self, host: usize, number: u32, rest: Time) {
        let until = self.now + rest;
        let look = self.now + rest.saturating_sub(1000) / MS * MS;
        self.ask_below(host, number, until);
        let agent = &mut self.agents[host];
        agent.waiting = agent.below.iter().copied().collect();
        (agent.question, agent.look) = (number, None);
        if look > self.now {
            agent.look = Some(look);
            self.at(look, Mail::Look { host });
        }
        self.answer_cpu_of(host);
    }

    fn look(&mut self, host: usize) {
        if self.agents[host].look.take_if(|due| *due <= self.now).is_some() {
            self.answer_cpu_of(host);
        }
    }

    fn carry_out(&mut self, host: usize, command: HostCommand) {
        if let HostCommand::SampleCpu { number, rest } = command {
            return self.asked(host, number, rest * 1000);
        }
        self.down(host, command);
        match command {
            HostCommand::Ranks(command) => self.obey(host, command),
            HostCommand::Start => self.start_on(host),
            _ => {}
        }
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((now, number))) = self.heap.pop() else { return false };
        self.now = now;
        let mail = self.mail[number].take().unwrap();
        self.free.push(number);
        match mail {
            Mail::Up { from, to: ROOT, message } => self.root_hears(from, message),
            Mail::Up { to, .. } if !self.agents[to].obeys() => {}
            Mail::Up { from, to, message } => self.hears(to, from, message),
            Mail::Down { to, command } if self.agents[to].obeys() => self.carry_out(to, command),
            Mail::Ranks { host, events } if !self.agents[host].dead => self.ranks_did(host, events),
            Mail::Orphaned { host } => self.orphaned(host),
            Mail::Turn { host } => self.turn(host),
            Mail::Look { host } if self.agents[host].obeys() => self.look(host),
            Mail::Tick { host: ROOT } => {
                self.next_tick = Time::MAX;
                self.root_event(Event::Tick);
            }
            Mail::Tick { host } => self.own_event(host, Event::Tick),
            _ => {}
        }
        true
    }
}

impl World {
    /// All ranks of the job, or the last one alone, announce their exit now.
    pub(super) fn exit(&mut self, during: During) {
        let path = ExitPath::Explicit as u32;
        let alone = during == During::NonCollectiveExit;
        let whole = !alone && self.agents.iter().all(|agent| !agent.dead);
        let alive = |world: &Self, host: &usize| !world.agents[*host].dead;
        let hosts: Vec<usize> = (0..self.agents.len()).filter(|host| alive(self, host)).collect();
        let first = if alone { hosts.len() - 1 } else { 0 };
        for host in hosts.into_iter().skip(first) {
            let mut ranks = self.agents[host].left.clone();
            if alone {
                ranks = ranks.split_off(ranks.len() - 1);
            }
            let code = if alone { LONE } else { 0 };
            let exiting = |rank: &u32| RankEvent::Exiting { rank: *rank, code, path };
            let events = ranks.iter().map(exiting).collect();
            self.at(self.now, Mail::Ranks { host, events });
            if whole {
                let ends = ranks.iter().flat_map(|rank| {
                    let (rank, end) = (*rank, End::Code(0));
                    [RankEvent::Fini { rank, code: 0 }, RankEvent::Ended { rank, end, at: 0.0 }]
                });
                let events = ends.collect();
                self.at(self.now + REDUCTION, Mail::Ranks { host, events });
            }
        }
    }

    /// The root has seen that all hosts are ready.
    pub(super) fn start(&mut self) {
        self.down(ROOT, HostCommand::Start);
    }

    pub(super) fn run(&mut self) {
        while self.step() {}
    }

    /// When the last living agent was told of the end, or its last rank ended by itself.
    pub(super) fn told(&self) -> Time {
        let living = self.agents.iter().filter(|agent| !agent.dead);
        living.filter_map(|agent| agent.told).max().unwrap_or(0)
    }
}
