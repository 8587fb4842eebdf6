//! The agent's one epoll set, and the meaning of its events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// One of a rank's output pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Which {
    Out = 0,
    Err = 1,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The agent's signals.
    Signals,
    /// The socket between the launcher and its supervisor.
    Control,
    /// Our standard input.
    Input,
    /// Our standard output (1) or error (2).
    Sink(u8),
    /// A rank's output pipe.
    Stream(u32, Which),
    /// A rank's socket.
    Socket(u32),
    /// A rank's input pipe.
    Feed(u32),
    /// What comes from the parent in the tree of hosts.
    ParentIn,
    /// What goes to it.
    ParentOut,
    /// The pipe of a link down the tree.
    Link(u32, Pipe),
}

/// One of a link's pipes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    /// What goes to the child.
    To,
    /// What comes from it.
    From,
    /// The standard error of the process behind the link.
    Err,
}

impl Token {
    fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Signals => (0, 0),
            Self::Control => (1, 0),
            Self::Input => (2, 0),
            Self::Sink(number) => (3, u32::from(number)),
            Self::Stream(rank, Which::Out) => (4, rank),
            Self::Stream(rank, Which::Err) => (5, rank),
            Self::Socket(rank) => (6, rank),
            Self::Feed(rank) => (7, rank),
            Self::ParentIn => (8, 0),
            Self::ParentOut => (9, 0),
            Self::Link(link, Pipe::To) => (10, link),
            Self::Link(link, Pipe::From) => (11, link),
            Self::Link(link, Pipe::Err) => (12, link),
        };
        kind << 32 | u64::from(number)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
    const fn decode(word: u64) -> Self {
        let number = word as u32;
        match word >> 32 {
            0 => Self::Signals,
            1 => Self::Control,
            2 => Self::Input,
            3 => Self::Sink(number as u8),
            4 => Self::Stream(number, Which::Out),
            5 => Self::Stream(number, Which::Err),
            6 => Self::Socket(number),
            7 => Self::Feed(number),
            8 => Self::ParentIn,
            9 => Self::ParentOut,
            10 => Self::Link(number, Pipe::To),
            11 => Self::Link(number, Pipe::From),
            _ => Self::Link(number, Pipe::Err),
        }
    }
}

/// An event: what it is about, and whether the descriptor can be read (or has ended) or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token: Token,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// The set. Level-triggered.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: Epoll,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    pub(crate) fn add_read(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token.encode()))?)
    }

    pub(crate) fn add_write(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLOUT, token.encode()))?)
    }

    /// Also asks for room to write, or no longer.
    pub(crate) fn also_write(
        &self,
        fd: BorrowedFd<'_>,
        token: Token,
        write: bool,
    ) -> io::Result<()> {
        let write = if write { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        Ok(self
            .epoll
            .modify(fd, &mut EpollEvent::new(EpollFlags::EPOLLIN | write, token.encode()))?)
    }

    /// Forgets a descriptor. One that is not in the set stays out.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = self.epoll.delete(fd);
    }

    /// Waits for events, at most `timeout` milliseconds (`None`: for ever), and puts them into
    /// `ready`.
    pub(crate) fn wait(&self, timeout: Option<u64>, ready: &mut Vec<Ready>) -> io::Result<()> {
        let timeout = timeout.map_or(EpollTimeout::NONE, |ms| {
            EpollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
        });
        let mut events = [EpollEvent::empty(); 128];
        let count = match self.epoll.wait(&mut events, timeout) {
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
