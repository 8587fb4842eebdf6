//! Completion channels, completion queues and shared receive queues.

use std::any::Any;
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::{
    Channel, Completion, CompletionQueue, Error, PostError, RecvWr, SharedReceiveQueue, Status,
};

use super::context::{failure, make_nonblocking};
use super::domain::Domain;
use super::xrcd::Xrcd;
use super::{convert, ffi, work_request};

/// Completions that are taken from the device at once.
const BATCH: usize = 8;

/// Where armed completion queues report.
#[derive(Debug)]
pub(super) struct VerbsChannel {
    domain: Arc<Domain>,
    channel: NonNull<ffi::CompChannel>,
}

// SAFETY: the library's calls may come from any thread; the descriptor does not change.
unsafe impl Send for VerbsChannel {}
// SAFETY: as above.
unsafe impl Sync for VerbsChannel {}

impl VerbsChannel {
    pub(super) fn new(domain: &Arc<Domain>) -> Result<Self, Error> {
        let opened = &domain.opened;
        // SAFETY: an open context.
        let made = unsafe { (opened.library.create_comp_channel)(opened.context.as_ptr()) };
        let channel = opened.made(made, "make a completion channel")?;
        let made = Self { domain: Arc::clone(domain), channel };
        make_nonblocking(made.raw_fd()).map_err(|source| {
            opened.os("make the descriptor of a completion channel non-blocking", source)
        })?;
        Ok(made)
    }

    fn raw_fd(&self) -> c_int {
        // SAFETY: lives as long as `self`, and the descriptor does not change.
        unsafe { (*self.channel.as_ptr()).fd }
    }
}

impl Channel for VerbsChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is closed when `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    fn consume(&self) -> Result<u32, Error> {
        let opened = &self.domain.opened;
        let mut count = 0_u32;
        loop {
            let mut cq = ptr::null_mut();
            let mut context = ptr::null_mut();
            // SAFETY: a living channel and room for the answers.
            let result = unsafe {
                (opened.library.get_cq_event)(self.channel.as_ptr(), &raw mut cq, &raw mut context)
            };
            if result == 0 {
                // At once: destroying a queue waits until its events are acknowledged.
                // SAFETY: the queue cannot be destroyed before this.
                unsafe { (opened.library.ack_cq_events)(cq, 1) };
                count = count.saturating_add(1);
                continue;
            }
            let said = io::Error::last_os_error();
            match said.kind() {
                io::ErrorKind::WouldBlock => return Ok(count),
                io::ErrorKind::Interrupted => {}
                _ => return Err(opened.os("read a completion event", said)),
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for VerbsChannel {
    fn drop(&mut self) {
        // SAFETY: made by the library; every queue that reports here held `self`.
        unsafe { (self.domain.opened.library.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// Ends of work requests.
#[derive(Debug)]
pub(super) struct VerbsCq {
    pub(super) domain: Arc<Domain>,
    pub(super) cq: NonNull<ffi::Cq>,
    depth: u32,
    /// Lives as long as the queue.
    channel: Option<Arc<dyn Channel>>,
}

// SAFETY: the library's calls may come from any thread.
unsafe impl Send for VerbsCq {}
// SAFETY: as above.
unsafe impl Sync for VerbsCq {}

impl VerbsCq {
    pub(super) fn new(
        domain: &Arc<Domain>,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Self, Error> {
        const MAKE: &str = "make a completion queue";
        let opened = &domain.opened;
        let limit = domain.caps.max_cqe;
        if depth == 0 || depth > limit {
            return Err(opened.argument(MAKE, format!("{depth} entries, allowed are 1 to {limit}")));
        }
        let target = match channel {
            None => ptr::null_mut(),
            Some(any) => match any.as_any().downcast_ref::<VerbsChannel>() {
                Some(own) if Arc::ptr_eq(&own.domain, domain) => own.channel.as_ptr(),
                _ => {
                    return Err(
                        opened.argument(MAKE, "the channel is of another device".to_owned())
                    );
                }
            },
        };
        let entries = c_int::try_from(depth).unwrap_or(c_int::MAX);
        // SAFETY: an open context and a channel of it (or none); completion vector 0 always exists.
        let made = unsafe {
            (opened.library.create_cq)(opened.context.as_ptr(), entries, ptr::null_mut(), target, 0)
        };
        let cq = opened.made(made, &format!("{MAKE} of {depth} entries"))?;
        // SAFETY: the library made it; the depth does not change.
        let depth = unsafe { (*cq.as_ptr()).cqe };
        Ok(Self {
            domain: Arc::clone(domain),
            cq,
            depth: u32::try_from(depth).unwrap_or(0),
            channel: channel.cloned(),
        })
    }

    /// Takes up to `room.len()` completions, at most `N`.
    #[inline]
    fn take<const N: usize>(&self, room: &mut [Completion]) -> Result<usize, Error> {
        // Zeroed, because providers leave fields alone that do not count.
        let mut seen = [ffi::Wc::EMPTY; N];
        let wanted = c_int::try_from(room.len().min(N)).unwrap_or(1);
        // SAFETY: a living queue and room for at least `wanted` completions.
        let got = unsafe { (self.domain.poll_cq)(self.cq.as_ptr(), wanted, seen.as_mut_ptr()) };
        let Ok(count) = usize::try_from(got) else { return Err(self.broken(got)) };
        for (to, from) in room.iter_mut().zip(&seen).take(count) {
            *to = convert::completion(from);
            if to.status != Status::Success {
                self.domain.failed(to.qpn, Some(self.cq));
            }
        }
        Ok(count)
    }

    #[cold]
    fn broken(&self, result: c_int) -> Error {
        let source = if result == -1 {
            // Providers return -1 for "the queue is in error" without a number.
            io::Error::other("the queue overflowed or the device is gone")
        } else {
            failure(result)
        };
        self.domain.opened.os("poll a completion queue", source)
    }
}

impl CompletionQueue for VerbsCq {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn poll(&self, into: &mut [Completion]) -> Result<usize, Error> {
        // A poll of a queue that is mostly empty clears no room for a batch.
        if into.len() == 1 {
            return self.take::<1>(into);
        }
        let mut taken = 0;
        for room in into.chunks_mut(BATCH) {
            match self.take::<BATCH>(room) {
                Ok(count) => {
                    taken += count;
                    if count < room.len() {
                        break;
                    }
                }
                // What was taken is handed out first; the error comes again with the next poll.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    fn arm(&self) -> Result<(), Error> {
        if self.channel.is_none() {
            let problem = "the queue was made without a channel".to_owned();
            return Err(self.domain.opened.argument("arm a completion queue", problem));
        }
        // SAFETY: a living queue.
        let result = unsafe { (self.domain.req_notify_cq)(self.cq.as_ptr(), 0) };
        self.domain.opened.check(result, "arm a completion queue")
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for VerbsCq {
    fn drop(&mut self) {
        // SAFETY: made by the library; queue pairs that report here held `self`, and events are
        // acknowledged at once.
        unsafe { (self.domain.opened.library.destroy_cq)(self.cq.as_ptr()) };
    }
}

/// Receive buffers that several queue pairs share.
#[derive(Debug)]
pub(super) struct VerbsSrq {
    pub(super) domain: Arc<Domain>,
    pub(super) srq: NonNull<ffi::Srq>,
    post: ffi::PostSrqRecv,
    depth: u32,
    pub(super) number: Option<u32>,
    /// Lives as long as the queue.
    held: Option<(Arc<Xrcd>, Arc<dyn CompletionQueue>)>,
}

// SAFETY: the library's calls may come from any thread.
unsafe impl Send for VerbsSrq {}
// SAFETY: as above.
unsafe impl Sync for VerbsSrq {}

impl VerbsSrq {
    pub(super) fn new(domain: &Arc<Domain>, depth: u32) -> Result<Self, Error> {
        const MAKE: &str = "make a shared receive queue";
        let opened = &domain.opened;
        let post = Self::check(domain, MAKE, depth)?;
        let mut wanted = ffi::SrqInitAttr {
            srq_context: ptr::null_mut(),
            max_wr: depth,
            max_sge: 1,
            srq_limit: 0,
        };
        // SAFETY: a living domain; the library writes what it really gave.
        let made = unsafe { (opened.library.create_srq)(domain.pd.as_ptr(), &raw mut wanted) };
        let srq = opened.made(made, &format!("{MAKE} of {depth} entries"))?;
        Ok(Self::of(domain, srq, post, wanted.max_wr))
    }

    /// The function that posts to such queues, if the device has queues of that depth.
    pub(super) fn check(
        domain: &Domain,
        make: &'static str,
        depth: u32,
    ) -> Result<ffi::PostSrqRecv, Error> {
        let opened = &domain.opened;
        let limit = domain.caps.max_srq_wr;
        let post = domain.post_srq_recv.filter(|_| limit > 0);
        let post = post.ok_or_else(|| opened.unsupported("shared receive queues"))?;
        if depth == 0 || depth > limit {
            return Err(opened.argument(make, format!("{depth} entries, allowed are 1 to {limit}")));
        }
        Ok(post)
    }

    /// A queue that the library made.
    pub(super) fn of(
        domain: &Arc<Domain>,
        srq: NonNull<ffi::Srq>,
        post: ffi::PostSrqRecv,
        depth: u32,
    ) -> Self {
        Self { domain: Arc::clone(domain), srq, post, depth, number: None, held: None }
    }

    /// What a queue of an XRC domain is made from.
    pub(super) fn hold(&mut self, xrcd: Arc<Xrcd>, cq: Arc<dyn CompletionQueue>) {
        self.held = Some((xrcd, cq));
    }
}

impl SharedReceiveQueue for VerbsSrq {
    fn post(&self, receive: &RecvWr) -> Result<(), PostError> {
        let mut buffer = work_request::sge(&receive.buffer);
        let mut request = work_request::receive(receive.id, &mut buffer);
        let mut bad = ptr::null_mut();
        // SAFETY: a living queue, one request of one entry; the caller holds the region of its key.
        let result = unsafe { (self.post)(self.srq.as_ptr(), &raw mut request, &raw mut bad) };
        work_request::outcome(result)
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn number(&self) -> Option<u32> {
        self.number
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for VerbsSrq {
    fn drop(&mut self) {
        // SAFETY: made by the library; queue pairs that receive from it held `self`.
        unsafe { (self.domain.opened.library.destroy_srq)(self.srq.as_ptr()) };
    }
}
