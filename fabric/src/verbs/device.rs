//! An open device: its context and protection domain, capabilities, and what happens to it by itself.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::{
    Access, Address, AddressHandle, AsyncEvent, Caps, Channel, CompletionQueue, Device, DeviceInfo,
    Error, PortInfo, QpSpec, QueuePair, Region, SharedReceiveQueue, XrcDomain,
};

use super::library::Library;
use super::{convert, ffi, memory, port, qp, queues, sysfs, xrc};

/// Gather entries of a request that this module passes on: they are converted on the stack.
pub(super) const MAX_SGE: u32 = 32;

/// An open device. Everything made from it holds it.
pub(super) struct Opened {
    pub(super) library: Arc<Library>,
    pub(super) context: NonNull<ffi::Context>,
    pub(super) info: DeviceInfo,
    /// Its place in sysfs.
    pub(super) directory: PathBuf,
}

// SAFETY: libibverbs promises that its calls may come from any thread on any object; the context itself is only read here.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opened({})", self.info.name)
    }
}

impl Opened {
    pub(super) fn open(
        library: &Arc<Library>,
        device: NonNull<ffi::Device>,
        directory: PathBuf,
        info: DeviceInfo,
    ) -> Result<Self, Error> {
        // SAFETY: a device of the library's list, which the caller holds.
        let context = unsafe { (library.open_device)(device.as_ptr()) };
        let Some(context) = NonNull::new(context) else {
            let said = io::Error::last_os_error();
            let source = match said.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => {
                    explained(&said, "see the permissions of /dev/infiniband/uverbs*")
                }
                _ => said,
            };
            return Err(Error::Os {
                device: info.name,
                operation: "open the device".to_owned(),
                source,
            });
        };
        Ok(Self { library: Arc::clone(library), context, info, directory })
    }

    /// An error of the system with its subject.
    pub(super) fn os(&self, operation: impl Into<String>, source: io::Error) -> Error {
        Error::Os { device: self.info.name.clone(), operation: operation.into(), source }
    }

    pub(super) fn argument(&self, operation: &'static str, problem: String) -> Error {
        Error::Argument { device: self.info.name.clone(), operation, problem }
    }

    pub(super) fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported { device: self.info.name.clone(), what }
    }

    /// Calls that return 0 or an error number (some: -1 with errno).
    pub(super) fn check(&self, result: c_int, operation: &str) -> Result<(), Error> {
        if result == 0 { Ok(()) } else { Err(self.os(operation, failure(result))) }
    }

    /// A pointer that is null on failure, with the reason in errno.
    pub(super) fn made<T>(&self, made: *mut T, operation: &str) -> Result<NonNull<T>, Error> {
        NonNull::new(made).ok_or_else(|| self.os(operation, io::Error::last_os_error()))
    }

    pub(super) fn attributes(&self) -> Result<ffi::DeviceAttr, Error> {
        let mut attributes = MaybeUninit::<ffi::DeviceAttr>::zeroed();
        // SAFETY: an open context and room for the answer.
        let result =
            unsafe { (self.library.query_device)(self.context.as_ptr(), attributes.as_mut_ptr()) };
        self.check(result, "query the device")?;
        // SAFETY: integers only, zeroed before.
        Ok(unsafe { attributes.assume_init() })
    }

    /// The table of newer functions before the context, if it reaches down to `offset` of the part that is known here.
    pub(super) fn extension(&self, offset: usize) -> Option<NonNull<ffi::VerbsContextTail>> {
        let context = self.context.as_ptr();
        // SAFETY: an open context.
        let abi = unsafe { (*context).abi_compat };
        if abi.addr() != usize::MAX {
            return None;
        }
        // SAFETY: that mark says that the context is the end of the greater structure.
        let tail = unsafe { context.byte_sub(offset_of!(ffi::VerbsContextTail, context)) };
        let tail = tail.cast::<ffi::VerbsContextTail>();
        // SAFETY: the size stands directly before the context in every version.
        let size = unsafe { (*tail).size };
        let needed = size_of::<ffi::VerbsContextTail>() - offset;
        NonNull::new(tail).filter(|_| size >= needed)
    }

    /// On-demand paging for all that reliable connections do.
    fn on_demand_paging(&self) -> bool {
        let offset = offset_of!(ffi::VerbsContextTail, query_device_ex);
        let Some(tail) = self.extension(offset) else { return false };
        // SAFETY: the table reaches down to this entry.
        let Some(query) = (unsafe { (*tail.as_ptr()).query_device_ex }) else { return false };
        let mut answer = MaybeUninit::<ffi::DeviceAttrEx>::zeroed();
        // SAFETY: an open context, no input, and room of the size that is told.
        let result = unsafe {
            query(
                self.context.as_ptr(),
                std::ptr::null(),
                answer.as_mut_ptr(),
                size_of::<ffi::DeviceAttrEx>(),
            )
        };
        // SAFETY: integers only, zeroed before.
        let odp = unsafe { answer.assume_init() }.odp_caps;
        result == 0
            && odp.general_caps & ffi::ODP_SUPPORT != 0
            && odp.rc_odp_caps & ffi::ODP_SEND_RECV_WRITE_READ == ffi::ODP_SEND_RECV_WRITE_READ
    }

    pub(super) fn has_xrc_bit(&self) -> Result<bool, Error> {
        Ok(self.attributes()?.device_cap_flags & ffi::DEVICE_XRC != 0)
    }

    fn caps(&self) -> Result<Caps, Error> {
        let seen = self.attributes()?;
        let number = |value: c_int| u32::try_from(value).unwrap_or(0);
        let small = |value: c_int| u8::try_from(value.clamp(0, 255)).unwrap_or(0);
        let queues = if seen.max_srq > 0 { number(seen.max_srq_wr) } else { 0 };
        Ok(Caps {
            max_qp: number(seen.max_qp),
            max_qp_wr: number(seen.max_qp_wr),
            max_sge: number(seen.max_sge).min(MAX_SGE),
            max_cqe: number(seen.max_cqe),
            max_mr: number(seen.max_mr),
            max_mr_size: seen.max_mr_size,
            max_rd_atom: small(seen.max_qp_rd_atom),
            max_init_rd_atom: small(seen.max_qp_init_rd_atom),
            max_srq_wr: queues,
            max_srq_sge: if queues == 0 { 0 } else { number(seen.max_srq_sge) },
            atomics: seen.atomic_cap != ffi::ATOMIC_NONE,
            xrc: seen.device_cap_flags & ffi::DEVICE_XRC != 0
                && xrc::Functions::of(self).is_ok_and(|functions| functions.work(self)),
            odp: self.on_demand_paging(),
            cheap_inline: 0,
            cheap_poll: true,
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Nothing can be done about a refusal: the device is gone, and the kernel cleans up when the process ends.
        // SAFETY: the last holder; nothing made from the context is left.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// A protection domain of an open device, and the functions that posting goes through.
pub(super) struct Domain {
    pub(super) opened: Arc<Opened>,
    pub(super) pd: NonNull<ffi::Pd>,
    pub(super) caps: Caps,
    pub(super) poll_cq: ffi::PollCq,
    pub(super) req_notify_cq: ffi::ReqNotifyCq,
    pub(super) post_send: ffi::PostSend,
    pub(super) post_recv: ffi::PostRecv,
    pub(super) post_srq_recv: Option<ffi::PostSrqRecv>,
    /// Queue pairs by number, for what completions and events tell about them.
    pairs: Mutex<HashMap<u32, Weak<qp::VerbsQp>>>,
    /// Greatest number of retries that ends.
    pub(super) max_retries: u8,
}

// SAFETY: as for `Opened`.
unsafe impl Send for Domain {}
// SAFETY: as for `Opened`.
unsafe impl Sync for Domain {}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({})", self.opened.info.name)
    }
}

impl Domain {
    fn new(opened: Arc<Opened>) -> Result<Self, Error> {
        let mut caps = opened.caps()?;
        // SAFETY: an open context, of which one field is looked at.
        let ops = unsafe { &raw const (*opened.context.as_ptr()).ops };
        // SAFETY: the table is filled when the device is opened and does not change after.
        let ops = unsafe { ops.read() };
        let lacks = |what| opened.unsupported(what);
        let poll_cq = ops.poll_cq.ok_or_else(|| lacks("function to poll completion queues"))?;
        let req_notify_cq = ops.req_notify_cq.ok_or_else(|| lacks("completion events"))?;
        let post_send = ops.post_send.ok_or_else(|| lacks("function to post sends"))?;
        let post_recv = ops.post_recv.ok_or_else(|| lacks("function to post receives"))?;
        if ops.post_srq_recv.is_none() {
            caps.max_srq_wr = 0;
        }
        // SAFETY: an open context.
        let pd = unsafe { (opened.library.alloc_pd)(opened.context.as_ptr()) };
        let pd = opened.made(pd, "make a protection domain")?;
        let post_srq_recv = ops.post_srq_recv;
        let pairs = Mutex::default();
        let max_retries = if sysfs::is_soft(&opened.directory) { 6 } else { 7 };
        Ok(Self {
            opened,
            pd,
            caps,
            poll_cq,
            req_notify_cq,
            post_send,
            post_recv,
            post_srq_recv,
            pairs,
            max_retries,
        })
    }

    fn pairs(&self) -> MutexGuard<'_, HashMap<u32, Weak<qp::VerbsQp>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, qp: &Arc<qp::VerbsQp>) {
        self.pairs().insert(qp.number(), Arc::downgrade(qp));
    }

    /// Before the queue pair is destroyed: its number may be given again at once.
    pub(super) fn forget(&self, number: u32) {
        self.pairs().remove(&number);
    }

    /// A completion of `cq`, or an event of the device, said that a queue pair failed.
    #[cold]
    pub(super) fn failed(&self, number: u32, cq: Option<NonNull<ffi::Cq>>) {
        // Not under the lock: this may become the last holder.
        let found = self.pairs().get(&number).and_then(Weak::upgrade);
        if let Some(pair) = found {
            pair.has_failed(cq);
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: the last holder: no region, queue or address handle of the domain is left.
        unsafe { (self.opened.library.dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// The device as the conduit sees it.
#[derive(Debug)]
pub(super) struct VerbsDevice {
    domain: Arc<Domain>,
    inline: qp::InlineMemory,
}

impl VerbsDevice {
    pub(super) fn new(opened: Arc<Opened>) -> Result<Self, Error> {
        let domain = Arc::new(Domain::new(opened)?);
        // SAFETY: an open context.
        let events = unsafe { (*domain.opened.context.as_ptr()).async_fd };
        make_nonblocking(events)
            .map_err(|source| domain.opened.os("make its event descriptor non-blocking", source))?;
        Ok(Self { domain, inline: qp::InlineMemory::default() })
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

    fn channel(&self) -> Result<Arc<dyn Channel>, Error> {
        Ok(Arc::new(queues::VerbsChannel::new(&self.domain)?))
    }

    fn completion_queue(
        &self,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Arc<dyn CompletionQueue>, Error> {
        Ok(Arc::new(queues::VerbsCq::new(&self.domain, depth, channel)?))
    }

    fn shared_receive_queue(&self, depth: u32) -> Result<Arc<dyn SharedReceiveQueue>, Error> {
        Ok(Arc::new(queues::VerbsSrq::new(&self.domain, depth)?))
    }

    fn xrc_domain(&self, file: Option<BorrowedFd<'_>>) -> Result<Arc<dyn XrcDomain>, Error> {
        Ok(Arc::new(xrc::VerbsXrcDomain::open(&self.domain, file)?))
    }

    fn queue_pair(&self, spec: &QpSpec<'_>) -> Result<Arc<dyn QueuePair>, Error> {
        let pair = Arc::new(qp::VerbsQp::new(&self.domain, spec, &self.inline)?);
        self.domain.remember(&pair);
        Ok(pair)
    }

    fn address_handle(&self, port: u8, to: &Address) -> Result<Arc<dyn AddressHandle>, Error> {
        Ok(Arc::new(qp::VerbsAh::new(&self.domain, port, to)?))
    }

    fn next_event(&self) -> Result<Option<AsyncEvent>, Error> {
        let opened = &self.domain.opened;
        let mut event = MaybeUninit::<ffi::AsyncEvent>::zeroed();
        // SAFETY: an open context whose descriptor does not block, and room for the event.
        let result = unsafe {
            (opened.library.get_async_event)(opened.context.as_ptr(), event.as_mut_ptr())
        };
        if result != 0 {
            let said = io::Error::last_os_error();
            return match said.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(opened.os("read an event of the device", said)),
            };
        }
        // SAFETY: zeroed before, filled by the call.
        let mut event = unsafe { event.assume_init() };
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

/// The error of a call that returned `result`: an error number, its negative, or -1 with errno.
pub(super) fn failure(result: c_int) -> io::Error {
    match result {
        -1 => io::Error::last_os_error(),
        number => io::Error::from_raw_os_error(number.saturating_abs()),
    }
}

/// An error with what to do about it.
pub(super) fn explained(said: &io::Error, advice: &str) -> io::Error {
    io::Error::new(said.kind(), format!("{said}: {advice}"))
}

/// Reads of a descriptor of the library then fail instead of waiting.
pub(super) fn make_nonblocking(fd: c_int) -> io::Result<()> {
    // SAFETY: the descriptor belongs to an object of the library that the caller holds.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL)?;
    let flags = nix::fcntl::OFlag::from_bits_retain(flags) | nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(flags))?;
    Ok(())
}
