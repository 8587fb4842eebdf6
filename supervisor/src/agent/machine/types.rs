//! What the machine is told, and what it wants done.

use crate::agent::rank_event::RankEvent;

/// What the plan says about time.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Bound on exit coordination, milliseconds.
    pub exit_bound: u64,
    /// When the job's time is up, on the driver's clock.
    pub timeout_at: Option<u64>,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A rank did something, or something was done to it.
    Rank(RankEvent),
    /// A host of the job cannot be reached any more.
    HostLost {
        /// Nothing had been heard from it for so many milliseconds.
        silent: u64,
    },
    /// The launcher got a signal.
    Signal(i32),
    /// The launcher is gone.
    LauncherLost,
    /// Answer to [`Command::SampleCpu`]: whether ranks that are not exiting are ready to run, and
    /// together have had next to no CPU time since the first sample after the last `Exiting`.
    CpuSampled {
        /// Whether it is so.
        starved: bool,
    },
    /// Answer to [`Command::FindOrphans`], and again whenever a process left behind was reaped:
    /// whether any is left.
    Orphans {
        /// Whether there are children besides the ranks.
        left: bool,
    },
    /// Time passed.
    Tick,
}

/// What the driver must do with the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Command {
    /// Put the decision into the node memory.
    ExitDecision {
        /// Code to leave with.
        code: i32,
        /// Rank that caused it.
        cause: Option<u32>,
    },
    /// An exit is about to count as non-collective: say with [`Event::CpuSampled`] whether the
    /// other ranks had a chance to join it.
    SampleCpu,
    /// SIGQUIT to every running rank whose ack can still be claimed.
    QuitUnclaimed,
    /// Pass a signal of the user on to every running rank's group.
    Forward(i32),
    /// TERM (with CONT, so that stopped processes see it) or KILL to every running rank's group.
    End(i32),
    /// Every rank is gone: say with [`Event::Orphans`] whether they left processes behind.
    FindOrphans,
    /// TERM or KILL to the processes left behind.
    EndOrphans(i32),
    /// All done: drain the output and report. Nothing follows.
    Finish,
}
