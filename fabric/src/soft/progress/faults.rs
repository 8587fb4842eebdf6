//! Lets the faults of a script happen when they are due.

use std::sync::Arc;
use std::time::Instant;

use super::{Conn, Progress};
use crate::soft::context::Context;
use crate::soft::lock::{Wait, try_lock_for};
use crate::soft::ud::send_delayed;
use crate::{AsyncEvent, QpState, QpType};

impl Progress {
    /// Lets happen what is due; whether something waits for its time.
    pub(super) fn inject_due_faults(&mut self, ctx: &Context, now: Instant) -> bool {
        let faults = &ctx.faults;
        let delayed = send_delayed(ctx, now);
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
        let dies = faults.plan.is_dead(age) && faults.die();
        let dead = faults.is_dead();
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

    /// Stops what is cut off and lets go on what no longer is.
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
        self.turn_all(ctx);
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
