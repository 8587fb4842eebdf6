//! Peer completion: a handler that runs at the other rank when a put is visible there.
//!
//! Packets of a put arrive in any order, and the announcement that says how many there are among
//! them. Who sees the last of them runs the handler. Pure.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Most bytes for the handler.
pub const MAX_PEER_COMPLETION: usize = 127;

/// The handler of a peer completion.
#[derive(Clone, Copy, Debug)]
pub struct PeerCompletion<'a> {
    /// Index, of a reply without arguments that takes Mediums.
    pub handler: u8,
    /// At most [`MAX_PEER_COMPLETION`] bytes.
    pub payload: &'a [u8],
}

/// What the announcement of a put says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) handler: u8,
    pub(crate) payload: Vec<u8>,
    /// Packets that the put has.
    pub(crate) packets: u32,
}

/// A put of which not everything has come.
#[derive(Default)]
struct Arriving {
    packets: u32,
    announced: Option<Announced>,
}

/// Puts to this rank whose end somebody asked for, by their rank and its number for them.
#[derive(Default)]
pub(crate) struct PeerCompletions(Mutex<HashMap<(usize, i32), Arriving>>);

impl PeerCompletions {
    /// A packet was unpacked: what is to be run now.
    pub(crate) fn packet(&self, put: (usize, i32)) -> Option<Announced> {
        self.change(put, |row| row.packets = row.packets.saturating_add(1))
    }

    /// An announcement has come: what is to be run now.
    pub(crate) fn announce(&self, put: (usize, i32), announced: Announced) -> Option<Announced> {
        self.change(put, |row| row.announced = Some(announced))
    }

    fn change(&self, put: (usize, i32), change: impl FnOnce(&mut Arriving)) -> Option<Announced> {
        let mut puts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let row = puts.entry(put).or_default();
        change(row);
        let packets = row.packets;
        row.announced.as_ref().filter(|all| all.packets == packets)?;
        puts.remove(&put)?.announced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(packets: u32) -> Announced {
        Announced { handler: 200, payload: vec![1, 2], packets }
    }

    #[test]
    fn the_last_to_come_runs_the_handler() {
        for place in 0..=3 {
            let puts = PeerCompletions::default();
            let mut run = Vec::new();
            for step in 0..4 {
                let now = match step {
                    step if step == place => puts.announce((5, 1), announced(3)),
                    _ => puts.packet((5, 1)),
                };
                run.push(now.is_some());
                assert_eq!(puts.packet((6, step)), None, "of another rank");
            }
            assert_eq!(run, [false, false, false, true]);
        }
    }

    #[test]
    fn a_put_without_packets_is_complete_at_once() {
        let puts = PeerCompletions::default();
        assert_eq!(puts.announce((1, 0), announced(0)), Some(announced(0)));
        assert!(puts.0.lock().expect("free").is_empty());
    }
}
