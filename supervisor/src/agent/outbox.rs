//! Bytes that wait until a socket has room for them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{MsgFlags, send};

#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Room to write is waited for.
    watched: bool,
}

impl Outbox {
    /// Adds bytes; whether there may be room for them now.
    #[must_use]
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        !self.watched
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes what there is room for.
    pub(super) fn write(&mut self, socket: &OwnedFd) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let mut written = 0;
        while written < self.bytes.len() {
            match send(socket.as_raw_fd(), &self.bytes[written..], flags) {
                Ok(count) => written += count,
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                // Its last words may still be unread: the reading side notices the end.
                Err(_) => written = self.bytes.len(),
            }
        }
        self.bytes.drain(..written);
    }

    /// Has `watch` wait for room, or no more, where that has changed.
    pub(super) fn watch(&mut self, watch: impl FnOnce(bool) -> io::Result<()>) {
        let want = !self.bytes.is_empty();
        if want != self.watched && watch(want).is_ok() {
            self.watched = want;
        }
    }
}
