//! Our own standard output and error, written without ever blocking the agent.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use crate::event_loop::{Poller, Token};

/// Queue length of a sink above which the pipes behind it are not read, and below which they are
/// again.
pub(super) const HIGH: usize = 512 * 1024;
pub(super) const LOW: usize = 128 * 1024;
/// Bytes that a descriptor which reports "writable" takes without blocking.
const SURE: usize = 4096;

/// How a sink's descriptor is written without ever blocking the agent.
#[derive(Debug)]
enum Target {
    /// A description of our own of the same pipe or terminal, non-blocking; the user's stays as it
    /// is.
    Reopened(OwnedFd),
    /// A file: writes do not wait for a reader.
    Direct,
    /// Anything else: ask first, then write little.
    Asked,
}

/// One of our own standard streams, or both when they are the same thing.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) number: u8,
    target: Target,
    queue: Vec<u8>,
    written: usize,
    watched: bool,
    pub(super) terminal: bool,
    /// Its reader has gone, or it cannot be written for another reason.
    pub(super) gone: bool,
    pub(super) failure: Option<io::Error>,
}

pub(super) fn standard(number: u8) -> BorrowedFd<'static> {
    // The borrowed descriptor of a `Stdout` handle lives as long as the process.
    static OUT: OnceLock<io::Stdout> = OnceLock::new();
    static ERR: OnceLock<io::Stderr> = OnceLock::new();
    if number == 1 {
        OUT.get_or_init(io::stdout).as_fd()
    } else {
        ERR.get_or_init(io::stderr).as_fd()
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

impl Sink {
    pub(super) fn new(number: u8) -> Self {
        let reopen = || {
            let path = format!("/proc/self/fd/{number}");
            let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            nix::fcntl::open(Path::new(&path), flags, Mode::empty()).ok().map(Target::Reopened)
        };
        let target = match fstat(standard(number)).map(|stat| kind(&stat)) {
            Ok(SFlag::S_IFREG) => Target::Direct,
            Ok(SFlag::S_IFIFO | SFlag::S_IFCHR) => reopen().unwrap_or(Target::Asked),
            _ => Target::Asked,
        };
        Self {
            number,
            target,
            queue: Vec::new(),
            written: 0,
            watched: false,
            terminal: nix::unistd::isatty(standard(number)).unwrap_or(false),
            gone: false,
            failure: None,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.target {
            Target::Reopened(fd) => fd.as_fd(),
            Target::Direct | Target::Asked => standard(self.number),
        }
    }

    /// What it is written to, when that has a name.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.number)).ok()?;
        path.is_absolute().then_some(path)
    }

    pub(super) const fn waiting(&self) -> usize {
        self.queue.len() - self.written
    }

    /// Writes what the descriptor takes now; the number of bytes.
    fn write_some(&self, parts: &[&[u8]]) -> nix::Result<usize> {
        if matches!(self.target, Target::Asked) {
            let mut ask = [PollFd::new(self.fd(), PollFlags::POLLOUT)];
            if poll(&mut ask, PollTimeout::ZERO)? == 0 {
                return Err(nix::Error::EAGAIN);
            }
            let part = parts.iter().find(|part| !part.is_empty()).copied().unwrap_or_default();
            return nix::unistd::write(self.fd(), &part[..part.len().min(SURE)]);
        }
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        nix::sys::uio::writev(self.fd(), &slices)
    }

    /// Appends bytes that belong together.
    pub(super) fn push(&mut self, parts: &[&[u8]]) {
        if self.gone {
            return;
        }
        let mut skip = 0;
        if self.waiting() == 0 {
            match self.write_some(parts) {
                Ok(count) => skip = count,
                Err(nix::Error::EAGAIN | nix::Error::EINTR) => {}
                Err(errno) => return self.fail(errno),
            }
        }
        for part in parts {
            let here = skip.min(part.len());
            skip -= here;
            self.queue.extend_from_slice(&part[here..]);
        }
        if self.waiting() > 0 && matches!(self.target, Target::Direct) {
            self.flush();
        }
    }

    /// Writes the queue as far as possible now.
    pub(super) fn flush(&mut self) {
        while self.waiting() > 0 && !self.gone {
            match self.write_some(&[&self.queue[self.written..]]) {
                Ok(count) => self.written += count,
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => return,
                Err(errno) => return self.fail(errno),
            }
        }
        self.queue.clear();
        self.written = 0;
    }

    fn fail(&mut self, errno: nix::Error) {
        self.gone = true;
        self.queue = Vec::new();
        self.written = 0;
        if errno != nix::Error::EPIPE {
            self.failure = Some(errno.into());
        }
    }

    /// Watches the descriptor exactly while something waits for it.
    pub(super) fn watch(&mut self, poller: &Poller) {
        let want = self.waiting() > 0 && !self.gone;
        if want && !self.watched {
            // A descriptor that cannot be watched is always ready (files); it was written above.
            self.watched = poller.add_write(self.fd(), Token::Sink(self.number)).is_ok();
        } else if !want && self.watched {
            poller.remove(self.fd());
            self.watched = false;
        }
    }
}

/// Whether our standard output and error are one pipe, terminal or file.
pub(super) fn same_target() -> bool {
    match (fstat(standard(1)), fstat(standard(2))) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev),
        _ => false,
    }
}
