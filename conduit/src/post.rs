//! Sending: from a checked message to a slot in the receiver's queue.

use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::error::Error;
use crate::mode::Mode;
use crate::transport::message::Block;
use crate::transport::message::{AmMessage, AmPayload, MessageClass};
use crate::transport::shm::{Kind, Packet, Post};

impl AmMessage<'_> {
    /// The header of a message to a neighbour whose payload is in place, for a later attempt.
    fn placed(self) -> Self {
        match self.payload {
            AmPayload::Long { payload, dest } => {
                Self { payload: AmPayload::Placed { len: word(payload.len()), dest }, ..self }
            }
            _ => self,
        }
    }
}

/// Lengths are below 2^31 by `check`.
fn word(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Core {
    /// The message to send when its Long payload was taken care of: written to its destination at a neighbour, only its
    /// destination checked for remote ranks.
    #[inline]
    pub(crate) fn placed<'m>(
        &self,
        call: &'static str,
        message: AmMessage<'m>,
    ) -> Result<AmMessage<'m>, Error> {
        if let AmPayload::SendBuffer { len, dest: Some(dest), .. } = message.payload {
            self.check_far(call, message.target, dest, len as usize)?;
        }
        let AmPayload::Long { payload, dest } = message.payload else { return Ok(message) };
        if self.is_near(message.target) {
            self.land(call, message.target, payload, dest)?;
            return Ok(message.placed());
        }
        self.check_far(call, message.target, dest, payload.len())?;
        Ok(message)
    }

    /// Writes the payload of a Long to its destination.
    fn land(
        &self,
        call: &'static str,
        target: usize,
        payload: &[u8],
        dest: u64,
    ) -> Result<(), Error> {
        if payload.is_empty() {
            return Ok(());
        }
        let row = self.row(target);
        let inside = self.segments().is_some_and(|segments| segments.write(row, dest, payload));
        if inside { Ok(()) } else { Err(self.outside(call, target, dest, payload.len())) }
    }

    /// One attempt to send; `false` when the receiver's queue or this rank's arena is full. The message was checked; a
    /// Long's payload is in place already ([`AmPayload::Placed`]).
    // Inlined into every kind of send: what a kind does not use of a message then costs nothing. With the same in `request`
    // and the queue, a flood of Shorts went from 43 to 53 messages per microsecond.
    #[inline(always)]
    pub(crate) fn try_post<M: Mode>(&self, message: &AmMessage<'_>) -> bool {
        if !self.is_near(message.target) {
            return self.post_remote::<M>(message);
        }
        let post = Post {
            kind: Kind::Short,
            handler: message.handler,
            source: self.span().local,
            len: 0,
            place: 0,
            args: message.args,
            inline: &[],
        };
        let send = |post: Post<'_>| self.send::<M>(message.target, message.class, &post);
        match message.payload {
            AmPayload::None => send(post),
            AmPayload::Medium(payload)
                if payload.len() <= Packet::inline_room(message.args.len()) =>
            {
                let len = word(payload.len());
                send(Post { kind: Kind::MediumInline, len, inline: payload, ..post })
            }
            AmPayload::Medium(payload) => {
                self.has_room::<M>(message.target, message.class, message.args.len())
                    && self.post_copy::<M>(message, post, payload)
            }
            AmPayload::Block { block, len } => {
                send(Post { kind: Kind::MediumBlock, len, place: block.to_wire(), ..post })
            }
            AmPayload::Placed { len, dest } => {
                send(Post { kind: Kind::Long, len, place: dest, ..post })
            }
            AmPayload::Long { payload, dest } => {
                send(Post { kind: Kind::Long, len: word(payload.len()), place: dest, ..post })
            }
            AmPayload::SendBuffer { .. } | AmPayload::ZeroCopy(_) => false,
        }
    }

    #[inline(never)]
    fn post_copy<M: Mode>(&self, message: &AmMessage<'_>, post: Post<'_>, payload: &[u8]) -> bool {
        let class = message.class;
        let Some(block) = self.allocate::<M>(class, payload.len()) else { return false };
        let (owner, len) = (self.local(), payload.len());
        let copy = self.memory().block_payload(owner, class as usize, block, len);
        let written = copy.map(|copy| copy.copy_from_slice(payload)).is_some();
        let place = block.to_wire();
        let post = Post { kind: Kind::MediumBlock, len: word(payload.len()), place, ..post };
        if !written || !self.send::<M>(message.target, class, &post) {
            self.forget::<M>(class, block);
            return false;
        }
        true
    }

    /// Takes a block of this rank's arena.
    #[inline]
    pub(crate) fn allocate<M: Mode>(&self, class: MessageClass, len: usize) -> Option<Block> {
        let freed = self.freed(self.local(), class);
        self.payloads(class).with::<M, _>(|arena| arena.allocate(freed, len))
    }

    /// Gives a block back that was not sent.
    pub(crate) fn forget<M: Mode>(&self, class: MessageClass, block: Block) {
        let freed = self.freed(self.local(), class);
        self.payloads(class).with::<M, _>(|arena| arena.forget(freed, block));
    }

    /// The error for a range outside `target`'s segment.
    #[cold]
    pub(crate) fn outside(
        &self,
        call: &'static str,
        target: usize,
        offset: u64,
        len: usize,
    ) -> Error {
        let attached = self.segments().is_some();
        let segment = match self.far_segment(target) {
            Some(far) => far.len,
            None if attached && self.is_near(target) => {
                self.row(target).len.load(Ordering::Relaxed)
            }
            None => 0,
        };
        let end = offset.saturating_add(len as u64);
        Error::OutsideSegment { call, rank: self.rank_of(target), offset, end, segment }
    }
}
