//! Queue pairs of a device: changes of their state, and their streams.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::{Conn, Entry, Fate, Progress};
use crate::soft::context::Context;
use crate::soft::limits::ACK_IDLE;
use crate::soft::lock::{Wait, try_lock_for};
use crate::soft::memory::Gather;
use crate::soft::qp::Qp;
use crate::soft::qp_shared::{QpShared, Turn};
use crate::soft::requester::Stop;
use crate::soft::responder::Responder;
use crate::soft::reverse_path::ReverseRole;
use crate::soft::stream::Stream;
use crate::soft::wire::Refusal;
use crate::{QpState, QpType, Status};

impl Progress {
    pub(super) fn handle_attention(&mut self, ctx: &Context) {
        let mut qps = Vec::new();
        if !self.qps.list(&mut qps) {
            ctx.activity.request_attention();
            return;
        }
        self.drop_where(|conn| conn.qp().is_some_and(|qp| qp.destroyed.is_set()));
        for qp in &qps {
            if qp.attention.take() && !self.handle_qp(ctx, qp) {
                qp.request_attention();
                self.contended = true;
            }
        }
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            let token = entry.token;
            if let Some(Conn::Parked(parked)) =
                entry.conn.take_if(|conn| matches!(conn, Conn::Parked(_)))
            {
                let fate = self.admit(token, parked);
                self.finish_turn(ctx, token, fate, true);
            }
        }
    }

    /// False: another thread is in the queue pair; try again later.
    fn handle_qp(&mut self, ctx: &Context, qp: &Arc<Qp>) -> bool {
        if qp.qp_type != QpType::Rc {
            return !qp.is_error() || qp.flush_receives();
        }
        let Some(mut sq) = try_lock_for(&qp.sq, Wait::Spin) else { return false };
        if !sq.apply_deferred_ack(qp) {
            sq.fail(qp, Status::RemoteOperation);
        }
        sq.retire(qp);
        if qp.is_error() {
            sq.flush_all(qp);
            drop(sq);
            if let Some(responder) = self.responder(qp) {
                responder.abandon();
            }
            let done = qp.flush_receives();
            self.turn_where(ctx, false, |conn| conn.qp().is_some_and(|one| Arc::ptr_eq(one, qp)));
            return done;
        }
        let may_connect = sq.stream.is_none() && !sq.lost && !sq.connecting;
        if qp.state() == QpState::Rts
            && may_connect
            && sq.reconnect.0.is_none_or(|at| Instant::now() >= at)
        {
            sq.connecting = true;
            drop(sq);
            self.connect(ctx, qp);
        }
        true
    }

    /// A turn of some streams, as if the system had announced them.
    pub(super) fn turn_where(
        &mut self,
        ctx: &Context,
        writable: bool,
        which: impl Fn(&Conn) -> bool,
    ) {
        for index in 0..self.entries.len() {
            let Some(Entry { token, conn, .. }) = self.entries.get(index) else { break };
            if conn.as_ref().is_some_and(&which) {
                self.turn(ctx, *token, writable, true);
            }
        }
    }

    fn drop_where(&mut self, mut which: impl FnMut(&Conn) -> bool) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if entry.conn.as_ref().is_some_and(&mut which) {
                if let Some(Conn::Responder(responder)) = &mut entry.conn {
                    responder.abandon();
                }
                self.release(index);
            }
        }
    }

    /// Closes all streams of a queue pair; receives whose message began to arrive are given back.
    pub(in crate::soft) fn drop_streams(&mut self, qp: &Qp) {
        self.drop_where(|conn| conn.qp().is_some_and(|one| std::ptr::eq(&raw const **one, qp)));
    }

    /// Writes what a queue pair has deferred, and the acknowledgements that are pending.
    pub(in crate::soft) fn flush_all_of(&mut self, ctx: &Context, qp: &Qp) {
        if let Some(mut sq) = try_lock_for(&qp.sq, Wait::Post) {
            sq.flush_burst(qp, |message, rest| self.send_reverse(qp, message, rest));
        }
        if let Some(responder) = self.responder(qp) {
            responder.flush_acks(&ctx.regions);
        }
    }

    /// The stream of the peer's requests.
    pub(super) fn responder(&mut self, qp: &QpShared) -> Option<&mut Responder> {
        match &mut self.entry(qp.responder.load(Relaxed))?.conn {
            Some(Conn::Responder(one)) if std::ptr::eq(&raw const **one.qp, qp) => Some(one),
            _ => None,
        }
    }

    pub(in crate::soft) fn send_reverse(
        &mut self,
        qp: &QpShared,
        message: &mut Gather<'_>,
        rest: &dyn Fn(usize) -> Vec<u8>,
    ) -> bool {
        self.responder(qp).is_some_and(|responder| responder.send_reverse(message, rest))
    }

    /// Refuses a message of the reverse path.
    #[cold]
    fn refuse(&mut self, ctx: &Context, qp: &Qp, why: Refusal) {
        match self.responder(qp) {
            Some(responder) => {
                responder.refuse(why, true);
                responder.flush_acks(&ctx.regions);
            }
            None => qp.enter_error(true),
        }
    }

    /// Acknowledges messages of the reverse path when no request is likely to do it soon. `misses`:
    /// turns without data.
    fn ack_reverse(&mut self, ctx: &Context, qp: &Qp, misses: u32, eager: bool) {
        let many = qp.is_ack_due();
        if qp.unacked() == 0 {
            return;
        }
        if !(eager || many || misses >= ACK_IDLE) {
            // As where requests come in.
            ctx.activity.wake();
        } else if let Some(responder) = self.responder(qp) {
            responder.flush_acks(&ctx.regions);
        }
    }

    /// A turn of the stream that this side's requests go out on.
    pub(super) fn turn_requester(
        &mut self,
        ctx: &Context,
        (qp, stream): (Arc<Qp>, Arc<Stream>),
        misses: u32,
        (writable, eager): (bool, bool),
    ) -> Fate {
        let (turn, has_messages) = match turn_responses(&qp, &stream, &mut self.scratch, writable) {
            Ok(found) => found,
            Err(Stop::Lost) => return None,
            Err(Stop::Refused(why)) => {
                self.refuse(ctx, &qp, why);
                (Turn { progressed: true, again: false }, true)
            }
        };
        if has_messages {
            let misses = if turn.progressed { 0 } else { misses };
            self.ack_reverse(ctx, &qp, misses, eager);
        }
        Some((Conn::Requester(qp, stream), turn))
    }
}

/// Reads responses, and writes requests where the stream takes bytes again. Also says whether
/// messages of the peer come on the stream.
fn turn_responses(
    qp: &Arc<Qp>,
    stream: &Arc<Stream>,
    scratch: &mut [u8],
    writable: bool,
) -> Result<(Turn, bool), Stop> {
    let Some(mut sq) = try_lock_for(&qp.sq, Wait::Spin) else {
        return Ok((Turn { progressed: false, again: true }, false));
    };
    if !sq.stream.as_ref().is_some_and(|own| Arc::ptr_eq(own, stream)) {
        return Err(Stop::Lost);
    }
    if !sq.apply_deferred_ack(qp) {
        sq.fail(qp, Status::RemoteOperation);
        return Err(Stop::Lost);
    }
    let turn = sq.read_responses(qp, stream, scratch).inspect_err(|stop| {
        if let Stop::Lost = stop {
            sq.lose(qp);
        }
    })?;
    if turn.progressed {
        sq.reset_timeout();
    }
    if writable {
        sq.unblock(qp);
        sq.flush(qp);
    }
    Ok((turn, sq.reverse.role == ReverseRole::Receiver))
}
