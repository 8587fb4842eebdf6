//! Queue pairs and their changes of state.

use std::ffi::{c_int, c_uint};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use settings::deadlines::verbs::FAILED_POLL;

use crate::{
    Access, CompletionQueue, Error, PostError, QpSpec, QpState, QpType, QueuePair, RcPeer, RecvWr,
    Retry, SendWr, SharedReceiveQueue,
};

use super::address_handle::path;
use super::context::failure;
use super::create_qp::{InlineLimits, destroy, make, wanted};
use super::diagnose::{self, Known};
use super::domain::{Domain, Member};
use super::xrcd::Xrcd;
use super::{convert, ffi, memory, port, post};

/// How often a device is asked whether a queue pair failed whose request did.
const CHECKS: u32 = 4;

/// Sequence numbers and queue pair numbers have 24 bits.
const BITS_24: u32 = 0xff_ffff;

/// A queue pair.
#[derive(Debug)]
pub(super) struct VerbsQp {
    pub(super) domain: Arc<Domain>,
    pub(super) qp: NonNull<ffi::Qp>,
    qp_type: QpType,
    number: u32,
    inline: u32,
    send_sge: u32,
    /// [`QpState`] as the last successful change left it.
    state: AtomicU8,
    /// Changes of state come one after the other; the port of the last INIT.
    port: Mutex<u8>,
    /// What the queue pair reports to and receives from lives as long as it.
    _queues: Vec<Arc<dyn CompletionQueue>>,
    cqs: Vec<NonNull<ffi::Cq>>,
    srq: Option<Arc<dyn SharedReceiveQueue>>,
    _xrcd: Option<Arc<Xrcd>>,
}

// SAFETY: the library's calls may come from any thread.
unsafe impl Send for VerbsQp {}
// SAFETY: as above.
unsafe impl Sync for VerbsQp {}

impl VerbsQp {
    pub(super) fn new(
        domain: &Arc<Domain>,
        spec: &QpSpec<'_>,
        inline: &InlineLimits,
    ) -> Result<Self, Error> {
        let (mut wanted, cqs) = wanted(domain, spec)?;
        let qp = make(domain, &mut wanted, spec.inline.min(post::MAX_INLINE), inline)?;
        // SAFETY: the library made it; its number does not change.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        Ok(Self {
            domain: Arc::clone(domain),
            qp,
            qp_type: spec.qp_type,
            number,
            inline: wanted.cap.max_inline_data.min(post::MAX_INLINE),
            send_sge: wanted.cap.max_send_sge.min(domain.caps.max_sge),
            state: AtomicU8::new(0),
            port: Mutex::new(0),
            _queues: vec![Arc::clone(spec.send_cq), Arc::clone(spec.recv_cq)],
            cqs: cqs.to_vec(),
            srq: spec.srq.cloned(),
            _xrcd: None,
        })
    }

    /// From now on failed completions and events find it.
    pub(super) fn enter_domain(self: &Arc<Self>) {
        let member: Weak<Self> = Arc::downgrade(self);
        self.domain.remember(self.number, member);
    }

    /// The receiving half of extended reliable connections, made or opened by the library.
    pub(super) fn receiver(domain: &Arc<Domain>, xrcd: Arc<Xrcd>, qp: NonNull<ffi::Qp>) -> Self {
        // SAFETY: the library made it; its number does not change.
        let number = unsafe { (*qp.as_ptr()).qp_num };
        let pair = Self {
            domain: Arc::clone(domain),
            qp,
            qp_type: QpType::XrcRecv,
            number,
            inline: 0,
            send_sge: 0,
            state: AtomicU8::new(0),
            port: Mutex::new(1),
            _queues: Vec::new(),
            cqs: Vec::new(),
            srq: None,
            _xrcd: Some(xrcd),
        };
        pair.refresh();
        pair
    }

    /// Other processes change the state of a receiver.
    fn refresh(&self) {
        if self.qp_type == QpType::XrcRecv
            && let Some(state) = self.asked_state()
        {
            self.remember(state);
        }
    }

    #[inline]
    pub(super) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    #[inline]
    pub(super) fn shares_receives(&self) -> bool {
        self.srq.is_some()
    }

    #[inline]
    pub(super) fn send_sge(&self) -> usize {
        self.send_sge as usize
    }

    #[inline]
    pub(super) fn inline_limit(&self) -> usize {
        self.inline as usize
    }

    /// The state that the last change left.
    #[inline]
    pub(super) fn known_state(&self) -> QpState {
        STATES[usize::from(self.state.load(Ordering::Relaxed)) % STATES.len()]
    }

    fn remember(&self, state: QpState) {
        let index = STATES.iter().position(|each| *each == state).unwrap_or(0);
        self.state.store(u8::try_from(index).unwrap_or(0), Ordering::Relaxed);
    }

    /// What the device says.
    fn asked_state(&self) -> Option<QpState> {
        let mut attr = ffi::QpAttr::NONE;
        let mut init = std::mem::MaybeUninit::<ffi::QpInitAttr>::zeroed();
        // SAFETY: a living queue pair and room for the answers.
        let result = unsafe {
            (self.domain.opened.library.query_qp)(
                self.qp.as_ptr(),
                &raw mut attr,
                ffi::mask::STATE,
                init.as_mut_ptr(),
            )
        };
        (result == 0).then(|| convert::qp_state(attr.qp_state))
    }

    /// Tells the device again that the queue pair is in ERROR. Soft-RoCE flushes only what was
    /// posted before that.
    #[cold]
    pub(super) fn flush(&self) {
        let mut attr = ffi::QpAttr::NONE;
        attr.qp_state = ffi::QPS_ERR;
        // SAFETY: a living queue pair, and the state is filled.
        let result = unsafe {
            (self.domain.opened.library.modify_qp)(
                self.qp.as_ptr(),
                &raw mut attr,
                ffi::mask::STATE,
            )
        };
        // A refusal means that it is in no state to fail, or that the device is gone: nothing more
        // to flush.
        if result == 0 {
            self.remember(QpState::Error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u8> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, to: QpState, problem: String) -> Error {
        Error::Transition {
            device: self.domain.opened.info.name.clone(),
            qpn: self.number,
            from: self.known_state(),
            to,
            problem,
        }
    }

    fn must_be(&self, from: QpState, to: QpState) -> Result<(), Error> {
        self.refresh();
        if self.known_state() == from {
            Ok(())
        } else {
            Err(self.refused(to, format!("that is allowed from {from:?} only")))
        }
    }

    /// Asks the device for a change of state.
    fn modify(
        &self,
        to: QpState,
        mut attr: ffi::QpAttr,
        mask: c_int,
        port_number: u8,
    ) -> Result<(), Error> {
        attr.qp_state = number_of(to);
        let mask = mask | ffi::mask::STATE;
        let opened = &self.domain.opened;
        // SAFETY: a living queue pair, and the attributes that the mask names are filled.
        let result = unsafe { (opened.library.modify_qp)(self.qp.as_ptr(), &raw mut attr, mask) };
        if result == 0 {
            self.remember(to);
            return Ok(());
        }
        let said = failure(result);
        let port = port::query(opened, port_number).ok();
        let known =
            Known { caps: &self.domain.caps, port: port.as_ref(), ports: opened.info.ports };
        Err(self.refused(to, diagnose::explain(&said, &attr, mask, known)))
    }
}

const STATES: [QpState; 5] =
    [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error];

fn number_of(state: QpState) -> c_int {
    match state {
        QpState::Reset => ffi::QPS_RESET,
        QpState::Init => ffi::QPS_INIT,
        QpState::Rtr => ffi::QPS_RTR,
        QpState::Rts => ffi::QPS_RTS,
        QpState::Error => ffi::QPS_ERR,
    }
}

impl Member for VerbsQp {
    // The device is asked: the completion may be one from before a reset, and a failed datagram
    // does not end its queue pair everywhere. The completion may come before the device has changed
    // the state, hence the second check.
    fn has_failed(&self, cq: Option<NonNull<ffi::Cq>>) {
        // A receiver reports to the queues of whoever a message was for.
        if cq.is_some_and(|cq| !self.cqs.contains(&cq)) && self.qp_type != QpType::XrcRecv {
            return;
        }
        for check in 0..CHECKS {
            if self.known_state() == QpState::Error {
                return;
            }
            if check > 0 {
                std::thread::sleep(FAILED_POLL.limit);
            }
            if self.asked_state() == Some(QpState::Error) {
                self.flush();
                return;
            }
        }
    }
}

impl QueuePair for VerbsQp {
    fn number(&self) -> u32 {
        self.number
    }

    fn max_inline(&self) -> u32 {
        self.inline
    }

    fn state(&self) -> QpState {
        self.refresh();
        let known = self.known_state();
        if !matches!(known, QpState::Rtr | QpState::Rts) {
            return known;
        }
        // Only a connected pair changes by itself.
        if self.asked_state() == Some(QpState::Error) {
            self.remember(QpState::Error);
        }
        self.known_state()
    }

    fn to_init(&self, port: u8, pkey_index: u16, qkey: u32, access: Access) -> Result<(), Error> {
        let mut current = self.lock();
        self.must_be(QpState::Reset, QpState::Init)?;
        // Not every driver checks it; the first key is always there.
        if pkey_index != 0 && !port::has_pkey(&self.domain.opened, port, pkey_index) {
            let problem = format!("pkey_index {pkey_index} is unused on port {port}");
            return Err(self.refused(QpState::Init, problem));
        }
        let mut attr = ffi::QpAttr::NONE;
        attr.port_num = port;
        attr.pkey_index = pkey_index;
        let own = match self.qp_type {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => {
                let rights = memory::rights(access, self.domain.caps.atomics);
                attr.qp_access_flags = c_uint::try_from(rights).unwrap_or(0);
                ffi::mask::ACCESS_FLAGS
            }
            QpType::Ud => {
                attr.qkey = qkey;
                ffi::mask::QKEY
            }
        };
        let mask = ffi::mask::PKEY_INDEX | ffi::mask::PORT | own;
        self.modify(QpState::Init, attr, mask, port)?;
        *current = port;
        Ok(())
    }

    fn to_rtr(&self, peer: Option<&RcPeer>, retry: &Retry) -> Result<(), Error> {
        let port = self.lock();
        self.must_be(QpState::Init, QpState::Rtr)?;
        let mut attr = ffi::QpAttr::NONE;
        let mask = match (self.qp_type, peer) {
            (QpType::Ud, None) => 0,
            (QpType::Ud, Some(_)) => {
                return Err(self.refused(QpState::Rtr, "datagrams have no peer".to_owned()));
            }
            (_, None) => {
                let problem = "a reliable connection needs its peer".to_owned();
                return Err(self.refused(QpState::Rtr, problem));
            }
            (qp_type, Some(peer)) => {
                attr.ah_attr = path(*port, &peer.address);
                attr.path_mtu = convert::mtu_number(peer.mtu);
                attr.dest_qp_num = peer.qpn;
                attr.rq_psn = peer.psn & BITS_24;
                attr.max_dest_rd_atomic = peer.rd_atom;
                attr.min_rnr_timer = retry.rnr_timer;
                let path =
                    ffi::mask::AV | ffi::mask::PATH_MTU | ffi::mask::DEST_QPN | ffi::mask::RQ_PSN;
                // Who only sends answers nothing.
                let answers = ffi::mask::MAX_DEST_RD_ATOMIC | ffi::mask::MIN_RNR_TIMER;
                if qp_type == QpType::XrcSend { path } else { path | answers }
            }
        };
        self.modify(QpState::Rtr, attr, mask, *port)
    }

    fn to_rts(&self, psn: u32, rd_atom: u8, retry: &Retry) -> Result<(), Error> {
        let port = self.lock();
        self.must_be(QpState::Rtr, QpState::Rts)?;
        let mut attr = ffi::QpAttr::NONE;
        attr.sq_psn = psn & BITS_24;
        let mut mask = ffi::mask::SQ_PSN;
        if self.qp_type == QpType::XrcRecv {
            attr.timeout = retry.timeout;
            mask |= ffi::mask::TIMEOUT;
        }
        if matches!(self.qp_type, QpType::Rc | QpType::XrcSend) {
            attr.timeout = retry.timeout;
            // Soft-RoCE takes 7 for "for ever", and a dead peer would never be noticed.
            attr.retry_cnt = if retry.count == 7 { self.domain.max_retries } else { retry.count };
            attr.rnr_retry = retry.rnr;
            attr.max_rd_atomic = rd_atom;
            mask |= ffi::mask::TIMEOUT
                | ffi::mask::RETRY_CNT
                | ffi::mask::RNR_RETRY
                | ffi::mask::MAX_QP_RD_ATOMIC;
        }
        self.modify(QpState::Rts, attr, mask, *port)
    }

    fn to_error(&self) -> Result<(), Error> {
        let port = self.lock();
        self.refresh();
        if self.known_state() == QpState::Reset {
            // Linux does not allow it from RESET, the specification does: by way of INIT on any
            // port.
            let mut attr = ffi::QpAttr::NONE;
            attr.port_num = 1;
            let own = match self.qp_type {
                QpType::Rc | QpType::XrcSend | QpType::XrcRecv => ffi::mask::ACCESS_FLAGS,
                QpType::Ud => ffi::mask::QKEY,
            };
            self.modify(QpState::Init, attr, ffi::mask::PKEY_INDEX | ffi::mask::PORT | own, 1)?;
        }
        self.modify(QpState::Error, ffi::QpAttr::NONE, 0, *port)
    }

    fn to_reset(&self) -> Result<(), Error> {
        let port = self.lock();
        self.modify(QpState::Reset, ffi::QpAttr::NONE, 0, *port)
    }

    fn post_send(&self, send: &SendWr<'_>) -> Result<(), PostError> {
        post::post_send(self, send, None)
    }

    fn post_send_to(&self, send: &SendWr<'_>, queue: u32) -> Result<(), PostError> {
        post::post_send(self, send, Some(queue))
    }

    fn post_receive(&self, receive: &RecvWr) -> Result<(), PostError> {
        post::post_receive(self, receive)
    }
}

impl Drop for VerbsQp {
    fn drop(&mut self) {
        self.domain.forget(self.number);
        destroy(&self.domain, self.qp);
    }
}
