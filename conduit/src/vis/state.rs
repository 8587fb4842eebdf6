//! What a rank knows of its transfers, and what ranks say to each other about them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::cost::Rule;
use super::flights::Flights;
use super::peer::PeerCompletions;
use crate::transport::message::max_medium;

/// Handlers of packets and what they bring back; below the client's indices.
pub(super) const PUT: u8 = 72;
pub(super) const GET: u8 = 73;
pub(super) const DONE: u8 = 74;
pub(super) const DATA: u8 = 75;
pub(super) const PEER: u8 = 76;
pub(super) const FILL: u8 = 77;
pub(super) const REFUSED: u8 = 78;
/// Arguments of each.
pub(super) const PUT_ARGS: usize = 6;
pub(super) const GET_ARGS: usize = 5;
pub(super) const ANSWER_ARGS: usize = 2;
pub(super) const PEER_ARGS: usize = 3;
pub(super) const FILL_ARGS: usize = 8;
pub(super) const REFUSED_ARGS: usize = 7;

/// Bytes of a packet: with its description, and without in an answer.
pub(crate) const ROOM: usize = max_medium(PUT_ARGS);

/// What a rank knows of such transfers.
pub(crate) struct Vis {
    pub(super) rule: Rule,
    pub(super) flights: Flights,
    pub(super) peers: PeerCompletions,
    /// Puts whose packets are counted by their targets.
    counted: AtomicU32,
}

impl Vis {
    pub(crate) fn new(table: &settings::Values) -> Self {
        let (flights, peers) = (Flights::default(), PeerCompletions::default());
        Self { rule: Rule::of(table, ROOM), flights, peers, counted: AtomicU32::new(0) }
    }

    /// A number, not 0, for a put whose packets are counted.
    pub(super) fn next_counted(&self) -> i32 {
        loop {
            let number = self.counted.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if number != 0 {
                return number.cast_signed();
            }
        }
    }

    /// The memory of the caller is not to be written any more.
    #[cold]
    pub(crate) fn forget(&self) {
        self.flights.forget();
    }
}
