//! One link: its process, its pipes, and how far it has come.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use settings::deadlines::tree::{CHILD_SILENT, HEARTBEAT};
use spawner_ssh::builtin::{self, Session};

use super::process::Started;
use crate::agent::local_ranks::CpuSample;
use crate::agent::sys;
use crate::event_loop::{Pipe, Poller, Token};
use crate::report::End;
use crate::tree::frames::{Inbox, Outbox};
use crate::tree::message::Member;
use spawner_ssh::marker::Search;

/// Most standard error that is kept of a process.
const MAX_STDERR: usize = 16 * 1024;
/// Bytes read in a row from one link before the others get their turn.
pub(super) const TURN: usize = 256 * 1024;

/// A question about CPU times, with the answers so far and who owes one.
#[derive(Debug)]
pub(crate) struct CpuQuestion {
    pub(crate) number: u32,
    pub(crate) sample: CpuSample,
    /// When this host is to be looked at, if it is and was not.
    pub(super) own: Option<u64>,
    /// The links that owe an answer.
    pub(super) waiting: HashSet<usize>,
}

/// How far a link has come. Times are milliseconds on the owner's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// To be started at this time.
    Queued { at: u64 },
    /// Started; its first word is awaited.
    Silent { since: u64 },
    /// Its agent has answered.
    Open,
    /// Nothing more comes of it.
    #[default]
    Over,
}

#[derive(Debug, Default)]
pub(super) struct Link {
    number: u32,
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
    /// The ssh program logs in, for this reason, although the client of our own was to.
    pub(super) program: Option<String>,
    /// How a client of our own ended, in place of a process.
    pub(super) session: Option<Arc<OnceLock<End>>>,
    pub(super) eof: Option<u64>,
    pub(super) to: Option<OwnedFd>,
    pub(super) from: Option<File>,
    pub(super) err: Option<File>,
    pub(super) stderr: Vec<u8>,
    pub(super) search: Search,
    pub(super) inbox: Inbox,
    /// First lines for the script, and the agent's program; messages once it is open.
    pub(super) outbox: Outbox,
    watched: bool,
    pub(super) heard: u64,
    pub(super) said: u64,
    /// Its subtree has said all there is to say about its start.
    pub(super) standing: bool,
    /// Its subtree is drained.
    pub(super) done: bool,
    /// Bytes of output that it sent and was not given credit for again.
    pub(super) owed: u32,
}

impl Link {
    pub(super) fn new(number: usize, hosts: Vec<Member>, at: u64) -> Self {
        // There are as many links as hosts at most.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let phase = Phase::Queued { at };
        Self { number, hosts, phase, heard: at, said: at, ..Self::default() }
    }

    pub(super) fn is_here(&self) -> bool {
        self.hosts.first().is_some_and(|(_, host)| host.here)
    }

    /// When an open link is to be looked at although nothing comes.
    pub(super) fn next_look(&self) -> u64 {
        let lost = self.heard.saturating_add(CHILD_SILENT.ms());
        let ping = self.said.saturating_add(HEARTBEAT.ms());
        if self.to.is_some() { lost.min(ping) } else { lost }
    }

    /// Takes over a process that was just started.
    pub(super) fn attach(&mut self, poller: &Poller, started: Started, now: u64) -> io::Result<()> {
        (self.pid, self.session) = (Some(started.pid), None);
        self.begin(poller, started.streams, now)
    }

    /// Takes over a client of our own that was just started.
    pub(super) fn attach_session(
        &mut self,
        poller: &Poller,
        session: Session,
        now: u64,
    ) -> io::Result<()> {
        (self.pid, self.session) = (None, Some(session.end));
        self.begin(poller, [session.to, session.from, session.err], now)
    }

    fn begin(&mut self, poller: &Poller, streams: [OwnedFd; 3], now: u64) -> io::Result<()> {
        (self.ended, self.eof) = (None, None);
        self.search = Search::default();
        self.inbox = Inbox::default();
        self.outbox.clear();
        self.stderr.clear();
        (self.heard, self.said) = (now, now);
        self.phase = Phase::Silent { since: now };
        for fd in &streams {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let [to, from, err] = streams;
        poller.add_read(&from, Token::Link(self.number, Pipe::From))?;
        poller.add_read(&err, Token::Link(self.number, Pipe::Err))?;
        (self.to, self.from, self.err) = (Some(to), Some(File::from(from)), Some(File::from(err)));
        self.watched = false;
        Ok(())
    }

    /// Ends what is left of the process and forgets its pipes. It is reaped as any child.
    pub(super) fn cut(&mut self) {
        // Closing takes them out of the epoll set, too.
        (self.to, self.from, self.err) = (None, None, None);
        self.watched = false;
        self.outbox.clear();
        if let (Some(pid), None) = (self.pid, self.ended) {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
    }

    pub(super) fn end(&mut self) {
        self.cut();
        self.phase = Phase::Over;
    }

    /// Writes what waits, and watches for room as long as something does.
    pub(super) fn write(&mut self, poller: &Poller) {
        let Some(to) = &self.to else { return };
        if self.outbox.write(to).is_err() {
            // Its output ends, too, and tells more.
            self.to = None;
            self.watched = false;
            return;
        }
        let token = Token::Link(self.number, Pipe::To);
        poller.want_write(to, token, !self.outbox.is_empty(), &mut self.watched);
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
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
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
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.err = None,
            }
        }
    }

    /// Whether its client of our own leaves the login to the ssh program.
    pub(super) fn is_handed_over(&self) -> bool {
        self.session.is_some() && self.ended == Some(End::Code(builtin::CODE_PROGRAM))
    }

    /// The last line of what was said.
    pub(super) fn last_line(&self) -> Option<String> {
        let said = self.complaint();
        said.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }

    pub(super) fn complaint(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}
