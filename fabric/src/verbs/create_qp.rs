//! Makes queue pairs: the attributes, and as many inline bytes as the device takes.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checks::{self, MAKE_QP};
use crate::{Error, QpSpec, QpType};

use super::domain::{Domain, Object};
use super::ffi;
use super::queues::{VerbsCq, VerbsSrq};

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
pub(super) fn wanted(domain: &Arc<Domain>, spec: &QpSpec<'_>) -> Result<ffi::QpInitAttr, Error> {
    let opened = &domain.opened;
    checks::queue_pair(&opened.info, &domain.caps, domain.caps.max_sge, spec)?;
    let sends_only = spec.qp_type == QpType::XrcSend;
    let receives = spec.srq.is_none() && spec.max_recv > 0;
    if sends_only && !domain.caps.xrc {
        return Err(opened.unsupported("extended reliable connections (XRC)"));
    }
    if sends_only && (spec.srq.is_some() || receives) {
        let problem = "the sending half of an extended reliable connection receives nothing";
        return Err(opened.argument(MAKE_QP, problem));
    }
    let cqs = [spec.send_cq, spec.recv_cq].map(|any| VerbsCq::own(domain, MAKE_QP, any));
    let [send_cq, recv_cq] = cqs;
    let (send_cq, recv_cq) = (send_cq?.as_ptr(), recv_cq?.as_ptr());
    let own = |own: &VerbsSrq| own.srq.is_of(domain);
    let what = "the shared receive queue";
    let srq = match spec.srq {
        None => ptr::null_mut(),
        Some(any) => checks::own(&opened.info, MAKE_QP, what, &**any, own)?.srq.as_ptr(),
    };
    Ok(ffi::QpInitAttr {
        send_cq,
        recv_cq: if sends_only { ptr::null_mut() } else { recv_cq },
        srq,
        cap: ffi::QpCap {
            max_send_wr: spec.max_send,
            max_recv_wr: spec.max_recv,
            max_send_sge: spec.send_sge.max(1),
            max_recv_sge: if receives { spec.recv_sge.max(1) } else { 0 },
            max_inline_data: 0,
        },
        qp_type: match spec.qp_type {
            QpType::Rc => ffi::QPT_RC,
            QpType::Ud => ffi::QPT_UD,
            QpType::XrcSend => ffi::QPT_XRC_SEND,
            QpType::XrcRecv => return Err(opened.argument(MAKE_QP, XRC_RECV)),
        },
        ..ffi::QpInitAttr::ZERO
    })
}

/// Makes a queue pair with as many inline bytes as the device takes, at most `inline`. `wanted.cap`
/// then says what it got.
pub(super) fn make(
    domain: &Arc<Domain>,
    wanted: &mut ffi::QpInitAttr,
    inline: u32,
    limits: &InlineLimits,
) -> Result<Object<ffi::Qp>, Error> {
    let library = &domain.opened.library;
    let asked = wanted.cap;
    let key = (wanted.qp_type, asked.max_send_sge);
    let operation = format!(
        "{MAKE_QP} with {} send and {} receive requests, {} gather entries",
        asked.max_send_wr, asked.max_recv_wr, asked.max_send_sge
    );
    let mut attempt = |inline: u32| {
        wanted.cap = ffi::QpCap { max_inline_data: inline, ..asked };
        // SAFETY: a living domain and queues of the same device, which the caller holds; the
        // library writes what it gave.
        let made = unsafe { (library.create_qp)(domain.pd.as_ptr(), &raw mut *wanted) };
        let qp = Object::new(domain, made, library.destroy_qp, &operation)?;
        Ok((qp, wanted.cap))
    };
    let ceiling = limits.table().get(&key).copied();
    let first = inline.min(ceiling.unwrap_or(inline));
    let (qp, cap) = match attempt(first) {
        Err(Error::Os { source, .. })
            if first != 0 && matches!(source.raw_os_error(), Some(libc::EINVAL | libc::ENOMEM)) =>
        {
            // Without inline data it works or the refusal was about something else.
            let mut best = attempt(0)?;
            let (mut taken, mut refused) = (0, first);
            while refused - taken > 1 {
                let middle = taken + (refused - taken) / 2;
                match attempt(middle) {
                    Ok(better) => (best, taken) = (better, middle),
                    Err(_) => refused = middle,
                }
            }
            limits.table().insert(key, taken);
            best
        }
        made => made?,
    };
    wanted.cap = cap;
    Ok(qp)
}
