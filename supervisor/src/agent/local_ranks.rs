//! The ranks of this host: starts them, serves their bootstrap calls, reads their output, feeds
//! their input, signals and reaps them. What happens is told as [`RankEvent`]; what is to be done
//! is decided elsewhere, on this host or up the tree of hosts.

use std::collections::{HashMap, HashSet};

use nix::sys::signal::SigSet;
use nix::unistd::getpid;
use settings::log;
use spawner_ssh::diagnosis::Class;

use super::bootstrap_server::BootstrapServer;
use super::capture::{Capture, Outlet};
use super::input::{self, Readers};
use super::machine::{CODE_LAUNCH, Command, RankEvent, ending};
use super::pmi_server::PmiServer;
use super::pmix::State;
use super::processes;
use super::record::epoch_now;
use super::spawn::{SPAWN_BATCH, SpawnError, Spawner, Started};
use super::sys::{self, Reaped};
use crate::event_loop::{Poller, Ready, Token};
use crate::plan::JobPlan;
use crate::report::End;
use crate::watch::look::look;
use crate::watch::questions::{Seen, Subject};
use crate::watch::stacks::Looks;

/// Why no rank of this host can be started.
#[derive(Debug)]
pub(crate) struct Unready {
    pub(crate) text: String,
    /// Exit code that follows.
    pub(crate) code: i32,
    pub(crate) class: Class,
}

/// What is said where PMIx cannot be served.
pub(crate) fn no_pmix(why: &str) -> String {
    format!(
        "cannot serve PMIx: {why}; install libpmix (package libpmix2) on every host or name its folder in LD_LIBRARY_PATH, \
         start the job with -spawner=mpi, or say --pmi=off if ranks are no job of PMIx together"
    )
}

/// Ranks whose CPU times are sampled.
const CPU_SAMPLE: usize = 8;

/// What the ranks of a host that are not exiting have had of its CPUs since the first sample after
/// the last `Exiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct CpuSample {
    /// Whether one of them is ready to run.
    pub(crate) waiting: bool,
    /// CPU time that they have had together, nanoseconds.
    pub(crate) given: u64,
}

impl CpuSample {
    /// CPU time in which ranks that are about to exit with the others get to say so.
    const FAIR_SHARE_NS: u64 = 2_000_000;

    pub(crate) const fn is_starved(self) -> bool {
        self.waiting && self.given < Self::FAIR_SHARE_NS
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            waiting: self.waiting || other.waiting,
            given: self.given.saturating_add(other.given),
        }
    }
}

pub(crate) struct LocalRanks<'a> {
    plan: &'a JobPlan,
    /// Ranks may inherit standard input.
    own_input: bool,
    spawner: Option<Spawner<'a>>,
    pub(crate) boot: BootstrapServer,
    /// Serves ranks that are MPI programs, unless that is not wanted.
    pub(crate) pmi: Option<PmiServer>,
    pub(crate) capture: Capture,
    pub(crate) readers: Readers,
    /// Local rank of each running process.
    by_pid: HashMap<i32, u32>,
    /// By local rank: runs and has neither begun to exit nor said farewell.
    staying: Vec<bool>,
    next: u32,
    failed: bool,
    orphans: HashSet<i32>,
    exits_heard: u32,
    sampled_after: u32,
    cpu_times: HashMap<u32, u64>,
}

impl<'a> LocalRanks<'a> {
    /// The ranks that `boot` serves, none started.
    pub(crate) fn new(plan: &'a JobPlan, boot: BootstrapServer, own_input: bool) -> Self {
        let count = boot.share.ranks.len();
        Self {
            plan,
            own_input,
            spawner: None,
            pmi: PmiServer::of(plan, &boot.poller, &boot.share, &[], false),
            capture: Capture::new(&boot.poller),
            readers: Readers::new(&boot.poller),
            boot,
            by_pid: HashMap::with_capacity(count),
            staying: vec![false; count],
            next: 0,
            failed: false,
            orphans: HashSet::new(),
            exits_heard: 0,
            sampled_after: 0,
            cpu_times: HashMap::new(),
        }
    }

    /// What can fail before the first rank. `mask` is the ranks' signal mask.
    pub(crate) fn prepare(&mut self, mask: SigSet) -> Result<(), Unready> {
        for directory in self.plan.directories_of(&self.boot.share.ranks).iter().rev() {
            std::env::set_current_dir(directory).map_err(|error| {
                let text =
                    format!("cannot change to the directory {}: {error}", directory.display());
                Unready { text, code: CODE_LAUNCH, class: Class::Directory }
            })?;
        }
        let spawner = Spawner::new(self.plan, &self.boot.share, mask, self.own_input);
        self.spawner = Some(spawner.map_err(|error| {
            let limit = matches!(error, SpawnError::Limit(_));
            let class = if limit { Class::Limits } else { Class::Program };
            Unready { text: error.to_string(), code: error.code(), class }
        })?);
        if let Some(pmi) = &mut self.pmi {
            pmi.start_pmix(self.plan, &self.boot.share);
        }
        Ok(())
    }

    /// Whether PMIx can be served, if it is to be.
    pub(crate) fn pmix_state(&self) -> State {
        self.pmi.as_ref().map(PmiServer::pmix_state).unwrap_or_default()
    }

    /// When the server of PMIx is to be looked at.
    pub(crate) fn pmix_due(&self) -> Option<u64> {
        self.pmi.as_ref()?.pmix_due()
    }

    /// Looks whether the server of PMIx answers.
    pub(crate) fn look_at_pmix(&mut self) {
        if let Some(pmi) = &mut self.pmi {
            pmi.look_at_pmix();
        }
        self.take_pmi_events();
    }

    /// No rank of this host needs PMIx any more.
    pub(crate) fn close_pmix(&mut self) {
        if let Some(pmi) = &mut self.pmi {
            pmi.close_pmix(false);
        }
    }

    /// Whether ranks have to wait for the server of PMIx, or cannot have it.
    fn awaits_pmix(&mut self) -> bool {
        match self.pmix_state() {
            State::Ready => {}
            State::Starting => return true,
            State::Failed(why) => {
                if !std::mem::replace(&mut self.failed, true) {
                    let text = log::line(&no_pmix(&why)).into_owned();
                    let code = CODE_LAUNCH;
                    self.boot.events.push(RankEvent::StartFailed { rank: None, code, text });
                }
                return true;
            }
        }
        let variables = self.pmi.as_mut().and_then(PmiServer::take_variables);
        if let (Some(variables), Some(spawner)) = (variables, &mut self.spawner)
            && let Err(error) = spawner.give(variables)
        {
            self.not_started(0, error.code(), error.to_string());
            return true;
        }
        false
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.boot.share.count()
    }

    pub(crate) fn is_through(&self) -> bool {
        self.is_complete() && !self.failed && self.by_pid.is_empty()
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = u32> {
        self.by_pid.values().map(|local| self.boot.share.rank(*local))
    }

    pub(crate) fn orphans(&self) -> u32 {
        u32::try_from(self.orphans.len()).unwrap_or(u32::MAX)
    }

    /// What is to be said of processes that have outlived everything.
    pub(crate) fn given_up(&self) -> Option<String> {
        let pids: Vec<String> = self.by_pid.keys().map(ToString::to_string).collect();
        let text = || format!("gave up on processes that SIGKILL did not end: {}", pids.join(" "));
        (!pids.is_empty()).then(text)
    }

    /// No further rank will be started, and none reads any more.
    pub(crate) fn stop(&mut self) {
        self.spawner = None;
        self.readers.close();
    }

    /// Starts a few ranks; whether there are more.
    pub(crate) fn start_some(&mut self) -> bool {
        if self.spawner.is_some() && self.awaits_pmix() {
            return false;
        }
        let first = self.next;
        let until = first.saturating_add(SPAWN_BATCH).min(self.boot.share.count());
        let (plan, own, share) = (self.plan, self.own_input, &self.boot.share);
        let Some(spawner) = &mut self.spawner else { return false };
        let inputs = (first..until).map(|local| input::for_rank(plan, share.rank(local), own));
        for (local, started) in (first..).zip(spawner.start(first, inputs)) {
            match started {
                Ok(started) if !self.failed => self.adopt(local, started),
                // Made at the same time as one that failed: it does not belong to the job any more.
                Ok(started) => drop(sys::kill(-started.pid, libc::SIGKILL)),
                Err(error) => self.not_started(local, error.code(), error.to_string()),
            }
        }
        let more = !self.is_complete() && !self.failed;
        if !more {
            self.spawner = None;
        }
        more
    }

    fn adopt(&mut self, local: u32, started: Started) {
        self.next = local + 1;
        let rank = self.boot.share.rank(local);
        self.by_pid.insert(started.pid, local);
        self.staying[local as usize] = true;
        self.boot.events.push(RankEvent::Started { rank, pid: started.pid, at: epoch_now() });
        let served = self.boot.adopt(started.pid, started.socket);
        let served = served.and_then(|()| match (&mut self.pmi, started.pmi) {
            (Some(pmi), Some(socket)) => pmi.adopt(local, socket),
            _ => Ok(()),
        });
        let adopted =
            served.and_then(|()| self.capture.adopt(rank, started.stdout, started.stderr));
        if let Err(error) = adopted {
            self.not_started(local, CODE_LAUNCH, format!("cannot connect rank {rank}: {error}"));
        }
        if let Some(pipe) = started.stdin {
            self.readers.add(local, pipe);
        }
    }

    fn not_started(&mut self, local: u32, code: i32, text: String) {
        if !std::mem::replace(&mut self.failed, true) {
            let rank = Some(self.boot.share.rank(local));
            let text = log::line(&text).into_owned();
            self.boot.events.push(RankEvent::StartFailed { rank, code, text });
        }
    }

    pub(crate) fn serve(&mut self, ready: Ready, outlet: &mut dyn Outlet) {
        match ready.token {
            Token::Stream(local, which) => self.capture.readable(local, which, outlet),
            Token::Socket(local) => {
                if ready.writable {
                    self.boot.writable(local);
                }
                if ready.readable {
                    let from = self.boot.events.len();
                    self.boot.readable(local);
                    self.hear(from);
                }
            }
            Token::Pmi(local) => {
                if let Some(pmi) = &mut self.pmi {
                    pmi.serve(local, ready);
                }
                self.take_pmi_events();
            }
            Token::Pmix => {
                if let Some(pmi) = &mut self.pmi {
                    pmi.serve_pmix(ready);
                }
                self.take_pmi_events();
            }
            _ => {}
        }
    }

    /// What ranks that are MPI programs did comes among all that ranks did.
    pub(crate) fn take_pmi_events(&mut self) {
        if let Some(pmi) = &mut self.pmi {
            self.boot.events.append(&mut pmi.events);
        }
    }

    /// Who is exiting, of what the server has heard since it had `from` events.
    fn hear(&mut self, from: usize) {
        for event in &self.boot.events[from..] {
            if let RankEvent::Exiting { rank, .. } | RankEvent::Fini { rank, .. } = *event
                && let Some(local) = self.boot.share.local(rank)
            {
                self.exits_heard += u32::from(matches!(event, RankEvent::Exiting { .. }));
                self.staying[local as usize] = false;
            }
        }
    }

    /// Collects children that have ended: those that are no ranks, and whether any child is left.
    pub(crate) fn reap(&mut self) -> (Vec<(i32, End)>, bool) {
        let mut others = Vec::new();
        loop {
            match sys::reap() {
                Reaped::Child(pid, end) => match self.by_pid.remove(&pid) {
                    Some(local) => self.ended(local, end),
                    None if self.helper_ended(pid) => {}
                    None => others.push((pid, end)),
                },
                reaped => return (others, reaped == Reaped::Running),
            }
        }
    }

    /// Whether the child that has ended was the helper that serves PMIx.
    fn helper_ended(&mut self, pid: i32) -> bool {
        let was = self.pmi.as_mut().is_some_and(|pmi| pmi.child_ended(pid));
        self.take_pmi_events();
        was
    }

    fn ended(&mut self, local: u32, end: End) {
        // What the rank said before it ended comes first.
        let from = self.boot.events.len();
        self.boot.drain(local);
        self.hear(from);
        self.staying[local as usize] = false;
        if let Some(pmi) = &mut self.pmi {
            pmi.drain(local);
        }
        self.take_pmi_events();
        let rank = self.boot.share.rank(local);
        self.boot.events.push(RankEvent::Ended { rank, end, at: epoch_now() });
        if let Some(pmi) = &mut self.pmi {
            pmi.ended(local);
        }
        self.take_pmi_events();
        if self.is_through() {
            self.close_pmix();
        }
    }

    /// Carries out what was decided, here or by the root; what is asked is for the owner to answer.
    /// `spare` are processes of our own, not to be taken for what ranks left behind.
    pub(crate) fn act(&mut self, command: Command, spare: impl Fn(i32) -> bool) {
        match command {
            Command::ExitDecision { code, cause } => {
                self.stop();
                self.boot.publish_exit(code, cause);
            }
            Command::QuitUnclaimed => {
                for to in self.by_pid.values().filter_map(|local| self.boot.claim_quit(*local)) {
                    let _ = sys::kill(to, libc::SIGQUIT);
                }
            }
            Command::Forward(signal) => {
                self.to_groups(signal);
                // A stopped rank would not see it.
                if ending(signal) {
                    self.to_groups(libc::SIGCONT);
                }
            }
            Command::End(signal) => {
                self.stop();
                self.to_groups(signal);
                if signal == libc::SIGTERM {
                    self.to_groups(libc::SIGCONT);
                }
            }
            Command::FindOrphans => {
                self.stop();
                self.close_pmix();
            }
            Command::EndOrphans(signal) => {
                let helper = |pid| self.pmi.as_ref().is_some_and(|pmi| pmi.is_helper(pid));
                let left =
                    processes::descendants(getpid().as_raw(), |pid| spare(pid) || helper(pid));
                if let Some(pmi) = self.pmi.as_mut().filter(|_| signal == libc::SIGKILL) {
                    pmi.close_pmix(true);
                }
                for pid in left {
                    if self.orphans.insert(pid) || signal == libc::SIGKILL {
                        let _ = sys::kill(pid, signal);
                        let _ = sys::kill(pid, libc::SIGCONT);
                    }
                }
            }
            Command::SampleCpu { .. } | Command::Finish => {}
        }
    }

    fn to_groups(&self, signal: i32) {
        for pid in self.by_pid.keys() {
            // A rank that is a zombie already, or has changed its user: nothing more can be done
            // here.
            let _ = sys::kill(-pid, signal);
        }
    }

    /// What a program that watches the job wants to know of the ranks that run here; `None` when
    /// `looks` will tell later.
    pub(crate) fn look(
        &self,
        poller: &Poller,
        looks: &mut Looks,
        number: u32,
        subject: Subject,
    ) -> Option<Seen> {
        let mut locals: Vec<(u32, i32)> = self
            .by_pid
            .values()
            .filter_map(|local| Some((*local, self.boot.speaker(*local)?)))
            .collect();
        locals.sort_unstable();
        let rank = |local| self.boot.share.rank(local);
        match subject {
            Subject::Ranks => {
                let look = |(local, pid)| look(rank(local), pid, self.boot.activity(local));
                Some(Seen::Ranks(locals.into_iter().filter_map(look).collect()))
            }
            Subject::Stacks => {
                let ranks: Vec<_> =
                    locals.into_iter().map(|(local, pid)| (rank(local), pid)).collect();
                looks.begin(poller, number, &ranks).map(Seen::Stacks)
            }
        }
    }

    /// What ranks that are not exiting have had of the CPUs. The first sample after an `Exiting`
    /// notes what they have used; a later one sees what they got since. Together: while any of them
    /// is given CPUs and none joins the exit, the others wait for each other, not for the machine.
    pub(crate) fn sample_cpu(&mut self) -> CpuSample {
        let exits = self.exits_heard;
        if std::mem::replace(&mut self.sampled_after, exits) != exits {
            self.cpu_times.clear();
        }
        // A sample: an agent that reads much is itself put behind computing ranks by a fair
        // scheduler.
        let staying = (0u32..).zip(&self.staying).filter(|(_, stays)| **stays);
        let staying: Vec<u32> = staying.map(|(local, _)| local).collect();
        let step = staying.len().div_ceil(CPU_SAMPLE).max(1);
        let mut sample = CpuSample::default();
        for &local in staying.iter().step_by(step) {
            let Some((ready, time)) = self.boot.speaker(local).and_then(processes::activity) else {
                continue;
            };
            let before = *self.cpu_times.entry(local).or_insert(time);
            sample.waiting |= ready;
            sample.given += time.saturating_sub(before);
        }
        CpuSample { given: sample.given.saturating_mul(step as u64), ..sample }
    }
}
