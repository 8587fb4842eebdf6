//! What no correct rank and no correct agent sends.

use crate::frame::Kind;
use crate::rank::{HostId, Rank};

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Link {
    /// The agent above in the tree.
    Parent,
    /// The agent of a host below.
    Child { index: usize, host: HostId },
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parent => write!(f, "the agent above in the tree"),
            Self::Child { host: HostId(host), .. } => write!(f, "the agent of host {host}"),
        }
    }
}

/// A frame that no correct client sends, or a message that no correct agent sends. It names who
/// broke the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum ProtocolError {
    /// The sender is not a rank of this job, or of this host.
    #[error("rank {from} is outside the job of {size} ranks, or on another host")]
    Outside { from: Rank, size: u32 },
    /// The frame speaks of another rank than its sender.
    #[error("rank {from} sent a {kind:?} frame in the name of rank {seen}")]
    Name { from: Rank, kind: Kind, seen: u32 },
    /// The kind is no collective call.
    #[error("rank {from} sent a {kind:?} frame, which is no collective call")]
    Kind { from: Rank, kind: Kind },
    /// The call is not the rank's next one.
    #[error("rank {from} began call {seen}, its next call is {expected}")]
    Sequence { from: Rank, expected: u32, seen: u32 },
    /// The rank is already in a call, or has left.
    #[error("rank {from} sent a {kind:?} frame while it {state}")]
    State { from: Rank, kind: Kind, state: &'static str },
    /// A piece that does not continue the one before, or has data where none belongs.
    #[error(
        "rank {from} sent {len} bytes at {offset} of {total} for {kind:?} call {seq}, expected a piece at {expected} of {whole}"
    )]
    Piece {
        from: Rank,
        kind: Kind,
        seq: u32,
        len: usize,
        offset: u32,
        total: u32,
        expected: usize,
        whole: usize,
    },
    /// The rows of an all-to-all cannot be of equal length.
    #[error("rank {from} announced {total} bytes for an all-to-all of {size} ranks")]
    Rows { from: Rank, total: u32, size: u32 },
    /// A message of another agent.
    #[error("{from} {problem}")]
    Message { from: Link, problem: String },
    /// A node of the tree cannot be as described.
    #[error("the tree of agents is impossible: {problem}")]
    Layout { problem: String },
}
