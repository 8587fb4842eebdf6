//! Reads the output pipes of this host's ranks and hands what comes to an [`Outlet`].
//!
//! Back-pressure: while the outlet has no room for a stream, the pipes of that kind are not read.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use settings::deadlines::agent::DRAIN;

use super::output::PIECE;
use crate::event_loop::{Poller, Token, Which};

pub(crate) trait Outlet {
    /// Whether there is no room for more of this stream now.
    fn is_full(&self, which: Which) -> bool;
    /// Whether paused pipes of this stream may be read again.
    fn has_room(&self, which: Which) -> bool;
    /// Whether nobody will ever read this stream.
    fn is_gone(&self, which: Which) -> bool;
    fn take(&mut self, rank: u32, which: Which, data: &[u8]);
    fn end(&mut self, rank: u32, which: Which);
}

#[derive(Debug)]
struct Pipe {
    fd: Option<OwnedFd>,
    paused: bool,
}

#[derive(Debug)]
pub(crate) struct Capture {
    poller: Poller,
    /// `[out, err]` of each rank, with its number in the job.
    pipes: Vec<(u32, [Pipe; 2])>,
    open: usize,
    paused: usize,
    scratch: Vec<u8>,
}

/// The most that a pipe of an ordinary user holds.
const MOST_HELD: usize = 1 << 20;
const BOTH: [Which; 2] = [Which::Out, Which::Err];

impl Capture {
    pub(super) fn new(poller: &Poller) -> Self {
        let (poller, scratch) = (poller.clone(), vec![0; PIECE]);
        Self { poller, pipes: Vec::new(), open: 0, paused: 0, scratch }
    }

    /// Takes over the pipes of the next local rank (they come in order), `rank` in the job.
    pub(super) fn adopt(&mut self, rank: u32, out: OwnedFd, err: OwnedFd) -> io::Result<()> {
        let local = number(self.pipes.len());
        self.poller.add_read(&out, Token::Stream(local, Which::Out))?;
        self.poller.add_read(&err, Token::Stream(local, Which::Err))?;
        let pipe = |fd| Pipe { fd: Some(fd), paused: false };
        self.pipes.push((rank, [pipe(out), pipe(err)]));
        self.open += 2;
        Ok(())
    }

    pub(super) fn readable(&mut self, local: u32, which: Which, outlet: &mut dyn Outlet) {
        let Some((rank, pipes)) = self.pipes.get_mut(local as usize) else { return };
        let (rank, pipe) = (*rank, &mut pipes[which as usize]);
        let Some(fd) = &pipe.fd else { return };
        if outlet.is_full(which) {
            self.poller.remove(fd);
            pipe.paused = true;
            self.paused += 1;
            return;
        }
        match nix::unistd::read(fd, &mut self.scratch) {
            Ok(0) => self.end(local, which, outlet),
            Ok(count) => outlet.take(rank, which, &self.scratch[..count]),
            Err(nix::Error::EINTR | nix::Error::EAGAIN) => {}
            Err(_) => self.end(local, which, outlet),
        }
    }

    fn end(&mut self, local: u32, which: Which, outlet: &mut dyn Outlet) {
        let Some((rank, pipes)) = self.pipes.get_mut(local as usize) else { return };
        let pipe = &mut pipes[which as usize];
        // Closing takes it out of the epoll set, too: nobody else has this end.
        if pipe.fd.take().is_some() {
            self.paused -= usize::from(std::mem::take(&mut pipe.paused));
            self.open -= 1;
            outlet.end(*rank, which);
        }
    }

    /// After anything that changed the outlet: resume, or give up.
    pub(crate) fn settle(&mut self, outlet: &mut dyn Outlet) {
        if self.open == 0 {
            return;
        }
        for which in BOTH {
            if outlet.is_gone(which) {
                self.close(which, outlet);
            } else if self.paused > 0 && outlet.has_room(which) {
                self.resume(which);
            }
        }
    }

    pub(crate) fn close(&mut self, which: Which, outlet: &mut dyn Outlet) {
        for local in 0..number(self.pipes.len()) {
            self.end(local, which, outlet);
        }
    }

    fn resume(&mut self, which: Which) {
        for (local, (_, pipes)) in self.pipes.iter_mut().enumerate() {
            let pipe = &mut pipes[which as usize];
            if let Some(fd) = pipe.fd.as_ref().filter(|_| pipe.paused)
                && self.poller.add_read(fd, Token::Stream(number(local), which)).is_ok()
            {
                pipe.paused = false;
                self.paused -= 1;
            }
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.open == 0
    }

    /// Gives up pipes that somebody outside the job keeps open: what they hold now is all. We may
    /// have had no processor for long, so that is read here, whatever the room.
    pub(crate) fn close_all(&mut self, outlet: &mut dyn Outlet) {
        for which in BOTH {
            for (rank, pipes) in &mut self.pipes {
                let fd = pipes[which as usize].fd.as_ref().filter(|_| !outlet.is_gone(which));
                // At most what a pipe can hold: somebody may write without end.
                for _ in 0..fd.map_or(0, |_| MOST_HELD / PIECE) {
                    let Some(count) = fd.and_then(|fd| take_now(fd, &mut self.scratch)) else {
                        break;
                    };
                    outlet.take(*rank, which, &self.scratch[..count]);
                }
            }
            self.close(which, outlet);
        }
    }
}

/// Reads what is there now; `None` when nothing is.
fn take_now(fd: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    let mut entry = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut entry, PollTimeout::ZERO).ok().filter(|ready| *ready > 0)?;
    nix::unistd::read(fd, buffer).ok().filter(|count| *count > 0)
}

/// How long the end of the ranks' pipes is awaited once the job is over: somebody outside the job
/// may hold them open. A reader of the outlet that is slow keeps us from reading the pipes; that is
/// nobody's who holds them open, so its time does not count.
#[derive(Debug)]
pub(crate) struct Draining {
    /// When pipes that are still open are given up, unless the outlet is full until then.
    pub(crate) give_up: u64,
}

impl Draining {
    pub(crate) fn new(now: u64) -> Self {
        Self { give_up: now.saturating_add(DRAIN.ms()) }
    }

    /// Looks at the outlet and the time; `true` when the pipes that were left have been given up.
    pub(crate) fn step(
        &mut self,
        now: u64,
        capture: &mut Capture,
        outlet: &mut dyn Outlet,
    ) -> bool {
        if !BOTH.iter().all(|which| outlet.has_room(*which)) {
            *self = Self::new(now);
        }
        let late = now >= self.give_up && !capture.is_over();
        if late {
            capture.close_all(outlet);
        }
        late
    }
}

/// Ranks are counted in 32 bits; there are as many entries as ranks.
pub(super) fn number(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Full or not; counts streams that ended.
    #[derive(Default)]
    struct Sink {
        full: bool,
        ended: usize,
        taken: Vec<u8>,
    }

    impl Outlet for Sink {
        fn is_full(&self, _: Which) -> bool {
            self.full
        }
        fn has_room(&self, which: Which) -> bool {
            which == Which::Out || !self.full
        }
        fn is_gone(&self, _: Which) -> bool {
            false
        }
        fn take(&mut self, _: u32, _: Which, data: &[u8]) {
            self.taken.extend_from_slice(data);
        }
        fn end(&mut self, _: u32, _: Which) {
            self.ended += 1;
        }
    }

    #[test]
    fn pipes_that_stay_open_are_given_up_but_not_while_a_reader_is_slow() {
        let (mut capture, mut sink) =
            (Capture::new(&Poller::new(std::time::Instant::now()).unwrap()), Sink::default());
        let pipes = [(); 2].map(|()| nix::unistd::pipe().unwrap());
        let [(out, held), (err, _held_too)] = pipes;
        capture.adopt(0, out, err).unwrap();
        let written = vec![b'x'; 30_000];
        nix::unistd::write(&held, &written).unwrap();
        let (mut draining, limit) = (Draining::new(5), DRAIN.ms());
        assert!(!draining.step(4 + limit, &mut capture, &mut sink));
        sink.full = true;
        assert!(!draining.step(9 + limit, &mut capture, &mut sink), "one of both has no room");
        assert_eq!(draining.give_up, 9 + 2 * limit);
        sink.full = false;
        assert!(!draining.step(8 + 2 * limit, &mut capture, &mut sink) && sink.ended == 0);
        assert!(draining.step(9 + 2 * limit, &mut capture, &mut sink));
        assert!(capture.is_over() && sink.ended == 2);
        assert!(sink.taken == written, "what was in a pipe by then is not lost");
        assert!(!draining.step(u64::MAX, &mut capture, &mut sink), "nothing is left");
    }
}
