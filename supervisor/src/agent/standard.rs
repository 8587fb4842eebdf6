//! Our own standard streams, used without ever blocking us. The user's descriptors keep their
//! flags.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, makedev};

use super::processes;

/// `/dev/tty`: the controlling terminal, whichever it is.
const THE_CONTROLLING: u64 = makedev(5, 0);

/// Standard input (0), output (1) or error (2).
#[derive(Debug)]
pub(super) struct Standard {
    pub(super) number: u8,
    pub(super) terminal: bool,
    /// A file: never waits.
    pub(super) file: bool,
    /// A description of our own of the same pipe or terminal, non-blocking. What is neither that
    /// nor a file is asked first.
    reopened: Option<OwnedFd>,
}

fn inherited(number: u8) -> BorrowedFd<'static> {
    // The borrowed descriptor of such a handle lives as long as the process.
    static IN: OnceLock<io::Stdin> = OnceLock::new();
    static OUT: OnceLock<io::Stdout> = OnceLock::new();
    static ERR: OnceLock<io::Stderr> = OnceLock::new();
    match number {
        0 => IN.get_or_init(io::stdin).as_fd(),
        1 => OUT.get_or_init(io::stdout).as_fd(),
        _ => ERR.get_or_init(io::stderr).as_fd(),
    }
}

/// Whether our standard output and error are one pipe, terminal or file.
pub(super) fn is_same_target() -> bool {
    match (fstat(inherited(1)), fstat(inherited(2))) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino, a.st_rdev) == (b.st_dev, b.st_ino, b.st_rdev),
        _ => false,
    }
}

pub(super) fn is_terminal(number: u8) -> bool {
    nix::unistd::isatty(inherited(number)).unwrap_or(false)
}

impl Standard {
    pub(super) fn open(number: u8) -> Self {
        let kind = fstat(inherited(number))
            .map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
        let reopened = matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFCHR)).then(|| {
            let path = format!("/proc/self/fd/{number}");
            let way = if number == 0 { OFlag::O_RDONLY } else { OFlag::O_WRONLY };
            let flags = way | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            nix::fcntl::open(Path::new(&path), flags, Mode::empty()).ok()
        });
        Self {
            number,
            terminal: is_terminal(number),
            file: kind == Ok(SFlag::S_IFREG),
            reopened: reopened.flatten(),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.reopened.as_ref().map_or_else(|| inherited(self.number), OwnedFd::as_fd)
    }

    /// Whether it might block, so that it must be asked and then used little.
    pub(super) const fn blocks(&self) -> bool {
        !self.file && self.reopened.is_none()
    }

    /// Asks it: whether it is ready for that now.
    pub(super) fn is_ready(&self, flags: PollFlags) -> bool {
        poll(&mut [PollFd::new(self.fd(), flags)], PollTimeout::ZERO) != Ok(0)
    }

    /// Whether the terminal is the launcher's, whose child we are. One that is not its session's
    /// controlling one cannot be taken from it.
    pub(super) fn is_foreground(&self) -> bool {
        let of_launcher = processes::terminal(nix::unistd::getppid().as_raw());
        let own = fstat(inherited(self.number)).map(|stat| stat.st_rdev);
        let Some(((group, foreground), controlling)) = of_launcher else { return true };
        group == foreground || own.is_ok_and(|own| own != controlling && own != THE_CONTROLLING)
    }

    /// What it is, when that has a name.
    pub(super) fn path(&self) -> Option<PathBuf> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.number)).ok()?;
        path.is_absolute().then_some(path)
    }
}
