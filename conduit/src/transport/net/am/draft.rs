//! A message on its way out, before a connection has taken it.

use super::header::{self, ACK, Shape};
use crate::transport::message::MessageClass;
use crate::transport::net::pending_ops::OpKind;

/// What is decided of a message before it has its resources.
pub(super) struct Draft<'a> {
    /// Decides what it needs; an ack is as urgent as a reply.
    pub(super) class: MessageClass,
    pub(super) kind: OpKind,
    pub(super) handler: u8,
    pub(super) args: &'a [i32],
    pub(super) shape: Shape,
}

impl<'a> Draft<'a> {
    pub(super) const fn new(
        class: MessageClass,
        handler: u8,
        args: &'a [i32],
        shape: Shape,
    ) -> Self {
        let kind = match class {
            MessageClass::Request | MessageClass::Reply => OpKind::Message,
            MessageClass::Internal => OpKind::Internal,
        };
        Self { class, kind, handler, args, shape }
    }

    /// Returns credits.
    pub(super) const fn ack() -> Self {
        let (class, kind) = (MessageClass::Reply, OpKind::Ack);
        Self { class, kind, handler: ACK, args: &[], shape: Shape::Short }
    }

    /// Bytes of the header with the hidden word.
    pub(super) const fn longest_header(&self) -> usize {
        header::header_len(self.shape, self.args.len(), true)
    }
}
