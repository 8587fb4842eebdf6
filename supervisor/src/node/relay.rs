//! Output on its way up: of our own ranks and of the agents below, in the order in which it came.
//!
//! Each link has a window: so many bytes may be on their way that the other side has not passed on.
//! So memory is bounded, and a slow reader at the top stops the ranks, not the agents' other
//! messages.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::agent::capture::Outlet;
use crate::event_loop::Which;
use crate::tree::message::{Up, encode};

/// Bytes of output that may be under way on one link.
pub(crate) const WINDOW: u32 = 256 * 1024;
/// Bytes that wait here above which nothing more is read, and below which it is again.
const HIGH: usize = 256 * 1024;
const LOW: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct Relay {
    queue: VecDeque<(usize, Rc<Vec<u8>>)>,
    waiting: usize,
    /// Bytes of the window that are taken.
    taken: usize,
    /// Nobody reads standard output (0) or error (1) any more.
    deaf: [bool; 2],
    gone: bool,
}

impl Relay {
    /// A message of the bulk lane with `bytes` bytes of output in it.
    pub(super) fn push(&mut self, bytes: usize, message: Rc<Vec<u8>>) {
        if !self.gone {
            self.queue.push_back((bytes, message));
            self.waiting += bytes;
        }
    }

    pub(super) fn next(&mut self) -> Option<Rc<Vec<u8>>> {
        let bytes = self.queue.front()?.0;
        if bytes > 0 && self.taken >= WINDOW as usize {
            return None;
        }
        // The last one may exceed the window: then the debt is paid back first.
        self.taken = (self.taken + bytes).min(WINDOW as usize);
        self.waiting -= bytes;
        self.queue.pop_front().map(|(_, message)| message)
    }

    pub(super) fn grant(&mut self, bytes: u32) {
        self.taken = self.taken.saturating_sub(bytes as usize);
    }

    /// Whether agents below may be given credit again.
    pub(super) const fn has_room_below(&self) -> bool {
        self.waiting < LOW
    }

    /// Whether bytes of output wait, not only ends of streams.
    pub(super) const fn has_output(&self) -> bool {
        self.waiting > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) const fn deafen(&mut self, which: Which) {
        self.deaf[which as usize] = true;
    }

    /// The parent is lost: what waits is lost with it.
    pub(super) fn close(&mut self) {
        self.gone = true;
        self.queue.clear();
        self.waiting = 0;
    }
}

impl Outlet for Relay {
    fn is_full(&self, _: Which) -> bool {
        self.waiting > HIGH
    }

    fn has_room(&self, _: Which) -> bool {
        self.waiting < LOW
    }

    fn is_gone(&self, which: Which) -> bool {
        self.gone || self.deaf[which as usize]
    }

    fn take(&mut self, rank: u32, which: Which, data: &[u8]) {
        let up = Up::Output { rank, which, bytes: data.to_vec().into() };
        self.push(data.len(), encode(&up));
    }

    fn end(&mut self, rank: u32, which: Which) {
        self.push(0, encode(&Up::OutputEnd { rank, which }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_window_is_under_way() {
        let mut relay = Relay::default();
        let piece = [0; 60_000];
        for _ in 0..20 {
            relay.take(3, Which::Out, &piece);
        }
        relay.end(3, Which::Out);
        assert!(relay.is_full(Which::Out) && !relay.has_room_below());
        let mut sent = 0;
        while relay.next().is_some() {
            sent += piece.len();
        }
        assert!(sent >= WINDOW as usize && sent < WINDOW as usize + piece.len(), "{sent}");
        while !relay.is_empty() {
            relay.grant(60_000);
            assert!(relay.next().is_some(), "credit lets the next one go");
            while relay.next().is_some() {}
        }
        assert!(relay.has_room_below());
    }

    #[test]
    fn deaf_and_lost() {
        let mut relay = Relay::default();
        relay.deafen(Which::Err);
        assert!(relay.is_gone(Which::Err) && !relay.is_gone(Which::Out));
        relay.take(0, Which::Out, b"x");
        relay.close();
        assert!(relay.is_empty() && relay.is_gone(Which::Out));
    }
}
