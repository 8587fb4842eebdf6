//! Active messages as every layer sees them: on the way out ([`AmMessage`]), after they have
//! arrived ([`Arrived`]).

use std::cell::Cell;
use std::sync::Arc;

use bitflags::bitflags;

use crate::transport::net::{SendBuffer, Via};
use crate::transport::op_counter::OpCounter;

pub use super::limits::{LUB_LONG, LUB_MEDIUM, MAX_ARGS, MAX_LONG, max_long_alloc, max_medium};
pub(crate) use super::limits::{long_alloc_limit, medium_limit};

/// Message classes never wait for each other's queues and buffers, which is what keeps storms of
/// requests and replies free of deadlock: replies always drain.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageClass {
    Request = 0,
    Reply = 1,
    /// Of the library itself: exits, barriers between neighbourhoods.
    Internal = 2,
}

#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct AmMessage<'a> {
    pub class: MessageClass,
    /// Local index of a neighbour, or [`neighbours::remote`](crate::transport::neighbours::remote)
    /// of a rank.
    pub target: usize,
    pub handler: u8,
    /// At most [`MAX_ARGS`].
    pub args: &'a [i32],
    pub payload: AmPayload<'a>,
}

/// A block of a rank's payload arena, as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub(crate) index: u32,
    /// Generation, to be written into the release table.
    pub(crate) generation: u32,
}

impl Block {
    pub(crate) const fn to_wire(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
    pub(crate) const fn from_wire(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

#[doc(hidden)]
#[derive(Clone, Copy)]
pub enum AmPayload<'a> {
    /// Nothing: a Short.
    None,
    /// A Medium, copied before the call returns.
    Medium(&'a [u8]),
    /// A Medium whose first bytes are in a block of the arena; only for neighbours.
    Block { block: Block, len: u32 },
    /// A Long to `dest`, an offset in the target's segment; the payload is free when the call
    /// returns.
    Long { payload: &'a [u8], dest: u64 },
    /// A Long whose bytes are at the destination already; only for neighbours.
    Placed { len: u32, dest: u64 },
    /// A Medium, or a Long to `dest`, in a buffer of the network, which is taken when the message
    /// was sent; only for remote ranks.
    SendBuffer { buffer: &'a Cell<Option<SendBuffer>>, len: u32, dest: Option<u64> },
    /// A payload that may be read after the call; only for remote ranks.
    ZeroCopy(&'a ZeroCopy<'a>),
}

/// A Medium, or a Long to `dest`, whose payload is the sender's again when the counter says so.
pub struct ZeroCopy<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) dest: Option<u64>,
    /// Begun only when the payload is still in use after the call.
    pub(crate) completion: &'a Arc<OpCounter>,
}

/// An arrived message. Nothing of it but its lengths and places was checked.
#[derive(Debug)]
pub(crate) struct Arrived<'a> {
    /// Sender, as [`AmMessage::target`] of a message back.
    pub(crate) source: usize,
    pub(crate) class: MessageClass,
    pub(crate) handler: u8,
    /// At most [`MAX_ARGS`].
    pub(crate) args: &'a [i32],
    pub(crate) payload: ArrivedPayload<'a>,
    /// How to reply to a message that came over the network.
    pub(crate) reply: Option<&'a ReplyToken<'a>>,
}

#[derive(Debug)]
pub(crate) enum ArrivedPayload<'a> {
    /// Nothing: a Short.
    None,
    /// A Medium, aligned to 8; gone when the handler has returned.
    Medium(&'a mut [u8]),
    /// A Long that is in this rank's segment already.
    Long {
        /// First byte, as an offset in the segment.
        offset: u64,
        len: usize,
    },
}

/// The way back of a message that came over the network, valid while its handler runs.
#[derive(Debug)]
pub(crate) struct ReplyToken<'a> {
    /// Where the message came from.
    pub(crate) from: Via<'a>,
    pub(crate) request: bool,
    pub(crate) replied: Cell<bool>,
}

/// Takes arrived messages. Must not poll for more.
pub(crate) trait Sink {
    fn arrived(&self, message: Arrived<'_>);
}

bitflags! {
    /// Options of communication calls.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// None.
        const NONE = 0;
        /// Do not wait and do not poll: when something is missing that would have to be waited for,
        /// the call does nothing and says so ([`Outcome::NotSent`]).
        const IMMEDIATE = 1;
        /// For limit queries: the largest legal `least` of a Prepare with the client's buffer.
        const LEAST_CLIENT = 2;
        /// For limit queries: the largest legal `least` of a Prepare with a buffer of the library.
        const LEAST_ALLOC = 4;
    }
}

/// What became of a call that may decline with [`Flags::IMMEDIATE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "with Flags::IMMEDIATE a message may not have been sent"]
pub enum Outcome {
    /// Injected; it will be delivered exactly once.
    Sent,
    /// Nothing happened; only with [`Flags::IMMEDIATE`].
    NotSent,
}
