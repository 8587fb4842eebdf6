//! Completion channels: where armed completion queues report.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{Channel, Error};

/// One eventfd.
#[derive(Clone, Debug)]
pub(super) struct SoftChannel {
    event: Arc<EventFd>,
    device: String,
}

impl SoftChannel {
    pub(super) fn new(device: &str) -> Result<Self, Error> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| Error::os(device, "make a completion channel", errno.into()))?;
        Ok(Self { event: Arc::new(event), device: device.to_owned() })
    }

    pub(super) fn notify(&self) {
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
}
