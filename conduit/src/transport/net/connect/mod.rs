//! Connections between ranks: all at the start, those of a list at the start, or each when it is
//! needed first.
//!
//! * `fixed`: connections at the start, over the bootstrap services.
//! * `driver`: [`driver::Connector`], dynamic connections over datagrams.
//! * `machine`, `table`: the handshake of dynamic connections, pure. `wire`: its packets.
//! * `file`: lists of connections (`GASNET_CONNECTFILE_IN`, `_OUT`); `used`: which were used,
//!   written at the end.
//!
//! `docs/design/connect.md` has the protocol. Nothing here knows what a queue pair is used for:
//! whoever makes them implements [`Peers`].

pub(crate) mod driver;
mod error;
pub(crate) mod file;
pub(crate) mod fixed;
pub(crate) mod machine;
pub(crate) mod notes;
pub(crate) mod table;
pub(crate) mod used;
pub(crate) mod wire;

use bootstrap::Rank;
use fabric::Address;

pub(crate) use self::error::{Error, Failure};
pub(crate) use self::wire::{MAX_NUMBERS, Numbers};

/// Who makes and uses the queue pairs of connections. For each peer the calls come in the order of
/// the methods, each at most once, from whichever thread drives the connection. They must not call
/// the [`driver::Connector`]: it waits for their return.
pub(crate) trait Peers {
    /// Makes the queue pairs towards a rank: state INIT, receives posted. Returns their numbers, as
    /// many as [`wire::Context::count`] (or the count given to `fixed::prepare`).
    fn prepare(&self, rank: Rank) -> Result<Numbers, Failure>;

    /// To RTR, with the numbers of the peer's queue pairs: from now on it may send.
    fn receive_ready(&self, rank: Rank, numbers: &Numbers) -> Result<(), Failure>;

    /// To RTS.
    fn send_ready(&self, rank: Rank) -> Result<(), Failure>;

    /// The peer can receive: messages may be sent.
    fn open(&self, rank: Rank);

    /// Whether [`Peers::open`] was called for a rank.
    fn is_open(&self, rank: Rank) -> bool;

    /// Where a rank's datagrams go, from what was exchanged at the start: its port on rail 0, as
    /// this rank addresses it, and the number of its datagram queue pair; 0 when it has none,
    /// because it was connected to everybody at the start.
    fn address(&self, rank: Rank) -> (Address, u32);
}

#[cfg(test)]
mod driver_tests;
#[cfg(test)]
mod fixed_tests;
#[cfg(test)]
mod sim;
#[cfg(test)]
#[path = "../../../../tests/shared/state_table.rs"]
mod state_table;
#[cfg(test)]
mod table_document;
