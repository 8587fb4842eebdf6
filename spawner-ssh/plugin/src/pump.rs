//! Bytes both ways between the pipes and the channel, until the end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ssh2::{BlockDirections, Channel, ErrorCode};

use crate::session::Ends;

/// Bytes moved at a time.
const PIECE: usize = 64 * 1024;
/// Number of libssh2.
const AGAIN: i32 = -37;

/// Bytes on their way from one side to the other.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl Buffer {
    fn new() -> Self {
        Self { bytes: vec![0; PIECE], at: 0, end: 0 }
    }

    const fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// Reads when it is empty. `None`: nothing now; 0: the end.
    fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<Option<usize>> {
        let got = now(read(&mut self.bytes))?;
        (self.at, self.end) = (0, got.unwrap_or(0));
        Ok(got)
    }

    /// Writes what is there; whether anything went.
    fn drain(
        &mut self,
        write: impl FnOnce(&[u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        let gone = now(write(&self.bytes[self.at..self.end]))?.unwrap_or(0);
        self.at += gone;
        Ok(gone > 0)
    }
}

/// `None` for what succeeds later.
fn now(result: std::io::Result<usize>) -> std::io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        result => result.map(Some),
    }
}

pub(crate) struct Pump<'a> {
    ends: Ends<'a>,
    socket: &'a TcpStream,
    down: Buffer,
    up: Buffer,
    err: Buffer,
    input_over: bool,
    told: bool,
}

impl<'a> Pump<'a> {
    pub(crate) fn new(ends: Ends<'a>, socket: &'a TcpStream) -> std::io::Result<Self> {
        for fd in [ends.input, ends.output, ends.err] {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let [down, up, err] = [Buffer::new(), Buffer::new(), Buffer::new()];
        Ok(Self { ends, socket, down, up, err, input_over: false, told: false })
    }

    /// Until the other side has closed its output and all of it is written.
    pub(crate) fn run(
        mut self,
        session: &ssh2::Session,
        channel: &mut Channel,
    ) -> std::io::Result<()> {
        loop {
            let moved = self.downwards(channel)? | self.upwards(channel)?;
            if channel.eof() && self.up.is_empty() && self.err.is_empty() && !moved {
                return Ok(());
            }
            if !moved {
                self.wait(session.block_directions())?;
            }
        }
    }

    fn downwards(&mut self, channel: &mut Channel) -> std::io::Result<bool> {
        let mut moved = false;
        if self.down.is_empty() && !self.input_over {
            let read = |bytes: &mut [u8]| Ok(nix::unistd::read(self.ends.input, bytes)?);
            match self.down.fill(read)? {
                Some(0) => self.input_over = true,
                got => moved |= got.is_some(),
            }
        }
        moved |= self.down.drain(|bytes| channel.write(bytes))?;
        if self.input_over && self.down.is_empty() && !self.told {
            match channel.send_eof() {
                Ok(()) => (self.told, moved) = (true, true),
                Err(error) if error.code() == ErrorCode::Session(AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(moved)
    }

    fn upwards(&mut self, channel: &mut Channel) -> std::io::Result<bool> {
        let mut moved = false;
        if self.up.is_empty() {
            moved |= self.up.fill(|bytes| channel.read(bytes))?.is_some_and(|count| count > 0);
        }
        if self.err.is_empty() {
            let mut stream = channel.stderr();
            moved |= self.err.fill(|bytes| stream.read(bytes))?.is_some_and(|count| count > 0);
        }
        let write = |to: BorrowedFd<'_>, bytes: &[u8]| Ok(nix::unistd::write(to, bytes)?);
        moved |= self.up.drain(|bytes| write(self.ends.output, bytes))?;
        moved |= self.err.drain(|bytes| write(self.ends.err, bytes))?;
        Ok(moved)
    }

    /// For anything that lets bytes move. The link may take any time: it has its own deadlines, and
    /// when it gives up it closes its ends, which wakes us.
    fn wait(&self, blocked: BlockDirections) -> std::io::Result<()> {
        let mut socket = PollFlags::empty();
        if self.up.is_empty() || !self.down.is_empty() {
            socket |= PollFlags::POLLIN;
        }
        if matches!(blocked, BlockDirections::Outbound | BlockDirections::Both) {
            socket |= PollFlags::POLLOUT;
        }
        let when = |wanted: bool, flags| if wanted { flags } else { PollFlags::empty() };
        let reads = !self.input_over && self.down.is_empty();
        let mut fds = vec![
            PollFd::new(self.socket.as_fd(), socket),
            PollFd::new(self.ends.output, when(!self.up.is_empty(), PollFlags::POLLOUT)),
            PollFd::new(self.ends.err, when(!self.err.is_empty(), PollFlags::POLLOUT)),
        ];
        if reads {
            fds.push(PollFd::new(self.ends.input, PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let gone = fds[1].revents().is_some_and(|seen| seen.contains(PollFlags::POLLERR));
        if gone {
            return Err(std::io::Error::new(ErrorKind::BrokenPipe, "nobody reads its output"));
        }
        Ok(())
    }
}
