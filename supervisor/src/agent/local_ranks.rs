//! The ranks of this host: starts them, serves their bootstrap calls, reads their output, feeds
//! their input, signals and reaps them. What happens is told as [`RankEvent`]; what is to be done
//! is decided elsewhere, on this host or up the tree of hosts.

use std::collections::{HashMap, HashSet};

use nix::sys::signal::SigSet;
use nix::unistd::getpid;

use super::bootstrap_server::BootstrapServer;
use super::capture::{Capture, Outlet};
use super::host_ranks::HostRanks;
use super::input::{self, Readers, Stdin};
use super::machine::CODE_LAUNCH;
use super::processes;
use super::rank_event::RankEvent;
use super::record::epoch_now;
use super::spawn::{SpawnError, Spawner, Started};
use super::sys::{self, Reaped};
use crate::event_loop::{Poller, Ready, Token};
use crate::plan::JobPlan;
use crate::report::End;

/// Ranks started at the same time, between two rounds of the event loop.
const SPAWN_BATCH: u32 = 16;
/// Ranks whose CPU times are sampled.
const LOOK_SAMPLE: usize = 8;

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

    /// Whether they are only waiting for a CPU.
    pub(crate) const fn is_starved(self) -> bool {
        self.waiting && self.given < Self::FAIR_SHARE_NS
    }

    /// Both together.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            waiting: self.waiting || other.waiting,
            given: self.given.saturating_add(other.given),
        }
    }
}

/// What a round of reaping found besides ranks.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// Children that ended and are no ranks.
    pub(crate) ended: Vec<(i32, End)>,
    /// Whether any child is left.
    pub(crate) left: bool,
}

/// See the module.
pub(crate) struct LocalRanks<'a> {
    plan: &'a JobPlan,
    share: HostRanks,
    stdin: Stdin,
    spawner: Option<Spawner<'a>>,
    pub(crate) boot: BootstrapServer,
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
    looked_after: u32,
    cpu_times: HashMap<u32, u64>,
}

impl<'a> LocalRanks<'a> {
    /// The ranks of `share`, none started. `stdin` says what the launcher's standard input is here.
    pub(crate) fn new(
        plan: &'a JobPlan,
        share: HostRanks,
        boot: BootstrapServer,
        stdin: Stdin,
    ) -> Self {
        let count = share.ranks.len();
        Self {
            plan,
            share,
            stdin,
            spawner: None,
            boot,
            capture: Capture::new(),
            readers: Readers::default(),
            by_pid: HashMap::with_capacity(count),
            staying: vec![false; count],
            next: 0,
            failed: false,
            orphans: HashSet::new(),
            exits_heard: 0,
            looked_after: 0,
            cpu_times: HashMap::new(),
        }
    }

    /// What can fail before the first rank; the error with the exit code that follows. `mask` is
    /// the ranks' signal mask.
    pub(crate) fn prepare(&mut self, mask: SigSet) -> Result<(), (String, i32)> {
        let directory = &self.plan.directory;
        std::env::set_current_dir(directory).map_err(|error| {
            let text = format!("cannot change to the directory {}: {error}", directory.display());
            (text, CODE_LAUNCH)
        })?;
        let spawner = Spawner::new(self.plan, &self.share, mask);
        self.spawner = Some(spawner.map_err(|error| (error.to_string(), error.code()))?);
        Ok(())
    }

    /// Ranks of this host.
    pub(crate) const fn share(&self) -> &HostRanks {
        &self.share
    }

    /// Whether every rank of this host was started.
    pub(crate) fn is_complete(&self) -> bool {
        self.next == self.share.count()
    }

    /// Whether every rank of this host was started and has ended.
    pub(crate) fn is_through(&self) -> bool {
        self.is_complete() && !self.failed && self.by_pid.is_empty()
    }

    /// Process ids of the ranks that run.
    pub(crate) fn pids(&self) -> impl Iterator<Item = i32> {
        self.by_pid.keys().copied()
    }

    /// Ranks that run.
    pub(crate) fn running(&self) -> impl Iterator<Item = u32> {
        self.by_pid.values().map(|local| self.share.rank(*local))
    }

    /// Processes that ranks left behind and that had to be ended.
    pub(crate) fn orphans(&self) -> u32 {
        u32::try_from(self.orphans.len()).unwrap_or(u32::MAX)
    }

    /// No further rank will be started.
    pub(crate) fn stop(&mut self) {
        self.spawner = None;
    }

    /// Starts a few ranks; whether there are more.
    pub(crate) fn start_some(&mut self, poller: &Poller, out: &mut Vec<RankEvent>) -> bool {
        let first = self.next;
        let until = first.saturating_add(SPAWN_BATCH).min(self.share.count());
        let Some(spawner) = &mut self.spawner else { return false };
        let (plan, stdin) = (self.plan, self.stdin);
        let share = &self.share;
        let inputs = (first..until).map(|local| input::for_rank(plan, share.rank(local), stdin));
        for (local, started) in (first..).zip(spawner.start(first, inputs)) {
            match started {
                Ok(started) if !self.failed => self.adopt(poller, local, started, out),
                // Made at the same time as one that failed: it does not belong to the job any more.
                Ok(started) => drop(sys::kill(-started.pid, libc::SIGKILL)),
                Err(error) => self.not_started(local, &error, out),
            }
        }
        let more = !self.is_complete() && !self.failed;
        if !more {
            self.spawner = None;
        }
        more
    }

    /// Takes a new rank in.
    fn adopt(&mut self, poller: &Poller, local: u32, started: Started, out: &mut Vec<RankEvent>) {
        self.next = local + 1;
        let rank = self.share.rank(local);
        self.by_pid.insert(started.pid, local);
        self.staying[local as usize] = true;
        out.push(RankEvent::Started { rank, pid: started.pid, at: epoch_now() });
        let adopted = self
            .boot
            .adopt(poller, started.pid, started.socket)
            .and_then(|()| self.capture.adopt(poller, rank, started.stdout, started.stderr));
        if let Err(error) = adopted {
            let text = format!("cannot connect rank {rank}: {error}");
            self.failed = true;
            out.push(RankEvent::StartFailed { rank: Some(rank), code: CODE_LAUNCH, text });
        }
        if let Some(pipe) = started.stdin {
            self.readers.add(local, pipe);
        }
    }

    fn not_started(&mut self, local: u32, error: &SpawnError, out: &mut Vec<RankEvent>) {
        if !std::mem::replace(&mut self.failed, true) {
            let rank = Some(self.share.rank(local));
            let (code, text) = (error.code(), error.to_string());
            out.push(RankEvent::StartFailed { rank, code, text });
        }
    }

    /// Serves a descriptor of ours that is ready.
    pub(crate) fn serve(
        &mut self,
        poller: &Poller,
        ready: Ready,
        outlet: &mut dyn Outlet,
        out: &mut Vec<RankEvent>,
    ) {
        match ready.token {
            Token::Stream(local, which) => self.capture.readable(poller, local, which, outlet),
            Token::Socket(local) => {
                if ready.writable {
                    self.boot.writable(poller, local);
                }
                if ready.readable {
                    let from = out.len();
                    self.boot.readable(poller, local, out);
                    self.hear(&out[from..]);
                }
            }
            _ => {}
        }
    }

    fn hear(&mut self, events: &[RankEvent]) {
        for event in events {
            let Some(local) = event.rank().and_then(|rank| self.share.local(rank)) else {
                continue;
            };
            match event {
                RankEvent::Exiting { .. } => {
                    self.exits_heard += 1;
                    self.staying[local as usize] = false;
                }
                RankEvent::Fini { .. } => self.staying[local as usize] = false,
                _ => {}
            }
        }
    }

    /// Collects children that have ended.
    pub(crate) fn reap(&mut self, poller: &Poller, out: &mut Vec<RankEvent>) -> Others {
        let mut others = Others::default();
        others.left = loop {
            match sys::reap() {
                Reaped::Child(pid, end) => match self.by_pid.remove(&pid) {
                    Some(local) => self.ended(poller, local, end, out),
                    None => others.ended.push((pid, end)),
                },
                Reaped::Running => break true,
                Reaped::NoChildren => break false,
            }
        };
        others
    }

    fn ended(&mut self, poller: &Poller, local: u32, end: End, out: &mut Vec<RankEvent>) {
        // What the rank said before it ended comes first.
        let from = out.len();
        self.boot.drain(poller, local, out);
        self.hear(&out[from..]);
        self.staying[local as usize] = false;
        out.push(RankEvent::Ended { rank: self.share.rank(local), end, at: epoch_now() });
    }

    /// SIGQUIT to every running rank whose ack can still be claimed.
    pub(crate) fn quit_unclaimed(&self) {
        for to in self.by_pid.values().filter_map(|local| self.boot.claim_quit(*local)) {
            let _ = sys::kill(to, libc::SIGQUIT);
        }
    }

    /// A signal to every running rank's group.
    pub(crate) fn to_groups(&self, signal: i32) {
        for pid in self.by_pid.keys() {
            // A rank that is a zombie already, or has changed its user: nothing more can be done
            // here.
            let _ = sys::kill(-pid, signal);
        }
    }

    /// TERM (with CONT, so that stopped processes see it) or KILL to every running rank's group.
    pub(crate) fn end(&self, signal: i32) {
        self.to_groups(signal);
        if signal == libc::SIGTERM {
            self.to_groups(libc::SIGCONT);
        }
    }

    /// TERM or KILL to what the ranks left behind; `spare` are processes of our own with all that
    /// they started.
    pub(crate) fn end_orphans(&mut self, signal: i32, spare: impl Fn(i32) -> bool) {
        for pid in processes::descendants(getpid().as_raw(), spare) {
            if self.orphans.insert(pid) || signal == libc::SIGKILL {
                let _ = sys::kill(pid, signal);
                let _ = sys::kill(pid, libc::SIGCONT);
            }
        }
    }

    /// What ranks that are not exiting have had of the CPUs. The first sample after an `Exiting`
    /// notes what they have used; a later one sees what they got since. Together: while any of them
    /// is given CPUs and none joins the exit, the others wait for each other, not for the machine.
    pub(crate) fn sample_cpu(&mut self) -> CpuSample {
        let exits = self.exits_heard;
        if std::mem::replace(&mut self.looked_after, exits) != exits {
            self.cpu_times.clear();
        }
        // A sample: an agent that reads much is itself put behind computing ranks by a fair
        // scheduler.
        let staying = (0u32..).zip(&self.staying).filter(|(_, stays)| **stays);
        let staying: Vec<u32> = staying.map(|(local, _)| local).collect();
        let step = staying.len().div_ceil(LOOK_SAMPLE).max(1);
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
