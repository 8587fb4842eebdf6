//! What the trace is told of messages and their handlers. All of it is out of the way of calls.

use crate::mode::Mode;
use crate::rank::RankContext;
use crate::trace::{self, About, Running};
use crate::transport::message::{AmMessage, AmPayload, ArrivedPayload, MessageClass, ReplyToken};

const SHORT: u8 = 0;
const MEDIUM: u8 = 1;
const LONG: u8 = 2;

/// Category and bytes of a payload on its way out.
#[inline(always)]
fn of_payload(payload: AmPayload<'_>) -> (u8, u64) {
    match payload {
        AmPayload::None => (SHORT, 0),
        AmPayload::Medium(payload) => (MEDIUM, payload.len() as u64),
        AmPayload::Block { len, .. } => (MEDIUM, u64::from(len)),
        AmPayload::Long { payload, .. } => (LONG, payload.len() as u64),
        AmPayload::Placed { len, .. } => (LONG, u64::from(len)),
        AmPayload::SendBuffer { len, dest, .. } => {
            (if dest.is_some() { LONG } else { MEDIUM }, u64::from(len))
        }
        AmPayload::ZeroCopy(zero_copy) => {
            let category = if zero_copy.dest.is_some() { LONG } else { MEDIUM };
            (category, zero_copy.payload.len() as u64)
        }
    }
}

/// The same of one that has arrived.
#[inline(always)]
pub(super) fn of_arrived(payload: &ArrivedPayload<'_>) -> (u8, u64) {
    match payload {
        ArrivedPayload::None => (SHORT, 0),
        ArrivedPayload::Medium(payload) => (MEDIUM, payload.len() as u64),
        ArrivedPayload::Long { len, .. } => (LONG, *len as u64),
    }
}

impl RankContext {
    fn about(
        &self,
        (target, class): (usize, MessageClass),
        handler: u8,
        (category, bytes): (u8, u64),
    ) -> About {
        let (peer, reply) = (self.rank_of(target).0, class == MessageClass::Reply);
        About { peer, handler, reply, category, bytes }
    }

    /// [`RankContext::try_send`] while messages are traced. The message is a copy: given away by its
    /// address, it would have to be in memory on the fast way, too.
    #[cold]
    #[inline(never)]
    pub(super) fn try_send_traced<M: Mode>(&self, message: AmMessage<'_>) -> bool {
        self.traced(message, || self.attempt::<M>(&message))
    }

    /// The same of [`RankContext::try_reply`].
    #[cold]
    #[inline(never)]
    pub(super) fn try_reply_traced(&self, token: &ReplyToken<'_>, message: AmMessage<'_>) -> bool {
        self.traced(message, || self.attempt_reply(token, &message))
    }

    fn traced(&self, message: AmMessage<'_>, send: impl FnOnce() -> bool) -> bool {
        let at = trace::sends();
        let sent = send();
        if sent {
            let (way, payload) = ((message.target, message.class), of_payload(message.payload));
            trace::sent(self.about(way, message.handler, payload), at);
        }
        sent
    }

    /// One attempt to reply to a neighbour by a Short while messages are traced.
    #[cold]
    #[inline(never)]
    pub(crate) fn reply_short_traced<M: Mode>(
        &self,
        target: usize,
        handler: u8,
        args: &[i32],
    ) -> bool {
        let (at, to) = (trace::sends(), (target, MessageClass::Reply));
        let sent = self.shm().send_short::<M>(to, handler, args, || true);
        if sent {
            trace::sent(self.about(to, handler, (SHORT, 0)), at);
        }
        sent
    }

    /// A handler begins.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_handler(
        &self,
        way: (usize, MessageClass),
        (handler, name): (u8, &str),
        payload: (u8, u64),
    ) -> Option<Running> {
        trace::handler_begins(self.about(way, handler, payload), name)
    }

    /// Handlers of Shorts that are alike ran, one after the other.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_burst(
        &self,
        way: (usize, MessageClass),
        (handler, name): (u8, &str),
        count: usize,
    ) {
        trace::burst(self.about(way, handler, (SHORT, 0)), name, count);
    }
}
