//! What can go wrong for who watches a job.

use supervisor::watch::client::ClientError;

/// Why jobs cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The directory of the sockets.
    #[error("cannot read the directory of jobs: {0}")]
    Directory(std::io::Error),
    /// There is no job.
    #[error(
        "no job of this user runs on this machine; jobs are seen where their launcher runs (looked in {0})"
    )]
    None(String),
    /// The name is that of no job.
    #[error("no job here is called {name:?}; jobs: {all}")]
    Unknown {
        /// As it was typed.
        name: String,
        /// The jobs that there are.
        all: String,
    },
    /// Several jobs are meant.
    #[error("{what}; write one of them, or the number of its launcher's process: {all}")]
    Several {
        /// Why.
        what: String,
        /// The jobs that are meant.
        all: String,
    },
    /// A job did not answer.
    #[error("job {job}: {source}")]
    Client {
        /// Its name.
        job: String,
        /// Why.
        source: ClientError,
    },
    /// It answered something else than what was asked.
    #[error("job {0} is of another version of this launcher: it answered something else")]
    Version(String),
    /// A rank that cannot be attached to.
    #[error("rank {rank} of job {job}: {problem}")]
    Rank {
        /// The rank.
        rank: u32,
        /// Its job.
        job: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A program that is needed.
    #[error("{0}")]
    Program(String),
    /// The terminal.
    #[error("cannot use the terminal: {0}; --once prints one picture")]
    Terminal(std::io::Error),
}
