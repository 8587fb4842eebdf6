//! Queue pairs: what both halves share, the changes of state, and the face of the traits.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use settings::deadlines::soft::REDIAL_FIRST;

use super::back::{Back, Way};
use super::cq::{Cq, Gives};
use super::device::Dev;
use super::limits::{MAX_INLINE, MAX_RD_ATOM, MAX_SPILL, patience};
use super::queue::{Rq, Srq};
use super::state::{ALL, Step, after, answers, may_receive, may_send};
use super::tx::Tx;
use super::{briefly, hold, low, patiently, ud};
use crate::{
    Access, AsyncEvent, Completion, CompletionQueue, Error, Gid, Opcode, PostError, QpSpec,
    QpState, QpType, QueuePair, RcPeer, RecvWr, Retry, SendWr, SharedReceiveQueue, Status,
};

/// What the changes of state have set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) port: u8,
    pub(super) access: Access,
    pub(super) qkey: u32,
    pub(super) peer: Option<RcPeer>,
    pub(super) rnr_timer: u8,
    pub(super) psn: u32,
    pub(super) rnr: u8,
    pub(super) way: Way,
}

const BLANK: Setup = Setup {
    port: 1,
    access: Access::NONE,
    qkey: 0,
    peer: None,
    rnr_timer: 0,
    psn: 0,
    rnr: 7,
    way: Way::Apart,
};

/// A queue pair as the device sees it.
#[derive(Debug)]
pub(super) struct Qp {
    dev: Arc<Dev>,
    number: u32,
    qp_type: QpType,
    send_cq: Arc<dyn CompletionQueue>,
    recv_cq: Arc<dyn CompletionQueue>,
    srq: Option<Arc<dyn SharedReceiveQueue>>,
    own: Rq,
    datagrams: ud::Sent,
    inline: usize,
    state: AtomicU8,
    setup: Mutex<Setup>,
    pub(super) tx: Mutex<Tx>,
    /// Requests of the peer on this connection that are done, and how many it was told of.
    done: AtomicU64,
    told: AtomicU64,
    /// Number of the peer's next request on this connection.
    next_msn: AtomicU32,
    /// Number of the first receive of this connection.
    pub(super) first_receive: AtomicU64,
    /// Messages (low bits) that the peer has had receives for.
    peer_room: AtomicU32,
    /// The device's name of the peer's stream of requests.
    responder: AtomicU64,
    /// An acknowledgement that found the send queue busy: its number with bit 32 set.
    late: AtomicU64,
    attention: AtomicBool,
    dirty: AtomicBool,
    destroyed: AtomicBool,
}

impl Qp {
    pub(super) fn new(dev: &Arc<Dev>, number: u32, spec: &QpSpec<'_>) -> Self {
        let inline = spec.inline.min(MAX_INLINE) as usize;
        let spill = (spec.max_send as usize).saturating_mul(inline).clamp(256 << 10, MAX_SPILL);
        Self {
            dev: Arc::clone(dev),
            number,
            qp_type: spec.qp_type,
            send_cq: Arc::clone(spec.send_cq),
            recv_cq: Arc::clone(spec.recv_cq),
            srq: spec.srq.map(Arc::clone),
            own: Rq::new(spec.max_recv),
            datagrams: ud::Sent::new(spec.max_send),
            inline,
            state: AtomicU8::new(0),
            setup: Mutex::new(BLANK),
            tx: Mutex::new(Tx::new(spec.max_send, spec.send_sge, spill)),
            done: AtomicU64::new(0),
            told: AtomicU64::new(0),
            next_msn: AtomicU32::new(0),
            first_receive: AtomicU64::new(0),
            peer_room: AtomicU32::new(0),
            responder: AtomicU64::new(u64::MAX),
            late: AtomicU64::new(0),
            attention: AtomicBool::new(false),
            dirty: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
        }
    }

    pub(super) const fn dev(&self) -> &Arc<Dev> {
        &self.dev
    }

    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    pub(super) const fn qp_type(&self) -> QpType {
        self.qp_type
    }

    pub(super) const fn inline_limit(&self) -> usize {
        self.inline
    }

    pub(super) fn state(&self) -> QpState {
        let number = usize::from(self.state.load(Ordering::SeqCst));
        ALL.get(number).copied().unwrap_or(QpState::Error)
    }

    fn set_state(&self, state: QpState) {
        let number = ALL.iter().position(|one| *one == state).unwrap_or(4);
        self.state.store(u8::try_from(number).unwrap_or(4), Ordering::SeqCst);
    }

    pub(super) fn is_error(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 4
    }

    pub(super) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::SeqCst)
    }

    pub(super) fn answers(&self) -> bool {
        answers(self.state())
    }

    pub(super) fn setup(&self) -> Option<Setup> {
        hold(&self.setup).map(|setup| *setup)
    }

    /// Where receives come from.
    pub(super) fn receives(&self) -> &Rq {
        match &self.srq {
            Some(srq) => srq.as_any().downcast_ref::<Srq>().map_or(&self.own, |srq| &srq.rq),
            None => &self.own,
        }
    }

    pub(super) const fn shares_receives(&self) -> bool {
        self.srq.is_some()
    }

    pub(super) fn next_msn(&self) -> u32 {
        self.next_msn.load(Ordering::Relaxed)
    }

    /// Only for who is inside the device.
    pub(super) fn next_msn_is(&self, msn: u32) {
        self.next_msn.store(msn, Ordering::Relaxed);
    }

    pub(super) fn peer_room(&self) -> u32 {
        self.peer_room.load(Ordering::Relaxed)
    }

    /// The peer says how many messages it has had receives for.
    pub(super) fn peer_has(&self, room: u32) {
        self.peer_room.store(room, Ordering::Relaxed);
    }

    /// Where the device has the peer's stream of requests; a name that it may not have any more.
    pub(super) fn responder(&self) -> u64 {
        self.responder.load(Ordering::Relaxed)
    }

    pub(super) fn responder_is(&self, token: u64) {
        self.responder.store(token, Ordering::Relaxed);
    }

    /// What both sides do with small messages.
    fn way(&self, peer: &RcPeer) -> Way {
        let own = (Gid::of(self.dev.ip()).ip(), self.dev.service(), self.number);
        Way::between(own, (peer.address.gid.ip(), peer.address.service, peer.qpn))
    }

    /// What a receive gives back when it is polled.
    pub(super) const fn gives(&self, number: u64) -> Gives {
        if self.srq.is_some() { Gives::Nothing } else { Gives::Receives(number + 1) }
    }

    /// Reports the end of a send.
    pub(super) fn sent(&self, id: u64, status: Status, opcode: Opcode, len: u32, gives: Gives) {
        let entry = Completion { id, status, opcode, len, qpn: self.number, ..Completion::EMPTY };
        if let Some(cq) = self.send_cq.as_any().downcast_ref::<Cq>() {
            cq.push(&entry, gives);
        }
    }

    /// Reports the end of a receive.
    pub(super) fn received(&self, entry: &Completion, gives: Gives) {
        let entry = Completion { opcode: Opcode::Receive, qpn: self.number, ..*entry };
        if let Some(cq) = self.recv_cq.as_any().downcast_ref::<Cq>() {
            cq.push(&entry, gives);
        }
    }

    /// The queue pair is in error; the receive side is cleared by the next look at the device.
    pub(super) fn enter_error(&self, by_itself: bool) {
        if self.state() != QpState::Error {
            self.set_state(QpState::Error);
            if by_itself {
                self.dev.report(AsyncEvent::QpFatal { qpn: self.number });
            }
        }
        self.want_attention();
    }

    /// The responder failed: the queue pair is in error, its sends are flushed as soon as nobody is in their queue.
    pub(super) fn fail_here(&self) {
        self.enter_error(true);
    }

    pub(super) fn want_attention(&self) {
        self.attention.store(true, Ordering::SeqCst);
        self.dev.attend();
    }

    pub(super) fn take_attention(&self) -> bool {
        self.attention.swap(false, Ordering::SeqCst)
    }

    pub(super) fn mark_dirty(&self) {
        if !self.dirty.swap(true, Ordering::SeqCst) {
            self.dev.mark_dirty();
        }
    }

    pub(super) fn take_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) && self.dirty.swap(false, Ordering::SeqCst)
    }

    /// One more request of the peer is done.
    pub(super) fn did_one(&self) {
        self.done.store(self.done.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }

    /// Requests of the peer that are done.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Requests that are done and that the peer was not told of.
    pub(super) fn debt(&self) -> u64 {
        self.done().saturating_sub(self.told.load(Ordering::Relaxed))
    }

    /// The peer has been told.
    pub(super) fn told(&self, done: u64) {
        self.told.fetch_max(done, Ordering::Relaxed);
    }

    /// The acknowledgement for a request that is posted now. `first`: nothing is in flight before it, so that the peer reads
    /// its header whatever buffers it has; only then the debt is paid by it.
    pub(super) fn ack_to_carry(&self, first: bool) -> Option<u32> {
        let done = self.done.load(Ordering::Relaxed);
        if self.told.load(Ordering::Relaxed) >= done {
            return None;
        }
        if first {
            self.told(done);
        }
        Some(low(done))
    }

    /// An acknowledgement that came with a request of the peer. False: it cannot be.
    pub(super) fn acknowledged(&self, done: u32) -> bool {
        match briefly(&self.tx) {
            Some(mut tx) => tx.acknowledged(self, done).is_ok(),
            None => {
                self.late.store(u64::from(done) | 1 << 32, Ordering::SeqCst);
                self.want_attention();
                true
            }
        }
    }

    /// Applies an acknowledgement that came late. False: it cannot be.
    pub(super) fn take_late(&self, tx: &mut Tx) -> bool {
        let late = self.late.swap(0, Ordering::SeqCst);
        late == 0 || tx.acknowledged(self, low(late)).is_ok()
    }

    /// Ends all receives as flushed.
    pub(super) fn flush_receives(&self) -> bool {
        if self.srq.is_some() {
            return true;
        }
        loop {
            match self.own.take() {
                super::queue::Taken::One(receive, number) => {
                    let entry =
                        Completion { id: receive.id, status: Status::Flushed, ..Completion::EMPTY };
                    self.received(&entry, self.gives(number));
                }
                super::queue::Taken::None => return true,
                super::queue::Taken::Busy => return false,
            }
        }
    }

    fn wrong(&self, to: QpState, problem: impl Into<String>) -> Error {
        Error::Transition {
            device: self.dev.name().to_owned(),
            qpn: self.number,
            from: self.state(),
            to,
            problem: problem.into(),
        }
    }

    fn step(&self, step: Step, to: QpState) -> Result<(), Error> {
        if self.is_destroyed() {
            return Err(self.wrong(to, "the device is gone"));
        }
        after(self.state(), step).map(drop).map_err(|rule| self.wrong(to, rule))
    }

    /// Waits for other threads of this process that are inside; not for posts and polls.
    fn change<T>(
        &self,
        to: QpState,
        change: impl FnOnce(&mut Setup, &mut Tx) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let busy = || self.wrong(to, "another thread of this process did not leave it in time");
        let mut setup = patiently(&self.setup).ok_or_else(busy)?;
        let mut tx = patiently(&self.tx).ok_or_else(busy)?;
        change(&mut setup, &mut tx)
    }

    /// Back to nothing: also used by RESET.
    fn clear(&self, tx: &mut Tx) {
        tx.forget(self);
        tx.renew();
        self.dev.give_back(self.number, Gives::Sends(tx.tail()));
        self.late.store(0, Ordering::SeqCst);
        if self.srq.is_none()
            && let Some(next) = self.own.clear()
        {
            self.dev.give_back(self.number, Gives::Receives(next));
        }
    }

    /// The handle is gone.
    pub(super) fn destroy(&self) {
        self.destroyed.store(true, Ordering::SeqCst);
        self.dev.pay(self);
        self.set_state(QpState::Reset);
        if let Some(mut tx) = patiently(&self.tx) {
            tx.lose(self);
        }
        self.dev.forget_qp(self.number);
        self.want_attention();
        self.dev.progress_now();
    }

    fn check_retry(&self, to: QpState, retry: &Retry) -> Result<(), Error> {
        let bad = |what: &str, seen: u8, most: u8| {
            Err(self.wrong(to, format!("{what} is {seen}, at most {most} is possible")))
        };
        match retry {
            Retry { timeout, .. } if *timeout > 31 => bad("timeout", *timeout, 31),
            Retry { count, .. } if *count > 7 => bad("retry count", *count, 7),
            Retry { rnr, .. } if *rnr > 7 => bad("RNR retry count", *rnr, 7),
            Retry { rnr_timer, .. } if *rnr_timer > 31 => bad("RNR timer", *rnr_timer, 31),
            _ => Ok(()),
        }
    }
}

/// A queue pair as its user holds it.
#[derive(Debug)]
pub(super) struct Handle(pub(super) Arc<Qp>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.destroy();
    }
}

impl QueuePair for Handle {
    fn number(&self) -> u32 {
        self.0.number
    }

    fn max_inline(&self) -> u32 {
        super::narrow(self.0.inline)
    }

    fn state(&self) -> QpState {
        self.0.state()
    }

    fn to_init(&self, port: u8, pkey_index: u16, qkey: u32, access: Access) -> Result<(), Error> {
        let (qp, to) = (&self.0, QpState::Init);
        qp.step(Step::Init, to)?;
        if port == 0 || port > qp.dev.ports() {
            let problem = format!("port {port}, the device has ports 1 to {}", qp.dev.ports());
            return Err(qp.wrong(to, problem));
        }
        if pkey_index != 0 {
            let problem = format!("partition key index {pkey_index}, the table has index 0 only");
            return Err(qp.wrong(to, problem));
        }
        if !Access::ALL.has(access) {
            return Err(qp.wrong(to, format!("access rights {:#x} do not exist", access.0)));
        }
        qp.change(to, |setup, _| {
            *setup = Setup { port, access, qkey, ..BLANK };
            qp.set_state(to);
            Ok(())
        })
    }

    fn to_rtr(&self, peer: Option<&RcPeer>, retry: &Retry) -> Result<(), Error> {
        let (qp, to) = (&self.0, QpState::Rtr);
        qp.step(Step::Rtr, to)?;
        qp.check_retry(to, retry)?;
        match (qp.qp_type, peer) {
            (QpType::Rc | QpType::XrcSend, None) => return Err(qp.wrong(to, "no peer is given")),
            (QpType::Ud, Some(_)) => return Err(qp.wrong(to, "datagrams have no peer")),
            (QpType::Rc | QpType::XrcSend, Some(peer)) => check_peer(qp, peer)?,
            (QpType::Ud, None) => {}
        }
        qp.change(to, |setup, tx| {
            setup.peer = peer.copied();
            setup.rnr_timer = retry.rnr_timer;
            setup.way = peer.map_or(Way::Apart, |peer| qp.way(peer));
            tx.back = Back::new(setup.way).from(tx.tail());
            qp.next_msn_is(0);
            qp.peer_has(0);
            qp.first_receive.store(qp.own.taken(), Ordering::Relaxed);
            qp.done.store(0, Ordering::SeqCst);
            qp.told.store(0, Ordering::SeqCst);
            qp.set_state(to);
            Ok(())
        })?;
        qp.want_attention();
        qp.dev.progress_now();
        Ok(())
    }

    fn to_rts(&self, psn: u32, rd_atom: u8, retry: &Retry) -> Result<(), Error> {
        let (qp, to) = (&self.0, QpState::Rts);
        qp.step(Step::Rts, to)?;
        qp.check_retry(to, retry)?;
        if rd_atom > MAX_RD_ATOM {
            let problem = format!("{rd_atom} reads in flight, at most {MAX_RD_ATOM} are possible");
            return Err(qp.wrong(to, problem));
        }
        if psn >= 1 << 24 {
            return Err(qp.wrong(to, format!("packet sequence number {psn:#x} is over 24 bits")));
        }
        qp.change(to, |setup, tx| {
            setup.psn = psn;
            setup.rnr = retry.rnr;
            tx.rd_atom = u32::from(rd_atom.max(1));
            tx.patience = patience(retry.timeout, retry.count);
            tx.redial = (None, REDIAL_FIRST.limit);
            qp.set_state(to);
            Ok(())
        })?;
        if qp.qp_type == QpType::Rc {
            qp.dev.mishaps().queue_pair_ready(qp.number);
        }
        qp.want_attention();
        qp.dev.progress_now();
        Ok(())
    }

    fn to_error(&self) -> Result<(), Error> {
        let (qp, to) = (&self.0, QpState::Error);
        qp.step(Step::Error, to)?;
        qp.change(to, |_, tx| {
            qp.enter_error(false);
            tx.flush_all(qp);
            Ok(())
        })?;
        qp.dev.progress_now();
        Ok(())
    }

    fn to_reset(&self) -> Result<(), Error> {
        let (qp, to) = (&self.0, QpState::Reset);
        qp.step(Step::Reset, to)?;
        qp.set_state(to);
        qp.dev.drop_streams(qp).ok_or_else(|| {
            qp.wrong(to, "another thread of this process did not leave the device in time")
        })?;
        qp.change(to, |setup, tx| {
            *setup = BLANK;
            qp.clear(tx);
            Ok(())
        })
    }

    fn post_send(&self, send: &SendWr<'_>) -> Result<(), PostError> {
        let qp = &*self.0;
        let state = qp.state();
        if !may_send(state) {
            return Err(PostError::State(state));
        }
        if qp.qp_type == QpType::Ud {
            return ud::post(qp, &qp.datagrams, send);
        }
        let mut tx = hold(&qp.tx).ok_or(PostError::Full)?;
        let freed = qp.dev.sends_freed(qp.number);
        tx.post(qp, send, freed, qp.dev.somebody_looks())
    }

    fn post_receive(&self, receive: &RecvWr) -> Result<(), PostError> {
        let qp = &*self.0;
        let state = qp.state();
        if !may_receive(state) {
            return Err(PostError::State(state));
        }
        if qp.srq.is_some() {
            return Err(PostError::Invalid("receives come from the shared receive queue"));
        }
        qp.own.post(receive, Some(qp.dev.receives_freed(qp.number)))?;
        if qp.own.take_wanted() {
            qp.dev.wake();
        }
        if qp.is_error() {
            qp.want_attention();
        }
        Ok(())
    }
}

fn check_peer(qp: &Qp, peer: &RcPeer) -> Result<(), Error> {
    let wrong = |problem: String| Err(qp.wrong(QpState::Rtr, problem));
    if !peer.address.global {
        return wrong("the peer's address is without GID: the software adapter needs it".into());
    }
    if peer.address.gid.is_empty() || peer.address.service == 0 {
        return wrong("the peer's address has no GID or no service number".into());
    }
    if peer.address.sgid_index != 0 {
        return wrong(format!("own GID index {}, there is index 0", peer.address.sgid_index));
    }
    if peer.qpn >= 1 << 24 || peer.psn >= 1 << 24 {
        return wrong(format!("queue pair {:#x} or PSN {:#x} over 24 bits", peer.qpn, peer.psn));
    }
    if peer.mtu > qp.dev.mtu() {
        return wrong(format!("path MTU {:?} is over the port's {:?}", peer.mtu, qp.dev.mtu()));
    }
    if peer.rd_atom > MAX_RD_ATOM {
        return wrong(format!("{} reads in flight, at most {MAX_RD_ATOM}", peer.rd_atom));
    }
    Ok(())
}
