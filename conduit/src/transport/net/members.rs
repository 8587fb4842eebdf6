//! The ranks of the job as the network sees them.

use std::sync::Arc;

use bootstrap::Rank;
use bootstrap::node_shm::NodeShm;
use serde::{Deserialize, Serialize};

use crate::identity::Program;
use crate::transport::neighbour_ranks::NeighbourRanks;

/// Who is in the job, and who shares memory with this rank.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// Ranks of this rank's neighbourhood with itself.
    pub(crate) neighbours: NeighbourRanks,
    pub(crate) hosts: u32,
    pub(crate) page: Arc<NodeShm>,
    /// This rank's slot in it: its index among the ranks of the host.
    pub(crate) slot: u32,
}

impl Members {
    /// Whether a rank is reached over the network.
    pub(crate) fn is_remote(&self, rank: Rank) -> bool {
        rank.0 < self.size && self.neighbours.index_of(rank.0).is_none()
    }

    /// Ranks that are reached over the network.
    pub(crate) fn remotes(&self) -> u32 {
        self.size.saturating_sub(self.neighbours.count())
    }

    pub(super) fn ring(&self) {
        self.page.slot(self.slot).ring();
    }
}

/// What the layers above have to agree on with all ranks. It travels with the network's first
/// exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Common {
    /// Largest segment that this rank can have.
    pub(crate) max_segment: u64,
    /// Number of the segment mode, which all must have.
    pub(crate) segment_mode: u8,
    /// Most ranks of a neighbourhood: all hosts must be cut alike.
    pub(crate) neighbourhood_max: u32,
    /// What it runs, in a job on several hosts.
    pub(crate) program: Program,
}
