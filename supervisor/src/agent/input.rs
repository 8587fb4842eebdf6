//! Feeds our standard input to ranks through pipes, when it cannot simply be inherited: a terminal
//! (ranks are in other process groups and must not read it), or several readers.
//!
//! Byte-exact, with the slowest reader setting the pace: nothing is read before the last piece is
//! with everyone. The user's descriptor keeps its flags.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat};
use settings::deadlines::agent::TERMINAL_RETRY;

use super::spawn::Input;
use crate::event_loop::{Poller, Token};
use crate::plan::{JobPlan, StdinTo};

const PIECE: usize = 64 * 1024;
/// Pieces moved in a row before others get their turn.
const BATCH: usize = 16;

fn standard() -> BorrowedFd<'static> {
    static IN: std::sync::OnceLock<io::Stdin> = std::sync::OnceLock::new();
    IN.get_or_init(io::stdin).as_fd()
}

/// What the launcher's standard input is to the process that starts ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// Its own, a terminal: ranks must not read it themselves.
    Terminal,
    /// Its own, and anything else.
    Own,
    /// Another host's.
    Far,
}

/// Where `rank`'s standard input comes from under `plan`.
pub(super) fn for_rank(plan: &JobPlan, rank: u32, stdin: Stdin) -> Input {
    match plan.stdin {
        StdinTo::None => Input::Empty,
        StdinTo::Rank(reader) if reader.0 != rank => Input::Empty,
        StdinTo::All if plan.size > 1 => Input::Pipe,
        _ if stdin != Stdin::Own => Input::Pipe,
        _ => Input::Inherited,
    }
}

/// Whether our standard input is a terminal.
pub(crate) fn is_terminal() -> bool {
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

/// The pipes of the ranks that read, and the piece that is being given to them. Dropping it closes
/// them.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    readers: Vec<Reader>,
    piece: Vec<u8>,
    len: usize,
}

/// Our own standard input, as what readers are fed from.
#[derive(Debug)]
pub(crate) struct Feed {
    source: Source,
    terminal: bool,
    watched: bool,
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
    pub(crate) fn new() -> Self {
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
        Self { source, terminal: is_terminal(), watched: false, ended: false, parked: None }
    }

    /// When to call [`Feed::step`] although nothing is ready.
    pub(crate) const fn deadline(&self) -> Option<u64> {
        self.parked
    }

    /// The launcher was continued: the terminal may be ours again.
    pub(crate) const fn unpark(&mut self) {
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

    /// Moves bytes to `readers` as far as possible now; `true` when it could go on at once.
    pub(crate) fn step(&mut self, poller: &Poller, readers: &mut Readers, now: u64) -> bool {
        for _ in 0..BATCH {
            if self.is_parked(now) {
                return false;
            }
            if self.ended || readers.is_empty() || !readers.give(poller) {
                self.watch(poller, false);
                return false;
            }
            if !self.fill(poller, &mut readers.piece, now) {
                if self.ended {
                    readers.close();
                }
                return false;
            }
            readers.begin();
        }
        true
    }

    fn is_parked(&mut self, now: u64) -> bool {
        if self.parked.is_some_and(|at| now < at) {
            return true;
        }
        self.parked = None;
        false
    }

    /// The next piece for somebody who gives it on himself; `None` when there is nothing now.
    pub(crate) fn piece(&mut self, poller: &Poller, now: u64) -> Option<Vec<u8>> {
        let mut piece = Vec::new();
        if self.ended || self.is_parked(now) {
            return None;
        }
        self.fill(poller, &mut piece, now).then_some(piece)
    }

    /// Whether everything has been read.
    pub(crate) const fn is_ended(&self) -> bool {
        self.ended
    }

    /// Nothing more is wanted for now.
    pub(crate) fn rest(&mut self, poller: &Poller) {
        self.watch(poller, false);
    }

    fn fill(&mut self, poller: &Poller, piece: &mut Vec<u8>, now: u64) -> bool {
        match self.get(piece) {
            Got::Bytes(count) => {
                piece.truncate(count);
                return true;
            }
            Got::Nothing => self.watch(poller, true),
            Got::Foreign => {
                self.watch(poller, false);
                self.parked = Some(now.saturating_add(TERMINAL_RETRY.ms()));
            }
            Got::End => {
                self.watch(poller, false);
                self.ended = true;
            }
        }
        false
    }

    fn get(&self, piece: &mut Vec<u8>) -> Got {
        if self.terminal && !self.is_foreground() {
            return Got::Foreign;
        }
        if matches!(self.source, Source::Asked) {
            let mut ask = [PollFd::new(standard(), PollFlags::POLLIN)];
            if poll(&mut ask, PollTimeout::ZERO) == Ok(0) {
                return Got::Nothing;
            }
        }
        piece.resize(PIECE, 0);
        match nix::unistd::read(self.fd(), piece) {
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

    fn watch(&mut self, poller: &Poller, want: bool) {
        if want && !self.watched {
            self.watched = poller.add_read(self.fd(), Token::Input).is_ok();
        } else if !want && self.watched {
            poller.remove(self.fd());
            self.watched = false;
        }
    }
}

impl Readers {
    /// One more rank reads; `local` is its number on this host.
    pub(super) fn add(&mut self, local: u32, pipe: OwnedFd) {
        self.readers.push(Reader { rank: local, pipe, taken: self.len, watched: false });
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

    /// End of input for everyone.
    pub(crate) fn close(&mut self) {
        self.readers.clear();
    }

    /// The next piece; everyone has the one before.
    pub(crate) fn load(&mut self, bytes: Vec<u8>) {
        self.piece = bytes;
        self.begin();
    }

    fn begin(&mut self) {
        self.len = self.piece.len();
        self.readers.iter_mut().for_each(|reader| reader.taken = 0);
    }

    /// Writes the current piece to everyone who lacks some of it; whether all have it.
    pub(crate) fn give(&mut self, poller: &Poller) -> bool {
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
}
