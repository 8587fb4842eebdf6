//! The link to the launcher: its signals, and what it is told.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{MsgFlags, recv, send};

use super::job::Job;
use super::machine::Event;
use super::output::Output;
use crate::event_loop::{Poller, Sender};
use crate::report::HostRecord;
use crate::wire::{Inbox, Message, WireError};

/// Milliseconds between two progress messages.
const PROGRESS_EVERY: u64 = 50;

/// The agent's side of the socket.
#[derive(Debug)]
pub(crate) struct LauncherLink {
    socket: OwnedFd,
    inbox: Inbox,
    told: [u32; 3],
    told_at: u64,
    pub(crate) gone: bool,
}

impl LauncherLink {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, inbox: Inbox::default(), told: [0; 3], told_at: 0, gone: false }
    }

    /// What the launcher says: signals for the ranks, in order, and its end. Nonsense is its end,
    /// too.
    pub(crate) fn hear(&mut self, poller: &Poller) -> Vec<(Event, Option<Sender>)> {
        let mut lost = false;
        let mut bytes = [0; 4096];
        loop {
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(count) if count > 0 => self.inbox.push(&bytes[..count]),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Ok(_) | Err(_) => {
                    lost = true;
                    break;
                }
            }
        }
        let mut events = Vec::new();
        loop {
            match self.inbox.take() {
                Ok(Some(Message::Signal(signal, sender))) => {
                    events.push((Event::Signal(signal), sender));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    lost = true;
                    break;
                }
            }
        }
        if lost {
            events.extend(self.lose(poller).map(|lost| (lost, None)));
        }
        events
    }

    /// The launcher is gone. Nothing the second time.
    pub(crate) fn lose(&mut self, poller: &Poller) -> Option<Event> {
        if std::mem::replace(&mut self.gone, true) {
            return None;
        }
        poller.remove(&self.socket);
        Some(Event::LauncherLost)
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
        if let Ok(bytes) = Message::Progress(counts).encode() {
            // A launcher that is stopped does not read: then it misses a count, nothing else. A
            // message this small is sent whole or not at all.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(self.socket.as_raw_fd(), &bytes, flags);
        }
    }

    /// The last words: the counts, and the report of the job with the records of its `hosts`.
    /// Output that was lost is a failure.
    pub(crate) fn report(
        &mut self,
        job: &mut Job<'_>,
        output: &Output,
        orphans: u32,
        hosts: Vec<HostRecord>,
    ) -> Result<(), WireError> {
        self.tell(job.counts(), job.now(), true);
        let mut report = job.report(orphans, |rank| output.tail(rank));
        report.hosts = hosts;
        if report.exit_code == 0 && output.is_lost() {
            report.exit_code = 1;
        }
        let bytes = Message::Report(Box::new(report)).encode()?;
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
