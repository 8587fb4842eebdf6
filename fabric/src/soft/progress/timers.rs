//! Timers.

use settings::deadlines::soft::TICK;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use super::connect::connect_failed;
use super::{Conn, Progress};
use crate::soft::context::Context;
use crate::soft::handshake::messages::Rejection;
use crate::soft::lock::{Wait, try_lock_for};
use crate::soft::memory::silence;
use crate::soft::qp::Qp;
use crate::{QpState, QpType, Status};

impl Progress {
    /// Runs the timers that are due.
    pub(in crate::soft) fn tick(&mut self, ctx: &Context) {
        let now = Instant::now();
        if self.ticked.is_some_and(|ticked| now.duration_since(ticked) < TICK.limit) {
            return;
        }
        self.ticked = Some(now);
        if std::mem::take(&mut self.accept_again) {
            self.accept(ctx);
        }
        let mut busy = self.accept_again;
        busy |= self.inject_due_faults(ctx, now);
        for index in 0..self.entries.len() {
            busy |= self.tick_stream(ctx, index, now);
        }
        let mut list = std::mem::take(&mut self.list);
        if self.qps.list(&mut list) {
            let used = |qp: &&Arc<Qp>| qp.qp_type == QpType::Rc && qp.state() == QpState::Rts;
            for qp in list.iter().filter(used) {
                busy |= tick_qp(qp, now);
            }
            self.busy = busy;
        }
        list.clear();
        self.list = list;
    }

    /// The timer of a stream; whether it runs.
    fn tick_stream(&mut self, ctx: &Context, index: usize, now: Instant) -> bool {
        if ctx.faults.is_active() && self.close_unreachable(ctx, index, now) {
            return true;
        }
        let Some(entry) = self.entries.get_mut(index) else { return false };
        entry.unreachable_since = None;
        let token = entry.token;
        match &entry.conn {
            Some(Conn::Accepting(one)) if now >= one.until => {
                ctx.warnings.connection_rejected(Rejection::Late, one.peer);
                self.accepting = self.accepting.saturating_sub(1);
                self.release(index);
                false
            }
            Some(Conn::Parked(one)) if now >= one.until => {
                self.release(index);
                false
            }
            Some(Conn::Connecting(qp, one)) if now >= one.until => {
                connect_failed(qp);
                self.release(index);
                true
            }
            Some(Conn::Responder(one)) if one.has_timer() || one.ack_pending() => {
                self.turn(ctx, token, false, true);
                true
            }
            Some(Conn::Accepting(_) | Conn::Parked(_) | Conn::Connecting(..)) => true,
            _ => false,
        }
    }
}

/// The retry timer of a requester; whether it runs.
fn tick_qp(qp: &Arc<Qp>, now: Instant) -> bool {
    let Some(mut sq) = try_lock_for(&qp.sq, Wait::Spin) else { return true };
    if sq.overdue(now) {
        let timeout = sq.retry_timeout.unwrap_or_default();
        // The peer's process may be slow; only its host must answer.
        let dead = match &sq.stream {
            Some(_) if qp.is_unreachable() || sq.reverse_sends_lost() => true,
            Some(stream) => silence(stream.as_fd()).is_some_and(|silent| silent >= timeout),
            None => true,
        };
        if dead {
            sq.fail(qp, Status::RetryExceeded);
        } else {
            sq.reset_timeout();
        }
    }
    let disconnected = sq.stream.is_none() && !sq.lost;
    if disconnected && !sq.connecting {
        qp.request_attention();
    }
    sq.in_flight() != 0 || sq.connecting || disconnected
}
