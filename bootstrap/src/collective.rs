//! Matches the collective calls of a job's ranks: the pure half of every provider.
//!
//! # Primer
//!
//! The agents of a job form a tree; each owns one [`Collective`]. A driver (the node agent, the
//! in-memory provider, a test) gives it every collective frame that a rank of its host sends
//! ([`Collective::handle`]) and every message of the agents below and above
//! ([`Collective::from_child`], [`Collective::from_parent`]), carries out the [`Action`]s that come
//! back and sends the [`TreeMessage`]s that wait ([`Collective::poll_transmit`]). The machine does
//! no I/O and knows no time. A job on one host is the tree of one node: no message ever leaves it.
//!
//! * A rank is in at most one call. Its calls are numbered from 1 ([`next_seq`]); answers carry the
//!   number. Calls match by order; all ranks of a host have the same number.
//! * Calls of the job (barrier, exchange, all-to-all, broadcast) go up the tree and down again: one
//!   message per link, direction and call, sent when the whole subtree has given everything.
//!   [`Contribution`] and [`Down::Result`] say which bytes.
//! * Calls of a host (memory, broadcasts inside host and neighbourhood) do not leave it. That hosts
//!   agree on how many broadcasts they made is found at their next call of the job.
//! * Ranks that do not fit together (another kind, length or root: a mistake in the program) are
//!   *refused*: every rank gets one [`Action::Refuse`] that names both sides, and the machine
//!   answers nothing afterwards. The refusal spreads from where the two sides meet.
//! * A frame that no correct client sends (wrong number, piece out of order, foreign rank), and a
//!   message that no correct agent sends, is a [`ProtocolError`]; the driver ends the job for it.
//! * A farewell travels up once for the first rank of a subtree (so that the root knows why a call
//!   cannot complete) and once for the last, and comes down when all ranks of the job have said it.
//!
//! Memory grows only with bytes that have really arrived, never by a length that a frame announces.
//!
//! `Hello`, `Exiting`, `Abort` and `Fini` are the driver's own; [`Collective::fini`] counts the
//! last one for it.

mod error;
mod in_process;
mod layout;
mod local;
mod machine;
mod message;
mod rows;
mod shape;

pub(crate) use in_process::Tree;

pub use error::{Link, ProtocolError};
pub use layout::{Branch, Node, depth, groups, ranks_by_host};
pub use machine::{Collective, MAX_REASON};
pub use message::{Bytes, Contribution, Down, Gone, Service, TreeMessage, Up};

use std::sync::Arc;

use crate::rank::{HostId, Rank};

/// Number of the call after `seq`: counts from 1 and never yields 0, which means "no call".
#[must_use]
pub const fn next_seq(seq: u32) -> u32 {
    match seq.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Whom an action addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Every rank of a host.
    Host(HostId),
    /// One rank.
    Rank(Rank),
}

/// What the driver has to send. Each addressed rank gets one answer to its call `seq`: 0 answers
/// `Fini`, and a refusal may come before the call. Bytes are shared when several get the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "above: to whom, for which call, and what")]
pub enum Action {
    /// A `Release` frame with `seq`.
    Release { to: To, seq: u32 },
    /// Put `pieces` one behind the other into one memory of the host
    /// ([`crate::memfd::result_in_pieces`]) and send its descriptor to every rank of it in a `Mapped`
    /// frame with their length as `total`.
    Mapped { host: HostId, seq: u32, pieces: Vec<Bytes> },
    /// `Data` frames that carry `bytes` in pieces ([`Frame::pieces`](crate::frame::Frame::pieces));
    /// one empty frame when there are none.
    Data { to: Rank, seq: u32, bytes: Bytes },
    /// Make zeroed memory of `len` bytes ([`crate::memfd::zeroed`]) and send its descriptor to
    /// every rank of the host in a `HostMemory` frame (`total` and `extra` as in the request). If
    /// that is impossible, say so with [`Collective::refuse_all`].
    HostMemory { host: HostId, seq: u32, len: u64 },
    /// A `Refuse` frame with `reason` as payload.
    Refuse { to: Rank, seq: u32, reason: Arc<str> },
}

#[cfg(test)]
mod tests;
