//! What whoever supervises a whole job has, be its ranks on this host or on a tree of hosts: the
//! machine that decides, the link to the launcher's process, output and input, and the way of an
//! event through them.

use std::os::fd::AsFd;

use super::driver::{AgentError, Origin, PendingSignals, io, read_signals, supervise_children};
use super::input::Feed;
use super::job::Job;
use super::launcher_link::LauncherLink;
use super::machine::{CODE_LAUNCH, Command, Event};
use super::output::Output;
use super::rank_event::RankEvent;
use crate::event_loop::{Poller, Role, Signals, Token};
use crate::plan::JobPlan;
use crate::report::HostRecord;

/// See the module.
pub(crate) struct Control<'a> {
    pub(crate) plan: &'a JobPlan,
    launcher_pid: i32,
    pub(crate) poller: Poller,
    pub(crate) signals: Signals,
    pub(crate) launcher: LauncherLink,
    pub(crate) job: Job<'a>,
    pub(crate) output: Output,
    pub(crate) feed: Option<Feed>,
    actions: Vec<Command>,
}

impl<'a> Control<'a> {
    pub(crate) fn new(plan: &'a JobPlan, origin: Origin) -> Result<Self, AgentError> {
        let poller = Poller::new().map_err(io("make an epoll set"))?;
        let signals = supervise_children(&poller)?;
        poller.add_read(origin.socket.as_fd(), Token::Control).map_err(io("watch the launcher"))?;
        Ok(Self {
            plan,
            launcher_pid: origin.launcher,
            poller,
            signals,
            launcher: LauncherLink::new(origin.socket),
            job: Job::new(plan, origin.started),
            output: Output::new(&plan.output, plan.size, plan.stdin),
            feed: None,
            actions: Vec::new(),
        })
    }

    /// A line for the user, when he wants to know so much.
    pub(crate) fn say(&mut self, level: u8, text: impl FnOnce() -> String) {
        if self.plan.verbose >= level {
            let at = self.job.elapsed() * 1000.0;
            self.output.message(&self.poller, &format!("{at:.1} ms: {}", text()));
        }
    }

    /// Makes the directory for output; why not, if so.
    pub(crate) fn make_directory(&mut self) -> Result<(), String> {
        self.job.phases.prepare = self.job.elapsed();
        let made = self.output.make_directory();
        made.map_err(|(path, error)| {
            format!("cannot make the output directory {}: {error}", path.display())
        })
    }

    /// When any of this must be looked after.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let feed = self.feed.as_ref().and_then(Feed::deadline);
        let told = self.launcher.due(self.job.counts());
        let prompt = self.output.prompt_in().map(|left| self.job.now().saturating_add(left));
        [self.job.machine.deadline(), feed, told, prompt].into_iter().flatten().min()
    }

    /// Tells the launcher's process how far the job has come.
    pub(crate) fn tell_progress(&mut self) {
        self.launcher.tell(self.job.counts(), self.job.now(), false);
    }

    /// The last words.
    pub(crate) fn report(mut self, orphans: u32, hosts: Vec<HostRecord>) -> Result<(), AgentError> {
        let told = self.launcher.report(&mut self.job, &self.output, orphans, hosts);
        told.map_err(|error| io("write the report")(std::io::Error::other(error)))
    }
}

/// A supervisor of a whole job.
pub(crate) trait Supervise<'a>: Role {
    fn control(&mut self) -> &mut Control<'a>;
    /// Carries out what was decided about the ranks.
    fn act(&mut self, action: Command);
    /// Nothing more is read from standard input.
    fn close_input(&mut self);

    /// One event through the machine, and everything that follows from it.
    fn event(&mut self, event: Event) {
        let control = self.control();
        if event != Event::Tick {
            control.say(2, || match &event {
                Event::Rank(event) => format!("event {event:?}"),
                event => format!("event {event:?}"),
            });
        }
        let mut actions = std::mem::take(&mut control.actions);
        control.job.handle(event, &mut actions);
        for action in actions.drain(..) {
            self.control().say(2, || format!("action {action:?}"));
            if matches!(
                action,
                Command::ExitDecision { .. } | Command::End(_) | Command::FindOrphans
            ) {
                self.close_input();
            } else if action == Command::Forward(libc::SIGCONT)
                && let Some(feed) = &mut self.control().feed
            {
                feed.unpark();
            }
            self.act(action);
        }
        self.control().actions = actions;
    }

    /// What ranks did, or what is taken for it.
    fn happened(&mut self, happened: &RankEvent) {
        self.control().job.note(happened);
        self.event(Event::Rank(happened.clone()));
        match *happened {
            RankEvent::Started { rank, pid, .. } => {
                if let Err(error) = self.control().output.adopt(rank) {
                    let text = format!("cannot make the output files of rank {rank}: {error}");
                    self.fail_start(Some(rank), CODE_LAUNCH, text);
                }
                self.control().say(1, || format!("rank {rank} runs as process {pid}"));
            }
            RankEvent::Ended { rank, end, .. } => {
                self.control().say(1, || format!("rank {rank} ended: {end:?}"));
            }
            _ => {}
        }
    }

    /// The job cannot be started.
    fn fail_start(&mut self, rank: Option<u32>, code: i32, text: String) {
        let failed = RankEvent::StartFailed { rank, code, text };
        self.control().job.note(&failed);
        self.event(Event::Rank(failed));
    }

    /// What the launcher's process says.
    fn hear_launcher(&mut self) {
        let control = self.control();
        for (event, sender) in control.launcher.hear(&control.poller) {
            if let (Event::Signal(signal), Some(sender)) = (&event, sender) {
                self.control().job.signal_sent_by(*signal, sender);
            }
            self.event(event);
        }
    }

    /// Reads our own signals. Whether children may have ended.
    fn own_signals(&mut self) -> bool {
        let control = self.control();
        let PendingSignals { child, orphan } =
            read_signals(&mut control.signals, control.launcher_pid);
        if orphan && let Some(lost) = control.launcher.lose(&control.poller) {
            self.event(lost);
        }
        child
    }
}
