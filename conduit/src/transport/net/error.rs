//! Why the network could not be set up, or why it ends the job.

use bootstrap::Rank;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Fabric(#[from] fabric::Error),
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    #[error("network: cannot post {operation} to rank {peer} on {device}: {source}")]
    Post { operation: &'static str, peer: Rank, device: String, source: fabric::PostError },
    #[error(
        "network: {operation} between rank {rank} and rank {peer} failed: {status} (queue pair {qpn:#x} of {device}, vendor detail {vendor:#x}); {advice}"
    )]
    Failed {
        operation: &'static str,
        rank: Rank,
        peer: Rank,
        status: &'static str,
        qpn: u32,
        device: String,
        vendor: u32,
        advice: &'static str,
    },
    #[error(
        "network: receive on queue pair {qpn:#x} of {device} failed on rank {rank}: {status} (vendor detail {vendor:#x})"
    )]
    FailedReceive { rank: Rank, status: &'static str, qpn: u32, device: String, vendor: u32 },
    #[error("network: rank {rank} received a malformed message from rank {peer}: {problem}")]
    Malformed { rank: Rank, peer: Rank, problem: String },
    #[error(
        "network: bytes {offset}..{end} are outside the segment of rank {rank} ({segment} bytes)"
    )]
    OutsideSegment {
        rank: Rank,
        offset: u64,
        /// One past the last byte, saturated.
        end: u64,
        /// Bytes of the segment; 0 before it is attached.
        segment: u64,
    },
    #[error("network: rank {rank} {problem}")]
    Mismatch { rank: Rank, problem: String },
    #[error("setting {name}: {problem}")]
    Setting { name: &'static str, problem: String },
    #[error("network: {device} on rank {rank}: {problem}; see the device's own log")]
    Device { rank: Rank, device: String, problem: &'static str },
    #[error(transparent)]
    Connect(#[from] super::connect::Error),
    #[error(transparent)]
    Settings(#[from] super::settings::Error),
    #[error("network: cannot {operation}: {source}")]
    Os { operation: &'static str, source: std::io::Error },
    #[error("network: rank {rank} has no connection to rank {peer}: {problem}")]
    NoConnection { rank: Rank, peer: Rank, problem: String },
}

impl Error {
    pub(super) fn os(operation: &'static str) -> impl Fn(nix::errno::Errno) -> Self {
        move |errno| Self::Os { operation, source: errno.into() }
    }
}

/// There is no memory for a table with a row for each rank of the job.
pub(super) fn table_of_ranks(source: std::io::Error) -> Error {
    Error::Os { operation: "make a table of the job's ranks", source }
}

impl From<Error> for crate::error::Error {
    fn from(error: Error) -> Self {
        Self::Network(error.to_string())
    }
}
