//! What the ranks of a host do, as it is told to whoever decides about the job: on this host, or up
//! the tree.

use serde::{Deserialize, Serialize};

use crate::report::End;

/// Something that a rank did, or that was done to it. Ranks are numbers in the job; times are
/// seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RankEvent {
    /// Its process runs.
    Started { rank: u32, pid: i32, at: f64 },
    /// It could not be started, or none of this host could.
    StartFailed { rank: Option<u32>, code: i32, text: String },
    /// It opened the bootstrap.
    Hello { rank: u32 },
    /// It has begun to exit; `path` is the wire form of an [`bootstrap::ExitPath`].
    Exiting { rank: u32, code: i32, path: u32 },
    /// Its farewell.
    Fini { rank: u32, code: i32 },
    /// It wants the job ended.
    Abort { rank: u32, code: i32 },
    /// It broke the protocol.
    Protocol { rank: u32, text: String },
    /// Its process was reaped.
    Ended { rank: u32, end: End, at: f64 },
}

impl RankEvent {
    /// The rank that it is about.
    pub(crate) const fn rank(&self) -> Option<u32> {
        match *self {
            Self::StartFailed { rank, .. } => rank,
            Self::Started { rank, .. }
            | Self::Hello { rank }
            | Self::Exiting { rank, .. }
            | Self::Fini { rank, .. }
            | Self::Abort { rank, .. }
            | Self::Protocol { rank, .. }
            | Self::Ended { rank, .. } => Some(rank),
        }
    }

    /// The same about another number of the rank.
    pub(crate) fn renumbered(mut self, number: impl Fn(u32) -> Option<u32>) -> Option<Self> {
        match &mut self {
            Self::StartFailed { rank, .. } => *rank = rank.and_then(number),
            Self::Started { rank, .. }
            | Self::Hello { rank }
            | Self::Exiting { rank, .. }
            | Self::Fini { rank, .. }
            | Self::Abort { rank, .. }
            | Self::Protocol { rank, .. }
            | Self::Ended { rank, .. } => *rank = number(*rank)?,
        }
        Some(self)
    }
}
