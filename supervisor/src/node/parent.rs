//! The link to the parent.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use settings::deadlines::tree::{HEARTBEAT, PARENT_SILENT};

use crate::agent::processes;
use crate::event_loop::{Poller, Token};
use crate::link::Late;
use crate::tree::frames::{Inbox, Lane, Outbox};
use crate::tree::message::{Down, Up, decode, encode};

/// Our first word, which is no message yet.
pub(super) fn greet(output: &OwnedFd, line: &str) -> io::Result<()> {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match nix::unistd::write(output, rest) {
            Ok(count) => rest = &rest[count..],
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => std::thread::yield_now(),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[derive(Debug)]
pub(super) struct Parent {
    pub(super) poller: Poller,
    input: OwnedFd,
    output: OwnedFd,
    inbox: Inbox,
    outbox: Outbox,
    buffer: Vec<u8>,
    watched: bool,
    /// When something was last heard and said, milliseconds.
    pub(super) heard: u64,
    said: u64,
    pub(super) gone: bool,
    late: Late,
}

impl Parent {
    pub(super) fn new(poller: &Poller, input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        poller.add_read(&input, Token::ParentIn)?;
        Ok(Self {
            poller: poller.clone(),
            input,
            output,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            buffer: vec![0; 64 * 1024],
            watched: false,
            heard: 0,
            said: 0,
            gone: false,
            late: Late::default(),
        })
    }

    /// When it is to be looked at although nothing comes.
    pub(super) fn next_look(&self) -> u64 {
        self.heard.saturating_add(PARENT_SILENT.ms()).min(self.ping_due())
    }

    /// Whether it has been silent for too long. To be asked in each turn.
    pub(super) fn is_silent(&mut self) -> bool {
        let now = self.poller.now();
        self.heard = self.late.forgive(self.heard, now);
        // What is due now, the turn does.
        let next = self.heard.saturating_add(PARENT_SILENT.ms()).min(now + HEARTBEAT.ms());
        self.late.plan(Some(next), now);
        now >= self.heard.saturating_add(PARENT_SILENT.ms())
    }

    /// When it must be told that we live.
    pub(super) fn ping_due(&self) -> u64 {
        self.said.saturating_add(HEARTBEAT.ms())
    }

    /// Waits until it has sent something, at most so many milliseconds, and reads it.
    pub(super) fn wait(&mut self, limit: u64, out: &mut Vec<Down>) -> Result<(), String> {
        match processes::is_readable(&self.input, Duration::from_millis(limit)) {
            Ok(true) => self.read(out),
            _ => Ok(()),
        }
    }

    /// What it has sent; the text when the link is over.
    pub(super) fn read(&mut self, out: &mut Vec<Down>) -> Result<(), String> {
        loop {
            match nix::unistd::read(&self.input, &mut self.buffer) {
                Ok(0) => return Err("it closed the connection".to_owned()),
                Ok(count) => {
                    self.heard = self.poller.now();
                    self.inbox.push(&self.buffer[..count]);
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return Ok(()),
                Err(errno) => return Err(errno.desc().to_owned()),
            }
            while let Some(message) = self.inbox.take().map_err(|error| error.to_string())? {
                out.push(decode(&message).map_err(|error| error.to_string())?);
            }
        }
    }

    pub(super) fn send(&mut self, up: &Up) {
        self.queue(up);
        self.write();
    }

    /// Puts a message behind the others; [`Parent::write`] sends it, with what else the turn brings.
    /// Each write wakes the server of the login.
    pub(super) fn queue(&mut self, up: &Up) {
        self.queue_encoded(up.lane(), encode(up));
    }

    pub(super) fn queue_encoded(&mut self, lane: Lane, message: Rc<Vec<u8>>) {
        if !self.gone {
            self.outbox.push(lane, message);
            self.said = self.poller.now();
        }
    }

    /// Writes what waits, and watches for room as long as something does.
    pub(super) fn write(&mut self) {
        if self.outbox.write(&self.output).is_err() {
            // Its end shows on the other pipe, too.
            self.outbox.clear();
        }
        let want = !self.outbox.is_empty();
        self.poller.want_write(&self.output, Token::ParentOut, want, &mut self.watched);
    }

    pub(super) fn is_written(&self) -> bool {
        self.outbox.is_empty()
    }

    pub(super) fn close(&mut self) {
        self.gone = true;
        self.outbox.clear();
        self.poller.remove(&self.input);
        self.poller.want_write(&self.output, Token::ParentOut, false, &mut self.watched);
    }
}
