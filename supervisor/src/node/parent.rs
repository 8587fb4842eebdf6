//! The link to the parent.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::event_loop::{Poller, Token};
use crate::tree::frames::{Inbox, Lane, Outbox};
use crate::tree::message::{Down, Up};

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

/// See the module.
#[derive(Debug)]
pub(super) struct Parent {
    input: OwnedFd,
    output: OwnedFd,
    inbox: Inbox,
    outbox: Outbox,
    buffer: Vec<u8>,
    watched: bool,
    /// When something was last heard and said, milliseconds.
    pub(super) heard: u64,
    pub(super) said: u64,
    pub(super) gone: bool,
}

impl Parent {
    pub(super) fn new(poller: &Poller, input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        poller.add_read(input.as_fd(), Token::ParentIn)?;
        Ok(Self {
            input,
            output,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            buffer: vec![0; 64 * 1024],
            watched: false,
            heard: 0,
            said: 0,
            gone: false,
        })
    }

    /// Waits until it has sent something, at most so many milliseconds.
    pub(super) fn has_spoken(&self, limit: u64) -> bool {
        let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let mut entry = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
        poll(&mut entry, timeout).is_ok_and(|count| count > 0)
    }

    /// What it has sent; the text when the link is over.
    pub(super) fn read(&mut self, now: u64, out: &mut Vec<Down>) -> Result<(), String> {
        let end = loop {
            match nix::unistd::read(&self.input, &mut self.buffer) {
                Ok(0) => break Some("it closed the connection".to_owned()),
                Ok(count) => {
                    self.heard = now;
                    self.inbox.push(&self.buffer[..count]);
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break None,
                Err(errno) => break Some(errno.desc().to_owned()),
            }
            if let Err(problem) = self.messages(out) {
                break Some(problem);
            }
        };
        end.map_or(Ok(()), Err)
    }

    fn messages(&mut self, out: &mut Vec<Down>) -> Result<(), String> {
        while let Some(message) = self.inbox.take().map_err(|error| error.to_string())? {
            out.push(Down::decode(&message).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    pub(super) fn send(&mut self, poller: &Poller, up: &Up, now: u64) {
        self.send_encoded(poller, up.lane(), up.encode(), now);
    }

    fn send_encoded(&mut self, poller: &Poller, lane: Lane, message: Rc<Vec<u8>>, now: u64) {
        self.queue(lane, message, now);
        self.write(poller);
    }

    /// Puts a message behind the others; [`Parent::write`] sends it. Each write wakes the server of
    /// the login.
    pub(super) fn queue(&mut self, lane: Lane, message: Rc<Vec<u8>>, now: u64) {
        if !self.gone {
            self.outbox.push(lane, message);
            self.said = now;
        }
    }

    /// Writes what waits, and watches for room as long as something does.
    pub(super) fn write(&mut self, poller: &Poller) {
        if self.outbox.write(&self.output).is_err() {
            // Its end shows on the other pipe, too.
            self.outbox.clear();
        }
        let want = !self.outbox.is_empty();
        if want && !self.watched {
            self.watched = poller.add_write(self.output.as_fd(), Token::ParentOut).is_ok();
        } else if !want && self.watched {
            poller.remove(&self.output);
            self.watched = false;
        }
    }

    /// Whether everything has been written.
    pub(super) fn is_written(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Nothing more goes or comes.
    pub(super) fn close(&mut self, poller: &Poller) {
        self.gone = true;
        self.outbox.clear();
        poller.remove(&self.input);
        if std::mem::take(&mut self.watched) {
            poller.remove(&self.output);
        }
    }
}
