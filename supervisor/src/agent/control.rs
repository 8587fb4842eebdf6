//! A whole job: the machine that decides, the record of what happened, the socket to the launcher's
//! process, output and input, and the way of an event through them, be the ranks on this host
//! ([`OneHost`]) or on a tree of hosts (`root`).

use std::io;
use std::time::Duration;

use bootstrap::collective::Collective;
use nix::sys::signal::SigSet;
use settings::log::LAUNCHER;
use settings::{log, say};

use super::bootstrap_server::BootstrapServer;
use super::capture::Draining;
use super::host_ranks::HostRanks;
use super::input::Feed;
use super::local_ranks::LocalRanks;
use super::machine::deed::{Deed, Run, Who};
use super::machine::{CODE_LAUNCH, Command, Event, Machine, RankEvent, Rules};
use super::output::Output;
use super::processes::LastDelay;
use super::record::Record;
use super::standard::is_terminal;
use super::watched::Watched;
use super::{processes, sys};
use crate::event_loop::{self, OsError, Poller, Ready, Role, Signals, Token, cannot, ms};
use crate::local::{Channel, HostsStart, Message, Origin};
use crate::plan::JobPlan;
use crate::report::{HostRecord, JobReport};
use crate::trace::ClockSample;
use crate::watch::questions::{Seen, Subject};
use crate::watch::server::Watch;
use crate::watch::stacks::Looks;

/// Number of the only host.
const HERE: u32 = 0;
/// Milliseconds between two progress messages.
const PROGRESS_EVERY: u64 = 50;

/// Life of the supervisor of a job on this host alone; never returns to the caller's code, which
/// belongs to the launcher.
pub(crate) fn run(plan: &JobPlan, origin: Origin) -> ! {
    processes::leave_session();
    let outcome = OneHost::new(plan, origin).and_then(OneHost::work);
    leave(outcome, &format!("node agent on {}", plan.host))
}

pub(crate) fn leave(outcome: Result<(), OsError>, who: &str) -> ! {
    if let Err(error) = outcome {
        say!(ERROR, LAUNCHER, "{who}: {error}");
        sys::exit_now(CODE_LAUNCH);
    }
    sys::exit_now(0)
}

pub(crate) struct Control<'a> {
    pub(crate) plan: &'a JobPlan,
    pub(crate) poller: Poller,
    pub(crate) signals: Signals,
    pub(crate) machine: Machine,
    pub(crate) record: Record<'a>,
    pub(crate) output: Output,
    pub(crate) feed: Option<Feed>,
    /// The user does not want to wait for the rest of the output.
    pub(crate) impatient: bool,
    pub(super) launcher: i32,
    channel: Channel,
    pub(crate) launcher_gone: bool,
    last_delay: Option<LastDelay>,
    /// Counts that the launcher knows, and since when.
    told: [u32; 3],
    told_at: u64,
    commands: Vec<Command>,
    pub(crate) watch: Watch,
    /// The ranks were asked for a checkpoint: when SIGTERM follows, unless it has.
    pub(super) checkpoint: Option<Option<u64>>,
}

impl<'a> Control<'a> {
    pub(crate) fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, OsError> {
        let Origin { launcher, channel, started, .. } = origin;
        let poller = Poller::new(started).map_err(cannot("make an epoll set"))?;
        let signals = processes::supervise(&poller)?;
        poller.add_read(&channel, Token::Control).map_err(cannot("watch the launcher"))?;
        let watch = Watch::open(&poller, &plan.job_id, plan.stall_timeout.map(ms));
        let timeout_at = plan.timeout.map(|limit| poller.now().saturating_add(ms(limit)));
        let rules = Rules { exit_bound: ms(plan.exit_bound), timeout_at };
        Ok(Self {
            plan,
            signals,
            machine: Machine::new(plan.size, rules),
            record: Record::new(plan),
            output: Output::new(&poller, &plan.output, plan.size, plan.stdin),
            feed: None,
            impatient: false,
            poller,
            launcher,
            channel,
            launcher_gone: false,
            last_delay: None,
            told: [0; 3],
            told_at: 0,
            commands: Vec::new(),
            watch,
            checkpoint: None,
        })
    }

    /// Seconds since the launcher began.
    pub(super) fn elapsed(&self) -> f64 {
        self.poller.started.elapsed().as_secs_f64()
    }

    /// A line for the user, when he wants to know so much.
    pub(crate) fn say(&mut self, level: u8, text: impl FnOnce() -> String) {
        if self.plan.verbose >= level {
            let at = self.elapsed() * 1000.0;
            self.output.message(&format!("{at:.1} ms: {}", text()));
        }
    }

    /// Makes the directory for output; why not, if so.
    pub(crate) fn make_directory(&mut self) -> Result<(), String> {
        if let Some(problem) = self.watch.problem.take() {
            self.say(1, || format!("nobody can watch this job: {problem}"));
        }
        self.record.phases.prepare = self.elapsed();
        let made = self.output.make_directory();
        made.map_err(|(path, error)| {
            format!("cannot make the output directory {}: {error}", path.display())
        })
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let feed = self.feed.as_ref().and_then(|feed| feed.parked);
        let told = (self.told != self.record.counts).then(|| self.told_at + PROGRESS_EVERY);
        let prompt = self.output.prompt_in().map(|left| self.poller.now().saturating_add(left));
        let unread = self.unread_deadline();
        let (watch, checkpoint) = (self.watch.deadline(), self.checkpoint.flatten());
        let times = [self.machine.deadline(), feed, told, prompt, unread, watch, checkpoint];
        times.into_iter().flatten().min()
    }

    fn unread_deadline(&self) -> Option<u64> {
        self.output.unread_in().map(|left| self.poller.now().saturating_add(left))
    }

    /// Patience with readers is for jobs that end well. Whether output was dropped now, so that
    /// there is room again.
    pub(crate) fn mind_readers(&mut self) -> bool {
        if self.output.is_written() || !self.machine.is_failing() {
            return false;
        }
        self.output.bound_reader();
        self.output.drop_unread()
    }

    /// Tells the launcher's process how far the job has come when that has changed, not too often
    /// unless it is the last time.
    pub(crate) fn tell_progress(&mut self, last: bool) {
        let (counts, now) = (self.record.counts, self.poller.now());
        let early = now < self.told_at + PROGRESS_EVERY && !last;
        if counts != self.told && !early && !self.launcher_gone {
            (self.told, self.told_at) = (counts, now);
            // A launcher that is stopped does not read: then it misses a count, nothing else.
            let _ = self.channel.send(&Message::Progress(counts), false);
        }
    }

    /// Tells the launcher's process which hosts are waited for.
    pub(crate) fn tell_start(&mut self, start: HostsStart) {
        if !self.launcher_gone {
            let _ = self.channel.send(&Message::Hosts(start), false);
        }
    }

    /// The last words. Output that was lost is a failure.
    pub(crate) fn report(
        mut self,
        orphans_killed: u32,
        hosts: Vec<HostRecord>,
        clocks: Vec<ClockSample>,
    ) -> Result<(), OsError> {
        self.tell_progress(true);
        self.record.settle();
        if let Some(text) = self.record.strangers().filter(|_| self.machine.exit_code() == 0) {
            self.output.message(text);
        }
        let mut exit_code = self.machine.exit_code();
        let mut checkpointed = false;
        if exit_code == 0 && self.output.lost {
            exit_code = 1;
        } else if let (0, Some(plan), Some(_)) = (exit_code, self.plan.checkpoint, self.checkpoint)
        {
            (checkpointed, exit_code) = (true, plan.code.unwrap_or(0));
        }
        let done = self.elapsed();
        let Self { plan, machine, mut record, output, .. } = self;
        for rank in &mut record.ranks {
            rank.killed_by_launcher = machine.is_killed(rank.rank);
        }
        let end_begins = machine.end_begins.map(|at| Duration::from_millis(at).as_secs_f64());
        let cause = machine.cause().map(|cause| {
            let tail = cause.rank.map(|rank| output.tail(rank)).unwrap_or_default();
            record.explain(cause, tail)
        });
        let report = Message::Report(Box::new(JobReport {
            job: plan.job_id.clone(),
            exit_code,
            cause,
            ranks: record.ranks,
            phases: crate::report::Phases { end_begins, done, ..record.phases },
            orphans_killed,
            hosts,
            checkpointed,
            clocks,
        }));
        if self.launcher_gone {
            return Ok(());
        }
        let sent = self.channel.send(&report, true);
        sent.map_err(|error| cannot("write the report")(io::Error::other(error)))
    }
}

pub(crate) trait Supervise<'a>: Role {
    fn control(&mut self) -> &mut Control<'a>;
    /// Carries out what was decided about the ranks.
    fn act(&mut self, command: Command);
    /// Nothing more is read from standard input.
    fn close_input(&mut self);
    /// Has the hosts of the job look at their ranks, for a program that watches the job.
    fn look(&mut self, client: u32, subject: Subject);

    /// One event through the machine, and everything that follows from it.
    fn event(&mut self, event: Event) {
        let control = self.control();
        if event != Event::Tick {
            control.say(2, || match &event {
                Event::Rank(event) => format!("event {event:?}"),
                event => format!("event {event:?}"),
            });
        }
        control.impatient |= match event {
            Event::Signal(signal) => control.machine.is_finished() && signal != libc::SIGCONT,
            Event::LauncherLost => true,
            _ => false,
        };
        let (now, mut commands) = (control.poller.now(), std::mem::take(&mut control.commands));
        if event == Event::Tick && control.output.is_held() {
            control.machine.output_held(now);
        }
        control.machine.handle(now, event, &mut commands);
        for command in commands.drain(..) {
            self.control().say(2, || format!("action {command:?}"));
            if matches!(
                command,
                Command::ExitDecision { .. } | Command::End(_) | Command::FindOrphans
            ) {
                self.close_input();
            } else if command == Command::Forward(libc::SIGCONT)
                && let Some(feed) = &mut self.control().feed
            {
                feed.unpark();
            }
            self.act(command);
        }
        self.control().commands = commands;
    }

    /// What ranks did, or what is taken for it.
    fn happened(&mut self, happened: &RankEvent) {
        let control = self.control();
        let elapsed = control.elapsed();
        control.record.note(happened, elapsed);
        self.event(Event::Rank(happened.clone()));
        match *happened {
            RankEvent::Started { rank, pid, .. } => {
                if let Err(error) = self.control().output.adopt(rank) {
                    let text = format!("cannot make the output files of rank {rank}: {error}");
                    self.fail_start(Some(rank), CODE_LAUNCH, &text);
                }
                self.control().say(1, || format!("rank {rank} runs as process {pid}"));
            }
            RankEvent::Ended { rank, end, .. } => {
                self.control().say(1, || format!("rank {rank} ended: {end:?}"));
            }
            _ => {}
        }
    }

    /// What many ranks did alike; `runs` are all whom it may concern.
    fn happened_alike(&mut self, deed: Deed, who: Who, runs: Vec<Run>) {
        self.event(Event::Alike { deed, who });
        let control = self.control();
        let (progress, elapsed) = (control.machine.progress(), control.elapsed());
        control.record.note_alike((deed, runs), progress, elapsed);
    }

    fn fail_start(&mut self, rank: Option<u32>, code: i32, text: &str) {
        let text = log::line(text).into_owned();
        self.happened(&RankEvent::StartFailed { rank, code, text });
    }

    /// What the launcher's process says: signals for the ranks, and its end.
    fn hear_launcher(&mut self) {
        let (came, over) = self.control().channel.read();
        for message in came {
            let Message::Signal(signal, sender) = message else { continue };
            if let Some(sender) = sender {
                self.control().record.senders.entry(signal).or_insert(sender);
            }
            self.signalled(signal);
        }
        if over {
            self.lose_launcher();
        }
    }

    fn lose_launcher(&mut self) {
        let control = self.control();
        if !std::mem::replace(&mut control.launcher_gone, true) {
            control.poller.remove(&control.channel);
            control.last_delay = Some(LastDelay::begin());
            self.event(Event::LauncherLost);
        }
    }

    /// Reads our own signals. Whether children may have ended.
    fn own_signals(&mut self) -> bool {
        let control = self.control();
        let (child, orphan) = processes::read_signals(&mut control.signals, control.launcher);
        if orphan {
            self.lose_launcher();
        }
        child
    }
}

struct OneHost<'a> {
    control: Control<'a>,
    mask: SigSet,
    ranks: LocalRanks<'a>,
    /// Set once the machine has finished.
    draining: Option<Draining>,
    over: bool,
    looks: Looks,
}

impl<'a> OneHost<'a> {
    fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, OsError> {
        let mask = origin.mask;
        let control = Control::new(plan, origin)?;
        let share = HostRanks::whole(plan);
        let calls = Collective::new(plan.size);
        let boot = BootstrapServer::new(&control.poller, share, calls);
        let ranks = LocalRanks::new(plan, boot, !is_terminal(0));
        Ok(Self { control, mask, ranks, draining: None, over: false, looks: Looks::default() })
    }

    fn work(mut self) -> Result<(), OsError> {
        let made = self.control.make_directory().map_err(|text| (text, CODE_LAUNCH));
        let prepare =
            |()| self.ranks.prepare(self.mask).map_err(|unready| (unready.text, unready.code));
        if let Err((text, code)) = made.and_then(prepare) {
            self.fail_start(None, code, &text);
        }
        event_loop::run(&mut self).map_err(cannot("wait for events"))?;
        let orphans = self.ranks.orphans();
        self.control.report(orphans, Vec::new(), Vec::new())
    }

    fn all_happened(&mut self) {
        for happened in std::mem::take(&mut self.ranks.boot.events) {
            self.happened(&happened);
        }
    }

    fn start_some(&mut self) -> bool {
        if self.control.machine.is_ending() {
            self.ranks.stop();
            return false;
        }
        let more = self.ranks.start_some();
        self.all_happened();
        more && !self.control.machine.is_ending()
    }

    fn step_input(&mut self) -> bool {
        let now = self.now();
        // Every reader must be there before the first byte moves.
        if !self.ranks.is_complete() || self.ranks.readers.is_empty() {
            return false;
        }
        let feed = self.control.feed.get_or_insert_with(|| Feed::new(&self.control.poller));
        feed.step(&mut self.ranks.readers, now)
    }

    fn reap(&mut self) {
        let (_, left) = self.ranks.reap();
        self.all_happened();
        if self.control.machine.is_cleaning_up() {
            self.event(Event::Orphans { left });
        }
    }

    /// The machine has finished: the output is read to its end.
    fn begin_draining(&mut self) -> Draining {
        if let Some(text) = self.ranks.given_up() {
            self.control.output.message(&text);
        }
        Draining::new(self.now())
    }

    fn drain(&mut self, mut draining: Draining) {
        let now = self.now();
        if !self.is_drained() {
            let Control { output, impatient, launcher_gone, .. } = &mut self.control;
            let mut closed = draining.step(now, &mut self.ranks.capture, output);
            if *impatient && *launcher_gone {
                self.ranks.capture.close_all(output);
                closed = true;
            }
            if closed {
                output.settle();
            }
        }
        if self.control.impatient || self.is_drained() {
            self.control.output.say_dropped();
        }
        self.over = self.control.impatient || self.is_drained();
        self.draining = Some(draining);
    }

    fn is_drained(&self) -> bool {
        self.ranks.capture.is_over() && self.control.output.is_written()
    }
}

impl Role for OneHost<'_> {
    fn sources(&self) -> (&Poller, &Signals) {
        (&self.control.poller, &self.control.signals)
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn step(&mut self) -> bool {
        let dropped = self.control.mind_readers();
        if self.draining.is_none() && !self.control.machine.is_finished() {
            let more = self.start_some();
            let again = self.step_input();
            if !self.control.machine.is_finished() {
                self.control.tell_progress(false);
                return more || again || dropped;
            }
        }
        let draining = self.draining.take().unwrap_or_else(|| self.begin_draining());
        self.drain(draining);
        dropped
    }

    fn deadline(&self) -> Option<u64> {
        match &self.draining {
            None => self.control.deadline(),
            Some(draining) => {
                let pipes = (!self.ranks.capture.is_over()).then_some(draining.give_up);
                [pipes, self.control.unread_deadline()].into_iter().flatten().min()
            }
        }
        .into_iter()
        .chain([self.control.watch.deadline(), self.looks.deadline()].into_iter().flatten())
        .chain(self.ranks.pmix_due())
        .min()
    }

    fn serve(&mut self, ready: Ready) {
        match ready.token {
            Token::Signals => {
                if self.own_signals() {
                    self.reap();
                }
            }
            Token::Control => self.hear_launcher(),
            Token::Sink(number) => self.control.output.writable(number),
            Token::Watch | Token::Watcher(_) => self.serve_watch(ready),
            Token::Stacks(_) => self.looks.readable(),
            _ => {
                self.ranks.serve(ready, &mut self.control.output);
                self.control.output.settle();
                self.all_happened();
            }
        }
    }

    fn settle(&mut self) {
        if self.ranks.pmix_due().is_some_and(|at| self.now() >= at) {
            self.ranks.look_at_pmix();
            self.all_happened();
        }
        self.control.output.show_prompt();
        self.ranks.capture.settle(&mut self.control.output);
        for (number, stacks) in self.looks.step(&self.control.poller) {
            self.control.watch.heard(number, HERE, Seen::Stacks(stacks));
        }
        self.watch();
    }

    fn decision_due(&self) -> Option<u64> {
        self.control.machine.deadline()
    }

    fn tick(&mut self) {
        self.event(Event::Tick);
    }
}

impl<'a> Supervise<'a> for OneHost<'a> {
    fn control(&mut self) -> &mut Control<'a> {
        &mut self.control
    }

    fn act(&mut self, command: Command) {
        match command {
            Command::SampleCpu { .. } => {
                let starved = self.ranks.sample_cpu().is_starved();
                self.event(Event::CpuSampled { starved });
            }
            Command::FindOrphans => {
                self.looks.stop(&self.control.poller);
                self.ranks.close_pmix();
                self.reap();
            }
            command => self.ranks.act(command, |_| false),
        }
    }

    fn close_input(&mut self) {
        self.control.feed = None;
        self.ranks.readers.close();
    }

    fn look(&mut self, client: u32, subject: Subject) {
        let number = self.control.watch.ask(client, subject, [HERE]);
        let poller = &self.control.poller;
        if let Some(seen) = self.ranks.look(poller, &mut self.looks, number, subject) {
            self.control.watch.heard(number, HERE, seen);
        }
    }
}
