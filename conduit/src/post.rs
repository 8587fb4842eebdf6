//! Sending: from a checked message to a slot in the receiver's queue.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Core, Net};
use crate::error::Error;
use crate::message::{MAX_ARGS, MAX_LONG, max_medium};
use crate::mode::Mode;
use crate::transport::net::{OpCounter, SendBuffer};
use crate::transport::shm::{Block, Kind, Packet, Post};

/// What a message carries besides its arguments.
#[derive(Clone, Copy)]
pub(crate) enum Load<'a> {
    /// Nothing: a Short.
    None,
    /// Bytes of a Medium, wherever they are now.
    Medium(&'a [u8]),
    /// A block of the arena that holds the first bytes of a Medium already.
    Block { block: Block, len: u32 },
    /// Bytes and destination of a Long.
    Long { payload: &'a [u8], dest: u64 },
    /// A Long whose bytes are at the destination already.
    Landed { len: u32, dest: u64 },
    /// A buffer of the network that holds the first bytes of a Medium, or of a Long to `dest`, already; only for remote ranks.
    Far { buffer: &'a Cell<Option<SendBuffer>>, len: u32, dest: Option<u64> },
    /// A payload that may be read after the call; only for remote ranks.
    Later(&'a Later<'a>),
}

/// Bytes of a Medium, or of a Long to `dest`, that are the sender's again when the counter says so.
pub(crate) struct Later<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) dest: Option<u64>,
    /// Begun only when the payload is still in use after the call.
    pub(crate) completion: &'a Arc<OpCounter>,
}

/// A message. Payload in shared memory ([`Load::Block`], [`Load::Landed`]) is for neighbours only.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) net: Net,
    pub(crate) target: usize,
    pub(crate) handler: u8,
    pub(crate) args: &'a [i32],
    pub(crate) load: Load<'a>,
}

impl Message<'_> {
    /// Checks counts and sizes against the limits.
    #[inline]
    pub(crate) fn check(&self, call: &'static str) -> Result<(), Error> {
        let count = self.args.len();
        if count > MAX_ARGS {
            return Err(Error::TooManyArgs { call, count });
        }
        let (len, max) = match self.load {
            Load::Medium(payload) => (payload.len(), max_medium(count)),
            Load::Long { payload, .. } => (payload.len(), MAX_LONG),
            Load::None
            | Load::Block { .. }
            | Load::Landed { .. }
            | Load::Far { .. }
            | Load::Later(_) => return Ok(()),
        };
        if len > max {
            return Err(Error::PayloadSize { call, len, max });
        }
        Ok(())
    }

    /// The header of a message to a neighbour whose payload is in place, for a later attempt.
    fn landed(self) -> Self {
        match self.load {
            Load::Long { payload, dest } => {
                Self { load: Load::Landed { len: word(payload.len()), dest }, ..self }
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
        message: Message<'m>,
    ) -> Result<Message<'m>, Error> {
        if let Load::Far { len, dest: Some(dest), .. } = message.load {
            self.check_far(call, message.target, dest, len as usize)?;
        }
        let Load::Long { payload, dest } = message.load else { return Ok(message) };
        if self.is_near(message.target) {
            self.land(call, message.target, payload, dest)?;
            return Ok(message.landed());
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
    /// Long's payload is in place already ([`Load::Landed`]).
    // Inlined into every kind of send: what a kind does not use of a message then costs nothing. With the same in `request`
    // and the queue, a flood of Shorts went from 43 to 53 messages per microsecond.
    #[inline(always)]
    pub(crate) fn try_post<M: Mode>(&self, message: &Message<'_>) -> bool {
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
        let send = |post: Post<'_>| self.send::<M>(message.target, message.net, &post);
        match message.load {
            Load::None => send(post),
            Load::Medium(payload) if payload.len() <= Packet::inline_room(message.args.len()) => {
                let len = word(payload.len());
                send(Post { kind: Kind::MediumInline, len, inline: payload, ..post })
            }
            Load::Medium(payload) => {
                self.has_room::<M>(message.target, message.net, message.args.len())
                    && self.post_copy::<M>(message, post, payload)
            }
            Load::Block { block, len } => {
                send(Post { kind: Kind::MediumBlock, len, place: block.to_wire(), ..post })
            }
            Load::Landed { len, dest } => send(Post { kind: Kind::Long, len, place: dest, ..post }),
            Load::Long { payload, dest } => {
                send(Post { kind: Kind::Long, len: word(payload.len()), place: dest, ..post })
            }
            Load::Far { .. } | Load::Later(_) => false,
        }
    }

    #[inline(never)]
    fn post_copy<M: Mode>(&self, message: &Message<'_>, post: Post<'_>, payload: &[u8]) -> bool {
        let net = message.net;
        let Some(block) = self.allocate::<M>(net, payload.len()) else { return false };
        let (owner, len) = (self.local(), payload.len());
        let copy = self.memory().block_payload(owner, net as usize, block, len);
        let written = copy.map(|copy| copy.copy_from_slice(payload)).is_some();
        let place = block.to_wire();
        let post = Post { kind: Kind::MediumBlock, len: word(payload.len()), place, ..post };
        if !written || !self.send::<M>(message.target, net, &post) {
            self.forget::<M>(net, block);
            return false;
        }
        true
    }

    /// Takes a block of this rank's arena.
    #[inline]
    pub(crate) fn allocate<M: Mode>(&self, net: Net, len: usize) -> Option<Block> {
        let freed = self.freed(self.local(), net);
        self.payloads(net).with::<M, _>(|arena| arena.allocate(freed, len))
    }

    /// Gives a block back that was not sent.
    pub(crate) fn forget<M: Mode>(&self, net: Net, block: Block) {
        let freed = self.freed(self.local(), net);
        self.payloads(net).with::<M, _>(|arena| arena.forget(freed, block));
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
