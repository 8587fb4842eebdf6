//! Completion channels, completion queues and shared receive queues.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;

use crate::{
    Channel, Completion, CompletionQueue, Error, Look, PostError, RecvWr, SharedReceiveQueue,
    Status, checks,
};

use super::context::{failure, make_nonblocking};
use super::domain::{Domain, Object};
use super::{convert, ffi};

const BATCH: usize = 8;

/// Where armed completion queues report.
#[derive(Debug)]
pub(super) struct VerbsChannel(Object<ffi::CompChannel>);

impl VerbsChannel {
    pub(super) fn new(domain: &Arc<Domain>) -> Result<Self, Error> {
        let (opened, library) = (&domain.opened, &domain.opened.library);
        // SAFETY: an open context.
        let made = unsafe { (library.create_comp_channel)(opened.context.as_ptr()) };
        let end = library.destroy_comp_channel;
        let made = Self(Object::new(domain, made, end, "make a completion channel")?);
        make_nonblocking(made.raw_fd()).map_err(|source| {
            opened.os("make the descriptor of a completion channel non-blocking", source)
        })?;
        Ok(made)
    }

    fn raw_fd(&self) -> c_int {
        // SAFETY: lives as long as `self`, and the descriptor does not change.
        unsafe { (*self.0.as_ptr()).fd }
    }
}

impl Channel for VerbsChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is closed when `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.raw_fd()) }
    }

    fn consume(&self) -> Result<u32, Error> {
        let opened = &self.0.domain.opened;
        let mut count = 0_u32;
        loop {
            let mut cq = ptr::null_mut();
            let mut context = ptr::null_mut();
            // SAFETY: a living channel and room for the answers.
            let result = unsafe {
                (opened.library.get_cq_event)(self.0.as_ptr(), &raw mut cq, &raw mut context)
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
}

/// Ends of work requests.
#[derive(Debug)]
pub(super) struct VerbsCq {
    pub(super) cq: Object<ffi::Cq>,
    /// That of its domain, at hand.
    poll_cq: ffi::PollCq,
    depth: u32,
    /// Lives as long as the queue.
    channel: Option<Arc<dyn Channel>>,
}

impl VerbsCq {
    pub(super) fn new(
        domain: &Arc<Domain>,
        depth: u32,
        channel: Option<&Arc<dyn Channel>>,
    ) -> Result<Self, Error> {
        const MAKE: &str = "make a completion queue";
        let (opened, library) = (&domain.opened, &domain.opened.library);
        checks::depth(&opened.info, MAKE, depth, domain.caps.max_cqe)?;
        let own = |own: &VerbsChannel| own.0.is_of(domain);
        let target = match channel {
            None => ptr::null_mut(),
            Some(any) => checks::own(&opened.info, MAKE, "the channel", &**any, own)?.0.as_ptr(),
        };
        let entries = c_int::try_from(depth).unwrap_or(c_int::MAX);
        // SAFETY: an open context and a channel of it (or none); completion vector 0 always exists.
        let made = unsafe {
            (library.create_cq)(opened.context.as_ptr(), entries, ptr::null_mut(), target, 0)
        };
        let operation = format!("{MAKE} of {depth} entries");
        let cq = Object::new(domain, made, library.destroy_cq, &operation)?;
        // SAFETY: the library made it; the depth does not change.
        let depth = u32::try_from(unsafe { (*made).cqe }).unwrap_or(0);
        Ok(Self { cq, poll_cq: domain.poll_cq, depth, channel: channel.cloned() })
    }

    /// The queue behind the trait, when it is of this domain.
    pub(super) fn own<'a>(
        domain: &Arc<Domain>,
        operation: &'static str,
        any: &'a Arc<dyn CompletionQueue>,
    ) -> Result<&'a Object<ffi::Cq>, Error> {
        let own = |own: &Self| own.cq.is_of(domain);
        let what = "the completion queue";
        Ok(&checks::own(&domain.opened.info, operation, what, &**any, own)?.cq)
    }

    /// Takes up to `room.len()` completions, at most [`BATCH`].
    #[inline]
    fn take(&self, room: &mut [Completion]) -> Result<usize, Error> {
        // Zeroed, because providers leave fields alone that do not count.
        let mut seen = [ffi::Wc::ZERO; BATCH];
        let wanted = c_int::try_from(room.len().min(BATCH)).unwrap_or(1);
        // SAFETY: a living queue and room for at least `wanted` completions.
        let got = unsafe { (self.poll_cq)(self.cq.as_ptr(), wanted, seen.as_mut_ptr()) };
        let Ok(count) = usize::try_from(got) else { return Err(self.broken(got)) };
        for (to, from) in room.iter_mut().zip(&seen).take(count) {
            *to = self.seen(from);
        }
        Ok(count)
    }

    /// A completion; one that failed takes its queue pair along.
    #[inline(always)]
    fn seen(&self, seen: &ffi::Wc) -> Completion {
        let completion = convert::completion(seen);
        if completion.status != Status::Success {
            self.cq.domain.failed(completion.qpn, Some(self.cq.as_ptr().addr()));
        }
        completion
    }

    /// A look has found a request that failed: apart, so that other looks keep no registers.
    #[cold]
    #[inline(never)]
    fn found_failed(&self, seen: &ffi::Wc, into: &mut Completion) -> Look {
        *into = self.seen(seen);
        Look::One
    }

    #[cold]
    fn broken(&self, result: c_int) -> Error {
        let source = if result == -1 {
            // Providers return -1 for "the queue is in error" without a number.
            io::Error::other("the queue overflowed or the device is gone")
        } else {
            failure(result)
        };
        self.cq.domain.opened.os("poll a completion queue", source)
    }
}

impl CompletionQueue for VerbsCq {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn poll(&self, into: &mut [Completion]) -> Result<usize, Error> {
        // One that is mostly not there clears no room for a batch.
        if let [one] = into {
            match self.look(one) {
                Look::Nothing => return Ok(0),
                Look::One => return Ok(1),
                // Asked again below, which says why.
                Look::Failed => {}
            }
        }
        let mut taken = 0;
        for room in into.chunks_mut(BATCH) {
            match self.take(room) {
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

    fn look(&self, into: &mut Completion) -> Look {
        // Zeroed, as in `take`.
        let mut seen = ffi::Wc::ZERO;
        // SAFETY: a living queue and room for one completion.
        match unsafe { (self.poll_cq)(self.cq.as_ptr(), 1, &raw mut seen) } {
            0 => Look::Nothing,
            1 if seen.status == 0 => {
                *into = convert::completion(&seen);
                Look::One
            }
            1 => self.found_failed(&seen, into),
            _ => Look::Failed,
        }
    }

    fn arm(&self) -> Result<(), Error> {
        const ARM: &str = "arm a completion queue";
        let domain = &self.cq.domain;
        if self.channel.is_none() {
            return Err(domain.opened.argument(ARM, "the queue was made without a channel"));
        }
        // SAFETY: a living queue.
        let result = unsafe { (domain.req_notify_cq)(self.cq.as_ptr(), 0) };
        domain.opened.check(result, ARM)
    }
}

/// Receive buffers that several queue pairs share.
#[derive(Debug)]
pub(super) struct VerbsSrq {
    pub(super) srq: Object<ffi::Srq>,
    pub(super) post: ffi::PostSrqRecv,
    pub(super) depth: u32,
    /// The number of a queue of an XRC domain.
    pub(super) number: Option<u32>,
    /// What such a queue is made from lives as long as it.
    pub(super) _xrcd: Option<Arc<Object<c_void>>>,
    pub(super) _cq: Option<Arc<dyn CompletionQueue>>,
}

impl VerbsSrq {
    pub(super) fn new(domain: &Arc<Domain>, depth: u32) -> Result<Self, Error> {
        const MAKE: &str = "make a shared receive queue";
        let library = &domain.opened.library;
        let post = Self::check(domain, MAKE, depth)?;
        let mut wanted = ffi::SrqInitAttr { max_wr: depth, max_sge: 1, ..ffi::SrqInitAttr::ZERO };
        // SAFETY: a living domain; the library writes what it really gave.
        let made = unsafe { (library.create_srq)(domain.pd.as_ptr(), &raw mut wanted) };
        let operation = format!("{MAKE} of {depth} entries");
        let srq = Object::new(domain, made, library.destroy_srq, &operation)?;
        Ok(Self { srq, post, depth: wanted.max_wr, number: None, _xrcd: None, _cq: None })
    }

    /// The function that posts to such queues, if the device has queues of that depth.
    pub(super) fn check(
        domain: &Domain,
        make: &'static str,
        depth: u32,
    ) -> Result<ffi::PostSrqRecv, Error> {
        let limit = domain.caps.max_srq_wr;
        let post = domain.post_srq_recv.filter(|_| limit > 0);
        let post = post.ok_or_else(|| domain.opened.unsupported("shared receive queues"))?;
        checks::depth(&domain.opened.info, make, depth, limit)?;
        Ok(post)
    }
}

impl SharedReceiveQueue for VerbsSrq {
    fn post(&self, receive: &RecvWr) -> Result<(), PostError> {
        let mut buffer = convert::sge(&receive.buffer);
        let mut request = convert::receive(receive.id, &mut buffer);
        let mut bad = ptr::null_mut();
        // SAFETY: a living queue, one request of one entry; the caller holds the region of its key.
        let result = unsafe { (self.post)(self.srq.as_ptr(), &raw mut request, &raw mut bad) };
        convert::outcome(result)
    }

    fn post_list(&self, receives: &[RecvWr]) -> usize {
        // SAFETY: as above, of a list of such requests.
        let post = |first, bad| unsafe { (self.post)(self.srq.as_ptr(), first, bad) };
        convert::post_lists(receives, post)
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn number(&self) -> Option<u32> {
        self.number
    }
}
