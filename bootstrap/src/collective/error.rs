//! What no correct rank and no correct agent sends.

use crate::frame::Kind;
use crate::rank::{HostId, Rank};

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// The agent above in the tree.
    Parent,
    /// The agent of a host below.
    Child {
        /// RankInfo among the branches.
        index: usize,
        /// Its host.
        host: HostId,
    },
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parent => write!(f, "the agent above in the tree"),
            Self::Child { host: HostId(host), .. } => write!(f, "the agent of host {host}"),
        }
    }
}

/// What is wrong with a message of another agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// Not the call that this agent is in.
    #[error("spoke of call {seen}, expected {expected}")]
    Number {
        /// Number expected.
        expected: u32,
        /// Number seen.
        seen: u32,
    },
    /// It has given its part of this call already.
    #[error("gave its part of call {number} twice")]
    Twice {
        /// Call.
        number: u32,
    },
    /// A rank that is none of its subtree.
    #[error("spoke of rank {seen}, which is not below it")]
    Stranger {
        /// Rank.
        seen: Rank,
    },
    /// Arguments that no agent lets pass.
    #[error("passed on {call}, which no job of {size} ranks can call")]
    Call {
        /// The call.
        call: String,
        /// Ranks of the job.
        size: u32,
    },
    /// Wrong number of bytes.
    #[error("sent {seen} bytes for {call}, expected {expected}")]
    Length {
        /// The call.
        call: String,
        /// Bytes expected.
        expected: u64,
        /// Bytes seen.
        seen: usize,
    },
    /// A reason that is longer than any that an agent gives.
    #[error("gave a reason of {seen} bytes, at most {limit} are meant")]
    Reason {
        /// Bytes seen.
        seen: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The message does not belong here.
    #[error("sent {what} while {state}")]
    State {
        /// Message.
        what: &'static str,
        /// What this agent was doing.
        state: &'static str,
    },
}

/// A frame that no correct client sends, or a message that no correct agent sends. It names who
/// broke the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The sender is not a rank of this job, or of this host.
    #[error("rank {from} is outside the job of {size} ranks, or on another host")]
    Outside {
        /// Sender.
        from: Rank,
        /// Ranks of the job.
        size: u32,
    },
    /// The frame speaks of another rank than its sender.
    #[error("rank {from} sent a {kind:?} frame in the name of rank {seen}")]
    Name {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
        /// Rank in the frame.
        seen: u32,
    },
    /// The kind is no collective call.
    #[error("rank {from} sent a {kind:?} frame, which is no collective call")]
    Kind {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
    },
    /// The call is not the rank's next one.
    #[error("rank {from} began call {seen}, its next call is {expected}")]
    Sequence {
        /// Sender.
        from: Rank,
        /// Next number.
        expected: u32,
        /// Number seen.
        seen: u32,
    },
    /// The rank is already in a call, or has left.
    #[error("rank {from} sent a {kind:?} frame while it {state}")]
    State {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
        /// What the rank is doing.
        state: &'static str,
    },
    /// A piece that does not continue the one before, or has data where none belongs.
    #[error(
        "rank {from} sent {len} bytes at {offset} of {total} for {kind:?} call {seq}, expected a piece at {expected} of {whole}"
    )]
    Piece {
        /// Sender.
        from: Rank,
        /// Kind.
        kind: Kind,
        /// Call.
        seq: u32,
        /// Bytes in the frame.
        len: usize,
        /// Offset seen.
        offset: u32,
        /// Total seen.
        total: u32,
        /// Offset expected.
        expected: usize,
        /// Bytes that this rank has to give.
        whole: usize,
    },
    /// The rows of an all-to-all cannot be of equal length.
    #[error("rank {from} announced {total} bytes for an all-to-all of {size} ranks")]
    Rows {
        /// Sender.
        from: Rank,
        /// Total seen.
        total: u32,
        /// Ranks of the job.
        size: u32,
    },
    /// A message of another agent.
    #[error("{from} {problem}")]
    Message {
        /// Sender.
        from: Link,
        /// What is wrong.
        problem: Nonsense,
    },
    /// A node of the tree cannot be as described.
    #[error("the tree of agents is impossible: {problem}")]
    Layout {
        /// What is wrong.
        problem: String,
    },
}
