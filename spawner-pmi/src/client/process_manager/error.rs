//! What goes wrong between a rank and the engine that started it.

use bootstrap::service::Rank;

impl From<EngineError> for bootstrap::Error {
    fn from(error: EngineError) -> Self {
        Self::Provider(Box::new(error))
    }
}

/// Why an engine cannot serve this job any more.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The connection to the engine cannot be made or used.
    #[error("{engine}: cannot {operation}: {source}")]
    Os {
        /// Engine.
        engine: &'static str,
        /// What was tried.
        operation: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The server closed the connection.
    #[error("{engine}: the server closed the connection during {during}")]
    Closed {
        /// Engine.
        engine: &'static str,
        /// Command.
        during: &'static str,
    },
    /// The answer is not one.
    #[error("{engine}: the server's answer to {during} makes no sense ({problem}): {seen:?}")]
    Nonsense {
        /// Engine.
        engine: &'static str,
        /// Command.
        during: &'static str,
        /// What is wrong.
        problem: String,
        /// The answer, cut.
        seen: String,
    },
    /// The server says no.
    #[error("{engine}: the server refused {during}: {reason}")]
    Refused {
        /// Engine.
        engine: &'static str,
        /// Command.
        during: &'static str,
        /// What it said.
        reason: String,
    },
    /// The server speaks another version.
    #[error("{engine}: the server speaks version {seen}, this build {ours}; {advice}")]
    Version {
        /// Engine.
        engine: &'static str,
        /// Version that the server names.
        seen: String,
        /// Version asked for.
        ours: &'static str,
        /// What to try.
        advice: &'static str,
    },
    /// Limits with which nothing can be exchanged.
    #[error(
        "{engine}: the server takes keys of {key} and values of {value} bytes, too little to exchange anything"
    )]
    Limits {
        /// Engine.
        engine: &'static str,
        /// Bytes of a key.
        key: usize,
        /// Bytes of a value.
        value: usize,
    },
    /// A value that another host must have published is not there or not what it published.
    #[error("{engine}: key {key} of rank {from}: {problem}")]
    Value {
        /// Engine.
        engine: &'static str,
        /// Key.
        key: String,
        /// Who published it.
        from: Rank,
        /// What is wrong.
        problem: String,
    },
    /// The engine's map of hosts is not true.
    #[error(
        "{engine}: ranks {rank} and {other} share a host, says the engine, but {problem}; unset or correct what overrides its layout"
    )]
    Map {
        /// Engine.
        engine: &'static str,
        /// This rank.
        rank: Rank,
        /// The other one.
        other: Rank,
        /// What was found.
        problem: String,
    },
    /// Ranks of this host did not come.
    #[error(
        "{engine}: {missing} did not meet rank {leader} on host {host} within {waited_ms} ms (deadline {deadline}): they did not start the library, or run on another host than the engine says"
    )]
    Absent {
        /// Engine.
        engine: &'static str,
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
    /// Launcher and engine disagree on the number of ranks.
    #[error("{engine} started a job of {size} ranks, but {variable}={value:?}: {advice}")]
    Size {
        /// Engine.
        engine: &'static str,
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
    #[error("{engine}: {problem}; {advice}")]
    Library {
        /// Engine.
        engine: &'static str,
        /// What was tried and how it failed.
        problem: String,
        /// What to try.
        advice: &'static str,
    },
}
