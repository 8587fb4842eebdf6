//! What the trace is told of messages and their handlers. All of it is out of the way of calls.

use crate::rank::RankContext;
use crate::trace::{self, About, Running};
use crate::transport::message::{AmPayload, ArrivedPayload, MessageClass};

const SHORT: u8 = 0;
const MEDIUM: u8 = 1;
const LONG: u8 = 2;

/// Category and bytes of a payload on its way out.
#[inline(always)]
pub(super) fn of_payload(payload: AmPayload<'_>) -> (u8, u64) {
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

    /// A message with a payload of a category and so many bytes was sent. The message itself stays
    /// out of this: given away by its address, it would have to be in memory on the fast way, too.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_sent(&self, way: (usize, MessageClass), handler: u8, payload: (u8, u64)) {
        trace::sent(self.about(way, handler, payload));
    }

    /// A Short was sent to a neighbour.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_short(&self, target: usize, class: MessageClass, handler: u8) {
        trace::sent(self.about((target, class), handler, (SHORT, 0)));
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
