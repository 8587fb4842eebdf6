//! Feeds our standard input to ranks through pipes, when it cannot simply be inherited: a terminal (ranks are in other
//! process groups and must not read it), or several readers.
//!
//! Byte-exact, with the slowest reader setting the pace: nothing is read before the last piece is with everyone. The
//! user's descriptor keeps its flags.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::deadlines::TERMINAL_RETRY;
use super::poller::{Poller, Token};
use super::spawn::Input;
use crate::plan::{JobPlan, StdinTo};

const PIECE: usize = 64 * 1024;
/// Pieces moved in a row before others get their turn.
const BATCH: usize = 16;

fn standard() -> BorrowedFd<'static> {
    static IN: std::sync::OnceLock<io::Stdin> = std::sync::OnceLock::new();
    IN.get_or_init(io::stdin).as_fd()
}

/// Where `rank`'s standard input comes from under `plan`.
pub(super) fn for_rank(plan: &JobPlan, rank: u32, terminal: bool) -> Input {
    match plan.stdin {
        StdinTo::None => Input::Empty,
        StdinTo::Rank(reader) if reader.0 != rank => Input::Empty,
        StdinTo::All if plan.size > 1 => Input::Pipe,
        _ if terminal => Input::Pipe,
        _ => Input::Inherited,
    }
}

/// Whether our standard input is a terminal.
pub(super) fn is_terminal() -> bool {
    nix::unistd::isatty(standard()).unwrap_or(false)
}

#[derive(Debug)]
enum Source {
    /// A description of our own of the same pipe or terminal, non-blocking.
    Reopened(OwnedFd),
    /// A file: always ready.
    Always,
    /// Anything else: ask first.
    Asked,
}

#[derive(Debug)]
struct Reader {
    rank: u32,
    pipe: OwnedFd,
    /// How much of the current piece it has.
    taken: usize,
    watched: bool,
}

/// The feeder. Dropping it closes the ranks' pipes.
#[derive(Debug)]
pub(super) struct Feed {
    source: Source,
    terminal: bool,
    watched: bool,
    readers: Vec<Reader>,
    piece: Vec<u8>,
    len: usize,
    ended: bool,
    /// The terminal belongs to another job: when to look again.
    parked: Option<u64>,
}

enum Got {
    Bytes(usize),
    Nothing,
    Foreign,
    End,
}

impl Feed {
    pub(super) fn new() -> Self {
        let reopen = || {
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            nix::fcntl::open(Path::new("/proc/self/fd/0"), flags, Mode::empty())
                .ok()
                .map(Source::Reopened)
        };
        let kind =
            fstat(standard()).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let source = match kind {
            Ok(SFlag::S_IFREG) => Source::Always,
            Ok(SFlag::S_IFIFO | SFlag::S_IFCHR) => reopen().unwrap_or(Source::Asked),
            _ => Source::Asked,
        };
        Self {
            source,
            terminal: is_terminal(),
            watched: false,
            readers: Vec::new(),
            piece: Vec::new(),
            len: 0,
            ended: false,
            parked: None,
        }
    }

    /// One more rank reads.
    pub(super) fn add(&mut self, rank: u32, pipe: OwnedFd) {
        self.readers.push(Reader { rank, pipe, taken: self.len, watched: false });
    }

    /// When to call [`Feed::step`] although nothing is ready.
    pub(super) const fn deadline(&self) -> Option<u64> {
        self.parked
    }

    /// The launcher was continued: the terminal may be ours again.
    pub(super) const fn unpark(&mut self) {
        if self.parked.is_some() {
            self.parked = Some(0);
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Reopened(fd) => fd.as_fd(),
            Source::Always | Source::Asked => standard(),
        }
    }

    /// Moves bytes as far as possible now; `true` when it could go on at once.
    pub(super) fn step(&mut self, poller: &Poller, now: u64) -> bool {
        if self.parked.is_some_and(|at| now < at) {
            return false;
        }
        self.parked = None;
        for _ in 0..BATCH {
            if self.ended || self.readers.is_empty() || !self.give(poller) {
                self.watch(poller, false);
                return false;
            }
            match self.get() {
                Got::Bytes(count) => {
                    self.len = count;
                    self.readers.iter_mut().for_each(|reader| reader.taken = 0);
                }
                Got::Nothing => {
                    self.watch(poller, true);
                    return false;
                }
                Got::Foreign => {
                    self.watch(poller, false);
                    self.parked = Some(now.saturating_add(TERMINAL_RETRY.ms()));
                    return false;
                }
                Got::End => {
                    self.watch(poller, false);
                    self.ended = true;
                    self.readers.clear();
                    return false;
                }
            }
        }
        true
    }

    fn get(&mut self) -> Got {
        if self.terminal && !self.is_foreground() {
            return Got::Foreign;
        }
        if matches!(self.source, Source::Asked) {
            let mut ask = [PollFd::new(standard(), PollFlags::POLLIN)];
            if poll(&mut ask, PollTimeout::ZERO) == Ok(0) {
                return Got::Nothing;
            }
        }
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(PIECE, 0);
        let got = nix::unistd::read(self.fd(), &mut piece);
        self.piece = piece;
        match got {
            Ok(0) => Got::End,
            Ok(count) => Got::Bytes(count),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Got::Nothing,
            Err(nix::Error::EIO) if self.terminal && !self.is_foreground() => Got::Foreign,
            Err(_) => Got::End,
        }
    }

    fn is_foreground(&self) -> bool {
        // A terminal that is not our session's controlling one cannot be taken from us.
        nix::unistd::tcgetpgrp(standard()).is_ok_and(|group| group == nix::unistd::getpgrp())
            || nix::unistd::tcgetpgrp(standard()) == Err(nix::Error::ENOTTY)
    }

    /// Writes the current piece to everyone who lacks some of it; whether all have it.
    fn give(&mut self, poller: &Poller) -> bool {
        let (piece, len) = (&self.piece, self.len);
        self.readers.retain_mut(|reader| {
            while reader.taken < len {
                match nix::unistd::write(&reader.pipe, &piece[reader.taken..len]) {
                    Ok(count) => reader.taken += count,
                    Err(nix::Error::EINTR) => {}
                    Err(nix::Error::EAGAIN) => break,
                    // The rank has closed its standard input, or ended.
                    Err(_) => {
                        if reader.watched {
                            poller.remove(&reader.pipe);
                        }
                        return false;
                    }
                }
            }
            let want = reader.taken < len;
            if want && !reader.watched {
                reader.watched =
                    poller.add_write(reader.pipe.as_fd(), Token::Feed(reader.rank)).is_ok();
            } else if !want && reader.watched {
                poller.remove(&reader.pipe);
                reader.watched = false;
            }
            true
        });
        self.readers.iter().all(|reader| reader.taken == len)
    }

    fn watch(&mut self, poller: &Poller, want: bool) {
        if want && !self.watched {
            self.watched = poller.add_read(self.fd(), Token::Input).is_ok();
        } else if !want && self.watched {
            poller.remove(self.fd());
            self.watched = false;
        }
    }
}
