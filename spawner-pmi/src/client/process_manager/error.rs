//! What goes wrong between a rank and the process manager that started it.

use bootstrap::service::Rank;

impl From<ProcessManagerError> for bootstrap::Error {
    fn from(error: ProcessManagerError) -> Self {
        Self::Provider(Box::new(error))
    }
}

/// Why a process manager cannot serve this job any more.
#[derive(Debug, thiserror::Error)]
pub enum ProcessManagerError {
    /// The connection to the process manager cannot be made or used.
    #[error("{manager}: cannot {operation}: {source}")]
    Os {
        /// ProcessManager.
        manager: &'static str,
        /// What was tried.
        operation: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The server closed the connection.
    #[error("{manager}: the server closed the connection during {during}")]
    Closed {
        /// ProcessManager.
        manager: &'static str,
        /// Command.
        during: &'static str,
    },
    /// The answer is not one.
    #[error("{manager}: the server's answer to {during} makes no sense ({problem}): {seen:?}")]
    Nonsense {
        /// ProcessManager.
        manager: &'static str,
        /// Command.
        during: &'static str,
        /// What is wrong.
        problem: String,
        /// The answer, cut.
        seen: String,
    },
    /// The server says no.
    #[error("{manager}: the server refused {during}: {reason}")]
    Refused {
        /// ProcessManager.
        manager: &'static str,
        /// Command.
        during: &'static str,
        /// What it said.
        reason: String,
    },
    /// The server speaks another version.
    #[error("{manager}: the server speaks version {seen}, this build {ours}; {advice}")]
    Version {
        /// ProcessManager.
        manager: &'static str,
        /// Version that the server names.
        seen: String,
        /// Version asked for.
        ours: &'static str,
        /// What to try.
        advice: &'static str,
    },
    /// Limits with which nothing can be exchanged.
    #[error(
        "{manager}: the server takes keys of {key} and values of {value} bytes, too little to exchange anything"
    )]
    Limits {
        /// ProcessManager.
        manager: &'static str,
        /// Bytes of a key.
        key: usize,
        /// Bytes of a value.
        value: usize,
    },
    /// A value that another host must have published is not there or not what it published.
    #[error("{manager}: key {key} of rank {from}: {problem}")]
    Value {
        /// ProcessManager.
        manager: &'static str,
        /// Key.
        key: String,
        /// Who published it.
        from: Rank,
        /// What is wrong.
        problem: String,
    },
    /// The process manager's map of hosts is not true.
    #[error(
        "{manager}: ranks {rank} and {other} share a host, says the process manager, but {problem}; unset or correct what overrides its layout"
    )]
    Map {
        /// ProcessManager.
        manager: &'static str,
        /// This rank.
        rank: Rank,
        /// The other one.
        other: Rank,
        /// What was found.
        problem: String,
    },
    /// Ranks of this host did not come.
    #[error(
        "{manager}: {missing} did not meet rank {leader} on host {host} within {waited_ms} ms (deadline {deadline}): they did not start the library, or run on another host than the process manager says"
    )]
    Absent {
        /// ProcessManager.
        manager: &'static str,
        /// Who.
        missing: String,
        /// Lowest rank of the host.
        leader: Rank,
        /// Name of the host.
        host: String,
        /// How long.
        waited_ms: u64,
        /// Bound.
        deadline: &'static str,
    },
    /// A rank ended without farewell.
    #[error("rank {rank} of host {host} ended without farewell")]
    Died {
        /// Who.
        rank: Rank,
        /// Where.
        host: String,
    },
    /// Launcher and process manager disagree on the number of ranks.
    #[error("{manager} started a job of {size} ranks, but {variable}={value:?}: {advice}")]
    Size {
        /// ProcessManager.
        manager: &'static str,
        /// Its number.
        size: u32,
        /// Who says otherwise.
        variable: &'static str,
        /// The other number.
        value: String,
        /// What would work.
        advice: &'static str,
    },
    /// A library that is opened at run time cannot be used.
    #[error("{manager}: {problem}; {advice}")]
    Library {
        /// ProcessManager.
        manager: &'static str,
        /// What was tried and how it failed.
        problem: String,
        /// What to try.
        advice: &'static str,
    },
}
