//! What became of a job. Plain data; the launcher prints it and writes it as JSON.

use bootstrap::ExitPath;
use serde::{Deserialize, Serialize};

pub use spawner_ssh::End;
use spawner_ssh::diagnosis::{Failure, Step};

/// One rank's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    /// Rank.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Process id, absent when the rank never started.
    pub pid: Option<i32>,
    /// Seconds since the epoch.
    pub started: Option<f64>,
    /// Seconds since the epoch.
    pub ended: Option<f64>,
    /// How it ended.
    pub end: Option<End>,
    /// Whether it opened the bootstrap.
    pub hello: bool,
    /// Whether it ended because the launcher ended it.
    pub killed_by_launcher: bool,
}

/// How far the start of one host came. Of a job on the launching host alone there are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Its name.
    pub host: String,
    /// The step that it reached, or that failed.
    pub step: Step,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// Kind of event that ended the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// A rank exited with a non-zero code without coordination.
    ExitCode,
    /// A rank died of a signal.
    Signal,
    /// A rank exited alone (by `gasnet_exit`, return from main, or a termination signal) while
    /// others went on.
    #[serde(rename = "lone_exit")]
    NonCollectiveExit,
    /// A rank opened the bootstrap and ended without finishing it.
    NoFini,
    /// A rank that is an MPI program ended with status 0 without `MPI_Finalize`.
    NoMpiFinalize,
    /// A rank sent what no PMI client sends, or waited by PMI for a rank that had ended.
    Pmi,
    /// A rank asked to abort the job.
    Abort,
    /// The collective exit had a non-zero code.
    CollectiveExit,
    /// A signal sent to the launcher.
    LauncherSignal,
    /// The job's time limit.
    Timeout,
    /// A rank could not be started.
    Start,
    /// A rank broke the bootstrap protocol.
    Protocol,
    /// The agent itself ended.
    AgentLost,
    /// A rank of a job that would have been a success did not end, not even by SIGKILL.
    Unkillable,
}

/// The first cause of a job's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Kind.
    pub kind: CauseKind,
    /// Rank, if one caused it.
    pub rank: Option<u32>,
    /// Its host.
    pub host: Option<String>,
    /// Its process id.
    pub pid: Option<i32>,
    /// Exit code of the job that follows from it.
    pub code: i32,
    /// Signal, if there was one.
    pub signal: Option<i32>,
    /// How an exit began, for the text; stays in the process that decides.
    #[serde(skip)]
    pub path: Option<ExitPath>,
    /// What happened, one line. The report has it, and host, process and last lines.
    pub text: String,
    /// Last lines of the rank's standard error.
    pub stderr_tail: Vec<String>,
}

impl Cause {
    /// What is known when the job's end is decided; the report adds the rest.
    #[must_use]
    pub const fn new(kind: CauseKind, rank: Option<u32>, code: i32) -> Self {
        Self {
            kind,
            rank,
            host: None,
            pid: None,
            code,
            signal: None,
            path: None,
            text: String::new(),
            stderr_tail: Vec::new(),
        }
    }
}

/// Times of the phases of a job, in seconds since the launcher began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Before the first rank was started.
    pub prepare: f64,
    /// Until the last rank was started.
    pub spawn: f64,
    /// Until every rank had opened the bootstrap, if all did.
    pub hello: Option<f64>,
    /// Until the first sign of the end (first `Exiting`, first death, signal, timeout).
    pub end_begins: Option<f64>,
    /// Until the last rank was reaped and the output drained.
    pub done: f64,
}

/// The whole report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Job id.
    pub job: String,
    /// Exit code of the launcher.
    pub exit_code: i32,
    /// Absent when the job ended well.
    pub cause: Option<Cause>,
    /// One record per rank, by rank.
    pub ranks: Vec<RankRecord>,
    /// Phase times.
    pub phases: Phases,
    /// Descendants that were still alive at the end and had to be killed.
    #[serde(rename = "strays_killed")]
    pub orphans_killed: u32,
    /// One record per host of a job with other hosts.
    #[serde(default)]
    pub hosts: Vec<HostRecord>,
    /// The ranks were asked for a checkpoint and left in good order.
    #[serde(default)]
    pub checkpointed: bool,
    /// Looks at the clocks of those hosts, in order, when events of ranks were recorded.
    #[serde(default)]
    pub clocks: Vec<crate::trace::ClockSample>,
}
