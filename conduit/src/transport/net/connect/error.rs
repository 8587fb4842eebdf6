//! Why ranks could not be connected.

use bootstrap::Rank;

/// Why a call of [`super::Peers`] failed.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "network: rank {rank} cannot connect to rank {peer}: {state} after {seconds:.1} s and {resends} repetitions; look whether rank {peer} still runs and its host can be reached, and for packet loss (GASNET_CONNECT_RETRANS_MAX bounds the patience)"
    )]
    GaveUp { rank: Rank, peer: Rank, state: &'static str, resends: u32, seconds: f64 },
    #[error("network: rank {rank} cannot connect to rank {peer}: cannot {what}: {problem}")]
    Peer { rank: Rank, peer: Rank, what: &'static str, problem: Failure },
    #[error(
        "network: rank {rank} cannot connect to rank {peer}: it takes no connections after the start (is GASNET_CONNECT_DYNAMIC the same on all ranks?)"
    )]
    NoDatagrams { rank: Rank, peer: Rank },
    #[error(
        "network: rank {peer} sent rank {rank} queue pair numbers {numbers:?}, {count} of 24 bits expected"
    )]
    Numbers { rank: Rank, peer: Rank, numbers: Vec<u32>, count: usize },
    #[error("network: {count} queue pairs per peer, at most {most} can be connected")]
    Count { count: usize, most: usize },
    #[error("network: cannot {what} for connection requests: {source}")]
    Fabric { what: &'static str, source: fabric::Error },
    #[error("network: cannot post a {what} for connection requests: {source}")]
    Post { what: &'static str, source: fabric::PostError },
    #[error(
        "network: the queue pair for connection requests failed {times} times, last with {status:?} (vendor detail {vendor:#x})"
    )]
    Broken { times: u64, status: fabric::Status, vendor: u32 },
    #[error(
        "network: no memory for {count} buffers of {size} bytes; lower GASNET_CONNECT_SNDS and GASNET_CONNECT_RCVS"
    )]
    Memory { count: u32, size: usize },
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    #[error(transparent)]
    File(#[from] super::file::Error),
}

impl Error {
    pub(super) fn fabric(what: &'static str) -> impl Fn(fabric::Error) -> Self {
        move |source| Self::Fabric { what, source }
    }
}
