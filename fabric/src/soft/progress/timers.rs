//! Timers.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use settings::deadlines::soft::TICK;

use super::begin::dial_failed;
use super::{Conn, Progress};
use crate::soft::briefly;
use crate::soft::device::Dev;
use crate::soft::hello::Refused;
use crate::soft::memory::silence;
use crate::soft::qp::Qp;
use crate::{QpState, QpType, Status};

impl Progress {
    /// Timers.
    pub(in crate::soft) fn tick(&mut self, dev: &Arc<Dev>) {
        let now = Instant::now();
        if now.duration_since(self.ticked) < TICK.limit {
            return;
        }
        self.ticked = now;
        if std::mem::take(&mut self.accept_again) {
            self.accept(dev);
        }
        let mut busy = self.accept_again;
        busy |= self.suffer(dev, now);
        for index in 0..self.entries.len() {
            busy |= self.tick_stream(dev, index, now);
        }
        let mut qps = std::mem::take(&mut self.qps);
        if dev.list_qps(&mut qps) {
            let used = |qp: &&Arc<Qp>| qp.qp_type() == QpType::Rc && qp.state() == QpState::Rts;
            for qp in qps.iter().filter(used) {
                busy |= tick_qp(qp, now);
            }
            self.busy = busy;
        }
        qps.clear();
        self.qps = qps;
    }

    pub(super) fn tick_stream(&mut self, dev: &Arc<Dev>, index: usize, now: Instant) -> bool {
        if dev.mishaps().is_active() && self.close_unheard(dev, index, now) {
            return true;
        }
        let Some(entry) = self.entries.get_mut(index) else { return false };
        entry.unheard = None;
        let token = index as u64 | u64::from(entry.generation) << 32;
        match &entry.conn {
            Some(Conn::Stranger(one)) if now >= one.until => {
                dev.refused(Refused::Late, one.peer);
                self.strangers = self.strangers.saturating_sub(1);
                self.release(index);
                false
            }
            Some(Conn::Parked(one)) if now >= one.until => {
                self.release(index);
                false
            }
            Some(Conn::Dial(one)) if now >= one.until => {
                dial_failed(&one.qp);
                self.release(index);
                true
            }
            Some(Conn::Requests(one)) if one.has_timer() || one.owes() => {
                self.turn(dev, token, false, true);
                true
            }
            Some(Conn::Stranger(_) | Conn::Parked(_) | Conn::Dial(_)) => true,
            _ => false,
        }
    }
}

impl Progress {
    /// What a fault script cuts off at this side alone, the system below goes on to acknowledge. A peer that waits longer than its
    /// patience shall not wait for ever: its streams are closed, as if the last retry had been in vain. Returns whether the
    /// stream is cut off and the peer waits.
    fn close_unheard(&mut self, dev: &Dev, index: usize, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(index) else { return false };
        let conn = entry.conn.as_ref().filter(|conn| conn.is_cut(dev) && conn.is_awaited());
        let Some(qp) = conn.and_then(Conn::qp).map(Arc::clone) else { return false };
        let since = *entry.unheard.get_or_insert(now);
        // The same for both sides, as queue pairs that are connected have the same attributes.
        let Some(mut tx) = briefly(&qp.tx) else { return true };
        if tx.patience.is_some_and(|patience| now.duration_since(since) >= patience) {
            tx.back.is_lost = true;
            tx.lose(&qp);
            drop(tx);
            self.drop_streams(&qp);
        }
        true
    }
}

/// Timers of a requester; whether it has any running.
fn tick_qp(qp: &Arc<Qp>, now: Instant) -> bool {
    let Some(mut tx) = briefly(&qp.tx) else { return true };
    if tx.overdue(now) {
        let patience = tx.patience.unwrap_or_default();
        // The peer's process may be slow; only its host must answer.
        let dead = match &tx.stream {
            Some(_) if qp.is_cut() || tx.lost_what_went_back() => true,
            Some(stream) => silence(stream.as_fd()).is_some_and(|quiet| quiet >= patience),
            None => true,
        };
        if dead {
            tx.fail(qp, Status::RetryExceeded);
        } else {
            tx.heard();
        }
    }
    if tx.stream.is_none() && !tx.lost && !tx.dialing {
        qp.want_attention();
    }
    tx.in_flight() != 0 || tx.dialing || (tx.stream.is_none() && !tx.lost)
}
