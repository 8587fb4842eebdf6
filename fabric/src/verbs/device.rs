//! A device as the conduit sees it: the trait [`Device`], and async events.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{
    Access, Address, AddressHandle, AsyncEvent, Caps, Channel, CompletionQueue, Device, DeviceInfo,
    Error, PortInfo, QpSpec, QueuePair, Region, SharedReceiveQueue, XrcDomain,
};

use super::address_handle::VerbsAh;
use super::context::{Opened, make_nonblocking};
use super::create_qp::InlineLimits;
use super::domain::Domain;
use super::qp::VerbsQp;
use super::queues::{VerbsChannel, VerbsCq, VerbsSrq};
use super::xrc::VerbsXrcDomain;
use super::{convert, ffi, memory, port};

#[derive(Debug)]
pub(super) struct VerbsDevice {
    domain: Arc<Domain>,
    inline: InlineLimits,
}

impl VerbsDevice {
    pub(super) fn new(opened: Arc<Opened>) -> Result<Self, Error> {
        let domain = Arc::new(Domain::new(opened)?);
        // SAFETY: an open context.
        let events = unsafe { (*domain.opened.context.as_ptr()).async_fd };
        make_nonblocking(events)
            .map_err(|source| domain.opened.os("make its event descriptor non-blocking", source))?;
        Ok(Self { domain, inline: InlineLimits::default() })
    }
}

impl Device for VerbsDevice {
    fn info(&self) -> &DeviceInfo {
        &self.domain.opened.info
    }

    fn caps(&self) -> &Caps {
        &self.domain.caps
    }

    fn port(&self, number: u8) -> Result<PortInfo, Error> {
        port::query(&self.domain.opened, number)
    }

    unsafe fn register(
        &self,
        base: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Arc<dyn Region>, Error> {
        // SAFETY: the caller's promise.
        let region = unsafe { memory::register(&self.domain, base, len, access) }?;
        Ok(Arc::new(region))
    }

    unsafe fn register_all_memory(&self, write: bool) -> Result<Arc<dyn Region>, Error> {
        // SAFETY: the caller's promise.
        Ok(Arc::new(unsafe { memory::register_all(&self.domain, write) }?))
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, Error> {
        Ok(Arc::new(VerbsChannel::new(&self.domain)?))
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>, Error> {
        Ok(Arc::new(VerbsCq::new(&self.domain, depth, channel)?))
    }

    fn shared_receive_queue(&self, depth: u32) -> Result<Arc<dyn SharedReceiveQueue>, Error> {
        Ok(Arc::new(VerbsSrq::new(&self.domain, depth)?))
    }

    fn xrc_domain(&self, file: Option<BorrowedFd<'_>>) -> Result<Arc<dyn XrcDomain>, Error> {
        Ok(Arc::new(VerbsXrcDomain::open(&self.domain, file)?))
    }

    fn queue_pair(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, Error> {
        let qp = Arc::new(VerbsQp::new(&self.domain, spec, &self.inline)?);
        qp.enter_domain();
        Ok(qp)
    }

    fn address_handle(&self, port: u8, to: &Address) -> Result<Arc<dyn AddressHandle>, Error> {
        Ok(Arc::new(VerbsAh::new(&self.domain, port, to)?))
    }

    fn next_event(&self) -> Result<Option<AsyncEvent>, Error> {
        let opened = &self.domain.opened;
        let mut event = ffi::AsyncEvent::ZERO;
        // SAFETY: an open context whose descriptor does not block, and room for the event.
        let result =
            unsafe { (opened.library.get_async_event)(opened.context.as_ptr(), &raw mut event) };
        if result != 0 {
            let said = io::Error::last_os_error();
            return match said.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(opened.os("read an event of the device", said)),
            };
        }
        // SAFETY: the event is not acknowledged yet, so the object that it names still lives.
        let seen = unsafe { convert::event(&event) };
        // SAFETY: each event is acknowledged once.
        unsafe { (opened.library.ack_async_event)(&raw mut event) };
        if let AsyncEvent::QpFatal { qpn } = seen {
            self.domain.failed(qpn, None);
        }
        Ok(Some(seen))
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: an open context.
        let fd = unsafe { (*self.domain.opened.context.as_ptr()).async_fd };
        // SAFETY: the descriptor belongs to the context, which lives at least as long as `self`.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}
