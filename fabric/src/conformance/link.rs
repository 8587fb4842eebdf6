//! Ways to carry bytes between the sides.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Longest message between the sides.
const LONGEST: u32 = 1 << 20;

/// Carries messages to the other side and back, in order.
pub trait Exchange: Send {
    /// Sends one message; it may be buffered without limit.
    ///
    /// # Errors
    /// The other side is gone.
    fn send(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// The next message of the other side.
    ///
    /// # Errors
    /// None came `within` this time, or the other side is gone.
    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, String>;
}

/// Between threads.
#[derive(Debug)]
pub struct ChannelLink {
    to: Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
}

/// Both ends of a link between threads.
#[must_use]
pub fn channel_links() -> (ChannelLink, ChannelLink) {
    let (to_second, from_first) = channel();
    let (to_first, from_second) = channel();
    (
        ChannelLink { to: to_second, from: from_second },
        ChannelLink { to: to_first, from: from_first },
    )
}

impl Exchange for ChannelLink {
    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.to.send(bytes.to_vec()).map_err(|_| "the other side is gone".to_owned())
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, String> {
        let problem = |error| format!("waiting for the other side at most {within:?}: {error}");
        self.from.recv_timeout(within).map_err(problem)
    }
}

/// Between processes: pipes, or a connected stream socket in both places.
#[derive(Debug)]
pub struct FdLink {
    input: File,
    output: File,
}

impl FdLink {
    /// Reads from `input`, writes to `output`; both blocking.
    #[must_use]
    pub fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self { input: input.into(), output: output.into() }
    }

    fn fill(&mut self, into: &mut [u8], until: Instant) -> Result<(), String> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) => return Err("the other side did not answer in time".to_owned()),
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(format!("waiting for the other side: {errno}")),
            }
            match self.input.read(rest) {
                Ok(0) => return Err("the other side is gone".to_owned()),
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("reading from the other side: {error}")),
            }
        }
        Ok(())
    }
}

impl Exchange for FdLink {
    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let length = u32::try_from(bytes.len()).ok().filter(|&length| length <= LONGEST);
        let length = length.ok_or_else(|| format!("a message of {} bytes", bytes.len()))?;
        let whole = [&length.to_le_bytes(), bytes].concat();
        self.output.write_all(&whole).map_err(|error| format!("to the other side: {error}"))
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>, String> {
        let until = Instant::now() + within;
        let mut length = [0; 4];
        self.fill(&mut length, until)?;
        let length = u32::from_le_bytes(length);
        if length > LONGEST {
            return Err(format!("the other side announces {length} bytes, more than {LONGEST}"));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes, until)?;
        Ok(bytes)
    }
}
