//! Our own standard output and error, written without ever blocking the agent.

use std::io::{self, IoSlice};
use std::time::Instant;

use nix::poll::PollFlags;

use super::standard::Standard;
use super::unread::{Dropped, Owners};
use crate::event_loop::{Poller, Token};

/// Queue length of a sink above which the pipes behind it are not read, and below which they are
/// again.
pub(super) const HIGH: usize = 512 * 1024;
pub(super) const LOW: usize = 128 * 1024;
/// Bytes that a descriptor which reports "writable" takes without blocking.
const SURE: usize = 4096;

/// One of our own standard streams, or both when they are the same thing.
#[derive(Debug)]
pub(super) struct Sink {
    poller: Poller,
    pub(super) stream: Standard,
    queue: Vec<u8>,
    written: usize,
    watched: bool,
    /// Its reader has gone, or it cannot be written for another reason.
    pub(super) gone: bool,
    pub(super) failure: Option<io::Error>,
    owners: Owners,
    /// When its reader last took something, or something began to wait for it.
    taken: Instant,
    /// Its reader has been given up: whatever comes is dropped.
    given_up: bool,
    pub(super) dropped: Dropped,
}

impl Sink {
    pub(super) fn new(poller: &Poller, number: u8) -> Self {
        Self {
            poller: poller.clone(),
            stream: Standard::open(number),
            queue: Vec::new(),
            written: 0,
            watched: false,
            gone: false,
            failure: None,
            owners: Owners::default(),
            taken: Instant::now(),
            given_up: false,
            dropped: Dropped::default(),
        }
    }

    pub(super) const fn waiting(&self) -> usize {
        self.queue.len() - self.written
    }

    /// Writes what the descriptor takes now; the number of bytes.
    fn write_some(&self, parts: &[&[u8]]) -> nix::Result<usize> {
        if self.stream.blocks() {
            if !self.stream.is_ready(PollFlags::POLLOUT) {
                return Err(nix::Error::EAGAIN);
            }
            let part = parts.iter().find(|part| !part.is_empty()).copied().unwrap_or_default();
            return nix::unistd::write(self.stream.fd(), &part[..part.len().min(SURE)]);
        }
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        nix::sys::uio::writev(self.stream.fd(), &slices)
    }

    /// Appends bytes of a rank, or our own, that belong together.
    pub(super) fn push(&mut self, rank: Option<u32>, parts: &[&[u8]]) {
        if self.gone {
            return;
        }
        let (mut skip, whole) = (0, parts.iter().map(|part| part.len()).sum::<usize>());
        if self.given_up {
            return self.dropped.add(rank, whole);
        }
        if self.waiting() == 0 {
            self.taken = Instant::now();
            match self.write_some(parts) {
                Ok(count) => skip = count,
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
                Err(errno) => return self.fail(errno),
            }
        }
        self.owners.add(rank, whole.saturating_sub(skip));
        for part in parts {
            let here = skip.min(part.len());
            skip -= here;
            self.queue.extend_from_slice(&part[here..]);
        }
        if self.waiting() > 0 && self.stream.file {
            self.flush();
        }
    }

    pub(super) fn flush(&mut self) {
        while self.waiting() > 0 && !self.gone {
            match self.write_some(&[&self.queue[self.written..]]) {
                Ok(count) => {
                    self.written += count;
                    self.owners.take(count);
                    self.taken = Instant::now();
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return,
                Err(errno) => return self.fail(errno),
            }
        }
        self.queue.clear();
        self.written = 0;
    }

    /// Since when something waits and nothing was taken.
    pub(super) fn unread_since(&self) -> Option<Instant> {
        (self.waiting() > 0).then_some(self.taken)
    }

    /// Drops what waits, and whatever still comes.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
        self.forget();
        self.owners.drop_all(&mut self.dropped);
    }

    fn forget(&mut self) {
        self.queue = Vec::new();
        self.written = 0;
    }

    fn fail(&mut self, errno: nix::Error) {
        self.gone = true;
        self.forget();
        self.owners.clear();
        if errno != nix::Error::EPIPE {
            self.failure = Some(errno.into());
        }
    }

    /// Watches the descriptor exactly while something waits for it.
    pub(super) fn watch(&mut self) {
        let (want, token) = (self.waiting() > 0 && !self.gone, Token::Sink(self.stream.number));
        self.poller.want_write(self.stream.fd(), token, want, &mut self.watched);
    }
}
