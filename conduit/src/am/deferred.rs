//! Replies that found no room while their handler ran. They go out when it has returned.

use crate::transport::message::{AmMessage, AmPayload, Block, MessageClass};

pub(crate) struct Deferred {
    target: usize,
    handler: u8,
    args: Vec<i32>,
    payload: Payload,
}

enum Payload {
    None,
    Medium(Vec<u8>),
    Block { block: Block, len: u32 },
    Placed { len: u32, dest: u64 },
}

impl Deferred {
    pub(crate) fn of(message: &AmMessage<'_>) -> Box<Self> {
        let payload = match message.payload {
            AmPayload::Medium(payload) => Payload::Medium(payload.to_vec()),
            AmPayload::Placed { len, dest } => Payload::Placed { len, dest },
            AmPayload::Block { block, len } => Payload::Block { block, len },
            // Not for neighbours, or without a payload.
            AmPayload::None
            | AmPayload::Long { .. }
            | AmPayload::SendBuffer { .. }
            | AmPayload::ZeroCopy(_) => Payload::None,
        };
        let (target, handler) = (message.target, message.handler);
        Box::new(Self { target, handler, args: message.args.to_vec(), payload })
    }

    pub(crate) fn message(&self) -> AmMessage<'_> {
        let payload = match &self.payload {
            Payload::None => AmPayload::None,
            Payload::Medium(payload) => AmPayload::Medium(payload),
            Payload::Block { block, len } => AmPayload::Block { block: *block, len: *len },
            Payload::Placed { len, dest } => AmPayload::Placed { len: *len, dest: *dest },
        };
        let (class, target, handler) = (MessageClass::Reply, self.target, self.handler);
        AmMessage { class, target, handler, args: &self.args, payload }
    }
}
