//! The agent's loop: carries what the root decided to this host's ranks and down the tree, and what happens up.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bootstrap::collective::{Branch, Letter};
use bootstrap::{HostId, Rank};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signalfd::SignalFd;
use nix::unistd::{Pid, getpid};

use super::parent::Parent;
use super::relay::Relay;
use super::{Origin, check, complain};
use crate::agent::body::{Body, Look};
use crate::agent::boot::Boot;
use crate::agent::deadlines::DRAIN;
use crate::agent::driver::{AgentError, TICK_PATIENCE, io, read_signals, supervise_children};
use crate::agent::input::Stdin;
use crate::agent::machine::{Action, CODE_LAUNCH, Event, Machine, Rules};
use crate::agent::poller::{Poller, Ready, Token};
use crate::agent::share::Share;
use crate::agent::{Happened, sys, tree};
use crate::link::{LinkEvent, Links};
use crate::plan::{JobPlan, Map, StdinTo, cpu_sets};
use crate::tree::deadlines::{FAREWELL, HEARTBEAT, PARENT_SILENT, SETUP};
use crate::tree::diagnosis::{Class, Failure, Step};
use crate::tree::hosts::News;
use crate::tree::marker;
use crate::tree::message::{Common, Down, Member, Order, Up};

/// Events in one message.
const BATCH: usize = 1000;

/// Life of the agent; never returns to the guard's code.
pub(super) fn run(origin: Origin) -> ! {
    match work(origin) {
        Ok(()) => sys::exit_now(0),
        Err(error) => {
            complain(&error.to_string());
            sys::exit_now(CODE_LAUNCH)
        }
    }
}

fn other(text: String) -> AgentError {
    AgentError::Os { operation: "work for its parent", source: std::io::Error::other(text) }
}

fn work(origin: Origin) -> Result<(), AgentError> {
    let poller = Poller::new().map_err(io("make an epoll set"))?;
    let signals = supervise_children(&poller)?;
    let Origin { input, output, guard, mask, started } = origin;
    let mut parent = Parent::new(&poller, input, output).map_err(io("watch the parent"))?;
    parent.greet(&marker::line()).map_err(io("greet the parent"))?;
    let mut waiting = Vec::new();
    let (common, subtree) = setup(&poller, &mut parent, &mut waiting, started)?;
    let (words, host_of) = Common::decode(&common).map_err(other)?;
    let Some((index, own)) = subtree.first().cloned() else {
        return Err(other("it was told no host".to_owned()));
    };
    let plan = plan_of(&words, &own.name, host_of.len());
    let host_of: Vec<HostId> = host_of.into_iter().map(HostId).collect();
    let (share, problem) = share_of(&words, index, host_of);
    let boot = Boot::node(share.clone(), Vec::new()).map_err(|error| other(error.to_string()))?;
    let degree = words.ssh.out_degree;
    let links = Links::new(words.ssh, common);
    let mut driver = Driver {
        index,
        guard,
        started,
        signals,
        body: Body::new(&plan, share, boot, Stdin::Far),
        plan: &plan,
        poller,
        parent,
        relay: Relay::new(),
        links,
        events: Vec::new(),
        standing: HashSet::new(),
        announced: false,
        starting: false,
        branches: Vec::new(),
        look: None,
        input: None,
        sweeping: false,
        told_left: None,
        done: HashSet::new(),
        strays: 0,
        finishing: None,
        own: None,
        over: false,
    };
    driver.begin(subtree, degree, problem, mask);
    for down in waiting {
        driver.down(down);
    }
    driver.work()
}

/// Waits for the first message.
fn setup(
    poller: &Poller,
    parent: &mut Parent,
    rest: &mut Vec<Down>,
    started: Instant,
) -> Result<(bootstrap::collective::Bytes, Vec<Member>), AgentError> {
    let mut ready = Vec::new();
    let mut came = Vec::new();
    loop {
        let now = ms(started.elapsed());
        let left = SETUP.ms().saturating_sub(now);
        if left == 0 {
            return Err(other(format!("it said nothing for {} s", SETUP.limit.as_secs())));
        }
        poller.wait(Some(left), &mut ready).map_err(io("wait for the parent"))?;
        if ready.iter().any(|ready| ready.token == Token::ParentIn) {
            parent.read(now, &mut came).map_err(other)?;
        }
        let mut all = std::mem::take(&mut came).into_iter();
        match all.next() {
            Some(Down::Setup { common, subtree }) => {
                rest.extend(all);
                return Ok((common, subtree));
            }
            Some(Down::Ping) | None => {}
            Some(_) => return Err(other("its first message was no setup".to_owned())),
        }
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The plan as far as this host needs it. Ranks get the environment of the login, with what the launcher sent on top.
fn plan_of(common: &Common, name: &str, size: usize) -> JobPlan {
    let size = u32::try_from(size).unwrap_or(u32::MAX);
    let sent = |name: &std::ffi::OsString| common.env.iter().any(|(sent, _)| sent == name);
    let env = std::env::vars_os().filter(|(name, _)| !sent(name)).chain(common.env.clone());
    JobPlan {
        job_id: common.job_id.clone(),
        host: name.to_owned(),
        map: Map::here(name, size),
        env: env.collect(),
        directory: PathBuf::from(&common.directory),
        stdin: match common.stdin {
            None => StdinTo::None,
            Some(None) => StdinTo::All,
            Some(Some(rank)) => StdinTo::Rank(Rank(rank)),
        },
        exit_bound: Duration::from_millis(common.exit_bound_ms),
        conduit_program: common.conduit_program,
        verbose: common.verbose,
        ..JobPlan::new(size, PathBuf::from(&common.program), common.argv.clone())
    }
}

/// This host's part, and why it cannot be bound to CPUs.
fn share_of(common: &Common, index: u32, host_of: Vec<HostId>) -> (Share, Option<Failure>) {
    let mut share = Share::of_host(index, common.hosts, host_of, Vec::new());
    if common.cpus_per_rank == 0 {
        return (share, None);
    }
    let allowed: Vec<usize> = sched_getaffinity(Pid::from_raw(0)).map_or_else(
        |_| Vec::new(),
        |set| (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect(),
    );
    match cpu_sets(&allowed, common.cpus_per_rank, share.count()) {
        Some(sets) => {
            share.cpus = sets;
            (share, None)
        }
        None => {
            let seen = format!(
                "-c {}: {} ranks need {} CPUs, this host has {}",
                common.cpus_per_rank,
                share.count(),
                u64::from(common.cpus_per_rank) * u64::from(share.count()),
                allowed.len()
            );
            (share, Some(Failure::new(Class::Program, seen)))
        }
    }
}

/// Answers that are still awaited from below.
struct LookUp {
    number: u32,
    look: Look,
    waiting: HashSet<usize>,
}

/// A piece of input that not everybody has.
struct Piece {
    own: bool,
    waiting: HashSet<usize>,
    more: bool,
}

struct Driver<'a> {
    plan: &'a JobPlan,
    index: u32,
    guard: i32,
    started: Instant,
    poller: Poller,
    signals: SignalFd,
    parent: Parent,
    relay: Relay,
    body: Body<'a>,
    links: Links,
    events: Vec<Happened>,
    /// Links whose subtrees have said all there is to say about their start.
    standing: HashSet<usize>,
    announced: bool,
    starting: bool,
    /// Link of each branch of the collective machine.
    branches: Vec<usize>,
    look: Option<LookUp>,
    input: Option<Piece>,
    sweeping: bool,
    told_left: Option<bool>,
    done: HashSet<usize>,
    strays: u32,
    /// When pipes that unknown processes keep open are given up.
    finishing: Option<u64>,
    /// Decides when the parent is lost; its ranks are local numbers.
    own: Option<Machine>,
    over: bool,
}

impl Driver<'_> {
    fn now(&self) -> u64 {
        ms(self.started.elapsed())
    }

    fn up(&mut self, up: &Up) {
        let now = self.now();
        self.parent.send(&self.poller, up, now);
    }

    /// Starts the links below and sees whether the job can run here.
    fn begin(
        &mut self,
        subtree: Vec<Member>,
        degree: u32,
        problem: Option<Failure>,
        mask: nix::sys::signal::SigSet,
    ) {
        let now = self.now();
        self.parent.heard = now;
        let below: Vec<Member> = subtree.into_iter().skip(1).collect();
        for group in bootstrap::collective::groups(0..below.len(), degree as usize) {
            self.links.add(below[group].to_vec(), now);
        }
        let mut events = Vec::new();
        self.links.step(&self.poller, now, &mut events);
        let checked = problem.map_or(Ok(()), Err).and_then(|()| self.check(mask));
        let news = match checked {
            Ok(()) => News::Reached(Step::Ready),
            Err(failure) => News::Failed(failure),
        };
        self.up(&Up::Host { host: self.index, news });
        self.link_events(events);
    }

    fn check(&mut self, mask: nix::sys::signal::SigSet) -> Result<(), Failure> {
        let prepared = self.body.prepare(mask);
        prepared.map_err(|(text, _)| Failure::new(Class::Directory, text))?;
        check::program(&self.plan.program)
    }

    fn work(&mut self) -> Result<(), AgentError> {
        let mut ready = Vec::new();
        let mut busy = 0;
        while !self.over {
            let more = self.starting && self.own.is_none() && {
                let mut events = Vec::new();
                let more = self.body.start_some(&self.poller, &mut events);
                self.happened(events);
                more
            };
            self.step_input();
            self.flush();
            self.step_finish();
            if self.over {
                break;
            }
            let timeout = if more { Some(0) } else { self.timeout() };
            self.poller.wait(timeout, &mut ready).map_err(io("wait for events"))?;
            for ready in &ready {
                self.serve(*ready);
            }
            self.body.capture.settle(&self.poller, &mut self.relay);
            self.step();
            busy = if ready.is_empty() { 0 } else { busy + 1 };
            let now = self.now();
            let due = self.own.as_ref().and_then(Machine::deadline).is_some_and(|at| now >= at);
            if due && (ready.is_empty() || busy > TICK_PATIENCE) {
                busy = 0;
                self.decide(Event::Tick);
            }
        }
        self.leave(ready)
    }

    /// Waits for the processes below, which are at their end.
    fn leave(&mut self, mut ready: Vec<Ready>) -> Result<(), AgentError> {
        self.links.part();
        let until = self.now() + FAREWELL.ms();
        while self.links.is_any_left() || !self.parent.is_written() {
            let now = self.now();
            if now >= until {
                self.links.cut_all();
                break;
            }
            self.poller.wait(Some(until - now), &mut ready).map_err(io("wait for the end"))?;
            for ready in &ready {
                self.serve(*ready);
            }
            self.step_links();
        }
        Ok(())
    }

    fn timeout(&self) -> Option<u64> {
        let own = self.own.as_ref().and_then(Machine::deadline);
        let parent = (!self.parent.gone).then(|| {
            let silent = self.parent.heard.saturating_add(PARENT_SILENT.ms());
            silent.min(self.parent.said.saturating_add(HEARTBEAT.ms()))
        });
        let finish = self.finishing.filter(|_| !self.body.capture.is_over());
        let at = [own, parent, finish, self.links.deadline()].into_iter().flatten().min();
        at.map(|at| at.saturating_sub(self.now()))
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => {
                let told = read_signals(&self.signals, self.guard);
                if told.orphan {
                    self.orphaned("its guard was killed");
                }
                if told.child {
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
                self.body.serve(&self.poller, ready, &mut self.relay, &mut events);
                self.happened(events);
            }
        }
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
    fn happened(&mut self, events: Vec<Happened>) {
        for happened in events {
            if let Some(event) = self.own.as_ref().and_then(|_| self.localised(&happened)) {
                self.decide(event);
            }
            self.events.push(happened);
        }
    }

    /// Sends what has come together in this turn.
    fn flush(&mut self) {
        self.letters();
        for batch in std::mem::take(&mut self.events).chunks(BATCH) {
            self.up(&Up::Events(batch.to_vec()));
        }
        let now = self.now();
        while let Some(message) = self.relay.next() {
            let lane = crate::tree::frames::Lane::Bulk;
            self.parent.send_encoded(&self.poller, lane, message, now);
        }
        if self.relay.has_room_below() {
            self.links.settle_debts(&self.poller, now);
        }
    }

    fn letters(&mut self) {
        let now = self.now();
        while let Some(letter) = self.body.boot.letter() {
            match letter {
                Letter::Up(up) => self.up(&Up::Bootstrap(up)),
                Letter::Down { to, message } => {
                    let down = Down::Bootstrap(message);
                    let (lane, message) = (down.lane(), down.encode());
                    for link in to.iter().filter_map(|branch| self.branches.get(*branch)) {
                        self.links.send_encoded(&self.poller, *link, lane, &message, now);
                    }
                }
            }
        }
    }

    fn down(&mut self, down: Down) {
        match down {
            Down::Setup { .. } => self.orphaned("it sent a second setup"),
            Down::Order(order) => {
                let now = self.now();
                self.links.send_all(&self.poller, &Down::Order(order), now);
                self.order(order);
            }
            Down::Bootstrap(down) => {
                if let Err(error) = self.body.boot.letter_of_parent(&self.poller, down) {
                    self.orphaned(&error.to_string());
                }
            }
            Down::Input(bytes) => {
                let targets = self.readers_below();
                let now = self.now();
                let message = Down::Input(bytes.clone());
                for link in &targets {
                    self.links.send(&self.poller, *link, &message, now);
                }
                self.body.readers.load(bytes.to_vec());
                self.input = Some(Piece { own: false, waiting: targets, more: false });
            }
            Down::Credit(bytes) => self.relay.grant(bytes),
            Down::Ping => {}
        }
    }

    /// Links behind which ranks read standard input.
    fn readers_below(&self) -> HashSet<usize> {
        let open = self.links.open();
        match self.plan.stdin {
            StdinTo::None => HashSet::new(),
            StdinTo::All => open.collect(),
            StdinTo::Rank(rank) => {
                let host = self.body.share().host_of.get(rank.0 as usize).map(|host| host.0);
                let behind = |link: &usize| {
                    self.links.hosts(*link).iter().any(|(other, _)| Some(*other) == host)
                };
                open.filter(behind).collect()
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Start => self.start(),
            Order::Notice { code, cause } => self.act(Action::Notice { code, cause }),
            Order::Look { number } => {
                let waiting = self.links.open().collect();
                self.look = Some(LookUp { number, look: self.body.look(), waiting });
                self.answer_look();
            }
            Order::QuitUnclaimed => self.act(Action::QuitUnclaimed),
            Order::Forward(signal) => self.act(Action::Forward(signal)),
            Order::End(signal) => self.act(Action::End(signal)),
            Order::Sweep => self.act(Action::Sweep),
            Order::EndStrays(signal) => self.act(Action::EndStrays(signal)),
            Order::Deaf(stream) => self.relay.deafen(stream),
            Order::InputEnd => self.body.readers.close(),
            Order::Finish => {
                self.body.stop();
                self.finishing = Some(self.now() + DRAIN.ms());
            }
        }
    }

    /// Every host is there: our part of the tree of collective calls is known, and ranks may start.
    fn start(&mut self) {
        if self.starting || self.own.is_some() {
            return;
        }
        self.starting = true;
        self.branches = self.links.open().collect();
        let share = self.body.share().clone();
        let branch = |link: &usize| {
            let hosts = self.links.hosts(*link);
            let Some((host, _)) = hosts.first() else {
                return Branch { host: HostId(0), ranks: Vec::new() };
            };
            Branch { host: HostId(*host), ranks: ranks_of(hosts, &share.host_of) }
        };
        let branches = self.branches.iter().map(branch).collect();
        match Boot::node(share, branches) {
            Ok(boot) => self.body.boot = boot,
            Err(error) => {
                let text = format!("the tree of hosts does not fit the map: {error}");
                self.body.stop();
                self.events.push(Happened::StartFailed { rank: None, code: CODE_LAUNCH, text });
            }
        }
    }

    /// Carries out what was decided, here or by the root.
    fn act(&mut self, action: Action) {
        match action {
            Action::Notice { code, cause } => {
                self.body.stop();
                self.body.readers.close();
                self.body.boot.notice(code, cause);
            }
            // Only the root asks.
            Action::Look => self.decide(Event::Looked { starved: false }),
            Action::QuitUnclaimed => self.body.quit_unclaimed(),
            Action::Forward(signal) => self.body.to_groups(signal),
            Action::End(signal) => {
                self.body.stop();
                self.body.readers.close();
                self.body.end(signal);
            }
            Action::Sweep => {
                self.body.stop();
                self.body.readers.close();
                self.sweeping = true;
                self.told_left = None;
                self.reap();
            }
            Action::EndStrays(signal) => {
                let links = &self.links;
                self.body.end_strays(signal, |pid| links.is_ours(pid));
            }
            Action::Finish => self.over = true,
        }
    }

    fn reap(&mut self) {
        let mut events = Vec::new();
        let others = self.body.reap(&self.poller, &mut events);
        for (pid, end) in others.ended {
            self.links.child_ended(pid, end);
        }
        self.happened(events);
        if !self.sweeping {
            return;
        }
        let left = others.left && {
            let links = self.links.processes();
            links == 0
                || tree::children(getpid().as_raw()).iter().any(|pid| !self.links.is_ours(*pid))
        };
        if self.own.is_some() {
            self.decide(Event::Strays { left });
        } else if self.told_left != Some(left) || left {
            self.told_left = Some(left);
            self.up(&Up::Strays { host: self.index, left });
        }
    }

    fn link_events(&mut self, events: Vec<LinkEvent>) {
        for event in events {
            match event {
                LinkEvent::Open(link) => {
                    let host = self.links.hosts(link).first().map_or(0, |host| host.0);
                    self.up(&Up::Host { host, news: News::Reached(Step::Version) });
                }
                LinkEvent::Up(link, up) => self.heard_below(link, up),
                LinkEvent::Failed(link, failure) => {
                    let hosts = self.links.hosts(link).to_vec();
                    if let Some((host, _)) = hosts.first() {
                        let news = News::Failed(failure);
                        self.up(&Up::Host { host: *host, news });
                    }
                    self.up(&Up::Orphans(hosts));
                    self.standing.insert(link);
                }
                LinkEvent::Lost(link, seen) => self.lost(link, seen),
            }
        }
    }

    fn lost(&mut self, link: usize, seen: String) {
        self.standing.insert(link);
        if let Some(branch) = self.branches.iter().position(|other| *other == link) {
            self.body.boot.lost(&self.poller, branch);
        }
        if let Some(look) = &mut self.look {
            look.waiting.remove(&link);
        }
        if let Some(input) = &mut self.input {
            input.waiting.remove(&link);
        }
        // After its farewell the end of a link is no loss.
        if !self.done.contains(&link) {
            let hosts = self.links.hosts(link).iter().map(|(host, _)| *host).collect();
            self.up(&Up::Lost { hosts, seen });
        }
        self.answer_look();
    }

    fn heard_below(&mut self, link: usize, up: Up) {
        match up {
            Up::Host { .. } | Up::Lost { .. } | Up::Strays { .. } | Up::Say(_) => self.up(&up),
            Up::Orphans(ref hosts) => {
                self.links.remove_hosts(link, hosts);
                self.up(&up);
            }
            Up::Standing => drop(self.standing.insert(link)),
            Up::Events(events) => self.events.extend(events),
            Up::Looked { number, look } => {
                if let Some(open) = self.look.as_mut().filter(|open| open.number == number)
                    && open.waiting.remove(&link)
                {
                    open.look = open.look.and(look);
                }
                self.answer_look();
            }
            Up::Output { ref bytes, .. } => {
                self.links.owe(link, bytes.len());
                self.relay.push(bytes.len(), up.encode());
            }
            Up::OutputEnd { .. } => self.relay.push(0, up.encode()),
            Up::Bootstrap(up) => {
                let branch = self.branches.iter().position(|other| *other == link);
                let Some(branch) = branch else { return };
                if let Err(error) = self.body.boot.letter_of_child(&self.poller, branch, up) {
                    self.lost(link, error.to_string());
                }
            }
            Up::InputTaken { more } => {
                if let Some(input) = &mut self.input
                    && input.waiting.remove(&link)
                {
                    input.more |= more;
                }
            }
            Up::Ping => {}
            Up::Done { strays } => {
                self.done.insert(link);
                self.strays = self.strays.saturating_add(strays);
            }
        }
    }

    fn answer_look(&mut self) {
        // What was heard before goes up first: it may change what the answer means.
        if let Some(look) = self.look.take_if(|look| look.waiting.is_empty()) {
            self.flush();
            self.up(&Up::Looked { number: look.number, look: look.look });
        }
    }

    fn step_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        input.own = input.own || self.body.readers.give(&self.poller);
        if input.own && input.waiting.is_empty() {
            let more = input.more || !self.body.readers.is_empty();
            self.input = None;
            self.up(&Up::InputTaken { more });
        }
    }

    fn step_links(&mut self) {
        let (now, mut events) = (self.now(), Vec::new());
        self.links.step(&self.poller, now, &mut events);
        self.link_events(events);
    }

    /// Everything that depends on time or on several events.
    fn step(&mut self) {
        self.step_links();
        let now = self.now();
        if !self.parent.gone {
            if now >= self.parent.heard.saturating_add(PARENT_SILENT.ms()) {
                let seconds = PARENT_SILENT.limit.as_secs();
                self.orphaned(&format!("nothing was heard from it for {seconds} s"));
            } else if now >= self.parent.said.saturating_add(HEARTBEAT.ms()) {
                self.up(&Up::Ping);
            }
        }
        if !self.announced && (0..self.links.len()).all(|link| self.standing.contains(&link)) {
            self.announced = true;
            self.up(&Up::Standing);
        }
    }

    /// After everything was sent: whether this is the end.
    fn step_finish(&mut self) {
        let now = self.now();
        let Some(give_up) = self.finishing.filter(|_| self.own.is_none() && !self.over) else {
            return;
        };
        if now >= give_up && !self.body.capture.is_over() {
            self.body.capture.close_all(&mut self.relay);
        }
        let below = self.links.open().all(|link| self.done.contains(&link));
        if !self.body.capture.is_over() || !below {
            return;
        }
        self.links.part();
        if self.relay.is_empty() && !self.links.is_any_left() {
            let pids: Vec<String> = self.body.pids().map(|pid| pid.to_string()).collect();
            if !pids.is_empty() {
                let (host, pids) = (&self.plan.host, pids.join(" "));
                let text = format!("{host}: gave up on processes that SIGKILL did not end: {pids}");
                self.up(&Up::Say(text));
            }
            let strays = self.strays.saturating_add(self.body.strays());
            self.up(&Up::Done { strays });
            self.over = true;
        }
    }

    /// The parent is lost: from now on we decide for our own ranks, and those below for theirs.
    fn orphaned(&mut self, why: &str) {
        if self.parent.gone || self.over {
            return;
        }
        complain(&format!("{}: lost its parent: {why}; its ranks are ended", self.plan.host));
        self.parent.close(&self.poller);
        self.relay.close();
        self.links.part();
        self.body.stop();
        self.sweeping = false;
        let rules = Rules { exit_bound: ms(self.plan.exit_bound), timeout_at: None };
        let share = self.body.share();
        let mut machine = Machine::new(share.count(), rules);
        let now = ms(self.started.elapsed());
        let running: Vec<u32> =
            self.body.running().filter_map(|rank| self.body.share().local(rank)).collect();
        for local in running {
            machine.handle(now, Event::Started(local), &mut Vec::new());
        }
        self.own = Some(machine);
        self.decide(Event::FrontLost);
    }

    /// The same event with the local number of its rank.
    fn localised(&self, happened: &Happened) -> Option<Event> {
        let local = |rank| self.body.share().local(rank);
        Some(match happened.event() {
            Event::Started(rank) => Event::Started(local(rank)?),
            Event::Hello(rank) => Event::Hello(local(rank)?),
            Event::Protocol(rank) => Event::Protocol(local(rank)?),
            Event::Exiting { rank, code, path } => {
                Event::Exiting { rank: local(rank)?, code, path }
            }
            Event::Fini { rank, code } => Event::Fini { rank: local(rank)?, code },
            Event::Abort { rank, code } => Event::Abort { rank: local(rank)?, code },
            Event::Ended { rank, end } => Event::Ended { rank: local(rank)?, end },
            other => other,
        })
    }

    /// Our own machine, once the parent is lost.
    fn decide(&mut self, event: Event) {
        let now = self.now();
        let mut actions = Vec::new();
        let Some(machine) = &mut self.own else { return };
        machine.handle(now, event, &mut actions);
        for action in actions {
            self.act(action);
        }
    }
}

/// Ranks of all `hosts`, in the order of the hosts, each host's ascending.
pub(crate) fn ranks_of(hosts: &[Member], host_of: &[HostId]) -> Vec<Rank> {
    let wanted: std::collections::HashMap<u32, usize> =
        hosts.iter().enumerate().map(|(at, (host, _))| (*host, at)).collect();
    let mut each = vec![Vec::new(); hosts.len()];
    for (rank, host) in (0..).zip(host_of) {
        if let Some(at) = wanted.get(&host.0) {
            each[*at].push(Rank(rank));
        }
    }
    each.concat()
}
