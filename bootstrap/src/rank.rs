//! Who a rank is and where it stands in its job.

use serde::{Deserialize, Serialize};

/// Most ranks of a job. Every table, frame and message has room for so many.
pub const MAX_RANKS: u32 = 1 << 24;

/// Most hosts of a job.
pub const MAX_HOSTS: u32 = 1 << 20;

/// Most levels of the tree of agents. With two agents below each, [`MAX_HOSTS`] take 20.
pub const MAX_DEPTH: u32 = 64;

/// Number of a process in its job, `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(pub u32);

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a host in its job, `0..hosts`, in rank order of the first rank on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostId(pub u32);

/// Where this rank stands in its job. Constant during the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankInfo {
    /// This rank.
    pub rank: Rank,
    /// Ranks in the job, at least 1.
    pub size: u32,
    /// This rank's host.
    pub host: HostId,
    /// Hosts in the job.
    pub hosts: u32,
    /// Index of this rank among the ranks of its host, by job rank.
    pub local: u32,
    /// Ranks on this host.
    pub locals: u32,
}
