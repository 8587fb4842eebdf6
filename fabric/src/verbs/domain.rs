//! A protection domain of an open device: what everything is made from.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::{AtomicCap, Caps, Error};

use super::context::Opened;
use super::xrc_functions::Functions;
use super::{ffi, sysfs};

/// An object of the library, made from a domain that it keeps. It ends when this is dropped.
pub(super) struct Object<T> {
    pub(super) domain: Arc<Domain>,
    raw: NonNull<T>,
    end: unsafe extern "C" fn(*mut T) -> c_int,
}

// SAFETY: libibverbs promises that its calls may come from any thread on any object; the fields
// that are read here do not change.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    /// What the library made, or why it did not.
    pub(super) fn new(
        domain: &Arc<Domain>,
        made: *mut T,
        end: unsafe extern "C" fn(*mut T) -> c_int,
        operation: &str,
    ) -> Result<Self, Error> {
        let raw = domain.opened.made(made, operation)?;
        Ok(Self { domain: Arc::clone(domain), raw, end })
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }

    #[inline]
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }
}

impl<T> std::fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p} of {}", self.raw, self.domain.opened.info.name)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // A refusal (the device is gone) leaves nothing to do: the kernel cleans up when the
        // process ends. SAFETY: made by the library, ended once; who needs it holds it, and its
        // events are acknowledged as soon as they are read.
        unsafe { (self.end)(self.as_ptr()) };
    }
}

/// Gather entries of a request that this module passes on: they are converted on the stack.
pub(super) const MAX_SGE: u32 = 32;

/// A queue pair, as completions and events name it.
pub(super) trait Member: Send + Sync {
    /// A completion of the queue at address `cq`, or an event of the device, says that it failed.
    fn has_failed(&self, cq: Option<usize>);
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
    members: Mutex<HashMap<u32, Weak<dyn Member>>>,
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
    pub(super) fn new(opened: Arc<Opened>) -> Result<Self, Error> {
        let mut caps = caps(&opened)?;
        // SAFETY: an open context, of which one field is read.
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
        let (post_srq_recv, members) = (ops.post_srq_recv, Mutex::default());
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
            members,
            max_retries,
        })
    }

    fn members(&self) -> MutexGuard<'_, HashMap<u32, Weak<dyn Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, number: u32, qp: Weak<dyn Member>) {
        self.members().insert(number, qp);
    }

    /// Before the queue pair is destroyed: its number may be given again at once.
    pub(super) fn forget(&self, number: u32) {
        self.members().remove(&number);
    }

    /// As [`Member::has_failed`], of the queue pair of that number.
    #[cold]
    pub(super) fn failed(&self, number: u32, cq: Option<usize>) {
        // Not under the lock: this may become the last holder.
        let found = self.members().get(&number).and_then(Weak::upgrade);
        if let Some(qp) = found {
            qp.has_failed(cq);
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: the last holder: no region, queue or address handle of the domain is left.
        unsafe { (self.opened.library.dealloc_pd)(self.pd.as_ptr()) };
    }
}

/// On-demand paging for all that reliable connections do.
fn on_demand_paging(opened: &Opened) -> bool {
    let offset = offset_of!(ffi::VerbsContextTail, query_device_ex);
    let Some(tail) = opened.extension(offset) else { return false };
    // SAFETY: the table reaches down to this entry.
    let Some(query) = (unsafe { (*tail.as_ptr()).query_device_ex }) else { return false };
    let mut answer = ffi::DeviceAttrEx::ZERO;
    let size = size_of::<ffi::DeviceAttrEx>();
    // SAFETY: an open context, no input, and room of the size that is told.
    let result = unsafe { query(opened.context.as_ptr(), std::ptr::null(), &raw mut answer, size) };
    let odp = answer.odp_caps;
    result == 0
        && odp.general_caps & u64::from(ffi::ODP_SUPPORT) == u64::from(ffi::ODP_SUPPORT)
        && odp.rc_odp_caps & ffi::ODP_SEND_RECV_WRITE_READ == ffi::ODP_SEND_RECV_WRITE_READ
}

fn caps(opened: &Opened) -> Result<Caps, Error> {
    let seen = opened.attributes()?;
    let number = |value: c_int| u32::try_from(value).unwrap_or(0);
    let small = |value: c_int| u8::try_from(value.clamp(0, 255)).unwrap_or(0);
    let queues = if seen.max_srq > 0 { number(seen.max_srq_wr) } else { 0 };
    Ok(Caps {
        max_qp: number(seen.max_qp),
        max_qp_wr: number(seen.max_qp_wr),
        max_sge: number(seen.max_sge).min(MAX_SGE),
        // Some drivers say nothing: one is always possible.
        max_sge_rd: number(seen.max_sge_rd.min(seen.max_sge)).clamp(1, MAX_SGE),
        max_cqe: number(seen.max_cqe),
        max_mr: number(seen.max_mr),
        max_mr_size: seen.max_mr_size,
        max_rd_atom: small(seen.max_qp_rd_atom),
        max_init_rd_atom: small(seen.max_qp_init_rd_atom),
        max_srq_wr: queues,
        max_srq_sge: if queues == 0 { 0 } else { number(seen.max_srq_sge) },
        atomics: match seen.atomic_cap {
            ffi::ATOMIC_NONE => AtomicCap::None,
            ffi::ATOMIC_GLOB => AtomicCap::Global,
            _ => AtomicCap::Device,
        },
        xrc: seen.device_cap_flags & ffi::DEVICE_XRC != 0
            && Functions::of(opened).is_ok_and(|functions| functions.work(opened)),
        odp: on_demand_paging(opened),
        cheap_inline: 0,
        cheap_poll: true,
    })
}
