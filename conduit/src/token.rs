//! The token: a handler's link to the message that it serves, and the way to reply.

use std::marker::PhantomData;

use bootstrap::Rank;

use crate::error::Error;
use crate::handler::{HandlerIndex, Registered};
use crate::message::{Flags, Outcome};
use crate::mode::Mode;
use crate::negotiate::{PreparedReplyLong, PreparedReplyMedium};
use crate::segment::SegmentOffset;

/// Token without the thread mode; what dispatch makes.
pub(crate) struct RawToken<'a> {
    life: PhantomData<&'a ()>,
}

/// A handler's view of the message it serves. Valid inside the handler only.
pub struct Token<'a, M: Mode> {
    raw: &'a RawToken<'a>,
    mode: PhantomData<M>,
}

impl<'a, M: Mode> Token<'a, M> {
    pub(crate) const fn new(raw: &'a RawToken<'a>) -> Self {
        Self { raw, mode: PhantomData }
    }

    /// Job rank of the sender.
    #[must_use]
    pub fn source(&self) -> Rank {
        let _ = self.raw.life;
        todo!()
    }

    /// Whether the message is a request.
    #[must_use]
    pub fn is_request(&self) -> bool {
        todo!()
    }

    /// Whether the message is a Long.
    #[must_use]
    pub fn is_long(&self) -> bool {
        todo!()
    }

    /// The running handler as it was registered.
    #[must_use]
    pub fn entry(&self) -> &Registered {
        todo!()
    }

    /// Replies with a Short. At most one reply is allowed, from a request handler. Never waits: what cannot be sent at once
    /// goes out after the handler has returned, before anything else is delivered to this rank.
    ///
    /// # Errors
    /// Reply to a reply, second reply, too many arguments.
    pub fn reply_short(
        &self,
        handler: HandlerIndex,
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let _ = (handler, args, flags);
        todo!()
    }

    /// Replies with a Medium; `payload` may be used again on return, also when it is the payload of the request.
    ///
    /// # Errors
    /// As [`Token::reply_short`]; also a payload over the limit.
    pub fn reply_medium(
        &self,
        handler: HandlerIndex,
        payload: &[u8],
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let _ = (handler, payload, args, flags);
        todo!()
    }

    /// Replies with a Long into the requester's segment.
    ///
    /// # Errors
    /// As [`Token::reply_medium`]; also a destination outside the requester's segment.
    pub fn reply_long(
        &self,
        handler: HandlerIndex,
        payload: &[u8],
        dest: SegmentOffset,
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let _ = (handler, payload, dest, args, flags);
        todo!()
    }

    /// Prepares a Medium reply of `least` to `most` bytes with a buffer of the library, or with the client's.
    /// It counts as the one reply; cancelling gives the right back. `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Token::reply_medium`]; also `least` above `most`.
    pub fn prepare_reply_medium<'t>(
        &'t self,
        client_buf: Option<&'t [u8]>,
        least: usize,
        most: usize,
        nargs: usize,
        flags: Flags,
    ) -> Result<Option<PreparedReplyMedium<'t, M>>, Error> {
        let _ = (client_buf, least, most, nargs, flags);
        todo!()
    }

    /// Prepares a Long reply. `dest` may be given now (and must then be repeated at commit) or only at commit.
    ///
    /// # Errors
    /// As [`Token::prepare_reply_medium`].
    pub fn prepare_reply_long<'t>(
        &'t self,
        client_buf: Option<&'t [u8]>,
        least: usize,
        most: usize,
        dest: Option<SegmentOffset>,
        nargs: usize,
        flags: Flags,
    ) -> Result<Option<PreparedReplyLong<'t, M>>, Error> {
        let _ = (client_buf, least, most, dest, nargs, flags);
        todo!()
    }
}
