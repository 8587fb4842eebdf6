//! What goes wrong between a rank and the process manager that started it.

use bootstrap::service::Rank;

impl From<ProcessManagerError> for bootstrap::Error {
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
