//! The agent's loop: carries what the root decided to this host's ranks and down the tree, and what
//! happens up.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bootstrap::HostId;
use bootstrap::collective::TreeMessage;
use settings::deadlines::tree::{FAREWELL, HEARTBEAT, HOLD, PARENT_SILENT};

use super::Origin;
use super::parent::Parent;
use super::relay::Relay;
use super::setup::{begin_staging, hash_of_parent, plan_of, setup, share_of, staging_of};
use crate::agent::bootstrap_server::BootstrapServer;
use crate::agent::capture::Draining;
use crate::agent::driver::{AgentError, io, read_signals, supervise_children};
use crate::agent::input::Stdin;
use crate::agent::local_ranks::{CpuSample, LocalRanks};
use crate::agent::machine::{CODE_LAUNCH, Event, Machine};
use crate::agent::{RankEvent, sys};
use crate::event_loop::{self, Poller, Ready, Role, Signals, Token};
use crate::link::Links;
use crate::plan::JobPlan;
use crate::report::End;
use crate::stage::Staging;
use crate::tree::frames::Lane;
use crate::tree::message::{Common, Down, Member, Up};
use spawner_ssh::diagnosis::{Class, Failure};

/// Events in one message.
const BATCH: usize = 1000;

/// Life of the agent; never returns to the reaper's code.
pub(super) fn run(origin: Origin) -> ! {
    match work(origin) {
        Ok(()) => sys::exit_now(0),
        Err(error) => {
            settings::say!(ERROR, settings::log::LAUNCHER, "node agent: {error}");
            sys::exit_now(CODE_LAUNCH)
        }
    }
}

pub(super) fn other(text: String) -> AgentError {
    AgentError::Os { operation: "work for its parent", source: std::io::Error::other(text) }
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn work(origin: Origin) -> Result<(), AgentError> {
    let poller = Poller::new().map_err(io("make an epoll set"))?;
    let signals = supervise_children(&poller)?;
    let Origin { input, output, reaper, mask, job, started } = origin;
    let mut parent = Parent::new(&poller, input, output).map_err(io("watch the parent"))?;
    let mut waiting = Vec::new();
    let (common, subtree) = setup(&poller, &mut parent, &mut waiting, started)?;
    let (words, host_of) = Common::decode(&common).map_err(other)?;
    let Some((index, own)) = subtree.first().cloned() else {
        return Err(other("it was told no host".to_owned()));
    };
    // Logins take their time, so they come first.
    let mut links = Links::new(words.ssh.clone(), common);
    let mut events = Vec::new();
    add_groups(&mut links, &subtree, words.ssh.out_degree, ms(started.elapsed()));
    links.step(&poller, ms(started.elapsed()), &mut events);
    let mut plan = plan_of(&words, &own, host_of.len());
    // The launching host finds its address by that of another one.
    let several = words.hosts > 1 && !own.here;
    let examine = words.doctor.then(|| (words.directory.clone(), several, plan.env.clone()));
    let mut staging = staging_of(&words, own.here, job);
    if staging.needs_hash() {
        staging.learn(hash_of_parent(&poller, &mut parent, &mut waiting, started)?);
    }
    let unstaged = begin_staging(&mut staging, &mut plan);
    let host_of: Vec<HostId> = host_of.into_iter().map(HostId).collect();
    let (share, problem) = share_of(&words, index, host_of);
    let boot = BootstrapServer::node(share.clone(), Vec::new())
        .map_err(|error| other(error.to_string()))?;
    let mut driver = Driver {
        index,
        reaper,
        started,
        signals,
        ranks: LocalRanks::new(&plan, share, boot, Stdin::Far),
        plan: &plan,
        poller,
        parent,
        relay: Relay::new(),
        links,
        staging,
        describing: Vec::new(),
        events: Vec::new(),
        held: None,
        standing: HashSet::new(),
        announced: false,
        starting: false,
        branches: Vec::new(),
        cpu_question: None,
        input: None,
        cleaning_up: false,
        told_left: None,
        bare: false,
        done: HashSet::new(),
        orphans: 0,
        finishing: None,
        own: None,
        over: false,
        leaving: None,
        gone: false,
    };
    match examine {
        Some((directory, several, env)) => driver.examine(&directory, several, &env),
        None => driver.begin(problem.or(unstaged), mask),
    }
    driver.link_events(events);
    for down in waiting {
        driver.down(down);
    }
    event_loop::run(&mut driver).map_err(io("wait for events"))
}

/// Links to the first hosts of the groups below.
fn add_groups(links: &mut Links, subtree: &[Member], degree: u32, now: u64) {
    let below = subtree.get(1..).unwrap_or_default();
    for group in bootstrap::collective::groups(0..below.len(), degree as usize) {
        links.add(below[group].to_vec(), now);
    }
}

/// Answers that are still awaited from below.
pub(super) struct CpuQuestion {
    pub(super) number: u32,
    pub(super) sample: CpuSample,
    pub(super) waiting: HashSet<usize>,
}

/// A piece of input that not everybody has.
pub(super) struct Piece {
    pub(super) own: bool,
    pub(super) waiting: HashSet<usize>,
    pub(super) more: bool,
}

pub(super) struct Driver<'a> {
    pub(super) plan: &'a JobPlan,
    pub(super) index: u32,
    pub(super) reaper: i32,
    pub(super) started: Instant,
    pub(super) poller: Poller,
    pub(super) signals: Signals,
    pub(super) parent: Parent,
    pub(super) relay: Relay,
    pub(super) ranks: LocalRanks<'a>,
    pub(super) links: Links,
    pub(super) staging: Staging,
    /// Links whose agents wait for the program's hash, which our parent was asked for.
    pub(super) describing: Vec<usize>,
    pub(super) events: Vec<RankEvent>,
    /// Since when there has been news that can wait for more.
    pub(super) held: Option<u64>,
    /// Links whose subtrees have said all there is to say about their start.
    pub(super) standing: HashSet<usize>,
    pub(super) announced: bool,
    pub(super) starting: bool,
    /// Link of each branch of the collective machine.
    pub(super) branches: Vec<usize>,
    pub(super) cpu_question: Option<CpuQuestion>,
    pub(super) input: Option<Piece>,
    pub(super) cleaning_up: bool,
    pub(super) told_left: Option<bool>,
    /// All ranks of this host have ended and no process is left of them.
    pub(super) bare: bool,
    pub(super) done: HashSet<usize>,
    pub(super) orphans: u32,
    /// When pipes that unknown processes keep open are given up.
    pub(super) finishing: Option<Draining>,
    /// Decides when the parent is lost; its ranks are local numbers.
    pub(super) own: Option<Machine>,
    pub(super) over: bool,
    /// Until when what is left is waited for, once all is over.
    leaving: Option<u64>,
    gone: bool,
}

impl Driver<'_> {
    pub(super) fn up(&mut self, up: &Up) {
        let now = self.now();
        self.parent.send(&self.poller, up, now);
    }

    /// As [`up`](Self::up), with what else this turn brings: each write wakes the server of the
    /// login.
    pub(super) fn queue(&mut self, up: &Up) {
        let now = self.now();
        self.parent.queue(up.lane(), up.encode(), now);
    }

    /// Sees whether the job can run here. When the program is still to come, that is known later.
    fn begin(&mut self, problem: Option<Failure>, mask: nix::sys::signal::SigSet) {
        self.parent.heard = self.now();
        let prepared = problem.map_or(Ok(()), Err).and_then(|()| {
            let prepared = self.ranks.prepare(mask);
            prepared.map_err(|(text, _)| Failure::new(Class::Directory, text))
        });
        match prepared {
            Ok(()) if self.staging.is_expected() => {}
            Ok(()) => {
                let checked = self.check_program();
                self.settled(checked);
            }
            Err(failure) => {
                self.staging.give_up();
                self.settled(Err(failure));
            }
        }
    }

    /// Sends what is left and waits for the processes below, which are at their end.
    fn leave(&mut self) {
        let now = self.now();
        let until = match self.leaving {
            Some(until) => until,
            None => {
                self.links.part();
                *self.leaving.insert(now + FAREWELL.ms())
            }
        };
        let left = self.links.is_any_left() || !self.parent.is_written();
        if left && now >= until {
            self.links.cut_all();
        }
        self.gone = !left || now >= until;
    }

    fn start_some(&mut self) -> bool {
        if !self.starting || self.own.is_some() {
            return false;
        }
        let mut events = Vec::new();
        let more = self.ranks.start_some(&self.poller, &mut events);
        self.happened(events);
        more
    }

    fn hear_parent(&mut self) {
        if self.parent.gone {
            return;
        }
        let (now, mut came) = (self.now(), Vec::new());
        let end = self.parent.read(now, &mut came);
        for down in came {
            self.down(down);
        }
        if let Err(problem) = end {
            self.orphaned(&problem);
        }
    }

    /// What our own ranks do.
    pub(super) fn happened(&mut self, events: Vec<RankEvent>) {
        for happened in events {
            if self.own.is_some() {
                let local = |rank| self.ranks.share().local(rank);
                if let Some(event) = happened.clone().renumbered(local) {
                    self.decide(Event::Rank(event));
                }
            }
            self.events.push(happened);
        }
    }

    /// Sends what has come together in this turn.
    pub(super) fn flush(&mut self) {
        self.gather();
        self.parent.write(&self.poller);
    }

    /// Whether there is nothing but news that nobody waits for: an orderly end of a rank while
    /// others of this host run. For a moment it waits for more of its kind, because each write
    /// wakes four processes up to the root.
    fn can_wait(&mut self) -> bool {
        let quiet = |event: &RankEvent| matches!(event, RankEvent::Ended { end: End::Code(0), .. });
        let quiet = !(self.events.is_empty() && self.relay.is_empty())
            && self.events.iter().all(quiet)
            && !self.relay.has_output()
            && self.own.is_none()
            && self.finishing.is_none()
            && self.ranks.pids().next().is_some();
        if !quiet {
            self.held = None;
            return false;
        }
        let now = self.now();
        now < self.held.get_or_insert(now).saturating_add(HOLD.ms())
    }

    /// Puts what has come together in this turn in order.
    fn gather(&mut self) {
        self.held = None;
        self.messages();
        let now = self.now();
        for batch in std::mem::take(&mut self.events).chunks(BATCH) {
            let up = Up::Events(batch.to_vec());
            self.parent.queue(up.lane(), up.encode(), now);
        }
        while let Some(message) = self.relay.next() {
            self.parent.queue(Lane::Bulk, message, now);
        }
        if self.relay.has_room_below() {
            self.links.settle_debts(&self.poller, now);
        }
    }

    fn messages(&mut self) {
        let now = self.now();
        while let Some(message) = self.ranks.boot.poll_transmit() {
            match message {
                TreeMessage::Up(up) => self.up(&Up::Bootstrap(up)),
                TreeMessage::Down { to, message } => {
                    let down = Down::Bootstrap(message);
                    let (lane, message) = (down.lane(), down.encode());
                    for link in to.iter().filter_map(|branch| self.branches.get(*branch)) {
                        self.links.send_encoded(&self.poller, *link, lane, &message, now);
                    }
                }
            }
        }
    }

    fn step_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        input.own = input.own || self.ranks.readers.give(&self.poller);
        if input.own && input.waiting.is_empty() {
            let more = input.more || !self.ranks.readers.is_empty();
            self.input = None;
            self.up(&Up::InputTaken { more });
        }
    }

    /// What is due on the way to the parent.
    fn step_parent(&mut self) {
        let now = self.now();
        if !self.parent.gone {
            if now >= self.parent.heard.saturating_add(PARENT_SILENT.ms()) {
                let seconds = PARENT_SILENT.limit.as_secs();
                self.orphaned(&format!("nothing was heard from it for {seconds} s"));
            } else if now >= self.parent.said.saturating_add(HEARTBEAT.ms()) {
                self.up(&Up::Ping);
            }
        }
    }

    /// Says once that nothing below is open any more; without links that is so from the beginning.
    fn announce(&mut self) {
        if !self.announced && (0..self.links.len()).all(|link| self.standing.contains(&link)) {
            self.announced = true;
            self.queue(&Up::Standing);
        }
    }

    /// After everything was sent: whether this is the end.
    fn step_finish(&mut self) {
        let now = self.now();
        let ending = self.own.is_none() && !self.over;
        let Some(draining) = self.finishing.as_mut().filter(|_| ending) else { return };
        draining.step(now, &mut self.ranks.capture, &mut self.relay);
        let below = self.links.open().all(|link| self.done.contains(&link));
        if !self.ranks.capture.is_over() || !below {
            return;
        }
        self.links.part();
        if self.relay.is_empty() && !self.links.is_any_left() {
            let pids: Vec<String> = self.ranks.pids().map(|pid| pid.to_string()).collect();
            if !pids.is_empty() {
                let (host, pids) = (&self.plan.host, pids.join(" "));
                let text = format!("{host}: gave up on processes that SIGKILL did not end: {pids}");
                self.up(&Up::Say(text));
            }
            let orphans = self.orphans.saturating_add(self.ranks.orphans());
            self.queue(&Up::Done { orphans });
            self.over = true;
        }
    }
}

impl Role for Driver<'_> {
    fn sources(&mut self) -> (&Poller, &Signals) {
        (&self.poller, &self.signals)
    }

    fn now(&self) -> u64 {
        ms(self.started.elapsed())
    }

    fn is_over(&self) -> bool {
        self.gone
    }

    fn step(&mut self) -> bool {
        let mut more = false;
        if !self.over {
            more = self.start_some();
            self.announce();
            self.step_input();
            self.step_staging();
            self.step_leave();
            self.messages();
            if !self.can_wait() {
                self.gather();
            }
            self.step_finish();
            self.parent.write(&self.poller);
        }
        if self.over {
            self.leave();
        }
        more
    }

    fn deadline(&self) -> Option<u64> {
        if self.leaving.is_some() {
            return self.leaving;
        }
        let own = self.decision_due();
        let parent = (!self.parent.gone).then(|| {
            let silent = self.parent.heard.saturating_add(PARENT_SILENT.ms());
            silent.min(self.parent.said.saturating_add(HEARTBEAT.ms()))
        });
        let finish = self.finishing.as_ref().filter(|_| !self.ranks.capture.is_over());
        let finish = finish.map(Draining::deadline);
        let held = self.held.map(|at| at.saturating_add(HOLD.ms()));
        [own, parent, finish, held, self.links.deadline()].into_iter().flatten().min()
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => {
                let pending = read_signals(&mut self.signals, self.reaper);
                if pending.orphan {
                    self.orphaned("its reaper was killed");
                }
                if pending.child {
                    self.reap();
                }
            }
            Token::ParentIn => self.hear_parent(),
            Token::ParentOut => self.parent.write(&self.poller),
            Token::Link(..) => {
                let (now, mut events) = (self.now(), Vec::new());
                self.links.serve(&self.poller, ready, now, &mut events);
                self.link_events(events);
            }
            _ => {
                let mut events = Vec::new();
                self.ranks.serve(&self.poller, ready, &mut self.relay, &mut events);
                self.happened(events);
            }
        }
    }

    fn settle(&mut self) {
        if self.leaving.is_none() {
            self.ranks.capture.settle(&self.poller, &mut self.relay);
        }
        self.step_links();
        if self.leaving.is_none() {
            self.step_parent();
        }
    }

    fn decision_due(&self) -> Option<u64> {
        self.own.as_ref().and_then(Machine::deadline)
    }

    fn tick(&mut self) {
        self.decide(Event::Tick);
    }
}
