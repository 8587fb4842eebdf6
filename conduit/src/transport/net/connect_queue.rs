//! Ranks that the service thread shall connect with, or whose messages it shall tell the handshake
//! of. Lock free and without allocation: messages are sent from signal handlers too.

use bootstrap::Rank;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::error::{Error, table_of_ranks};
use super::lockfree::Mailbox;

/// A connection was asked for. Stays set: the handshake does not forget.
const NEEDED: u8 = 1;
/// A message came before the end of the handshake. Stays set too.
const HEARD: u8 = 2;

#[derive(Debug)]
pub(super) struct ConnectQueue {
    ranks: Mailbox,
    pub(super) wake: EventFd,
}

/// What wakes a thread that sleeps on descriptors.
pub(super) fn wake_event() -> Result<EventFd, Error> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    EventFd::from_value_and_flags(0, flags).map_err(Error::os("make an event descriptor"))
}

impl ConnectQueue {
    pub(super) fn new(size: u32) -> Result<Self, Error> {
        let ranks = Mailbox::new(size).map_err(table_of_ranks)?;
        Ok(Self { ranks, wake: wake_event()? })
    }

    #[inline]
    pub(super) fn need(&self, rank: Rank) {
        self.put(rank, NEEDED);
    }

    /// A message of a rank came before its connection was open.
    pub(super) fn heard(&self, rank: Rank) {
        self.put(rank, HEARD);
    }

    #[inline]
    fn put(&self, rank: Rank, why: u8) {
        if self.ranks.put(rank.0, why) {
            self.wake_thread();
        }
    }

    /// Whether some rank was put and not taken. A hint.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.ranks.is_waiting()
    }

    pub(super) fn wake_thread(&self) {
        // Full means that it is about to wake anyhow.
        let _ = self.wake.write(1);
    }

    /// The next rank to serve, and whether a message of it came.
    pub(super) fn take(&self) -> Option<(Rank, bool)> {
        let (rank, why) = self.ranks.take()?;
        Some((Rank(rank), why & HEARD != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_asked_for_once() {
        let calls = ConnectQueue::new(4).unwrap();
        for rank in [1, 3, 1, 9] {
            calls.need(Rank(rank));
        }
        assert_eq!(calls.take(), Some((Rank(3), false)));
        assert_eq!(calls.take(), Some((Rank(1), false)));
        assert_eq!(calls.take(), None);
        calls.need(Rank(1));
        assert_eq!(calls.take(), None, "asked for before");
        calls.heard(Rank(1));
        assert_eq!(calls.take(), Some((Rank(1), true)));
    }

    #[test]
    fn a_rank_is_queued_once() {
        let calls = ConnectQueue::new(2).unwrap();
        calls.need(Rank(1));
        calls.heard(Rank(1));
        assert_eq!(calls.take(), Some((Rank(1), true)));
        assert_eq!(calls.take(), None);
    }
}
