//! The link to the front: its signals, and what it is told.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{MsgFlags, recv, send};

use crate::report::JobReport;
use crate::wire::{Inbox, Message, WireError};

/// Milliseconds between two progress messages.
const PROGRESS_EVERY: u64 = 50;

/// What a look at the socket found.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Signals for the ranks, in order.
    pub(crate) signals: Vec<i32>,
    /// The front is gone, or speaks nonsense.
    pub(crate) lost: bool,
}

/// The agent's side of the socket.
#[derive(Debug)]
pub(crate) struct FrontLink {
    socket: OwnedFd,
    inbox: Inbox,
    told: [u32; 3],
    told_at: u64,
    pub(crate) gone: bool,
}

impl FrontLink {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, inbox: Inbox::default(), told: [0; 3], told_at: 0, gone: false }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Messages of the front, or its end.
    pub(crate) fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let mut bytes = [0; 4096];
        loop {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => {
                    heard.lost = true;
                    break;
                }
                Ok(count) => self.inbox.push(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Err(_) => {
                    heard.lost = true;
                    break;
                }
            }
        }
        loop {
            match self.inbox.take() {
                Ok(Some(Message::Signal(signal))) => heard.signals.push(signal),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    heard.lost = true;
                    break;
                }
            }
        }
        heard
    }

    /// When counts that it has not been told are due.
    pub(crate) fn due(&self, counts: [u32; 3]) -> Option<u64> {
        (self.told != counts).then(|| self.told_at + PROGRESS_EVERY)
    }

    /// Sends the counts when they have changed, not too often unless it is the last time.
    pub(crate) fn tell(&mut self, counts: [u32; 3], now: u64, last: bool) {
        let early = now < self.told_at + PROGRESS_EVERY && !last;
        if counts == self.told || early || self.gone {
            return;
        }
        self.told = counts;
        self.told_at = now;
        let mut bytes = Vec::new();
        if Message::Progress(counts).encode(&mut bytes).is_ok() {
            // A front that is stopped does not read: then it misses a count, nothing else. A message this small is
            // sent whole or not at all.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(self.socket.as_raw_fd(), &bytes, flags);
        }
    }

    /// The last message.
    pub(crate) fn report(&self, report: JobReport) -> Result<(), WireError> {
        let mut bytes = Vec::new();
        Message::Report(Box::new(report)).encode(&mut bytes)?;
        let mut rest = &bytes[..];
        while !rest.is_empty() && !self.gone {
            match send(self.socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => rest = &rest[count..],
                Err(nix::Error::EINTR) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }
}
