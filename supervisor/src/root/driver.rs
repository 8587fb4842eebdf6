//! The root's loop: carries events to the machine and its actions down the tree.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::PathBuf;

use bootstrap::HostId;
use bootstrap::collective::{Bytes, Collective, Letter};
use nix::sys::signalfd::SignalFd;
use nix::unistd::getpid;
use settings::deadlines::tree::{FAREWELL, FINISH};

use crate::agent::body::Look;
use crate::agent::capture::Outlet;
use crate::agent::driver::{
    AgentError, Origin, TICK_PATIENCE, io, read_signals, supervise_children,
};
use crate::agent::front::FrontLink;
use crate::agent::input::Feed;
use crate::agent::job::Job;
use crate::agent::machine::{Action, CODE_LAUNCH, Event};
use crate::agent::output::Output;
use crate::agent::poller::{Poller, Ready, Token, Which};
use crate::agent::sys::{self, Reaped};
use crate::agent::{Happened, tree};
use crate::link::Links;
use crate::plan::JobPlan;
use crate::stage::Staging;
use crate::tree::hosts::Hosts;
use crate::tree::message::{Common, Down, Order};

/// Life of the root; never returns to the caller's code, which belongs to the front.
pub(crate) fn run(plan: &JobPlan, origin: Origin) -> ! {
    let outcome = Root::new(plan, origin).and_then(Root::work);
    if let Err(error) = outcome {
        let text = format!("gasnetrun_ibv: root of the agents on {}: {error}\n", plan.host);
        let _ = nix::unistd::write(std::io::stderr(), text.as_bytes());
        sys::exit_now(CODE_LAUNCH);
    }
    sys::exit_now(0)
}

/// How far the job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Hosts are being brought up.
    Starting,
    /// Every host is there; ranks start or run.
    Running,
    /// The machine has finished; output is on its way.
    Draining,
}

/// Answers to one question about CPU times.
#[derive(Debug)]
pub(super) struct LookUp {
    pub(super) number: u32,
    pub(super) look: Look,
    pub(super) waiting: HashSet<usize>,
}

pub(super) struct Root<'a> {
    pub(super) plan: &'a JobPlan,
    front_pid: i32,
    pub(super) poller: Poller,
    signals: SignalFd,
    pub(super) front: FrontLink,
    pub(super) job: Job<'a>,
    pub(super) output: Output,
    pub(super) links: Links,
    /// What every agent is told.
    pub(super) common: Common,
    pub(super) staging: Staging,
    /// Links whose agents want the program's hash.
    pub(super) describing: Vec<usize>,
    pub(super) hosts: Hosts,
    /// Host of every rank.
    pub(super) host_of: Vec<HostId>,
    pub(super) stage: Stage,
    /// Links whose subtrees have said all there is to say about their start.
    pub(super) standing: HashSet<usize>,
    /// Hosts that the root itself has tried, so that no host is adopted for ever.
    pub(super) tried: HashSet<u32>,
    /// When the first host failed.
    pub(super) failing: Option<u64>,
    pub(super) calls: Option<Collective>,
    /// Link of each branch of the collective machine.
    pub(super) branches: Vec<usize>,
    /// Hosts that were lost.
    pub(super) lost: HashSet<u32>,
    pub(super) look: Option<LookUp>,
    looks: u32,
    /// Hosts whose processes are being looked for; whether any is left there, once they said so.
    pub(super) strays: Option<HashMap<u32, Option<bool>>>,
    /// Hosts that have said by themselves that nothing of the job is left on them.
    pub(super) bare: HashSet<u32>,
    pub(super) strays_killed: u32,
    pub(super) feed: Option<Feed>,
    /// Links that do not have the last piece of input yet, and whether anybody reads more.
    pub(super) piece: Option<(HashSet<usize>, bool)>,
    pub(super) input_over: bool,
    deaf: [bool; 2],
    pub(super) done: HashSet<usize>,
    actions: Vec<Action>,
}

impl<'a> Root<'a> {
    fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, AgentError> {
        let poller = Poller::new().map_err(io("make an epoll set"))?;
        let signals = supervise_children(&poller)?;
        poller.add_read(origin.socket.as_fd(), Token::Front).map_err(io("watch the front"))?;
        let names = plan.map.hosts.iter().map(|host| host.name.clone());
        let (ssh, common) = super::start::common(plan);
        Ok(Self {
            plan,
            front_pid: origin.front,
            poller,
            signals,
            front: FrontLink::new(origin.socket),
            job: Job::new(plan, origin.started),
            output: Output::new(&plan.output, plan.size, plan.stdin),
            links: Links::new(ssh, Bytes::default()),
            staging: Staging::new(None, PathBuf::new(), super::start::host_of_root(plan)),
            describing: Vec::new(),
            common,
            hosts: Hosts::new(names),
            host_of: plan.map.host_of.iter().map(|host| HostId(*host)).collect(),
            stage: Stage::Starting,
            standing: HashSet::new(),
            tried: HashSet::new(),
            failing: None,
            calls: None,
            branches: Vec::new(),
            lost: HashSet::new(),
            look: None,
            looks: 0,
            strays: None,
            bare: HashSet::new(),
            strays_killed: 0,
            feed: None,
            piece: None,
            input_over: false,
            deaf: [false; 2],
            done: HashSet::new(),
            actions: Vec::new(),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.job.now()
    }

    pub(super) fn say(&mut self, level: u8, text: impl FnOnce() -> String) {
        if self.plan.verbose >= level {
            let at = self.job.elapsed() * 1000.0;
            self.output.message(&self.poller, &format!("{at:.1} ms: {}", text()));
        }
    }

    fn work(mut self) -> Result<(), AgentError> {
        self.begin();
        let mut ready = Vec::new();
        let mut busy = 0;
        while !self.job.machine.is_finished() {
            self.step();
            // A start that failed ends here; nothing may be left that would wake us.
            if self.job.machine.is_finished() {
                break;
            }
            self.front.tell(self.job.counts(), self.now(), false);
            let timeout = self.timeout();
            self.turn(timeout, &mut ready)?;
            busy = if ready.is_empty() { 0 } else { busy + 1 };
            let due = self.job.machine.deadline().is_some_and(|at| self.now() >= at);
            if due && (ready.is_empty() || busy > TICK_PATIENCE) {
                busy = 0;
                self.event(Event::Tick);
            }
        }
        self.finish(ready)
    }

    fn begin(&mut self) {
        self.job.phases.prepare = self.job.elapsed();
        if let Err((path, error)) = self.output.make_directory() {
            let text = format!("cannot make the output directory {}: {error}", path.display());
            return self.fail_start(text);
        }
        self.start_links();
        self.stage_program();
    }

    /// How long nothing needs to be done.
    fn timeout(&self) -> Option<u64> {
        let feed = self.feed.as_ref().and_then(Feed::deadline);
        let told = self.front.due(self.job.counts());
        let times =
            [self.job.machine.deadline(), feed, told, self.links.deadline(), self.start_deadline()];
        let at = times.into_iter().flatten().min();
        let left = at.map(|at| at.saturating_sub(self.now()));
        [left, self.output.prompt_in()].into_iter().flatten().min()
    }

    fn turn(&mut self, timeout: Option<u64>, ready: &mut Vec<Ready>) -> Result<(), AgentError> {
        self.poller.wait(timeout, ready).map_err(io("wait for events"))?;
        for ready in ready.iter() {
            self.serve(*ready);
        }
        self.output.show_prompt(&self.poller);
        self.output.settle(&self.poller);
        let (now, mut events) = (self.now(), Vec::new());
        self.links.step(&self.poller, now, &mut events);
        self.link_events(events);
        Ok(())
    }

    /// Everything that depends on several events.
    fn step(&mut self) {
        self.step_start();
        self.step_staging();
        self.step_input();
        self.step_output();
        self.letters();
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => self.own_signals(),
            Token::Front => {
                let events = self.front.hear(&self.poller);
                self.events(events);
            }
            Token::Sink(number) => self.output.writable(&self.poller, number),
            Token::Link(..) => {
                let (now, mut events) = (self.now(), Vec::new());
                self.links.serve(&self.poller, ready, now, &mut events);
                self.link_events(events);
            }
            _ => {}
        }
    }

    /// Gives credit for what was written, and tells agents about streams that nobody reads.
    pub(super) fn step_output(&mut self) {
        let now = self.now();
        for (which, number) in [(Which::Out, 1), (Which::Err, 2)] {
            if self.output.is_gone(which) && !self.deaf[which as usize] {
                self.deaf[which as usize] = true;
                self.links.send_all(&self.poller, &Down::Order(Order::Deaf(number)), now);
            }
        }
        if self.output.has_room(Which::Out) && self.output.has_room(Which::Err) {
            self.links.settle_debts(&self.poller, now);
        }
    }

    /// Sends what the collective machine wants sent.
    pub(super) fn letters(&mut self) {
        let now = self.now();
        while let Some(letter) = self.calls.as_mut().and_then(Collective::letter) {
            // The root has no parent, so there are no others.
            let Letter::Down { to, message } = letter else { continue };
            let down = Down::Bootstrap(message);
            let (lane, message) = (down.lane(), down.encode());
            for link in to.iter().filter_map(|branch| self.branches.get(*branch)) {
                self.links.send_encoded(&self.poller, *link, lane, &message, now);
            }
        }
    }

    pub(super) fn order(&mut self, order: Order) {
        let now = self.now();
        self.links.send_all(&self.poller, &Down::Order(order), now);
    }

    fn events(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.event(event);
        }
    }

    /// One event through the machine, and everything that follows from it.
    pub(super) fn event(&mut self, event: Event) {
        if self.plan.verbose >= 2 && event != Event::Tick {
            self.say(2, || format!("event {event:?}"));
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.job.handle(event, &mut actions);
        for action in actions.drain(..) {
            self.act(action);
        }
        self.actions = actions;
    }

    /// What ranks did, or what is taken for it.
    pub(super) fn happened(&mut self, happened: &Happened) {
        self.job.note(happened);
        self.event(happened.event());
        match *happened {
            Happened::Started { rank, pid, .. } => {
                if let Err(error) = self.output.adopt(rank) {
                    let text = format!("cannot make the output files of rank {rank}: {error}");
                    self.fail_start(text);
                }
                self.say(1, || format!("rank {rank} runs as process {pid}"));
            }
            Happened::Ended { rank, end, .. } => {
                self.say(1, || format!("rank {rank} ended: {end:?}"));
            }
            _ => {}
        }
    }

    /// The job cannot be started.
    pub(super) fn fail_start(&mut self, text: String) {
        let failed = Happened::StartFailed { rank: None, code: CODE_LAUNCH, text };
        self.job.note(&failed);
        self.event(failed.event());
    }

    fn act(&mut self, action: Action) {
        self.say(2, || format!("action {action:?}"));
        match action {
            Action::Notice { code, cause } => {
                self.close_input();
                self.order(Order::Notice { code, cause });
            }
            Action::Look => self.ask_for_look(),
            Action::QuitUnclaimed => self.order(Order::QuitUnclaimed),
            Action::Forward(signal) => {
                self.order(Order::Forward(signal));
                if let (libc::SIGCONT, Some(feed)) = (signal, &mut self.feed) {
                    feed.unpark();
                }
            }
            Action::End(signal) => {
                self.close_input();
                self.order(Order::End(signal));
            }
            Action::Sweep => {
                self.close_input();
                self.sweep();
            }
            Action::EndStrays(signal) => self.order(Order::EndStrays(signal)),
            Action::Finish => {}
        }
    }

    fn ask_for_look(&mut self) {
        if self.look.is_some() {
            // The answer takes longer than the pause between two questions: until it comes, nobody is blamed.
            return self.event(Event::Looked { starved: true });
        }
        self.looks = self.looks.wrapping_add(1);
        let (number, waiting) = (self.looks, self.links.open().collect());
        self.order(Order::Look { number });
        self.look = Some(LookUp { number, look: Look::default(), waiting });
        self.answer_look();
    }

    fn own_signals(&mut self) {
        let told = read_signals(&self.signals, self.front_pid);
        if told.orphan {
            let lost = self.front.lose(&self.poller);
            self.events(lost);
        }
        if told.child {
            while let Reaped::Child(pid, end) = sys::reap() {
                self.links.child_ended(pid, end);
            }
        }
    }

    /// Lets the agents drain and go, writes what they sent, reports.
    fn finish(mut self, mut ready: Vec<Ready>) -> Result<(), AgentError> {
        self.stage = Stage::Draining;
        self.links.give_up_silent();
        if self.links.open().any(|link| !self.done.contains(&link)) {
            self.order(Order::Finish);
        }
        // A slow reader at the top makes the agents wait, too; without one they have no excuse.
        let mut give_up = self.now() + FINISH.ms();
        while !self.is_drained() && !self.job.impatient {
            if !(self.output.has_room(Which::Out) && self.output.has_room(Which::Err)) {
                give_up = self.now() + FINISH.ms();
            }
            let now = self.now();
            if now >= give_up && self.output.is_written() {
                break;
            }
            self.step_output();
            let limit = give_up.saturating_sub(now).max(1);
            let timeout = self.timeout().map_or(limit, |timeout| timeout.min(limit));
            self.turn(Some(timeout), &mut ready)?;
        }
        self.part(&mut ready)?;
        let (strays, hosts) = (self.strays_killed, self.hosts.records());
        let told = self.front.report(&mut self.job, &self.output, strays, hosts);
        told.map_err(|error| io("write the report")(std::io::Error::other(error)))
    }

    fn is_drained(&self) -> bool {
        let all = self.links.open().all(|link| self.done.contains(&link));
        all && self.output.is_written()
    }

    /// The end of every link, so that no agent outlives the launcher.
    fn part(&mut self, ready: &mut Vec<Ready>) -> Result<(), AgentError> {
        self.links.part();
        let until = self.now() + FAREWELL.ms();
        while self.links.is_any_left() {
            let now = self.now();
            if now >= until {
                self.links.cut_all();
                break;
            }
            self.poller.wait(Some(until - now), ready).map_err(io("wait for the end"))?;
            for ready in ready.iter() {
                self.serve(*ready);
            }
        }
        // What a remote shell left behind (a shared connection) is not ours to keep.
        for pid in tree::descendants(getpid().as_raw(), |_| false) {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        Ok(())
    }
}
