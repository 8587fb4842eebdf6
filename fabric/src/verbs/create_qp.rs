//! Makes queue pairs: the attributes, and as many inline bytes as the device takes.

use std::collections::HashMap;
use std::ffi::c_int;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{CompletionQueue, Error, QpSpec, QpType};

use super::domain::Domain;
use super::ffi;
use super::queues::{VerbsCq, VerbsSrq};

const MAKE: &str = "make a queue pair";
const XRC_RECV: &str =
    "the receiving half of an extended reliable connection is made by its domain";

/// Inline bytes that the device took when it refused more, by type and gather entries: found once
/// per device.
#[derive(Debug, Default)]
pub(super) struct InlineLimits(Mutex<HashMap<(c_int, u32), u32>>);

impl InlineLimits {
    fn table(&self) -> MutexGuard<'_, HashMap<(c_int, u32), u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What verbs is asked for, checked against the device.
pub(super) fn wanted(
    domain: &Arc<Domain>,
    spec: &QpSpec<'_>,
) -> Result<(ffi::QpInitAttr, [NonNull<ffi::Cq>; 2]), Error> {
    let opened = &domain.opened;
    let own_cq = |any: &Arc<dyn CompletionQueue>| {
        let own = any.as_any().downcast_ref::<VerbsCq>();
        own.filter(|own| Arc::ptr_eq(&own.domain, domain)).map(|own| own.cq).ok_or_else(|| {
            opened.argument(MAKE, "a completion queue is of another device".to_owned())
        })
    };
    let srq = match spec.srq {
        None => ptr::null_mut(),
        Some(any) => {
            let own = any.as_any().downcast_ref::<VerbsSrq>();
            let own = own.filter(|own| Arc::ptr_eq(&own.domain, domain));
            let problem = "the shared receive queue is of another device";
            own.ok_or_else(|| opened.argument(MAKE, problem.to_owned()))?.srq.as_ptr()
        }
    };
    let caps = &domain.caps;
    let most = [
        ("send requests", spec.max_send, caps.max_qp_wr),
        ("receive requests", spec.max_recv, caps.max_qp_wr),
        ("gather entries", spec.send_sge, caps.max_sge),
        ("scatter entries", spec.recv_sge, caps.max_sge),
    ];
    if let Some((what, value, limit)) = most.iter().find(|(_, value, limit)| value > limit) {
        return Err(opened.argument(MAKE, format!("{value} {what}, the device has {limit}")));
    }
    let shared = spec.srq.is_some();
    if shared && spec.max_recv > 0 {
        let problem = format!("{} receive requests beside a shared receive queue", spec.max_recv);
        return Err(opened.argument(MAKE, problem));
    }
    let sends_only = spec.qp_type == QpType::XrcSend;
    if sends_only && !caps.xrc {
        return Err(opened.unsupported("extended reliable connections (XRC)"));
    }
    if sends_only && (shared || spec.max_recv > 0) {
        let problem = "the sending half of an extended reliable connection receives nothing";
        return Err(opened.argument(MAKE, problem.to_owned()));
    }
    let cqs = [own_cq(spec.send_cq)?, own_cq(spec.recv_cq)?];
    let wanted = ffi::QpInitAttr {
        qp_context: ptr::null_mut(),
        send_cq: cqs[0].as_ptr(),
        recv_cq: if sends_only { ptr::null_mut() } else { cqs[1].as_ptr() },
        srq,
        cap: ffi::QpCap {
            max_send_wr: spec.max_send,
            max_recv_wr: spec.max_recv,
            max_send_sge: spec.send_sge.max(1),
            max_recv_sge: if shared || spec.max_recv == 0 { 0 } else { spec.recv_sge.max(1) },
            max_inline_data: 0,
        },
        qp_type: match spec.qp_type {
            QpType::Rc => ffi::QPT_RC,
            QpType::Ud => ffi::QPT_UD,
            QpType::XrcSend => ffi::QPT_XRC_SEND,
            QpType::XrcRecv => return Err(opened.argument(MAKE, XRC_RECV.to_owned())),
        },
        sq_sig_all: 0,
    };
    Ok((wanted, cqs))
}

/// Makes a queue pair with as many inline bytes as the device takes, at most `inline`. `wanted.cap`
/// then says what it got.
pub(super) fn make(
    domain: &Domain,
    wanted: &mut ffi::QpInitAttr,
    inline: u32,
    limits: &InlineLimits,
) -> Result<NonNull<ffi::Qp>, Error> {
    let opened = &domain.opened;
    let asked = wanted.cap;
    let key = (wanted.qp_type, asked.max_send_sge);
    let mut attempt = |inline: u32| -> Result<(NonNull<ffi::Qp>, ffi::QpCap), io::Error> {
        wanted.cap = ffi::QpCap { max_inline_data: inline, ..asked };
        // SAFETY: a living domain and queues of the same device, which the caller holds; the
        // library writes what it gave.
        let made = unsafe { (opened.library.create_qp)(domain.pd.as_ptr(), &raw mut *wanted) };
        match NonNull::new(made) {
            Some(qp) => Ok((qp, wanted.cap)),
            None => Err(io::Error::last_os_error()),
        }
    };
    let failed = |said: io::Error| {
        let operation = format!(
            "{MAKE} with {} send and {} receive requests, {} gather entries",
            asked.max_send_wr, asked.max_recv_wr, asked.max_send_sge
        );
        opened.os(operation, said)
    };
    let ceiling = limits.table().get(&key).copied();
    let first = inline.min(ceiling.unwrap_or(inline));
    let refusal = match attempt(first) {
        Ok((qp, cap)) => {
            wanted.cap = cap;
            return Ok(qp);
        }
        Err(said) => said,
    };
    let about_size = matches!(refusal.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM));
    if first == 0 || !about_size {
        return Err(failed(refusal));
    }
    // Without inline data it works or the refusal was about something else.
    let mut best = attempt(0).map_err(failed)?;
    let (mut taken, mut refused) = (0, first);
    while refused - taken > 1 {
        let middle = taken + (refused - taken) / 2;
        match attempt(middle) {
            Ok(better) => {
                destroy(domain, best.0);
                best = better;
                taken = middle;
            }
            Err(_) => refused = middle,
        }
    }
    limits.table().insert(key, taken);
    wanted.cap = best.1;
    Ok(best.0)
}

pub(super) fn destroy(domain: &Domain, qp: NonNull<ffi::Qp>) {
    // A refusal (the device is gone) leaves nothing to do. SAFETY: made by the library, destroyed
    // once; events of it are acknowledged as soon as they are read.
    unsafe { (domain.opened.library.destroy_qp)(qp.as_ptr()) };
}
