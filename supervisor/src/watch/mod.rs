//! Jobs that are watched while they run: what `gasnetrun_ibv ps`, `top`, `kill`, `attach` and
//! `stacks` ask, and how a job answers.
//!
//! ```text
//! gasnetrun_ibv top ─ client ─> socket of the job (place) ─> server in the job's supervisor
//!                                                              │ job, signal: answered there
//!                                                              └ ranks, stacks: every host looks (look, stacks)
//! ```
//!
//! A question is one line of JSON, and so is its answer ([`Ask`], [`Answer`]). Questions about ranks
//! are put to all hosts at once (`questions`); hosts that do not answer in time are named.

pub mod client;
pub(crate) mod look;
pub mod place;
pub(crate) mod questions;
pub(crate) mod server;
pub mod stacks;
pub(crate) mod stall;
mod unwind;

use bootstrap::trace::Cause;
use serde::{Deserialize, Serialize};

use crate::plan::HostEntry;
use crate::report::End;
pub use stacks::{Group, Stack, grouped, lines};

/// Ranks that one answer names at most.
pub const MOST_RANKS: usize = 1 << 16;

/// A question about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// What the job is.
    Job,
    /// What each rank does.
    Ranks,
    /// Where each rank is in its program.
    Stacks,
    /// Sends the ranks a signal, as if the launcher had got it.
    Signal {
        /// Its number.
        number: i32,
    },
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To [`Ask::Job`].
    Job(JobView),
    /// To [`Ask::Ranks`]. Hosts that did not answer are named.
    Ranks {
        /// At most [`MOST_RANKS`], ascending.
        ranks: Vec<RankView>,
        /// Hosts that did not answer in time.
        silent: Vec<String>,
    },
    /// To [`Ask::Stacks`].
    Stacks {
        /// Of the ranks that run.
        stacks: Vec<Stack>,
        /// Hosts that did not answer in time.
        silent: Vec<String>,
    },
    /// To [`Ask::Signal`]: it is on its way.
    Sent,
    /// The question was not understood, or cannot be answered; why.
    Refused(String),
}

/// A job as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its name.
    pub job: String,
    /// Process of the launcher.
    pub launcher: i32,
    /// What runs: the words of the program.
    pub command: Vec<String>,
    /// Ranks of the job.
    pub ranks: u32,
    /// Its hosts, by number.
    pub hosts: Vec<String>,
    /// How they were logged in to, by number; empty for a job on this host alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logins: Vec<HostEntry>,
    /// Seconds since the launcher began.
    pub seconds: f64,
    /// Ranks that were started, that opened the bootstrap, and that have ended.
    pub started: u32,
    /// See [`JobView::started`].
    pub hello: u32,
    /// See [`JobView::started`].
    pub ended: u32,
    /// The job is being ended.
    pub ending: bool,
}

/// What a rank does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RankState {
    /// It has no process yet.
    Pending,
    /// Its process runs and has not opened the bootstrap, which a GASNet program will.
    Starting,
    /// It runs, or is ready to.
    Computing,
    /// It sleeps in a system call of its own.
    Sleeping,
    /// It waits inside the library for this.
    Waiting(Cause),
    /// It was stopped by a signal or a debugger.
    Stopped,
    /// It has begun to exit.
    Exiting,
    /// Its process has ended.
    Ended(End),
    /// Its host did not answer.
    Unknown,
}

impl std::fmt::Display for RankState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pending => f.write_str("not started"),
            Self::Starting => f.write_str("starting"),
            Self::Computing => f.write_str("computing"),
            Self::Sleeping => f.write_str("sleeping"),
            Self::Waiting(cause) => f.write_str(wait_text(*cause)),
            Self::Stopped => f.write_str("stopped"),
            Self::Exiting => f.write_str("exiting"),
            Self::Ended(End::Code(code)) => write!(f, "ended with {code}"),
            Self::Ended(End::Signal(signal)) => write!(f, "killed by {signal}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// What a wait is for, in words for people.
const fn wait_text(cause: Cause) -> &'static str {
    match cause {
        Cause::Barrier => "in barrier",
        Cause::Collective => "in collective",
        Cause::Event => "waits for operations",
        Cause::Condition => "waits for messages",
        Cause::Room => "waits for room",
        Cause::Credit => "waits for credits",
        Cause::Connection => "waits for a connection",
        _ => "waits for resources",
    }
}

/// A rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankView {
    /// Its number.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
    /// Its process there.
    pub pid: Option<i32>,
    /// What it does.
    pub state: RankState,
    /// Processor time that it has had, milliseconds.
    pub cpu_ms: u64,
    /// Resident memory, KiB.
    pub resident_kib: u64,
    /// Active messages that it has taken.
    pub messages: u64,
}
