//! Queue pairs of a device: changes of their state, and their streams.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use super::{Conn, Fate, Progress, token_of};
use crate::soft::context::Context;
use crate::soft::limits::{ACK_COUNT, ACK_IDLE};
use crate::soft::lock::{Wait, try_lock_for};
use crate::soft::memory::Gather;
use crate::soft::qp::Qp;
use crate::soft::qp_shared::QpShared;
use crate::soft::requester::ResponseRead;
use crate::soft::responder::Responder;
use crate::soft::reverse_path::ReverseRole;
use crate::soft::wire::Refusal;
use crate::{QpState, QpType, Status};

impl Progress {
    /// Handles queue pairs whose state changed.
    pub(super) fn handle_attention(&mut self, ctx: &Context) {
        let mut qps = Vec::new();
        if !self.qps.list(&mut qps) {
            ctx.activity.request_attention();
            return;
        }
        self.drop_where(|conn| conn.qp().is_some_and(|qp| qp.is_destroyed()));
        for qp in &qps {
            if qp.take_attention() && !self.handle_qp(ctx, qp) {
                qp.request_attention();
                self.contended = true;
            }
        }
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            if !matches!(entry.conn, Some(Conn::Parked(_))) {
                continue;
            }
            let token = token_of(index, entry.generation);
            if let Some(Conn::Parked(parked)) = entry.conn.take() {
                let fate = self.admit(token, parked);
                self.finish_turn(ctx, token, fate, true);
            }
        }
    }

    /// False: another thread is in the queue pair; try again later.
    fn handle_qp(&mut self, ctx: &Context, qp: &Arc<Qp>) -> bool {
        if qp.qp_type() != QpType::Rc {
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
            for entry in &mut self.entries {
                match &mut entry.conn {
                    Some(Conn::Responder(one)) if Arc::ptr_eq(&one.qp, qp) => one.abandon(),
                    _ => {}
                }
            }
            let done = qp.flush_receives();
            self.turn_all_of(ctx, qp);
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

    /// A turn of every stream, as if the system had announced it.
    pub(super) fn turn_all(&mut self, ctx: &Context) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get(index) else { break };
            let token = token_of(index, entry.generation);
            self.turn(ctx, token, true, true);
        }
    }

    fn turn_all_of(&mut self, ctx: &Context, qp: &Arc<Qp>) {
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get(index) else { break };
            if entry.conn.as_ref().and_then(Conn::qp).is_some_and(|one| Arc::ptr_eq(one, qp)) {
                let token = token_of(index, entry.generation);
                self.turn(ctx, token, false, true);
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

    /// Writes the acknowledgements of a queue pair that are pending.
    pub(in crate::soft) fn flush_acks_of(&mut self, ctx: &Context, qp: &Qp) {
        for entry in &mut self.entries {
            match &mut entry.conn {
                Some(Conn::Responder(one)) if std::ptr::eq(&raw const *one.qp, qp) => {
                    one.flush_acks(&ctx.regions);
                }
                _ => {}
            }
        }
    }

    /// The stream of the peer's requests.
    fn responder(&mut self, qp: &QpShared) -> Option<&mut Responder> {
        match &mut self.entry(qp.responder())?.conn {
            Some(Conn::Responder(one)) if std::ptr::eq(&raw const **one.qp, qp) => Some(one),
            _ => None,
        }
    }

    /// As [`crate::soft::requester::ReverseStream::send`].
    pub(in crate::soft) fn send_reverse(
        &mut self,
        qp: &QpShared,
        message: Gather<'_>,
        rest: impl FnOnce(usize) -> Vec<u8>,
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
        let unacked = qp.unacked();
        if unacked == 0 {
            return;
        }
        if !(eager || misses >= ACK_IDLE || unacked >= ACK_COUNT) {
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
        (qp, stream): (Arc<Qp>, Arc<TcpStream>),
        misses: u32,
        (writable, eager): (bool, bool),
    ) -> Fate {
        let Some(turn) = turn_responses(&qp, &stream, &mut self.scratch, writable) else {
            return Fate::Gone;
        };
        let ResponseTurn { progressed, again, has_messages, refused } = turn;
        if let Some(why) = refused {
            self.refuse(ctx, &qp, why);
        }
        if has_messages {
            let misses = if progressed { 0 } else { misses };
            self.ack_reverse(ctx, &qp, misses, eager);
        }
        Fate::Keep { conn: Conn::Requester(qp, stream), progressed, again }
    }
}

/// What a turn of a stream of responses found.
struct ResponseTurn {
    /// There was something.
    progressed: bool,
    /// It needs another turn soon.
    again: bool,
    /// Messages of the peer come on it.
    has_messages: bool,
    /// One of them is to be refused.
    refused: Option<Refusal>,
}

/// Reads responses, and writes requests where the stream takes bytes again. `None`: the stream is
/// over.
fn turn_responses(
    qp: &Arc<Qp>,
    stream: &Arc<TcpStream>,
    scratch: &mut [u8],
    writable: bool,
) -> Option<ResponseTurn> {
    let Some(mut sq) = try_lock_for(&qp.sq, Wait::Spin) else {
        let (progressed, has_messages) = (false, false);
        return Some(ResponseTurn { progressed, again: true, has_messages, refused: None });
    };
    if !sq.stream.as_ref().is_some_and(|own| Arc::ptr_eq(own, stream)) {
        return None;
    }
    if !sq.apply_deferred_ack(qp) {
        sq.fail(qp, Status::RemoteOperation);
        return None;
    }
    let (progressed, again) = match sq.read_responses(qp, scratch) {
        ResponseRead::Lost => {
            sq.lose(qp);
            return None;
        }
        ResponseRead::Refused(why) => {
            let (progressed, has_messages) = (true, true);
            return Some(ResponseTurn {
                progressed,
                again: false,
                has_messages,
                refused: Some(why),
            });
        }
        ResponseRead::Dry { progressed } => (progressed, false),
        ResponseRead::More => (true, true),
    };
    if progressed {
        sq.reset_timeout();
    }
    if writable {
        sq.unblock(qp);
        sq.flush(qp);
    }
    let has_messages = sq.reverse.role == ReverseRole::Receiver;
    Some(ResponseTurn { progressed, again, has_messages, refused: None })
}
