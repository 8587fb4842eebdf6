//! What is to be started. Plain data made by the launcher; nothing here touches the system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bootstrap::Rank;

/// Who gets the launcher's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinTo {
    /// Nobody: every rank reads an empty file.
    None,
    /// Every rank gets a copy of every byte; the slowest reader sets the pace.
    All,
    /// One rank (the default is rank 0); the others read an empty file.
    Rank(Rank),
}

/// What is done with the ranks' standard output and error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputPlan {
    /// Put `[rank] ` in front of every line.
    pub tag: bool,
    /// Put the time of day in front of every line.
    pub timestamp: bool,
    /// Also write each rank's streams, untouched, to `rank.N.out` and `rank.N.err` in this directory (made if missing).
    pub directory: Option<PathBuf>,
}

/// Everything the agent of one host needs to know.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Unique text for this job, for messages and reports.
    pub job_id: String,
    /// Ranks in the job; all are on this host for now.
    pub size: u32,
    /// Name of this host, for messages.
    pub host: String,
    /// Absolute path of the file to execute (the wrapper when there is one).
    pub program: PathBuf,
    /// Argument vector, with word 0.
    pub argv: Vec<OsString>,
    /// Complete environment of the ranks, without the per-rank variables that the agent adds.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory of the ranks.
    pub directory: PathBuf,
    /// CPU set of each rank (logical numbers); empty = leave the binding alone.
    pub cpus: Vec<Vec<usize>>,
    /// Standard input.
    pub stdin: StdinTo,
    /// Standard output and error.
    pub output: OutputPlan,
    /// The job's time limit.
    pub timeout: Option<Duration>,
    /// Bound on exit coordination (`GASNET_EXITTIMEOUT` family).
    pub exit_bound: Duration,
    /// Whether the program carries the conduit's identification string; decides the wording of messages.
    pub conduit_program: bool,
    /// Verbosity: 0 quiet, 1 life-cycle lines, 2 every frame and signal, on standard error.
    pub verbose: u8,
}
