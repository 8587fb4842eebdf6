//! One link: its process, its pipes, and how far it has come.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use spawner_ssh::builtin::Session;

use super::process::Started;
use crate::agent::sys;
use crate::event_loop::{Pipe, Poller, Token};
use crate::report::End;
use crate::tree::frames::{Inbox, Lane, Outbox};
use crate::tree::message::Member;
use spawner_ssh::marker::Search;

/// Most standard error that is kept of a process.
const MAX_STDERR: usize = 16 * 1024;
/// Bytes read in a row from one link before the others get their turn.
pub(super) const TURN: usize = 256 * 1024;

/// How far a link has come. Times are milliseconds on the owner's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// To be started at this time.
    Queued { at: u64 },
    /// Started; its first word is awaited.
    Silent { since: u64 },
    /// Messages flow.
    Open,
    /// Nothing more comes of it.
    Over,
}

#[derive(Debug)]
pub(super) struct Link {
    /// The hosts behind it; its own is the first.
    pub(super) hosts: Vec<Member>,
    pub(super) phase: Phase,
    pub(super) attempts: u32,
    /// The agent's program is sent whether it is there or not.
    pub(super) send_agent: bool,
    /// The login shell is told the whole script and nothing else.
    pub(super) whole_script: bool,
    pub(super) pid: Option<i32>,
    pub(super) ended: Option<End>,
    /// How a client of our own ended, in place of a process.
    pub(super) session: Option<Arc<OnceLock<End>>>,
    /// When its output ended.
    pub(super) eof: Option<u64>,
    pub(super) to: Option<OwnedFd>,
    pub(super) from: Option<File>,
    pub(super) err: Option<File>,
    pub(super) stderr: Vec<u8>,
    pub(super) search: Search,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// What goes out before messages: lines for the script, the agent's program.
    pub(super) raw: Vec<u8>,
    pub(super) raw_at: usize,
    watched: bool,
    pub(super) heard: u64,
    pub(super) said: u64,
    /// Bytes of output that it sent and was not given credit for again.
    pub(super) owed: u32,
}

fn nonblocking(fd: &impl AsFd) -> std::io::Result<()> {
    Ok(fcntl(fd.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)?)
}

impl Link {
    pub(super) fn new(hosts: Vec<Member>, at: u64) -> Self {
        Self {
            hosts,
            phase: Phase::Queued { at },
            attempts: 0,
            send_agent: false,
            whole_script: false,
            pid: None,
            ended: None,
            session: None,
            eof: None,
            to: None,
            from: None,
            err: None,
            stderr: Vec::new(),
            search: Search::default(),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            raw: Vec::new(),
            raw_at: 0,
            watched: false,
            heard: at,
            said: at,
            owed: 0,
        }
    }

    /// Takes over a process that was just started.
    pub(super) fn attach(
        &mut self,
        poller: &Poller,
        number: u32,
        started: Started,
        now: u64,
    ) -> std::io::Result<()> {
        self.session = None;
        self.pid = Some(started.pid);
        self.begin(poller, number, started.streams, now)
    }

    /// Takes over a client of our own that was just started.
    pub(super) fn attach_session(
        &mut self,
        poller: &Poller,
        number: u32,
        session: Session,
        now: u64,
    ) -> std::io::Result<()> {
        self.pid = None;
        self.session = Some(session.end);
        self.begin(poller, number, [session.to, session.from, session.err], now)
    }

    fn begin(
        &mut self,
        poller: &Poller,
        number: u32,
        [to, from, err]: [OwnedFd; 3],
        now: u64,
    ) -> std::io::Result<()> {
        (self.ended, self.eof) = (None, None);
        self.search = Search::default();
        self.inbox = Inbox::default();
        self.outbox.clear();
        self.stderr.clear();
        (self.heard, self.said) = (now, now);
        self.phase = Phase::Silent { since: now };
        nonblocking(&to)?;
        nonblocking(&from)?;
        nonblocking(&err)?;
        poller.add_read(from.as_fd(), Token::Link(number, Pipe::From))?;
        poller.add_read(err.as_fd(), Token::Link(number, Pipe::Err))?;
        (self.to, self.from, self.err) = (Some(to), Some(File::from(from)), Some(File::from(err)));
        self.watched = false;
        Ok(())
    }

    /// Ends what is left of the process and forgets its pipes. It is reaped as any child.
    pub(super) fn cut(&mut self) {
        // Closing takes them out of the epoll set, too.
        (self.to, self.from, self.err) = (None, None, None);
        self.watched = false;
        self.raw.clear();
        self.raw_at = 0;
        if let (Some(pid), None) = (self.pid, self.ended) {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
    }

    pub(super) fn push(&mut self, lane: Lane, message: Rc<Vec<u8>>) {
        self.outbox.push(lane, message);
    }

    /// Writes what waits, and watches for room as long as something does.
    pub(super) fn write(&mut self, poller: &Poller, number: u32) {
        let Some(to) = &self.to else { return };
        let mut failed = false;
        while self.raw_at < self.raw.len() {
            match nix::unistd::write(to, &self.raw[self.raw_at..]) {
                Ok(count) => self.raw_at += count,
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => break,
                Err(_) => {
                    failed = true;
                    break;
                }
            }
        }
        if self.raw_at == self.raw.len() && !self.raw.is_empty() {
            self.raw = Vec::new();
            self.raw_at = 0;
        }
        if self.phase == Phase::Open && self.raw.is_empty() {
            failed |= self.outbox.write(to).is_err();
        }
        if failed {
            // Its output ends, too, and tells more.
            self.to = None;
            self.watched = false;
            return;
        }
        let want = !self.raw.is_empty() || (self.phase == Phase::Open && !self.outbox.is_empty());
        if want && !self.watched {
            self.watched = poller.add_write(to.as_fd(), Token::Link(number, Pipe::To)).is_ok();
        } else if !want && self.watched {
            poller.remove(to);
            self.watched = false;
        }
    }

    /// Whether a client of our own still works for it.
    pub(super) const fn has_session(&self) -> bool {
        self.session.is_some() && self.from.is_some()
    }

    /// Reads some of its output; `None` when there is nothing now.
    pub(super) fn read(&mut self, buffer: &mut [u8], now: u64) -> Option<usize> {
        let from = self.from.as_mut()?;
        match from.read(buffer) {
            Ok(0) => self.end_of_output(now),
            Ok(count) => {
                self.heard = now;
                return Some(count);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => self.end_of_output(now),
        }
        None
    }

    fn end_of_output(&mut self, now: u64) {
        self.from = None;
        self.eof.get_or_insert(now);
        if let Some(session) = &self.session {
            self.ended = session.get().copied();
        }
    }

    /// Reads its standard error.
    pub(super) fn read_stderr(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(err) = &mut self.err {
            match err.read(&mut buffer) {
                Ok(0) => self.err = None,
                Ok(count) => {
                    self.stderr.extend_from_slice(&buffer[..count]);
                    let over = self.stderr.len().saturating_sub(MAX_STDERR);
                    self.stderr.drain(..over);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => self.err = None,
            }
        }
    }

    /// Its standard error as text.
    pub(super) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}
