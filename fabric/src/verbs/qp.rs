//! Queue pairs and their changes of state.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use settings::deadlines::verbs::FAILED_POLL;

use crate::types::connection::AtomicQpState;
use crate::{
    Access, CompletionQueue, Error, PostError, QpSpec, QpState, QpType, QueuePair, RcPeer, RecvWr,
    Retry, SendWr, SharedReceiveQueue,
};

use super::address_handle::path;
use super::context::failure;
use super::create_qp::{InlineLimits, make, wanted};
use super::diagnose::{self, Known};
use super::domain::{Domain, Member, Object};
use super::{ffi, memory, port, post};

/// How often a device is asked whether a queue pair failed whose request did.
const CHECKS: u32 = 4;

/// Sequence numbers and queue pair numbers have 24 bits.
const BITS_24: u32 = 0xff_ffff;

#[derive(Debug)]
pub(super) struct VerbsQp {
    pub(super) qp: Object<ffi::Qp>,
    /// That of its domain, at hand.
    pub(super) post_send: ffi::PostSend,
    pub(super) qp_type: QpType,
    number: u32,
    pub(super) inline: u32,
    pub(super) send_sge: u32,
    /// As the last successful change left it.
    state: AtomicQpState,
    /// Changes of state come one after the other; the port of the last INIT.
    port: Mutex<u8>,
    /// What the queue pair reports to and receives from lives as long as it.
    _queues: Vec<Arc<dyn CompletionQueue>>,
    /// Addresses of its completion queues.
    cqs: [usize; 2],
    pub(super) srq: Option<Arc<dyn SharedReceiveQueue>>,
    _xrcd: Option<Arc<Object<c_void>>>,
}

impl VerbsQp {
    fn of(qp: Object<ffi::Qp>, qp_type: QpType) -> Self {
        Self {
            post_send: qp.domain.post_send,
            qp_type,
            // SAFETY: the library made it; its number does not change.
            number: unsafe { (*qp.as_ptr()).qp_num },
            qp,
            inline: 0,
            send_sge: 0,
            state: AtomicQpState::default(),
            port: Mutex::new(1),
            _queues: Vec::new(),
            cqs: [0; 2],
            srq: None,
            _xrcd: None,
        }
    }

    pub(super) fn new(
        domain: &Arc<Domain>,
        spec: &QpSpec<'_>,
        inline: &InlineLimits,
    ) -> Result<Self, Error> {
        let mut wanted = wanted(domain, spec)?;
        let qp = make(domain, &mut wanted, spec.inline.min(post::MAX_INLINE), inline)?;
        let mut pair = Self::of(qp, spec.qp_type);
        pair.inline = wanted.cap.max_inline_data.min(post::MAX_INLINE);
        pair.send_sge = wanted.cap.max_send_sge.min(domain.caps.max_sge);
        pair._queues = vec![Arc::clone(spec.send_cq), Arc::clone(spec.recv_cq)];
        pair.cqs = [wanted.send_cq.addr(), wanted.recv_cq.addr()];
        pair.srq = spec.srq.cloned();
        Ok(pair)
    }

    #[inline]
    pub(super) fn domain(&self) -> &Arc<Domain> {
        &self.qp.domain
    }

    /// From now on failed completions and events find it.
    pub(super) fn enter_domain(self: &Arc<Self>) {
        let member: Weak<Self> = Arc::downgrade(self);
        self.domain().remember(self.number, member);
    }

    /// The receiving half of extended reliable connections, made or opened by the library.
    pub(super) fn receiver(xrcd: Arc<Object<c_void>>, qp: Object<ffi::Qp>) -> Self {
        let mut pair = Self::of(qp, QpType::XrcRecv);
        pair._xrcd = Some(xrcd);
        pair.refresh();
        pair
    }

    /// Other processes change the state of a receiver.
    fn refresh(&self) {
        if self.qp_type == QpType::XrcRecv
            && let Some(state) = self.asked_state()
        {
            self.state.store(state, Ordering::Relaxed);
        }
    }

    /// The state that the last change left.
    #[inline]
    pub(super) fn known_state(&self) -> QpState {
        self.state.load(Ordering::Relaxed)
    }

    /// Whether the last change left this state.
    #[inline(always)]
    pub(super) fn is_in(&self, state: QpState) -> bool {
        self.state.is(state, Ordering::Relaxed)
    }

    fn asked_state(&self) -> Option<QpState> {
        let (mut attr, mut init) = (ffi::QpAttr::ZERO, ffi::QpInitAttr::ZERO);
        let query = self.domain().opened.library.query_qp;
        // SAFETY: a living queue pair and room for the answers.
        let result =
            unsafe { query(self.qp.as_ptr(), &raw mut attr, ffi::mask::STATE, &raw mut init) };
        (result == 0).then(|| QpState::of_number(attr.qp_state))
    }

    /// Asks the device for a change of state; what it says.
    fn change(&self, to: QpState, attr: &mut ffi::QpAttr, mask: c_int) -> c_int {
        attr.qp_state = to as c_int;
        let modify = self.domain().opened.library.modify_qp;
        // SAFETY: a living queue pair, and the attributes that the mask names are filled.
        let result = unsafe { modify(self.qp.as_ptr(), &raw mut *attr, mask | ffi::mask::STATE) };
        if result == 0 {
            self.state.store(to, Ordering::Relaxed);
        }
        result
    }

    /// Tells the device again that the queue pair is in ERROR. Soft-RoCE flushes only what was
    /// posted before that.
    #[cold]
    pub(super) fn flush(&self) {
        // A refusal means that it is in no state to fail, or that the device is gone: nothing more
        // to flush.
        let _ = self.change(QpState::Error, &mut { ffi::QpAttr::ZERO }, 0);
    }

    fn lock(&self) -> MutexGuard<'_, u8> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self, to: QpState, problem: impl Into<String>) -> Error {
        Error::Transition {
            device: self.domain().opened.info.name.clone(),
            qpn: self.number,
            from: self.known_state(),
            to,
            problem: problem.into(),
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

    /// Changes the state, or says why the device does not.
    fn modify(
        &self,
        to: QpState,
        mut attr: ffi::QpAttr,
        mask: c_int,
        port: u8,
    ) -> Result<(), Error> {
        let result = self.change(to, &mut attr, mask);
        if result == 0 {
            return Ok(());
        }
        let (opened, caps) = (&self.domain().opened, &self.domain().caps);
        let port = port::query(opened, port).ok();
        let known = Known { caps, port: port.as_ref(), ports: opened.info.ports };
        let mask = mask | ffi::mask::STATE;
        Err(self.refused(to, diagnose::explain(&failure(result), &attr, mask, known)))
    }

    /// The attribute that INIT needs beside port and key: the rights of peers, or the key of
    /// datagrams.
    const fn init_mask(&self) -> c_int {
        let own = match self.qp_type {
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv => ffi::mask::ACCESS_FLAGS,
            QpType::Ud => ffi::mask::QKEY,
        };
        ffi::mask::PKEY_INDEX | ffi::mask::PORT | own
    }
}

impl Member for VerbsQp {
    // The device is asked: the completion may be one from before a reset, and a failed datagram
    // does not end its queue pair everywhere. The completion may come before the device has changed
    // the state, hence the second check.
    fn has_failed(&self, cq: Option<usize>) {
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
            self.state.store(QpState::Error, Ordering::Relaxed);
        }
        self.known_state()
    }

    fn to_init(&self, port: u8, pkey_index: u16, qkey: u32, access: Access) -> Result<(), Error> {
        let mut current = self.lock();
        self.must_be(QpState::Reset, QpState::Init)?;
        // Not every driver checks it; the first key is always there.
        if pkey_index != 0 && !port::has_pkey(&self.domain().opened, port, pkey_index) {
            let problem = format!("pkey_index {pkey_index} is unused on port {port}");
            return Err(self.refused(QpState::Init, problem));
        }
        let rights = memory::rights(access, self.domain().caps.has_atomics());
        let attr = ffi::QpAttr {
            port_num: port,
            pkey_index,
            qkey,
            qp_access_flags: c_uint::try_from(rights).unwrap_or(0),
            ..ffi::QpAttr::ZERO
        };
        self.modify(QpState::Init, attr, self.init_mask(), port)?;
        *current = port;
        Ok(())
    }

    fn to_rtr(&self, peer: Option<&RcPeer>, retry: &Retry) -> Result<(), Error> {
        let port = self.lock();
        self.must_be(QpState::Init, QpState::Rtr)?;
        let peer = match (self.qp_type, peer) {
            (QpType::Ud, None) => return self.modify(QpState::Rtr, ffi::QpAttr::ZERO, 0, *port),
            (QpType::Ud, _) => return Err(self.refused(QpState::Rtr, "datagrams have no peer")),
            (_, Some(peer)) => peer,
            (_, None) => {
                return Err(self.refused(QpState::Rtr, "a reliable connection needs its peer"));
            }
        };
        let attr = ffi::QpAttr {
            ah_attr: path(*port, &peer.address),
            path_mtu: peer.mtu as c_int,
            dest_qp_num: peer.qpn,
            rq_psn: peer.psn & BITS_24,
            max_dest_rd_atomic: peer.rd_atom,
            min_rnr_timer: retry.rnr_timer,
            ..ffi::QpAttr::ZERO
        };
        let path = ffi::mask::AV | ffi::mask::PATH_MTU | ffi::mask::DEST_QPN | ffi::mask::RQ_PSN;
        // Who only sends answers nothing.
        let answers = match self.qp_type {
            QpType::XrcSend => 0,
            _ => ffi::mask::MAX_DEST_RD_ATOMIC | ffi::mask::MIN_RNR_TIMER,
        };
        self.modify(QpState::Rtr, attr, path | answers, *port)
    }

    fn to_rts(&self, psn: u32, rd_atom: u8, retry: &Retry) -> Result<(), Error> {
        let port = self.lock();
        self.must_be(QpState::Rtr, QpState::Rts)?;
        // Soft-RoCE takes 7 for "for ever", and a dead peer would never be noticed.
        let count = if retry.count == 7 { self.domain().max_retries } else { retry.count };
        let attr = ffi::QpAttr {
            sq_psn: psn & BITS_24,
            timeout: retry.timeout,
            retry_cnt: count,
            rnr_retry: retry.rnr,
            max_rd_atomic: rd_atom,
            ..ffi::QpAttr::ZERO
        };
        let sends = ffi::mask::RETRY_CNT | ffi::mask::RNR_RETRY | ffi::mask::MAX_QP_RD_ATOMIC;
        let mask = match self.qp_type {
            QpType::Ud => 0,
            QpType::XrcRecv => ffi::mask::TIMEOUT,
            QpType::Rc | QpType::XrcSend => ffi::mask::TIMEOUT | sends,
        };
        self.modify(QpState::Rts, attr, mask | ffi::mask::SQ_PSN, *port)
    }

    fn to_error(&self) -> Result<(), Error> {
        let port = self.lock();
        self.refresh();
        if self.known_state() == QpState::Reset {
            // Linux does not allow it from RESET, the specification does: by way of INIT on any
            // port.
            let attr = ffi::QpAttr { port_num: 1, ..ffi::QpAttr::ZERO };
            self.modify(QpState::Init, attr, self.init_mask(), 1)?;
        }
        self.modify(QpState::Error, ffi::QpAttr::ZERO, 0, *port)
    }

    fn to_reset(&self) -> Result<(), Error> {
        let port = self.lock();
        self.modify(QpState::Reset, ffi::QpAttr::ZERO, 0, *port)
    }

    fn post_send(&self, send: &SendWr<'_>) -> Result<(), PostError> {
        post::post_send(self, send, None)
    }

    fn post_sends(&self, sends: &[SendWr<'_>]) -> usize {
        post::post_sends(self, sends)
    }

    fn post_message(&self, id: u64, imm: u32, bytes: &[u8], signaled: bool) -> bool {
        post::post_message(self, id, imm, bytes, signaled)
    }

    fn post_write(&self, id: u64, to: (u64, u32), bytes: &[u8], signaled: bool) -> bool {
        post::post_write(self, id, to, bytes, signaled)
    }

    fn post_send_to(&self, send: &SendWr<'_>, queue: u32) -> Result<(), PostError> {
        post::post_send(self, send, Some(queue))
    }

    fn post_receive(&self, receive: &RecvWr) -> Result<(), PostError> {
        post::post_receive(self, receive)
    }

    fn post_receives(&self, receives: &[RecvWr]) -> usize {
        post::post_receives(self, receives)
    }
}

impl Drop for VerbsQp {
    fn drop(&mut self) {
        self.domain().forget(self.number);
    }
}
