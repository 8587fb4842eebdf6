//! The sleep of a thread that polls, on the streams of its device.

use std::array;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Descriptors beside the first that a sleep waits for at most.
const OTHERS: usize = 4;

/// What has a descriptor.
type Watched = Arc<dyn AsFd + Send + Sync>;

/// What ends a sleep: a descriptor that becomes readable, or the time.
pub struct Sleep {
    most: Duration,
    first: Watched,
    others: [Option<Watched>; OTHERS],
}

impl Sleep {
    /// A sleep of at most `most` that `first` ends.
    pub(crate) fn until(first: Watched, most: Duration) -> Self {
        Self { most, first, others: Default::default() }
    }

    /// `other` ends it, too. False: there is no room.
    pub(crate) fn or(&mut self, other: Watched) -> bool {
        let place = self.others.iter_mut().find(|place| place.is_none());
        place.map(|place| *place = Some(other)).is_some()
    }

    /// Sleeps, for `most` at most and no longer than the device allows. Returns whether a poll may
    /// find something. A signal ends it, too.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait(&self, most: Duration) -> io::Result<bool> {
        // The system counts milliseconds here.
        let time = PollTimeout::try_from(most.min(self.most)).unwrap_or(PollTimeout::ZERO);
        let others = self.others.iter().flatten();
        let mut watched = [&self.first].into_iter().chain(others).map(|one| one.as_fd());
        let count = watched.clone().count();
        let mut fds: [PollFd<'_>; 1 + OTHERS] = array::from_fn(|_| {
            PollFd::new(watched.next().unwrap_or(self.first.as_fd()), PollFlags::POLLIN)
        });
        match poll(fds.get_mut(..count).unwrap_or_default(), time) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}
