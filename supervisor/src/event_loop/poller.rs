//! The agent's one epoll set, and the meaning of its events.

use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Which {
    Out = 0,
    Err = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Token {
    Signals,
    /// The socket between the launcher and its supervisor.
    Control,
    Input,
    /// Our standard output (1) or error (2).
    Sink(u8),
    Stream(u32, Which),
    Socket(u32),
    /// A rank's connection to the PMI server.
    Pmi(u32),
    /// The helper process that serves PMIx.
    Pmix,
    Feed(u32),
    /// What comes from the parent in the tree of hosts.
    ParentIn,
    /// The socket at which the job is asked questions, and one of those who ask.
    Watch,
    Watcher(u32),
    /// What a look at stacks prints.
    Stacks(u32),
    ParentOut,
    /// The pipe of a link down the tree.
    Link(u32, Pipe),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pipe {
    To,
    From,
    /// The standard error of the process behind the link.
    Err,
}

impl Token {
    /// Its bytes as a word: a variant or two and a number, at most seven.
    fn encode(self) -> u64 {
        let mut word = [0; 8];
        let _ = postcard::to_slice(&self, &mut word);
        u64::from_le_bytes(word)
    }

    fn decode(word: u64) -> Self {
        postcard::from_bytes(&word.to_le_bytes()).unwrap_or(Self::Signals)
    }
}

/// An event: what it is about, and whether the descriptor can be read (or has ended) or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: Token,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// The set, and the clock of its loop. Level-triggered; a clone is the same set.
#[derive(Clone, Debug)]
pub(crate) struct Poller {
    set: Rc<Epoll>,
    /// Beginning of the clock.
    pub(crate) started: Instant,
}

impl Poller {
    pub(crate) fn new(started: Instant) -> io::Result<Self> {
        Ok(Self { set: Rc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?), started })
    }

    /// Milliseconds on the clock.
    pub(crate) fn now(&self) -> u64 {
        super::ms(self.started.elapsed())
    }

    pub(crate) fn add_read(&self, fd: impl AsFd, token: Token) -> io::Result<()> {
        Ok(self.set.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token.encode()))?)
    }

    /// Watches for room to write exactly while it is wanted. A descriptor that cannot be watched
    /// (a file) is always ready.
    pub(crate) fn want_write(&self, fd: impl AsFd, token: Token, want: bool, watched: &mut bool) {
        if want && !*watched {
            let event = EpollEvent::new(EpollFlags::EPOLLOUT, token.encode());
            *watched = self.set.add(fd, event).is_ok();
        } else if !want && std::mem::take(watched) {
            self.remove(fd);
        }
    }

    /// Also asks for room to write, or no longer.
    pub(crate) fn also_write(&self, fd: impl AsFd, token: Token, write: bool) -> io::Result<()> {
        let write = if write { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN | write, token.encode());
        Ok(self.set.modify(fd, &mut event)?)
    }

    /// Asks for room to write instead of what can be read, or the other way round.
    pub(crate) fn turn(&self, fd: impl AsFd, token: Token, write: bool) -> io::Result<()> {
        let flags = if write { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
        Ok(self.set.modify(fd, &mut EpollEvent::new(flags, token.encode()))?)
    }

    /// Forgets a descriptor. One that is not in the set stays out.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = self.set.delete(fd);
    }

    /// Waits for events, at most `timeout` milliseconds (`None`: for ever), and puts them into
    /// `ready`.
    pub(crate) fn wait(&self, timeout: Option<u64>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = timeout.map_or(EpollTimeout::NONE, |ms| {
            EpollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
        });
        let mut events = [EpollEvent::empty(); 128];
        let count = match self.set.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::Error::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        ready.clear();
        let over = EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR | EpollFlags::EPOLLIN;
        let room = EpollFlags::EPOLLOUT | EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        ready.extend(events[..count].iter().map(|event| Ready {
            token: Token::decode(event.data()),
            readable: event.events().intersects(over),
            writable: event.events().intersects(room),
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_fits_a_word() {
        for token in [
            Token::Signals,
            Token::Sink(2),
            Token::Stream(u32::MAX, Which::Err),
            Token::Link(u32::MAX, Pipe::Err),
        ] {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }
}
