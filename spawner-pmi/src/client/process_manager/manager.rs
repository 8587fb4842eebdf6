//! What a process manager offers to the services, and what goes wrong with it.

use bootstrap::service::{Error, HostId, Rank};
use bootstrap::wait::Watch;

use super::finalize::Finalization;

/// Nothing to watch.
pub const fn unwatched() -> impl FnMut() -> Result<(), Error> {
    || Ok(())
}

/// Who a rank is, by its process manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInfo {
    /// ProcessManager, as in messages.
    pub manager: &'static str,
    /// This rank.
    pub rank: Rank,
    /// Ranks of the job.
    pub size: u32,
    /// Text that no other job at the same time has.
    pub job: String,
    /// Bytes of a value that the server keeps.
    pub value_limit: usize,
}

/// One rank's connection to the process manager that started it. After an error no further call is
/// possible.
pub trait ProcessManager: Send {
    /// Constant.
    fn job_info(&self) -> &JobInfo;

    /// Host of every rank, if the process manager knows it.
    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error>;

    /// Puts a value; others may read it after the next fence and after the one that follows. A key
    /// is put once in a job.
    fn put(&mut self, key: &str, value: &str) -> Result<(), Error>;

    /// Collective over the job: what was put before can be read after it. `watch` is asked
    /// every [`settings::deadlines::bootstrap::PM_WATCH`] or more often.
    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error>;

    /// The value that `from` put before the last fence, or before the one before that.
    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error>;

    /// How this rank leaves.
    fn finalization(&self) -> &'static Finalization;
}

impl From<ProcessManagerError> for Error {
    fn from(error: ProcessManagerError) -> Self {
        Self::Provider(Box::new(error))
    }
}

/// Why a process manager cannot serve this job any more.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum ProcessManagerError {
    /// The connection to the process manager cannot be made or used.
    #[error("{manager}: cannot {operation}: {source}")]
    Os { manager: &'static str, operation: String, source: std::io::Error },
    /// The server closed the connection.
    #[error("{manager}: the server closed the connection during {during}")]
    Closed { manager: &'static str, during: &'static str },
    /// The answer is not one.
    #[error("{manager}: the server's answer to {during} makes no sense ({problem}): {seen:?}")]
    Nonsense { manager: &'static str, during: &'static str, problem: String, seen: String },
    /// The server says no.
    #[error("{manager}: the server refused {during}: {reason}")]
    Refused { manager: &'static str, during: &'static str, reason: String },
    /// The server speaks another version.
    #[error("{manager}: the server speaks version {seen}, this build {ours}; {advice}")]
    Version { manager: &'static str, seen: String, ours: &'static str, advice: &'static str },
    /// Limits with which nothing can be exchanged.
    #[error(
        "{manager}: the server takes keys of {key} and values of {value} bytes, too little to exchange anything"
    )]
    Limits { manager: &'static str, key: usize, value: usize },
    /// A value that another host must have published is not there or not what it published.
    #[error("{manager}: key {key} of rank {from}: {problem}")]
    Value { manager: &'static str, key: String, from: Rank, problem: String },
    /// The process manager's map of hosts is not true.
    #[error(
        "{manager}: ranks {rank} and {other} share a host, says the process manager, but {problem}; unset or correct what overrides its layout"
    )]
    Map { manager: &'static str, rank: Rank, other: Rank, problem: String },
    /// Ranks of this host did not come.
    #[error(
        "{manager}: {missing} did not meet rank {leader} on host {host} within {waited_ms} ms (deadline {deadline}): they did not start the library, or run on another host than the process manager says"
    )]
    Absent {
        manager: &'static str,
        missing: String,
        leader: Rank,
        host: String,
        waited_ms: u64,
        deadline: &'static str,
    },
    /// A rank ended without farewell.
    #[error("rank {rank} of host {host} ended without farewell")]
    Died { rank: Rank, host: String },
    /// Launcher and process manager disagree on the number of ranks.
    #[error("{manager} started a job of {size} ranks, but {variable}={value:?}: {advice}")]
    Size {
        manager: &'static str,
        size: u32,
        variable: &'static str,
        value: String,
        advice: &'static str,
    },
    /// A library that is opened at run time cannot be used.
    #[error("{manager}: {problem}; {advice}")]
    Library { manager: &'static str, problem: String, advice: &'static str },
}
