//! Queue pairs of a device: changes of their state, and their streams of answers.

use std::sync::Arc;
use std::time::Instant;

use super::{Conn, Progress};
use crate::soft::back::Way;
use crate::soft::device::Dev;
use crate::soft::limits::{ACK_COUNT, ACK_IDLE};
use crate::soft::memory::Gather;
use crate::soft::qp::Qp;
use crate::soft::rx::Responder;
use crate::soft::tx::Answers;
use crate::soft::wire::Refusal;
use crate::soft::{briefly, hold};
use crate::{QpState, QpType, Status};

impl Progress {
    /// Looks after queue pairs whose state changed.
    pub(super) fn attend(&mut self, dev: &Arc<Dev>) {
        let Some(qps) = dev.all_qps() else {
            dev.attend();
            return;
        };
        self.drop_where(|conn| conn.qp().is_some_and(|qp| qp.is_destroyed()));
        for qp in &qps {
            if qp.take_attention() && !self.attend_to(dev, qp) {
                qp.want_attention();
                self.hindered = true;
            }
        }
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if !matches!(entry.conn, Some(Conn::Parked(_))) {
                continue;
            }
            let token = index as u64 | u64::from(entry.generation) << 32;
            if let Some(Conn::Parked(parked)) = entry.conn.take() {
                let fate = self.admit(dev, token, parked);
                self.settle(dev, token, fate, true);
            }
        }
    }

    /// False: another thread is in the queue pair; once more later.
    pub(super) fn attend_to(&mut self, dev: &Arc<Dev>, qp: &Arc<Qp>) -> bool {
        if qp.qp_type() != QpType::Rc {
            return !qp.is_error() || qp.flush_receives();
        }
        let Some(mut tx) = briefly(&qp.tx) else { return false };
        if !qp.take_late(&mut tx) {
            tx.fail(qp, Status::RemoteOperation);
        }
        tx.retire(qp);
        if qp.is_error() {
            tx.flush_all(qp);
            drop(tx);
            for entry in &mut self.entries {
                match &mut entry.conn {
                    Some(Conn::Requests(one)) if Arc::ptr_eq(&one.qp, qp) => one.abandon(),
                    _ => {}
                }
            }
            let done = qp.flush_receives();
            self.turn_all_of(dev, qp);
            return done;
        }
        if qp.state() == QpState::Rts
            && tx.stream.is_none()
            && !tx.lost
            && !tx.dialing
            && tx.redial.0.is_none_or(|at| Instant::now() >= at)
        {
            tx.dialing = true;
            drop(tx);
            self.dial(dev, qp);
        }
        true
    }

    /// Looks at every stream as if the system had told of it.
    pub(in crate::soft) fn turn_all(&mut self, dev: &Arc<Dev>) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get(index) else { break };
            let token = index as u64 | u64::from(entry.generation) << 32;
            self.turn(dev, token, true, true);
        }
    }

    pub(super) fn turn_all_of(&mut self, dev: &Arc<Dev>, qp: &Arc<Qp>) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get(index) else { break };
            if entry.conn.as_ref().and_then(Conn::qp).is_some_and(|one| Arc::ptr_eq(one, qp)) {
                let token = index as u64 | u64::from(entry.generation) << 32;
                self.turn(dev, token, false, true);
            }
        }
    }

    pub(super) fn drop_where(&mut self, mut which: impl FnMut(&Conn) -> bool) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if entry.conn.as_ref().is_some_and(&mut which) {
                if let Some(Conn::Requests(responder)) = &mut entry.conn {
                    responder.abandon();
                }
                self.release(index);
            }
        }
    }

    /// Closes all streams of a queue pair; what had begun to arrive is given back.
    pub(in crate::soft) fn drop_streams(&mut self, qp: &Qp) {
        self.drop_where(|conn| conn.qp().is_some_and(|one| std::ptr::eq(&raw const **one, qp)));
    }

    /// Writes the acknowledgements that a queue pair owes.
    pub(in crate::soft) fn pay(&mut self, dev: &Dev, qp: &Qp) {
        for entry in &mut self.entries {
            match &mut entry.conn {
                Some(Conn::Requests(one)) if std::ptr::eq(&raw const *one.qp, qp) => {
                    one.settle(dev);
                }
                _ => {}
            }
        }
    }

    /// The stream of a queue pair's peer.
    pub(super) fn responder(&mut self, qp: &Qp) -> Option<&mut Responder> {
        match &mut self.entry(qp.responder())?.conn {
            Some(Conn::Requests(one)) if std::ptr::eq(&raw const *one.qp, qp) => Some(one),
            _ => None,
        }
    }

    /// As [`Dev::send_back`].
    pub(in crate::soft) fn send_back(
        &mut self,
        qp: &Qp,
        message: Gather<'_>,
        rest: impl FnOnce(usize) -> Vec<u8>,
    ) -> bool {
        self.responder(qp).is_some_and(|responder| responder.send_back(message, rest))
    }

    /// Says no to a message that came back.
    #[cold]
    pub(super) fn refuse(&mut self, dev: &Dev, qp: &Qp, why: Refusal) {
        match self.responder(qp) {
            Some(responder) => {
                responder.refuse(why, true);
                responder.settle(dev);
            }
            None => qp.fail_here(),
        }
    }

    /// Acknowledges what came back, when no request is likely to do it soon. `misses`: looks without data.
    pub(super) fn pay_for_back(&mut self, dev: &Dev, qp: &Qp, misses: u32, eager: bool) {
        let debt = qp.debt();
        if debt == 0 {
            return;
        }
        if !(eager || misses >= ACK_IDLE || debt >= ACK_COUNT) {
            // As where requests come in.
            dev.wake();
        } else if let Some(responder) = self.responder(qp) {
            responder.settle(dev);
        }
    }
}

/// What was sent back and not acknowledged will never be; its patience runs.
pub(super) fn way_back_is_gone(qp: &Qp) {
    if let Some(mut tx) = hold(&qp.tx) {
        tx.back.is_lost = true;
    }
}

/// What a turn of a stream of answers found.
pub(super) struct Heard {
    /// There was something.
    pub(super) did: bool,
    /// It needs another turn soon.
    pub(super) again: bool,
    /// Messages of the peer come on it.
    pub(super) takes: bool,
    /// One of them is to be refused.
    pub(super) refused: Option<Refusal>,
}

/// A turn of a stream of answers. `None`: it is over.
pub(super) fn turn_answers(
    qp: &Arc<Qp>,
    stream: &Arc<std::net::TcpStream>,
    scratch: &mut [u8],
    writable: bool,
) -> Option<Heard> {
    let Some(mut tx) = briefly(&qp.tx) else {
        return Some(Heard { did: false, again: true, takes: false, refused: None });
    };
    if !tx.stream.as_ref().is_some_and(|own| Arc::ptr_eq(own, stream)) {
        return None;
    }
    if !qp.take_late(&mut tx) {
        tx.fail(qp, Status::RemoteOperation);
        return None;
    }
    let (did, again) = match tx.read_answers(qp, scratch) {
        Answers::Lost => {
            tx.lose(qp);
            return None;
        }
        Answers::Refused(why) => {
            drop(tx);
            return Some(Heard { did: true, again: false, takes: true, refused: Some(why) });
        }
        Answers::Dry { did } => (did, false),
        Answers::More => (true, true),
    };
    if did {
        tx.heard();
    }
    if writable {
        tx.unblock(qp);
        tx.flush(qp);
    }
    Some(Heard { did, again, takes: tx.back.way == Way::Takes, refused: None })
}
