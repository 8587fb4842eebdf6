//! The byte stream to a PMI server: every read and write has a deadline.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, recv, send};
use settings::deadlines::Deadline;
use settings::deadlines::bootstrap::PM_WATCH;

use super::process_manager::{ProcessManagerError, unwatched};
use crate::wire::{self, Fields, MAX_MESSAGE, PmiVersion};
use bootstrap::service::Error;
use bootstrap::sys::{self, PeerSocket};
use bootstrap::wait::{Wait, Watch};

/// A connection and what was read from it too early.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) manager: &'static str,
    /// How messages are cut; PMI-1 until the server has agreed to PMI-2.
    pub(super) version: PmiVersion,
    source: PeerSocket,
    answer: Deadline,
    buffer: Vec<u8>,
}

impl Stream {
    pub(super) const fn new(source: PeerSocket, answer: Deadline) -> Self {
        let version = PmiVersion::One;
        Self { manager: version.name(), version, source, answer, buffer: Vec::new() }
    }

    /// Number of the descriptor, for exit paths.
    pub(super) fn number(&self) -> i32 {
        self.source.as_fd().as_raw_fd()
    }

    /// A wait for one answer.
    pub(super) fn wait(&self, during: &'static str) -> Wait<'static> {
        Wait::new(during, self.answer)
    }

    /// Sends a command and receives its answer, which must be `expected`.
    pub(super) fn exchange(
        &mut self,
        wait: &Wait<'_>,
        body: &str,
        expected: &str,
        watch: &mut Watch<'_>,
    ) -> Result<Fields, Error> {
        let message = self.version.message(body);
        self.send(message.as_bytes(), &self.wait(wait.during()))?;
        self.receive(wait, expected, watch)
    }

    /// As [`Stream::exchange`] within the time for one answer, which must not be a refusal.
    pub(super) fn ask(
        &mut self,
        during: &'static str,
        body: &str,
        expected: &str,
    ) -> Result<Fields, Error> {
        let answer = self.exchange(&self.wait(during), body, expected, &mut unwatched())?;
        self.accepted(during, &answer)?;
        Ok(answer)
    }

    /// The next answer, which must be `expected`.
    pub(super) fn receive(
        &mut self,
        wait: &Wait<'_>,
        expected: &str,
        watch: &mut Watch<'_>,
    ) -> Result<Fields, Error> {
        let text = match self.version {
            PmiVersion::One => self.line(wait, watch)?,
            PmiVersion::Two => self.frame(wait, watch)?,
        };
        let fields = Fields::parse(&text, self.version.separator())
            .and_then(|f| f.expect(expected).map(|()| f));
        fields.map_err(|problem| self.nonsense(wait.during(), problem, &text))
    }

    /// A field that must be there.
    pub(super) fn need(
        &self,
        during: &'static str,
        answer: &Fields,
        name: &str,
    ) -> Result<String, Error> {
        let value = answer.need(name).map(str::to_owned);
        value.map_err(|problem| self.nonsense(during, problem, ""))
    }

    /// As [`Stream::need`], a number.
    pub(super) fn integer(
        &self,
        during: &'static str,
        answer: &Fields,
        name: &str,
    ) -> Result<i64, Error> {
        answer.number(name).map_err(|problem| self.nonsense(during, problem, ""))
    }

    /// Why the server refused, if it did.
    pub(super) fn refusal(
        &self,
        during: &'static str,
        answer: &Fields,
    ) -> Result<Option<String>, Error> {
        answer.refusal().map_err(|problem| self.nonsense(during, problem, ""))
    }

    /// Fails when the server refused.
    pub(super) fn accepted(&self, during: &'static str, answer: &Fields) -> Result<(), Error> {
        let manager = self.manager;
        let refused = |reason| ProcessManagerError::Refused { manager, during, reason }.into();
        self.refusal(during, answer)?.map_or(Ok(()), |reason| Err(refused(reason)))
    }

    /// The server speaks another version.
    pub(super) fn wrong_version(&self, seen: String, ours: &'static str) -> Error {
        let advice = "ask the launcher for PMI-1 or PMI-2 (srun --mpi=pmi2)";
        ProcessManagerError::Version { manager: self.manager, seen, ours, advice }.into()
    }

    pub(super) fn nonsense(&self, during: &'static str, problem: String, seen: &str) -> Error {
        let seen = seen.chars().take(200).collect();
        ProcessManagerError::Nonsense { manager: self.manager, during, problem, seen }.into()
    }

    fn os(&self, operation: &str, source: impl Into<io::Error>) -> Error {
        let (manager, operation) = (self.manager, operation.to_owned());
        ProcessManagerError::Os { manager, operation, source: source.into() }.into()
    }

    fn ready(
        &self,
        events: PollFlags,
        wait: &Wait<'_>,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        loop {
            let slice = wait.slice()?.min(PM_WATCH.limit);
            let ready = sys::ready(&[self.source.as_fd()], events, slice);
            let ready = ready.map_err(|error| self.os("wait for the server", error))?;
            if !ready.is_empty() {
                return Ok(());
            }
            watch()?;
        }
    }

    /// Sends all of `bytes`.
    fn send(&mut self, bytes: &[u8], wait: &Wait<'_>) -> Result<(), Error> {
        let mut rest = bytes;
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        while !rest.is_empty() {
            match send(self.number(), rest, flags) {
                Ok(sent) => rest = &rest[sent.min(rest.len())..],
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => {
                    self.ready(PollFlags::POLLOUT, wait, &mut unwatched())?
                }
                Err(nix::Error::EPIPE | nix::Error::ECONNRESET) => return Err(self.closed(wait)),
                Err(errno) => return Err(self.os("send to the server", errno)),
            }
        }
        Ok(())
    }

    fn closed(&self, wait: &Wait<'_>) -> Error {
        ProcessManagerError::Closed { manager: self.manager, during: wait.during() }.into()
    }

    /// Reads some more bytes into the buffer.
    fn fill(&mut self, wait: &Wait<'_>, watch: &mut Watch<'_>) -> Result<(), Error> {
        let mut piece = [0; 4096];
        loop {
            match recv(self.number(), &mut piece, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(self.closed(wait)),
                Ok(len) => {
                    self.buffer.extend_from_slice(&piece[..len]);
                    return Ok(());
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => self.ready(PollFlags::POLLIN, wait, watch)?,
                Err(nix::Error::ECONNRESET) => return Err(self.closed(wait)),
                Err(errno) => return Err(self.os("receive from the server", errno)),
            }
        }
    }

    fn take(&mut self, len: usize, wait: &Wait<'_>) -> Result<String, Error> {
        let bytes: Vec<u8> = self.buffer.drain(..len).collect();
        String::from_utf8(bytes).map_err(|error| {
            let seen = String::from_utf8_lossy(error.as_bytes()).into_owned();
            self.nonsense(wait.during(), "it is no text".to_owned(), &seen)
        })
    }

    /// The next line, without its end.
    fn line(&mut self, wait: &Wait<'_>, watch: &mut Watch<'_>) -> Result<String, Error> {
        let mut looked = 0;
        loop {
            if let Some(at) = self.buffer[looked..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.take(looked + at + 1, wait)?;
                line.pop();
                return Ok(line);
            }
            looked = self.buffer.len();
            if looked > MAX_MESSAGE {
                let seen = String::from_utf8_lossy(&self.buffer[..200]).into_owned();
                let problem = format!("a line of more than {MAX_MESSAGE} bytes");
                return Err(self.nonsense(wait.during(), problem, &seen));
            }
            self.fill(wait, watch)?;
        }
    }

    /// The body of the next message that has its length in front.
    fn frame(&mut self, wait: &Wait<'_>, watch: &mut Watch<'_>) -> Result<String, Error> {
        let columns = loop {
            if let Some((columns, _)) = self.buffer.split_first_chunk::<6>() {
                break *columns;
            }
            self.fill(wait, watch)?;
        };
        let length = wire::frame_length(&columns).map_err(|problem| {
            let seen = String::from_utf8_lossy(&self.buffer).into_owned();
            self.nonsense(wait.during(), problem, &seen)
        })?;
        while self.buffer.len() < 6 + length {
            self.fill(wait, watch)?;
        }
        self.buffer.drain(..6);
        self.take(length, wait)
    }
}

/// Connects to `host:port`.
pub(super) fn dial(
    manager: &'static str,
    address: &str,
    bound: Deadline,
) -> Result<PeerSocket, Error> {
    use std::net::{TcpStream, ToSocketAddrs};
    let os = |source: io::Error| -> Error {
        ProcessManagerError::Os { manager, operation: format!("connect to {address}"), source }
            .into()
    };
    let mut last = io::Error::other("no such address");
    for one in address.to_socket_addrs().map_err(os)? {
        match TcpStream::connect_timeout(&one, bound.limit) {
            Ok(stream) => return Ok(OwnedFd::from(stream).into()),
            Err(error) => last = error,
        }
    }
    Err(os(last))
}
