//! Completion queues, and the channels where armed ones report.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::completion_ring::CompletionRing;
use super::context::Context;
use super::lock::{Wait, try_lock_for};
use super::slots::{Releases, SlotRelease};
use crate::sync::{AtomicBool, Ordering};
use crate::{AsyncEvent, Channel, Completion, Error, Ringer};

#[derive(Clone)]
pub(super) struct SoftChannel {
    event: Arc<EventFd>,
    ringer: Arc<Mutex<Option<Ringer>>>,
    device: String,
}

impl fmt::Debug for SoftChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftChannel").field("event", &self.event).finish_non_exhaustive()
    }
}

impl SoftChannel {
    pub(super) fn new(device: &str) -> Result<Self, Error> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| Error::os(device, "make a completion channel", errno.into()))?;
        Ok(Self { event: Arc::new(event), ringer: Arc::default(), device: device.to_owned() })
    }

    pub(super) fn notify(&self) {
        // Whoever has the lock may be below this signal handler.
        if let Some(ringer) = try_lock_for(&self.ringer, Wait::No)
            && let Some(ring) = &*ringer
        {
            return ring();
        }
        // Full means that 2^64 - 2 events wait: it is readable then.
        let _ = self.event.write(1);
    }
}

impl Channel for SoftChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn consume(&self) -> Result<u32, Error> {
        match self.event.read() {
            Ok(count) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(errno) => Err(Error::os(&self.device, "read a completion channel", errno.into())),
        }
    }

    fn set_ringer(&self, ringer: Option<Ringer>) {
        *self.ringer.lock().unwrap_or_else(PoisonError::into_inner) = ringer;
    }
}

#[derive(Debug)]
pub(super) struct Cq {
    ring: CompletionRing,
    overflowed: AtomicBool,
    channel: Option<SoftChannel>,
    ctx: Arc<Context>,
}

impl Cq {
    pub(super) fn new(ctx: &Arc<Context>, depth: u32, channel: Option<SoftChannel>) -> Self {
        let (ring, ctx) = (CompletionRing::new(depth), Arc::clone(ctx));
        Self { ring, overflowed: AtomicBool::new(false), channel, ctx }
    }

    pub(super) fn depth(&self) -> usize {
        self.ring.depth()
    }

    /// Adds a completion, which [`Cq::report`] must follow. A queue without room is broken for good.
    pub(super) fn add(&self, entry: &Completion, release: SlotRelease) {
        if !self.ring.push(entry, release) && !self.overflowed.swap(true, Ordering::SeqCst) {
            self.ctx.events.push(AsyncEvent::CqError);
        }
    }

    /// Reports what was added if the queue is armed.
    pub(super) fn report(&self) {
        if self.ring.take_armed() {
            self.ctx.activity.armed.fetch_sub(1, Ordering::SeqCst);
            if let Some(channel) = &self.channel {
                channel.notify();
            }
        }
    }

    pub(super) fn drain(&self, into: &mut [Completion]) -> usize {
        let (mut count, mut releases) = (0, Releases::new());
        while let Some(rest) = into.get_mut(count..).filter(|rest| !rest.is_empty()) {
            let taken = self.ring.pop_list(rest, &mut releases);
            if taken == 0 {
                break;
            }
            releases.iter().for_each(|(qpn, release)| self.ctx.slots.release(qpn, release));
            count += taken;
        }
        count
    }

    pub(super) fn check_overflow(&self) -> Result<(), Error> {
        if !self.overflowed.load(Ordering::Relaxed) {
            return Ok(());
        }
        let operation = format!("poll a completion queue of {} entries", self.depth());
        let source = std::io::Error::other("it overflowed: more ended than was polled");
        Err(Error::os(self.ctx.name(), operation, source))
    }

    pub(super) fn arm(&self) -> Result<(), Error> {
        if self.channel.is_none() {
            return Err(self
                .ctx
                .invalid("arm a completion queue", "it was made without a channel"));
        }
        if self.ring.arm() {
            self.ctx.activity.arm();
        }
        Ok(())
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.ring.take_armed() {
            self.ctx.activity.armed.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
