//! What agents say to each other about the calls of their ranks.
//!
//! The types serialise; a driver encodes them (`postcard`) inside its own messages. Decoding takes
//! no more memory than bytes came; what the values mean is checked by
//! [`Collective`](super::Collective).

pub use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::shape::Shape;
use crate::frame::Kind;
use crate::rank::{HostId, Rank};

/// A call of the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each service names its fields")]
pub enum Service {
    /// Nothing but arrival.
    Barrier,
    /// Every rank gives `len` bytes.
    Exchange { len: u32 },
    /// Every rank gives one row for each rank, `total` bytes in all.
    Alltoall { total: u32 },
    /// `root` gives `len` bytes.
    Broadcast { root: u32, len: u32 },
}

impl Service {
    /// `None` for a call that stays on its host.
    pub(super) fn of(shape: Shape) -> Option<Self> {
        let total = u32::try_from(shape.total).ok()?;
        match shape.kind {
            Kind::Barrier => Some(Self::Barrier),
            Kind::Exchange => Some(Self::Exchange { len: total }),
            Kind::Alltoall => Some(Self::Alltoall { total }),
            Kind::Broadcast => Some(Self::Broadcast { root: shape.root, len: total }),
            _ => None,
        }
    }

    pub(super) fn shape(self) -> Shape {
        let (kind, total, root) = match self {
            Self::Barrier => (Kind::Barrier, 0, 0),
            Self::Exchange { len } => (Kind::Exchange, len, 0),
            Self::Alltoall { total } => (Kind::Alltoall, total, 0),
            Self::Broadcast { root, len } => (Kind::Broadcast, len, root),
        };
        Shape { kind, total: u64::from(total), root }
    }
}

/// The contribution of a whole subtree to one call.
///
/// Bytes by service, ranks of the subtree in tree order:
/// * exchange: what each rank gave;
/// * all-to-all: for each rank its rows for the ranks outside the subtree, those in job order;
/// * broadcast: the root's data when it is in the subtree, else none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contribution {
    /// Number of the call among the calls of the whole job, from 1.
    pub number: u32,
    /// What is called.
    pub service: Service,
    /// Broadcasts inside their hosts that each of the ranks had made before: they do not leave a
    /// host, so hosts that do not agree on them are found here.
    pub on_host: u32,
    /// The rank that began the call in this subtree.
    pub first: Rank,
    /// See above.
    pub bytes: Bytes,
}

/// Who can give nothing to a call any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Gone {
    /// A rank that has said its farewell.
    Rank(Rank),
    /// A host that cannot be reached.
    Host(HostId),
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {rank} has said its farewell"),
            Self::Host(HostId(host)) => write!(f, "host {host} is lost"),
        }
    }
}

/// From an agent to the one above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up {
    /// The subtree's part of a call; one for each call.
    Contribution(Contribution),
    /// The first of the subtree that can give nothing any more; at most one.
    Gone(Gone),
    /// Every rank of the subtree has said its farewell (or is lost); at most one. Names the first,
    /// as `Gone` did if it was sent.
    Done(Gone),
    /// The calls of the job do not fit together, in a line for people; at most one, nothing but
    /// `Gone` and `Done` follows.
    Refuse(String),
}

/// From an agent to one below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down {
    /// The call is complete.
    ///
    /// Bytes by service:
    /// * exchange: what each rank of the job gave, in job order;
    /// * all-to-all: for each rank of the subtree in tree order its rows from the ranks outside,
    ///   those in job order;
    /// * broadcast: the root's data, none for the subtree that gave them.
    Result {
        /// Number of the call.
        number: u32,
        /// See above.
        bytes: Bytes,
    },
    /// Every rank of the job has said its farewell.
    Farewell,
    /// As [`Up::Refuse`].
    Refuse(String),
    /// The next bytes of the result of an exchange or a broadcast that are too many for one message;
    /// the last ones are a `Result`. Who gets it passes it on at once.
    Piece {
        /// Number of the call.
        number: u32,
        /// At least one.
        bytes: Bytes,
    },
}

/// A message to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeMessage {
    /// To the agent above.
    Up(Up),
    /// To agents below.
    Down {
        /// Their places among the branches; at least one.
        to: Vec<usize>,
        /// The same for all of them.
        message: Down,
    },
}
