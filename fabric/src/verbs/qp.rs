//! Queue pairs and address handles: making them, and their changes of state.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use settings::deadlines::verbs::FAILED_POLL;

use crate::{
    Access, Address, AddressHandle, CompletionQueue, Error, PostError, QpSpec, QpState, QpType,
    QueuePair, RcPeer, RecvWr, Retry, SendWr, SharedReceiveQueue,
};

use super::device::{Domain, failure};
use super::diagnose::{self, Known};
use super::queues::{VerbsCq, VerbsSrq};
use super::xrc::Xrcd;
use super::{convert, ffi, memory, port, post};

/// Hops that a routed packet may make.
const HOP_LIMIT: u8 = 64;

/// How often a device is asked whether a queue pair failed whose request did.
const LOOKS: u32 = 4;

/// Sequence numbers and queue pair numbers have 24 bits.
const BITS_24: u32 = 0xff_ffff;

/// Inline bytes that the device took when it refused more, by kind and gather entries: found once per device.
#[derive(Debug, Default)]
pub(super) struct InlineMemory(Mutex<HashMap<(c_int, u32), u32>>);

impl InlineMemory {
    fn table(&self) -> MutexGuard<'_, HashMap<(c_int, u32), u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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

const MAKE: &str = "make a queue pair";
const XRC_RECV: &str =
    "the receiving half of an extended reliable connection is made by its domain";

impl VerbsQp {
    pub(super) fn new(
        domain: &Arc<Domain>,
        spec: &QpSpec<'_>,
        inline: &InlineMemory,
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
        pair.look();
        pair
    }

    /// Other processes change the state of a receiver.
    fn look(&self) {
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

    /// A failed completion, or an event, names this queue pair. The device is asked: the completion may be one from before
    /// a reset, and a failed datagram does not end its queue pair everywhere. It may show before the device has changed the
    /// state, hence the second look.
    pub(super) fn has_failed(&self, cq: Option<NonNull<ffi::Cq>>) {
        // A receiver reports to the queues of whoever a message was for.
        if cq.is_some_and(|cq| !self.cqs.contains(&cq)) && self.qp_type != QpType::XrcRecv {
            return;
        }
        for look in 0..LOOKS {
            if self.known_state() == QpState::Error {
                return;
            }
            if look > 0 {
                std::thread::sleep(FAILED_POLL.limit);
            }
            if self.asked_state() == Some(QpState::Error) {
                self.flush();
                return;
            }
        }
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

    /// Tells the device again that the queue pair is in ERROR. Soft-RoCE flushes only what was posted before that.
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
        // A refusal means that it is in no state to fail, or that the device is gone: nothing more to flush.
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
        self.look();
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

/// What verbs is asked for, checked against the device.
fn wanted(
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
    let limits = [
        ("send requests", spec.max_send, caps.max_qp_wr),
        ("receive requests", spec.max_recv, caps.max_qp_wr),
        ("gather entries", spec.send_sge, caps.max_sge),
        ("scatter entries", spec.recv_sge, caps.max_sge),
    ];
    if let Some((what, value, limit)) = limits.iter().find(|(_, value, limit)| value > limit) {
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

/// Makes a queue pair with as many inline bytes as the device takes, at most `inline`. `wanted.cap` then says what it got.
fn make(
    domain: &Domain,
    wanted: &mut ffi::QpInitAttr,
    inline: u32,
    memory: &InlineMemory,
) -> Result<NonNull<ffi::Qp>, Error> {
    let opened = &domain.opened;
    let asked = wanted.cap;
    let key = (wanted.qp_type, asked.max_send_sge);
    let mut attempt = |inline: u32| -> Result<(NonNull<ffi::Qp>, ffi::QpCap), io::Error> {
        wanted.cap = ffi::QpCap { max_inline_data: inline, ..asked };
        // SAFETY: a living domain and queues of the same device, which the caller holds; the library writes what it gave.
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
    let ceiling = memory.table().get(&key).copied();
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
    memory.table().insert(key, taken);
    wanted.cap = best.1;
    Ok(best.0)
}

fn destroy(domain: &Domain, qp: NonNull<ffi::Qp>) {
    // A refusal (the device is gone) leaves nothing to do.
    // SAFETY: made by the library, destroyed once; events of it are acknowledged as soon as they are read.
    unsafe { (domain.opened.library.destroy_qp)(qp.as_ptr()) };
}

impl QueuePair for VerbsQp {
    fn number(&self) -> u32 {
        self.number
    }

    fn max_inline(&self) -> u32 {
        self.inline
    }

    fn state(&self) -> QpState {
        self.look();
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
        // Not every driver looks; the first key is always there.
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
            (sort, Some(peer)) => {
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
                if sort == QpType::XrcSend { path } else { path | answers }
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
        self.look();
        if self.known_state() == QpState::Reset {
            // Linux does not allow it from RESET, the specification does: by way of INIT on any port.
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

/// The path to a port.
fn path(port: u8, to: &Address) -> ffi::AhAttr {
    let mut attr = ffi::AhAttr { dlid: to.lid, port_num: port, ..ffi::AhAttr::NONE };
    if to.global {
        attr.is_global = 1;
        attr.grh = ffi::GlobalRoute {
            dgid: ffi::Gid(to.gid.0),
            flow_label: 0,
            sgid_index: to.sgid_index,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
        };
    }
    attr
}

/// A port to send datagrams to.
#[derive(Debug)]
pub(super) struct VerbsAh {
    domain: Arc<Domain>,
    pub(super) ah: NonNull<ffi::Ah>,
}

// SAFETY: the library's calls may come from any thread.
unsafe impl Send for VerbsAh {}
// SAFETY: as above.
unsafe impl Sync for VerbsAh {}

impl VerbsAh {
    pub(super) fn new(domain: &Arc<Domain>, port: u8, to: &Address) -> Result<Self, Error> {
        const MAKE: &str = "make an address handle";
        let opened = &domain.opened;
        if port == 0 || port > opened.info.ports {
            let problem = format!("there is no port {port}, only 1 to {}", opened.info.ports);
            return Err(opened.argument(MAKE, problem));
        }
        let mut attr = path(port, to);
        // SAFETY: a living domain; the attributes are only read.
        let made = unsafe { (opened.library.create_ah)(domain.pd.as_ptr(), &raw mut attr) };
        if let Some(ah) = NonNull::new(made) {
            return Ok(Self { domain: Arc::clone(domain), ah });
        }
        let said = io::Error::last_os_error();
        let mut found = Vec::new();
        if let Ok(port) = port::query(opened, port) {
            diagnose::path(&attr, &port, &mut found);
        }
        let source = if found.is_empty() {
            said
        } else {
            io::Error::new(said.kind(), format!("{said}: {}", found.join("; ")))
        };
        let peer = if to.global { to.gid.ip().to_string() } else { format!("LID {}", to.lid) };
        Err(opened.os(format!("{MAKE} for {peer} from port {port}"), source))
    }

    #[inline]
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }
}

impl AddressHandle for VerbsAh {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for VerbsAh {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once.
        unsafe { (self.domain.opened.library.destroy_ah)(self.ah.as_ptr()) };
    }
}
