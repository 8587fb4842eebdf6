//! Feeds our standard input to ranks through pipes, when it cannot simply be inherited: a terminal
//! (ranks are in other process groups and must not read it), or several readers.
//!
//! Byte-exact, with the slowest reader setting the pace: nothing is read before the last piece is
//! with everyone. The user's descriptor keeps its flags.

use std::os::fd::OwnedFd;

use nix::poll::PollFlags;
use settings::deadlines::agent::TERMINAL_RETRY;

use super::spawn::Input;
use super::standard::Standard;
use crate::event_loop::{Poller, Token};
use crate::plan::{JobPlan, StdinTo};

const PIECE: usize = 64 * 1024;
/// Pieces moved in a row before others get their turn.
const BATCH: usize = 16;

/// Where `rank`'s standard input comes from under `plan`. `ours` says that the launcher's standard
/// input is that of the process that starts ranks, and no terminal, which they must not read.
pub(super) fn for_rank(plan: &JobPlan, rank: u32, ours: bool) -> Input {
    match plan.stdin {
        StdinTo::None => Input::Empty,
        StdinTo::Rank(reader) if reader.0 != rank => Input::Empty,
        StdinTo::All if plan.size > 1 => Input::Pipe,
        _ if ours => Input::Inherited,
        _ => Input::Pipe,
    }
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
#[derive(Debug)]
pub(crate) struct Readers {
    poller: Poller,
    readers: Vec<Reader>,
    piece: Vec<u8>,
    len: usize,
}

/// Our own standard input, as what readers are fed from.
#[derive(Debug)]
pub(crate) struct Feed {
    poller: Poller,
    stream: Standard,
    watched: bool,
    pub(crate) ended: bool,
    /// The terminal belongs to another job: when to look again, although nothing is ready.
    pub(crate) parked: Option<u64>,
}

enum Got {
    Bytes(usize),
    Nothing,
    Foreign,
    End,
}

impl Feed {
    pub(crate) fn new(poller: &Poller) -> Self {
        let (poller, stream) = (poller.clone(), Standard::open(0));
        Self { poller, stream, watched: false, ended: false, parked: None }
    }

    /// The launcher was continued: the terminal may be ours again.
    pub(crate) const fn unpark(&mut self) {
        if self.parked.is_some() {
            self.parked = Some(0);
        }
    }

    /// Moves bytes to `readers` as far as possible now; `true` when it could go on at once.
    pub(crate) fn step(&mut self, readers: &mut Readers, now: u64) -> bool {
        for _ in 0..BATCH {
            if self.is_parked(now) {
                return false;
            }
            if self.ended || readers.is_empty() || !readers.give() {
                self.watch(false);
                return false;
            }
            if !self.fill(&mut readers.piece, now) {
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
    pub(crate) fn piece(&mut self, now: u64) -> Option<Vec<u8>> {
        let mut piece = Vec::new();
        if self.ended || self.is_parked(now) {
            return None;
        }
        self.fill(&mut piece, now).then_some(piece)
    }

    fn fill(&mut self, piece: &mut Vec<u8>, now: u64) -> bool {
        match self.get(piece) {
            Got::Bytes(count) => {
                piece.truncate(count);
                return true;
            }
            Got::Nothing => self.watch(true),
            Got::Foreign => {
                self.watch(false);
                self.parked = Some(now.saturating_add(TERMINAL_RETRY.ms()));
            }
            Got::End => {
                self.watch(false);
                self.ended = true;
            }
        }
        false
    }

    fn get(&self, piece: &mut Vec<u8>) -> Got {
        let stream = &self.stream;
        if stream.terminal && !stream.is_foreground() {
            return Got::Foreign;
        }
        if stream.blocks() && !stream.is_ready(PollFlags::POLLIN) {
            return Got::Nothing;
        }
        piece.resize(PIECE, 0);
        match nix::unistd::read(stream.fd(), piece) {
            Ok(0) => Got::End,
            Ok(count) => Got::Bytes(count),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Got::Nothing,
            Err(nix::Error::EIO) if stream.terminal && !stream.is_foreground() => Got::Foreign,
            Err(_) => Got::End,
        }
    }

    pub(crate) fn watch(&mut self, want: bool) {
        if want && !self.watched {
            self.watched = self.poller.add_read(self.stream.fd(), Token::Input).is_ok();
        } else if !want && std::mem::take(&mut self.watched) {
            self.poller.remove(self.stream.fd());
        }
    }
}

impl Readers {
    pub(super) fn new(poller: &Poller) -> Self {
        Self { poller: poller.clone(), readers: Vec::new(), piece: Vec::new(), len: 0 }
    }

    /// One more rank reads; `local` is its number on this host.
    pub(super) fn add(&mut self, local: u32, pipe: OwnedFd) {
        self.readers.push(Reader { rank: local, pipe, taken: self.len, watched: false });
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.readers.is_empty()
    }

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
    pub(crate) fn give(&mut self) -> bool {
        let (poller, piece, len) = (&self.poller, &self.piece, self.len);
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
            let (want, token) = (reader.taken < len, Token::Feed(reader.rank));
            poller.want_write(&reader.pipe, token, want, &mut reader.watched);
            true
        });
        self.readers.iter().all(|reader| reader.taken == len)
    }
}
