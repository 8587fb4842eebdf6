//! Ranks that the service thread shall connect with, or tell the handshake that they were heard. Lock free and without
//! allocation: messages are sent from signal handlers too. Five bytes for each rank of the job.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use bootstrap::Rank;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::error::Error;
use super::lockfree::IndexStack;

/// A connection was asked for. Stays set: the handshake does not forget.
const NEEDED: u8 = 1;
/// A message came before the end of the handshake. Stays set too.
const HEARD: u8 = 2;
/// In the stack.
const QUEUED: u8 = 4;

/// Ranks that wait for the service thread.
#[derive(Debug)]
pub(super) struct ConnectQueue {
    flags: Box<[AtomicU8]>,
    links: Box<[AtomicU32]>,
    stack: IndexStack,
    /// Wakes the service thread.
    pub(super) wake: EventFd,
}

impl ConnectQueue {
    pub(super) fn new(size: u32) -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = EventFd::from_value_and_flags(0, flags).map_err(|errno| Error::Os {
            operation: "make an event descriptor",
            source: errno.into(),
        })?;
        Ok(Self {
            flags: (0..size).map(|_| AtomicU8::new(0)).collect(),
            links: (0..size).map(|_| AtomicU32::new(0)).collect(),
            stack: IndexStack::new(),
            wake,
        })
    }

    /// A rank shall be connected.
    #[inline]
    pub(super) fn need(&self, rank: Rank) {
        self.put(rank, NEEDED);
    }

    /// A rank was heard before its connection was open.
    pub(super) fn heard(&self, rank: Rank) {
        self.put(rank, HEARD);
    }

    #[inline]
    fn put(&self, rank: Rank, why: u8) {
        let Some(flags) = self.flags.get(rank.0 as usize) else { return };
        if flags.load(Ordering::Relaxed) & why != 0 {
            return;
        }
        let before = flags.fetch_or(why | QUEUED, Ordering::AcqRel);
        if before & (why | QUEUED) == 0 {
            self.stack.push(rank.0, |index| &self.links[index as usize]);
            self.wake_thread();
        }
    }

    /// Wakes the service thread.
    pub(super) fn wake_thread(&self) {
        // Full means that it is about to wake anyhow.
        let _ = self.wake.write(1);
    }

    /// The next rank to look at, and whether it was heard.
    pub(super) fn take(&self) -> Option<(Rank, bool)> {
        let rank = self.stack.pop(|index| &self.links[index as usize])?;
        let flags = self.flags[rank as usize].fetch_and(!QUEUED, Ordering::AcqRel);
        Some((Rank(rank), flags & HEARD != 0))
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
