//! The supervisor of a job with other hosts: carries events to the machine and its actions down the
//! tree.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use bootstrap::HostId;
use bootstrap::collective::{Bytes, Collective, TreeMessage};
use nix::unistd::getpid;
use settings::deadlines::tree::{FAREWELL, FINISH};
use settings::log::LAUNCHER;
use settings::say;

use crate::agent::capture::Outlet;
use crate::agent::control::{Control, Supervise};
use crate::agent::driver::{AgentError, Origin, io};
use crate::agent::local_ranks::CpuSample;
use crate::agent::machine::{CODE_LAUNCH, Command, Event};
use crate::agent::processes;
use crate::agent::sys::{self, Reaped};
use crate::event_loop::{self, Poller, Ready, Role, Signals, Token, Which};
use crate::link::Links;
use crate::plan::JobPlan;
use crate::stage::Staging;
use crate::tree::hosts::Hosts;
use crate::tree::message::{Common, Down, HostCommand};

/// Life of the root; never returns to the caller's code, which belongs to the launcher.
pub(crate) fn run(plan: &JobPlan, origin: Origin) -> ! {
    let outcome = Root::new(plan, origin).and_then(Root::work);
    if let Err(error) = outcome {
        say!(ERROR, LAUNCHER, "root of the agents on {}: {error}", plan.host);
        sys::exit_now(CODE_LAUNCH);
    }
    sys::exit_now(0)
}

/// How far the job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Hosts are being brought up.
    Starting,
    /// Every host is there; ranks start or run.
    Running,
    /// The machine has finished; output is on its way.
    Draining,
    /// The links are at their end.
    Parting,
    /// Nothing is left.
    Over,
}

/// Answers to one question about CPU times.
#[derive(Debug)]
pub(super) struct CpuQuestion {
    pub(super) number: u32,
    pub(super) sample: CpuSample,
    pub(super) waiting: HashSet<usize>,
}

pub(super) struct Root<'a> {
    pub(super) control: Control<'a>,
    pub(super) links: Links,
    /// What every agent is told.
    pub(super) common: Common,
    pub(super) staging: Staging,
    /// Links whose agents want the program's hash.
    pub(super) describing: Vec<usize>,
    pub(super) hosts: Hosts,
    /// Host of every rank.
    pub(super) host_of: Vec<HostId>,
    pub(super) phase: Phase,
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
    pub(super) cpu_question: Option<CpuQuestion>,
    cpu_questions: u32,
    /// Hosts whose processes are being looked for; whether any is left there, once they said so.
    pub(super) orphans: Option<HashMap<u32, Option<bool>>>,
    /// Hosts that have said by themselves that nothing of the job is left on them.
    pub(super) bare: HashSet<u32>,
    pub(super) orphans_killed: u32,
    /// Links that do not have the last piece of input yet, and whether anybody reads more.
    pub(super) piece: Option<(HashSet<usize>, bool)>,
    pub(super) input_over: bool,
    deaf: [bool; 2],
    /// When agents are given up that still have not drained; then, when links are cut.
    give_up: u64,
    pub(super) done: HashSet<usize>,
}

impl<'a> Root<'a> {
    fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, AgentError> {
        let names = plan.map.hosts.iter().map(|host| host.name.clone());
        let (ssh, common) = super::start::common(plan);
        Ok(Self {
            control: Control::new(plan, origin)?,
            links: Links::new(ssh, Bytes::default()),
            staging: Staging::new(None, PathBuf::new(), super::start::host_of_root(plan)),
            describing: Vec::new(),
            common,
            hosts: Hosts::new(names),
            host_of: plan.map.host_of.iter().map(|host| HostId(*host)).collect(),
            phase: Phase::Starting,
            standing: HashSet::new(),
            tried: HashSet::new(),
            failing: None,
            calls: None,
            branches: Vec::new(),
            lost: HashSet::new(),
            cpu_question: None,
            cpu_questions: 0,
            orphans: None,
            bare: HashSet::new(),
            orphans_killed: 0,
            piece: None,
            input_over: false,
            deaf: [false; 2],
            give_up: 0,
            done: HashSet::new(),
        })
    }

    fn work(mut self) -> Result<(), AgentError> {
        match self.control.make_directory() {
            Ok(()) => {
                self.start_links();
                self.stage_program();
            }
            Err(text) => self.fail_start(None, CODE_LAUNCH, text),
        }
        event_loop::run(&mut self).map_err(io("wait for events"))?;
        // What a remote shell left behind (a shared connection) is not ours to keep.
        for pid in processes::descendants(getpid().as_raw(), |_| false) {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        let (orphans, hosts) = (self.orphans_killed, self.hosts.records());
        self.control.report(orphans, hosts)
    }

    /// Everything that depends on several events, as long as the job lives.
    fn step_job(&mut self) {
        self.step_start();
        self.step_staging();
        self.step_input();
        self.step_output();
        self.messages();
    }

    /// The machine has finished: lets the agents drain and go.
    fn begin_draining(&mut self) {
        self.phase = Phase::Draining;
        self.links.give_up_silent();
        if self.links.open().any(|link| !self.done.contains(&link)) {
            self.command(HostCommand::Finish);
        }
        self.give_up = self.now() + FINISH.ms();
    }

    /// Writes what the agents send; then ends every link, so that no agent outlives the launcher.
    fn drain(&mut self) {
        let now = self.now();
        let output = &self.control.output;
        // A slow reader at the top makes the agents wait, too; without one they have no excuse.
        if !(output.has_room(Which::Out) && output.has_room(Which::Err)) {
            self.give_up = now + FINISH.ms();
        }
        let late = now >= self.give_up && output.is_written();
        if !late && !self.is_drained() && !self.control.job.impatient {
            return self.step_output();
        }
        self.links.part();
        self.phase = Phase::Parting;
        self.give_up = now + FAREWELL.ms();
    }

    /// Waits for the processes of links.
    fn part(&mut self) {
        let late = self.now() >= self.give_up;
        if late {
            self.links.cut_all();
        }
        if late || !self.links.is_any_left() {
            self.phase = Phase::Over;
        }
    }

    /// Gives credit for what was written, and tells agents about streams that nobody reads.
    pub(super) fn step_output(&mut self) {
        let now = self.now();
        for (which, number) in [(Which::Out, 1), (Which::Err, 2)] {
            if self.control.output.is_gone(which) && !self.deaf[which as usize] {
                self.deaf[which as usize] = true;
                self.links.send_all(
                    &self.control.poller,
                    &Down::HostCommand(HostCommand::OutputClosed(number)),
                    now,
                );
            }
        }
        if self.control.output.has_room(Which::Out) && self.control.output.has_room(Which::Err) {
            self.links.settle_debts(&self.control.poller, now);
        }
    }

    /// Sends what the collective machine wants sent.
    pub(super) fn messages(&mut self) {
        let now = self.now();
        while let Some(message) = self.calls.as_mut().and_then(Collective::poll_transmit) {
            // The root has no parent, so there are no others.
            let TreeMessage::Down { to, message } = message else { continue };
            let down = Down::Bootstrap(message);
            let (lane, message) = (down.lane(), down.encode());
            for link in to.iter().filter_map(|branch| self.branches.get(*branch)) {
                self.links.send_encoded(&self.control.poller, *link, lane, &message, now);
            }
        }
    }

    pub(super) fn command(&mut self, command: HostCommand) {
        let now = self.now();
        self.links.send_all(&self.control.poller, &Down::HostCommand(command), now);
    }

    fn ask_for_cpu_sample(&mut self) {
        if self.cpu_question.is_some() {
            // The answer takes longer than the pause between two questions: until it comes, nobody
            // is blamed.
            return self.event(Event::CpuSampled { starved: true });
        }
        self.cpu_questions = self.cpu_questions.wrapping_add(1);
        let (number, waiting) = (self.cpu_questions, self.links.open().collect());
        self.command(HostCommand::SampleCpu { number });
        self.cpu_question = Some(CpuQuestion { number, sample: CpuSample::default(), waiting });
        self.answer_cpu_sample();
    }

    fn is_drained(&self) -> bool {
        let all = self.links.open().all(|link| self.done.contains(&link));
        all && self.control.output.is_written()
    }
}

impl Role for Root<'_> {
    fn sources(&mut self) -> (&Poller, &Signals) {
        (&self.control.poller, &self.control.signals)
    }

    fn now(&self) -> u64 {
        self.control.job.now()
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn step(&mut self) -> bool {
        if matches!(self.phase, Phase::Starting | Phase::Running) {
            if !self.control.job.machine.is_finished() {
                self.step_job();
            }
            // A start that failed ends here.
            if !self.control.job.machine.is_finished() {
                self.control.tell_progress();
                return false;
            }
            self.begin_draining();
        }
        if self.phase == Phase::Draining {
            self.drain();
        }
        if self.phase == Phase::Parting {
            self.part();
        }
        false
    }

    fn deadline(&self) -> Option<u64> {
        if self.phase == Phase::Parting {
            return Some(self.give_up);
        }
        let limit = (self.phase == Phase::Draining).then(|| self.give_up.max(self.now() + 1));
        let times = [self.control.deadline(), self.links.deadline(), self.start_deadline(), limit];
        times.into_iter().flatten().min()
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals if self.own_signals() => {
                while let Reaped::Child(pid, end) = sys::reap() {
                    self.links.child_ended(pid, end);
                }
            }
            Token::Control => self.hear_launcher(),
            Token::Sink(number) => self.control.output.writable(&self.control.poller, number),
            Token::Link(..) => {
                let (now, mut events) = (self.now(), Vec::new());
                self.links.serve(&self.control.poller, ready, now, &mut events);
                self.link_events(events);
            }
            _ => {}
        }
    }

    fn settle(&mut self) {
        let Control { poller, output, .. } = &mut self.control;
        output.show_prompt(poller);
        output.settle(poller);
        if self.phase != Phase::Parting {
            let (now, mut events) = (self.now(), Vec::new());
            self.links.step(&self.control.poller, now, &mut events);
            self.link_events(events);
        }
    }

    fn decision_due(&self) -> Option<u64> {
        self.control.job.machine.deadline()
    }

    fn tick(&mut self) {
        self.event(Event::Tick);
    }
}

impl<'a> Supervise<'a> for Root<'a> {
    fn control(&mut self) -> &mut Control<'a> {
        &mut self.control
    }

    fn act(&mut self, command: Command) {
        match command {
            Command::SampleCpu => self.ask_for_cpu_sample(),
            Command::FindOrphans => self.find_orphans(),
            Command::Finish => {}
            command => self.command(HostCommand::Ranks(command)),
        }
    }

    fn close_input(&mut self) {
        self.control.feed = None;
        self.piece = None;
        self.input_over = true;
    }
}
