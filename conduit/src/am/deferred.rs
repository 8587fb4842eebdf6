//! Replies that found no room while their handler ran. They go out when it has returned.

use crate::transport::message::{AmMessage, AmPayload, MessageClass};

pub(crate) struct Deferred {
    target: usize,
    handler: u8,
    args: Vec<i32>,
    /// All but the bytes of a Medium.
    payload: AmPayload<'static>,
    medium: Vec<u8>,
}

impl Deferred {
    pub(crate) fn of(message: &AmMessage<'_>) -> Box<Self> {
        let (payload, medium) = match message.payload {
            AmPayload::Medium(payload) => (AmPayload::Medium(&[]), payload.to_vec()),
            AmPayload::Placed { len, dest } => (AmPayload::Placed { len, dest }, Vec::new()),
            AmPayload::Block { block, len } => (AmPayload::Block { block, len }, Vec::new()),
            // Not for neighbours, or without a payload.
            _ => (AmPayload::None, Vec::new()),
        };
        let (target, handler) = (message.target, message.handler);
        Box::new(Self { target, handler, args: message.args.to_vec(), payload, medium })
    }

    pub(crate) fn message(&self) -> AmMessage<'_> {
        let payload = match self.payload {
            AmPayload::Medium(_) => AmPayload::Medium(&self.medium),
            payload => payload,
        };
        let (class, target, handler) = (MessageClass::Reply, self.target, self.handler);
        AmMessage { class, target, handler, args: &self.args, payload }
    }
}
