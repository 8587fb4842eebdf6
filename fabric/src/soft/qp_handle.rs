//! A queue pair as its user holds it: changes of state, and posts.

use settings::deadlines::soft::RECONNECT_FIRST;
use std::sync::Arc;

use super::activity::Activity;
use super::device::SoftDevice;
use super::limits::{MAX_RD_ATOM, retry_timeout};
use super::lock::{Wait, try_lock_for};
use super::qp::{Attributes, Qp};
use super::qp_state::{self, may_receive, may_send};
use super::requester::SendQueue;
use super::reverse_path::{ReversePath, ReverseRole};
use super::ud;
use super::wire::narrow;
use crate::{Access, Error, PostError, QpState, QpType, QueuePair, RcPeer, RecvWr, Retry, SendWr};

/// Keeps its device open; destroys the queue pair when it is dropped.
#[derive(Debug)]
pub(super) struct QpHandle {
    pub(super) qp: Arc<Qp>,
    pub(super) device: Arc<SoftDevice>,
}

impl Drop for QpHandle {
    fn drop(&mut self) {
        self.device.destroy_qp(&self.qp);
    }
}

impl QpHandle {
    fn wrong(&self, to: QpState, problem: impl Into<String>) -> Error {
        Error::Transition {
            device: self.device.ctx.name().to_owned(),
            qpn: self.qp.number,
            from: self.qp.state(),
            to,
            problem: problem.into(),
        }
    }

    fn check_step(&self, to: QpState) -> Result<(), Error> {
        qp_state::check(self.qp.state(), to).map_err(|rule| self.wrong(to, rule))
    }

    /// Changes attributes and send queue, then the state.
    fn change(
        &self,
        to: QpState,
        change: impl FnOnce(&mut Attributes, &mut SendQueue),
    ) -> Result<(), Error> {
        let changed = self.qp.change(|attributes, sq| change(attributes, sq));
        changed.ok_or_else(|| {
            self.wrong(to, "another thread of this process did not leave it in time")
        })
    }

    fn announce(&self) {
        self.qp.request_attention();
        self.device.progress_now();
    }

    fn check_retry(&self, to: QpState, retry: &Retry) -> Result<(), Error> {
        let limits = [
            ("timeout", retry.timeout, 31),
            ("retry count", retry.count, 7),
            ("RNR retry count", retry.rnr, 7),
            ("RNR timer", retry.rnr_timer, 31),
        ];
        match limits.iter().find(|(_, seen, most)| seen > most) {
            Some((what, seen, most)) => {
                Err(self.wrong(to, format!("{what} is {seen}, at most {most} is possible")))
            }
            None => Ok(()),
        }
    }

    fn check_peer(&self, peer: Option<&RcPeer>) -> Result<(), Error> {
        let wrong = |problem: &str| Err(self.wrong(QpState::Rtr, problem));
        let peer = match (self.qp.qp_type, peer) {
            (QpType::Ud, None) => return Ok(()),
            (QpType::Ud, Some(_)) => return wrong("datagrams have no peer"),
            (_, None) => return wrong("no peer is given"),
            (_, Some(peer)) => peer,
        };
        let RcPeer { address, qpn, psn, mtu, rd_atom } = peer;
        let (index, most) = (address.sgid_index, self.device.ctx.mtu);
        let rules = [
            (
                address.global,
                "the peer's address is without GID: the software adapter needs it".to_owned(),
            ),
            (
                !address.gid.is_empty() && address.service != 0,
                "the peer's address has no GID or no service number".to_owned(),
            ),
            (index == 0, format!("own GID index {index}, there is index 0")),
            (
                *qpn < 1 << 24 && *psn < 1 << 24,
                format!("queue pair {qpn:#x} or PSN {psn:#x} over 24 bits"),
            ),
            (*mtu <= most, format!("path MTU {mtu:?} is over the port's {most:?}")),
            (*rd_atom <= MAX_RD_ATOM, format!("{rd_atom} reads in flight, at most {MAX_RD_ATOM}")),
        ];
        rules.iter().find(|(kept, _)| !kept).map_or(Ok(()), |(_, problem)| wrong(problem))
    }
}

impl QueuePair for QpHandle {
    fn number(&self) -> u32 {
        self.qp.number
    }

    fn max_inline(&self) -> u32 {
        narrow(self.qp.inline)
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn to_init(&self, port: u8, pkey_index: u16, qkey: u32, access: Access) -> Result<(), Error> {
        let (qp, to, ports) = (&self.qp, QpState::Init, self.device.ctx.info.ports);
        self.check_step(to)?;
        if port == 0 || port > ports {
            return Err(self.wrong(to, format!("port {port}, the device has ports 1 to {ports}")));
        }
        if pkey_index != 0 {
            let problem = format!("partition key index {pkey_index}, the table has index 0 only");
            return Err(self.wrong(to, problem));
        }
        if !Access::ALL.has(access) {
            return Err(self.wrong(to, format!("access rights {:#x} do not exist", access.0)));
        }
        self.change(to, |attributes, _| {
            *attributes = Attributes { port, access, qkey, ..Attributes::RESET };
            qp.set_state(to);
        })
    }

    fn to_rtr(&self, peer: Option<&RcPeer>, retry: &Retry) -> Result<(), Error> {
        let (qp, to) = (&self.qp, QpState::Rtr);
        self.check_step(to)?;
        self.check_retry(to, retry)?;
        self.check_peer(peer)?;
        self.change(to, |attributes, sq| {
            let role = peer.map_or(ReverseRole::Unused, |peer| qp.reverse_role(peer));
            attributes.peer = peer.copied();
            attributes.rnr_timer = retry.rnr_timer;
            attributes.reverse_role = role;
            sq.reverse = ReversePath::new(role, sq.tail());
            qp.reset_counters();
            qp.set_state(to);
        })?;
        self.announce();
        Ok(())
    }

    fn to_rts(&self, psn: u32, rd_atom: u8, retry: &Retry) -> Result<(), Error> {
        let (qp, to) = (&self.qp, QpState::Rts);
        self.check_step(to)?;
        self.check_retry(to, retry)?;
        if rd_atom > MAX_RD_ATOM {
            let problem = format!("{rd_atom} reads in flight, at most {MAX_RD_ATOM} are possible");
            return Err(self.wrong(to, problem));
        }
        if psn >= 1 << 24 {
            return Err(self.wrong(to, format!("packet sequence number {psn:#x} is over 24 bits")));
        }
        self.change(to, |attributes, sq| {
            attributes.psn = psn;
            attributes.rnr = retry.rnr;
            sq.rd_atom = u32::from(rd_atom.max(1));
            sq.retry_timeout = retry_timeout(retry.timeout, retry.count);
            sq.reconnect = (None, RECONNECT_FIRST.limit);
            qp.set_state(to);
        })?;
        if qp.qp_type == QpType::Rc {
            self.device.ctx.faults.queue_pair_ready(qp.number);
        }
        self.announce();
        Ok(())
    }

    fn to_error(&self) -> Result<(), Error> {
        let (qp, to) = (&self.qp, QpState::Error);
        self.check_step(to)?;
        self.change(to, |_, sq| {
            qp.enter_error(false);
            sq.flush_all(qp);
        })?;
        self.device.progress_now();
        Ok(())
    }

    fn to_reset(&self) -> Result<(), Error> {
        let (qp, to) = (&self.qp, QpState::Reset);
        self.check_step(to)?;
        qp.set_state(to);
        self.device.drop_streams(qp).ok_or_else(|| {
            self.wrong(to, "another thread of this process did not leave the device in time")
        })?;
        self.change(to, |attributes, sq| {
            *attributes = Attributes::RESET;
            qp.clear(sq);
        })
    }

    fn post_send(&self, send: &SendWr<'_>) -> Result<(), PostError> {
        let qp = &*self.qp;
        let state = qp.state();
        if !may_send(state) {
            return Err(PostError::State(state));
        }
        if qp.qp_type == QpType::Ud {
            return ud::post(qp, send);
        }
        let mut sq = try_lock_for(&qp.sq, Wait::Post).ok_or(PostError::Full)?;
        let ctx = &qp.ctx;
        Activity::count(&ctx.activity.posts);
        // While the progress thread naps it runs soon: small requests may wait for others.
        let napping = ctx.activity.waker.is_napping();
        sq.post(qp, send, ctx.slots.sends(qp.number), napping, |message, rest| {
            self.device.send_reverse(qp, message, rest)
        })
    }

    fn post_receive(&self, receive: &RecvWr) -> Result<(), PostError> {
        let qp = &*self.qp;
        let state = qp.state();
        if !may_receive(state) {
            return Err(PostError::State(state));
        }
        if qp.shares_receives() {
            return Err(PostError::Invalid("receives come from the shared receive queue"));
        }
        qp.receives().post(receive, Some(qp.ctx.slots.receives(qp.number)))?;
        if qp.receives().counters.take_wanted() {
            qp.ctx.activity.wake();
        }
        if qp.is_error() {
            qp.request_attention();
        }
        Ok(())
    }
}
