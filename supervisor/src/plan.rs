//! What is to be started. Plain data made by the launcher; nothing here touches the system.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bootstrap::Rank;

pub use spawner_ssh::{HostEntry, Ssh, StageMode};

pub use crate::binding::{Binding, Part, Spread};
pub use crate::map::{Map, MapError, Place};

/// Who gets the launcher's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StdinTo {
    /// Nobody: every rank reads an empty file.
    #[default]
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
    /// Also write each rank's streams, untouched, to `rank.N.out` and `rank.N.err` in this
    /// directory (made if missing).
    pub directory: Option<PathBuf>,
}

/// Everything the agent of one host needs to know.
#[derive(Clone, Debug, Default)]
pub struct JobPlan {
    /// Unique text for this job, for messages and reports.
    pub job_id: String,
    /// Ranks in the job.
    pub size: u32,
    /// Name of this host, for messages.
    pub host: String,
    /// Where each rank runs; `size` ranks.
    pub map: Map,
    /// Absolute path of the file to execute (the wrapper when there is one).
    pub program: PathBuf,
    /// Which word of `argv` is the GASNet program; 0: the one that is executed, which need not be
    /// one.
    pub program_word: usize,
    /// Argument vector, with word 0.
    pub argv: Vec<OsString>,
    /// Complete environment of the ranks, without the per-rank variables that the agent adds.
    pub env: Vec<(OsString, OsString)>,
    /// What ranks on other hosts get on top of what a login there sets; it wins over that.
    pub env_for_hosts: Vec<(OsString, OsString)>,
    /// Working directory of the ranks.
    pub directory: PathBuf,
    /// CPU set of each rank on this host (logical numbers), by rank; empty = leave the binding
    /// alone. Of a job with other hosts it is empty: there each host's agent binds by
    /// `binding`.
    pub cpus: Vec<Vec<usize>>,
    /// How the ranks of each host use its cpus.
    pub binding: Binding,
    /// How other hosts are reached.
    pub reach: Reach,
    /// Standard input.
    pub stdin: StdinTo,
    /// Standard output and error.
    pub output: OutputPlan,
    /// The job's time limit.
    pub timeout: Option<Duration>,
    /// Bound on exit coordination (`GASNET_EXITTIMEOUT` family).
    pub exit_bound: Duration,
    /// Whether the program carries the conduit's identification string; decides the wording of
    /// messages.
    pub conduit_program: bool,
    /// The program is another launcher, which starts the ranks: it gets neither our variables nor a
    /// socket.
    pub foreign: bool,
    /// Where ranks leave traces and counters, if those are wanted.
    pub trace: Option<crate::trace::Memory>,
    /// Verbosity: 0 quiet, 1 life-cycle lines, 2 every frame and signal, on standard error.
    pub verbose: u8,
}

/// How other hosts are reached: the `GASNET_SSH_*` variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// How agents start further agents. Where their program should be is known to the supervisor.
    pub ssh: Ssh,
    /// Working directory on other hosts instead of the plan's (`GASNET_SSH_REMOTE_PATH`).
    pub directory: Option<PathBuf>,
    /// Bound on the start of all agents; none = the default of
    /// [`settings::deadlines::tree::START`].
    pub start_timeout: Option<Duration>,
}

impl JobPlan {
    /// A plan with everything at its default: empty environment, directory `/`, host `localhost`,
    /// standard input to rank 0, no binding, no time limit, an exit bound of 6 s. `program` is the
    /// file, `argv` the words with word 0.
    #[must_use]
    pub fn new(size: u32, program: PathBuf, argv: Vec<OsString>) -> Self {
        Self {
            job_id: "job".to_owned(),
            size,
            host: "localhost".to_owned(),
            map: Map::here("localhost", size),
            program,
            argv,
            directory: PathBuf::from("/"),
            stdin: StdinTo::Rank(Rank(0)),
            exit_bound: Duration::from_secs(6),
            ..Self::default()
        }
    }
}
