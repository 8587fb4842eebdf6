//! Timers, and the faults of a script when they are due.

use settings::deadlines::soft::TICK;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Instant;

use super::connect::connect_failed;
use super::{Conn, Progress};
use crate::soft::context::Context;
use crate::soft::lock::{Wait, try_lock_for};
use crate::soft::memory::silence;
use crate::soft::qp::Qp;
use crate::soft::ud::send_delayed;
use crate::{AsyncEvent, QpState, QpType, Status};

impl Progress {
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
                ctx.warnings.connection_rejected(one.late(), one.peer);
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

    /// Lets happen what is due; whether something waits for its time.
    pub(super) fn inject_due_faults(&mut self, ctx: &Context, now: Instant) -> bool {
        let faults = &ctx.faults;
        let delayed = send_delayed(ctx, now) | faults.writes.place(&ctx.regions, Some(now));
        let (kills, later) = faults.due_kills(now);
        for number in kills {
            let Some(qp) = self.qps.find(number) else { continue };
            self.drop_streams(&qp);
            qp.enter_error(true);
        }
        if !faults.plan.need_clock() {
            return delayed || later;
        }
        let age = faults.plan.age(now);
        let dies = faults.plan.is_dead(age) && !faults.dead.set();
        let dead = faults.dead.is_set();
        let mut active = dead || faults.plan.is_any_unreachable(age);
        for port in 1..=ctx.info.ports {
            let up = !dead && !faults.plan.port_is_down(ctx.name(), port, age);
            ctx.set_port(port, up);
            active |= !up;
        }
        let was_active = faults.set_active(active);
        if dies {
            ctx.events.push(AsyncEvent::DeviceFatal);
        }
        if active || was_active {
            self.apply_faults(ctx, dies);
        }
        true
    }

    fn apply_faults(&mut self, ctx: &Context, dies: bool) {
        let mut qps = Vec::new();
        if !self.qps.list(&mut qps) {
            return;
        }
        for qp in qps.iter().filter(|qp| qp.qp_type == QpType::Rc) {
            if dies {
                self.drop_streams(qp);
                qp.enter_error(true);
            } else if qp.state() == QpState::Rts
                && qp.is_unreachable()
                && let Some(mut sq) = try_lock_for(&qp.sq, Wait::Post)
            {
                sq.block(qp);
            }
        }
        // Streams that are cut off stay as they are; the others may have missed something.
        self.turn_where(ctx, true, |_| true);
    }

    /// The system below goes on to acknowledge what a fault script cuts off at this side alone. So
    /// that a peer does not wait for ever, its streams are closed after its time-out, as if the
    /// last retry had failed. Returns whether the stream is cut off and the peer waits.
    pub(super) fn close_unreachable(&mut self, ctx: &Context, index: usize, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(index) else { return false };
        let conn = entry.conn.as_ref();
        let conn = conn.filter(|conn| conn.is_unreachable(ctx) && conn.is_awaited());
        let Some(qp) = conn.and_then(Conn::qp).map(Arc::clone) else { return false };
        let since = *entry.unreachable_since.get_or_insert(now);
        // Queue pairs that are connected have the same time-out on both sides.
        let Some(mut sq) = try_lock_for(&qp.sq, Wait::Spin) else { return true };
        if sq.retry_timeout.is_some_and(|timeout| now.duration_since(since) >= timeout) {
            sq.reverse.is_broken = true;
            sq.lose(&qp);
            drop(sq);
            self.drop_streams(&qp);
        }
        true
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
            Some(stream) => silence(stream.tcp().as_fd()).is_some_and(|silent| silent >= timeout),
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
