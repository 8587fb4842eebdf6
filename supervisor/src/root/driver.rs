//! The supervisor of a job with other hosts: carries events to the machine and its actions down the
//! tree.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bootstrap::collective::{Bytes, Collective, TreeMessage};
use bootstrap::{HostId, Rank};
use nix::unistd::getpid;
use settings::deadlines::tree::{FAREWELL, FINISH, START_SHOWN};

use super::clocks::Clocks;
use super::search::Search;
use crate::agent::capture::Outlet;
use crate::agent::control::{Control, Supervise, leave};
use crate::agent::local_ranks::CpuSample;
use crate::agent::machine::{CODE_LAUNCH, Command, Event};
use crate::agent::pmi_server::{PmiServer, Relayed};
use crate::agent::watched::Watched;
use crate::agent::{processes, sys};
use crate::event_loop::{self, OsError, Poller, Ready, Role, Signals, Token, Which, cannot};
use crate::link::Links;
use crate::local::Origin;
use crate::plan::JobPlan;
use crate::stage::Programs;
use crate::trace::monotonic;
use crate::tree::hosts::Hosts;
use crate::tree::message::{Common, Down, HostCommand};
use crate::tree::told::Part;
use crate::watch::questions::Subject;

/// Life of the root; never returns to the caller's code, which belongs to the launcher.
pub(crate) fn run(plan: &JobPlan, origin: Origin) -> ! {
    let outcome = Root::new(plan, origin).and_then(Root::work);
    leave(outcome, &format!("root of the agents on {}", plan.host))
}

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

pub(super) struct Root<'a> {
    pub(super) control: Control<'a>,
    pub(super) below: Links,
    pub(super) common: Common,
    pub(super) staging: Programs,
    /// Links whose agents want the programs' hashes.
    pub(super) describing: Vec<usize>,
    pub(super) hosts: Hosts,
    pub(super) host_of: Vec<HostId>,
    pub(super) phase: Phase,
    pub(super) failing: Option<u64>,
    pub(super) calls: Option<Collective>,
    /// Its part of the PMI server: it has no ranks.
    pub(super) pmi: Option<PmiServer>,
    pub(super) lost: HashSet<u32>,
    /// Ranks of each host, made when the first host is lost.
    pub(super) ranks_on: OnceCell<Vec<Vec<Rank>>>,
    cpu_questions: u32,
    /// Once processes are being looked for.
    pub(super) search: Option<Search>,
    /// Hosts that have said by themselves that nothing of the job is left on them.
    pub(super) bare: Vec<bool>,
    /// What each branch speaks for, once ranks start.
    pub(super) parts: Vec<Part>,
    pub(super) input_over: bool,
    /// It was said which ssh client logs in where.
    pub(super) clients_told: bool,
    /// Hosts that other hosts start, by the ssh client that logs in to them.
    pub(super) clients_below: BTreeMap<String, Vec<u32>>,
    deaf: [bool; 2],
    /// When agents are given up that still have not drained and send nothing; then, when links are
    /// cut.
    pub(super) give_up: u64,
    pub(super) clocks: Clocks,
    /// When the launcher is told next which hosts are waited for.
    pub(super) tell_at: u64,
}

impl<'a> Root<'a> {
    fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, OsError> {
        let names = plan.map.hosts.iter().map(|host| host.name.clone());
        let common = super::start::common(plan);
        let control = Control::new(plan, origin)?;
        let links = Links::new(&control.poller, common.ssh.clone(), Bytes::default());
        Ok(Self {
            control,
            below: links,
            staging: Programs::default(),
            describing: Vec::new(),
            common,
            hosts: Hosts::new(names),
            host_of: plan.map.host_of.iter().map(|host| HostId(*host)).collect(),
            phase: Phase::Starting,
            failing: None,
            calls: None,
            pmi: None,
            lost: HashSet::new(),
            ranks_on: OnceCell::new(),
            cpu_questions: 0,
            search: None,
            bare: vec![false; plan.map.hosts.len()],
            parts: Vec::new(),
            input_over: false,
            clients_told: false,
            clients_below: BTreeMap::new(),
            deaf: [false; 2],
            give_up: 0,
            clocks: Clocks::default(),
            tell_at: START_SHOWN.ms(),
        })
    }

    fn work(mut self) -> Result<(), OsError> {
        match self.control.make_directory() {
            Ok(()) => {
                self.start_links();
                self.stage_program();
            }
            Err(text) => self.fail_start(None, CODE_LAUNCH, &text),
        }
        event_loop::run(&mut self).map_err(cannot("wait for events"))?;
        // What a remote shell left behind (a shared connection) is not ours to keep.
        for pid in processes::descendants(getpid().as_raw(), |_| false) {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        let (orphans, hosts) = (self.below.orphans, self.hosts.records());
        self.control.report(orphans, hosts, self.clocks.into_samples())
    }

    /// Everything that depends on several events, as long as the job lives.
    fn step_job(&mut self) {
        self.tell_start();
        self.step_start();
        self.step_staging();
        self.step_input();
        self.step_output();
        self.messages();
        self.step_clocks();
    }

    /// Whether events of ranks are recorded, whose times are to fit together.
    fn aligns(&self) -> bool {
        let wanted = self.control.plan.trace.as_ref().map(|memory| memory.wanted);
        self.phase == Phase::Running && wanted.is_some_and(|wanted| wanted.events)
    }

    fn step_clocks(&mut self) {
        if self.aligns() && self.clocks.is_due(self.now()) {
            self.command(HostCommand::Clock { sent: monotonic() });
        }
    }

    /// The machine has finished: lets the agents drain and go.
    fn begin_draining(&mut self) {
        self.phase = Phase::Draining;
        self.below.give_up_silent();
        if !self.below.is_done() {
            self.command(HostCommand::Finish);
        }
        self.give_up = self.now() + FINISH.ms();
    }

    /// Writes what the agents send; then ends every link, so that no agent outlives the launcher.
    fn drain(&mut self) {
        let now = self.now();
        let output = &self.control.output;
        // A slow reader at the top makes the agents wait, too; without one they have no excuse.
        if output.is_held() {
            self.give_up = now + FINISH.ms();
        }
        let late = now >= self.give_up && output.is_written();
        if !late && !self.is_drained() && !self.control.impatient {
            return self.step_output();
        }
        if late && !self.below.is_done() {
            self.lost_output("agents sent nothing more");
        }
        self.control.output.say_dropped();
        self.below.part();
        self.phase = Phase::Parting;
        self.give_up = now + FAREWELL.ms();
    }

    /// The ranks have ended, but not all that they wrote has come.
    pub(super) fn lost_output(&mut self, why: &str) {
        self.control.output.lost = true;
        self.control.output.message(&format!("output of ranks may be missing: {why}"));
    }

    fn part(&mut self) {
        let late = self.now() >= self.give_up;
        if late {
            self.below.cut_all();
        }
        if late || !self.below.is_any_left() {
            self.phase = Phase::Over;
        }
    }

    /// Gives credit for what was written, and tells agents about streams that nobody reads.
    pub(super) fn step_output(&mut self) {
        for which in [Which::Out, Which::Err] {
            if self.control.output.is_gone(which) && !self.deaf[which as usize] {
                self.deaf[which as usize] = true;
                self.command(HostCommand::OutputClosed(which));
            }
        }
        if !self.control.output.is_held() {
            self.below.settle_debts();
        }
    }

    pub(super) fn messages(&mut self) {
        while let Some(message) = self.calls.as_mut().and_then(Collective::poll_transmit) {
            // The root has no parent, so there are no others.
            if let TreeMessage::Down { to, message } = message {
                self.below.send_to_branches(&to, Down::Bootstrap(message));
            }
        }
        for message in self.pmi.as_mut().map(PmiServer::messages).unwrap_or_default() {
            match message {
                Relayed::Down(message) => self.below.send_to_all_branches(Down::Pmi(message)),
                Relayed::To(to, message) => self.below.send_to_branches(&to, Down::Pmi(message)),
                // The root has no parent.
                Relayed::Up(_) => {}
            }
        }
        let events = self.pmi.as_mut().map(|pmi| std::mem::take(&mut pmi.events));
        for event in events.unwrap_or_default() {
            self.happened(&event);
        }
    }

    pub(super) fn command(&mut self, command: HostCommand) {
        self.below.send_all(&Down::HostCommand(command));
    }

    fn ask_for_cpu_sample(&mut self, rest: u64) {
        if rest == 0 && self.below.cpu_question.is_some() {
            // The answer is on its way, or takes longer than the pause between two questions: until
            // it comes, nobody is blamed.
            return self.event(Event::CpuSampled { starved: true });
        }
        self.cpu_questions = self.cpu_questions.wrapping_add(1);
        self.below.ask_cpu(self.cpu_questions, Duration::from_millis(rest));
        self.below.own_sample(CpuSample::default());
        self.answer_cpu_sample();
    }

    /// Whether a host has said that nothing of the job is left on it.
    pub(super) fn is_bare(&self, host: u32) -> bool {
        self.bare.get(host as usize).is_some_and(|bare| *bare)
    }

    fn is_drained(&self) -> bool {
        self.below.is_done() && self.control.output.is_written()
    }
}

impl Role for Root<'_> {
    fn sources(&self) -> (&Poller, &Signals) {
        (&self.control.poller, &self.control.signals)
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn step(&mut self) -> bool {
        let dropped = self.control.mind_readers();
        if matches!(self.phase, Phase::Starting | Phase::Running) {
            if !self.control.machine.is_finished() {
                self.step_job();
            }
            // A start that failed ends here.
            if !self.control.machine.is_finished() {
                self.control.tell_progress(false);
                return dropped;
            }
            self.begin_draining();
        }
        if self.phase == Phase::Draining {
            self.drain();
        }
        if self.phase == Phase::Parting {
            self.part();
        }
        dropped
    }

    fn deadline(&self) -> Option<u64> {
        if self.phase == Phase::Parting {
            return Some(self.give_up);
        }
        let limit = (self.phase == Phase::Draining).then(|| self.give_up.max(self.now() + 1));
        let clocks = self.aligns().then(|| self.clocks.due());
        let (job, links) = (self.control.deadline(), self.below.deadline());
        let times = [job, links, self.start_deadline(), limit, clocks];
        times.into_iter().flatten().min()
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals if self.own_signals() => self.below.reap(),
            Token::Control => self.hear_launcher(),
            Token::Sink(number) => self.control.output.writable(number),
            Token::Watch | Token::Watcher(_) => self.serve_watch(ready),
            Token::Link(..) => {
                self.below.serve(ready);
                self.link_events();
            }
            _ => {}
        }
    }

    fn settle(&mut self) {
        self.control.output.show_prompt();
        self.control.output.settle();
        self.watch();
        if self.phase != Phase::Parting {
            self.below.step();
            self.link_events();
        }
    }

    fn decision_due(&self) -> Option<u64> {
        self.control.machine.deadline()
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
            Command::SampleCpu { rest } => self.ask_for_cpu_sample(rest),
            Command::FindOrphans => self.find_orphans(),
            Command::Finish => {}
            command => self.command(HostCommand::Ranks(command)),
        }
    }

    fn close_input(&mut self) {
        self.control.feed = None;
        self.below.input = None;
        self.input_over = true;
    }

    fn look(&mut self, client: u32, subject: Subject) {
        let up = self.phase == Phase::Running && !self.control.machine.is_finished();
        let all = 0..u32::try_from(self.control.plan.map.hosts.len()).unwrap_or(u32::MAX);
        let hosts = all.filter(|host| up && !self.lost.contains(host) && !self.is_bare(*host));
        let hosts: Vec<u32> = hosts.collect();
        let asks = !hosts.is_empty();
        let number = self.control.watch.ask(client, subject, hosts);
        if asks {
            self.command(HostCommand::Look { number, subject });
        }
    }
}
