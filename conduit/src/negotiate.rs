//! Messages with a negotiated payload: prepare, fill, commit.
//!
//! A Medium that is prepared without a buffer of the client is filled where the receiver's handler will see it: nothing
//! is copied. A prepared message holds its block of the arena, not a place in the receiver's queue.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::core::Core;
use crate::error::Error;
use crate::handler::HandlerIndex;
use crate::mode::Mode;
use crate::segment::SegmentOffset;
use crate::token::RawToken;
use crate::transport::message::Block;
use crate::transport::message::MessageClass;
use crate::transport::message::{self, Flags, MAX_ARGS, MAX_LONG, Outcome};
use crate::transport::message::{AmMessage, AmPayload};
use crate::transport::net::SendBuffer;
use crate::wait::Waiter;

/// What is negotiated.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'t> {
    pub(crate) call: &'static str,
    pub(crate) client_buf: Option<&'t [u8]>,
    pub(crate) least: usize,
    pub(crate) most: usize,
    pub(crate) nargs: usize,
}

impl Terms<'_> {
    /// The size to give when at most `limit` bytes are possible.
    fn settle(&self, limit: usize) -> Result<usize, Error> {
        let Self { call, least, most, nargs, .. } = *self;
        if nargs > MAX_ARGS {
            return Err(Error::TooManyArgs { call, count: nargs });
        }
        if least > most {
            return Err(Error::PayloadBounds { call, least, most });
        }
        let max = self.client_buf.map_or(limit, |buf| buf.len().min(limit));
        if least > max {
            return Err(Error::PayloadSize { call, len: least, max });
        }
        Ok(most.min(max))
    }
}

enum Buffer<'a> {
    Client(&'a [u8]),
    /// For remote ranks.
    Far(Cell<Option<SendBuffer>>),
    Block {
        block: Block,
        bytes: &'a mut [u8],
    },
    Owned(Vec<u8>),
    /// Sent, or given back.
    Spent,
}

/// The common part of all prepared messages.
struct Draft<'a, M: Mode> {
    core: &'a Core,
    /// For a reply: the request's token, which gets its right to reply back on cancel.
    token: Option<&'a RawToken<'a>>,
    target: usize,
    buffer: Buffer<'a>,
    size: usize,
    nargs: usize,
    dest: Option<SegmentOffset>,
    mode: PhantomData<M>,
}

impl<'a, M: Mode> Draft<'a, M> {
    const fn class(&self) -> MessageClass {
        if self.token.is_some() { MessageClass::Reply } else { MessageClass::Request }
    }

    fn buffer_mut(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Buffer::Block { bytes, .. } => &mut bytes[..self.size],
            Buffer::Owned(bytes) => bytes,
            Buffer::Far(buffer) => buffer
                .get_mut()
                .as_mut()
                .and_then(|buffer| buffer.bytes().get_mut(..self.size))
                .unwrap_or_default(),
            Buffer::Client(_) | Buffer::Spent => &mut [],
        }
    }

    fn check(&self, call: &'static str, nbytes: usize, args: &[i32]) -> Result<(), Error> {
        if args.len() != self.nargs {
            return Err(Error::ArgCount { call, given: args.len(), promised: self.nargs });
        }
        if nbytes > self.size {
            return Err(Error::PayloadSize { call, len: nbytes, max: self.size });
        }
        Ok(())
    }

    /// The first `nbytes`; empty for a block or a buffer of the network, which are not copied.
    fn bytes(&self, nbytes: usize) -> &[u8] {
        match &self.buffer {
            Buffer::Client(bytes) => &bytes[..nbytes],
            Buffer::Owned(bytes) => &bytes[..nbytes],
            Buffer::Block { .. } | Buffer::Far(_) | Buffer::Spent => &[],
        }
    }

    /// Sends; `NotSent` (with [`Flags::IMMEDIATE`]) leaves the draft as it was.
    fn send(
        &mut self,
        call: &'static str,
        message: SendParts<'_>,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let SendParts { handler, nbytes, dest, args } = message;
        self.check(call, nbytes, args)?;
        if self.dest.is_some() && self.dest != dest {
            return Err(Error::DestinationChanged { call });
        }
        let class = self.class();
        if flags.contains(Flags::IMMEDIATE)
            && !self.core.has_room::<M>(self.target, class, args.len())
        {
            return Ok(Outcome::NotSent);
        }
        let len = u32::try_from(nbytes).unwrap_or(u32::MAX);
        let payload = match (dest, &self.buffer) {
            (dest, Buffer::Far(buffer)) => {
                AmPayload::SendBuffer { buffer, len, dest: dest.map(|dest| dest.0) }
            }
            (Some(dest), _) => AmPayload::Long { payload: self.bytes(nbytes), dest: dest.0 },
            (None, Buffer::Block { block, .. }) => AmPayload::Block { block: *block, len },
            (None, _) => AmPayload::Medium(self.bytes(nbytes)),
        };
        let message = AmMessage { class, target: self.target, handler: handler.0, args, payload };
        let message = self.core.placed(call, message)?;
        let outcome = match self.token {
            None => self.core.request::<M>(call, &message, flags)?,
            Some(token) => self.send_reply(token, &message, flags),
        };
        if outcome == Outcome::Sent {
            self.buffer = Buffer::Spent;
        }
        Ok(outcome)
    }

    /// As [`RawToken::send`], but keeps the right to reply when nothing was sent.
    fn send_reply(&self, token: &RawToken<'_>, message: &AmMessage<'_>, flags: Flags) -> Outcome {
        if token.post::<M>(message) {
            return Outcome::Sent;
        }
        if flags.contains(Flags::IMMEDIATE) {
            return Outcome::NotSent;
        }
        token.defer(message);
        Outcome::Sent
    }
}

impl<M: Mode> Drop for Draft<'_, M> {
    fn drop(&mut self) {
        if let Buffer::Block { block, .. } = self.buffer {
            self.core.forget::<M>(self.class(), block);
        }
        if !matches!(self.buffer, Buffer::Spent)
            && let Some(token) = self.token
        {
            token.unclaim();
        }
    }
}

struct SendParts<'m> {
    handler: HandlerIndex,
    nbytes: usize,
    dest: Option<SegmentOffset>,
    args: &'m [i32],
}

/// A buffer that the network sends from.
fn far<'a, M: Mode>(core: &Core, target: usize, class: MessageClass) -> Option<Buffer<'a>> {
    let remote = core.remote().filter(|_| !core.is_near(target))?;
    Some(Buffer::Far(Cell::new(Some(remote.buffer::<M>(class == MessageClass::Reply)?))))
}

/// A buffer for `size` bytes of `net`, with its memory, where the receiver or the network takes it from.
fn block<M: Mode>(
    core: &Core,
    target: usize,
    class: MessageClass,
    size: usize,
) -> Option<Buffer<'_>> {
    if !core.is_near(target) {
        return far::<M>(core, target, class);
    }
    let block = core.allocate::<M>(class, size)?;
    let bytes = core.memory().block_payload(core.local(), class as usize, block, size);
    if bytes.is_none() {
        core.forget::<M>(class, block);
    }
    bytes.map(|bytes| Buffer::Block { block, bytes })
}

pub(crate) fn request_medium<'t, M: Mode>(
    core: &'t Core,
    target: usize,
    terms: Terms<'t>,
    flags: Flags,
) -> Result<Option<PreparedRequestMedium<'t, M>>, Error> {
    let size = terms.settle(message::max_medium(terms.nargs.min(MAX_ARGS)))?;
    let mut waiter = Waiter::for_room();
    let buffer = loop {
        let found = match terms.client_buf {
            Some(bytes) => Some(Buffer::Client(bytes)),
            None => block::<M>(core, target, MessageClass::Request, size),
        };
        if found.is_some() || flags.contains(Flags::IMMEDIATE) {
            break found;
        }
        core.wait_for_room::<M>(terms.call, &mut waiter)?;
    };
    let Some(buffer) = buffer else { return Ok(None) };
    let (token, dest, mode) = (None, None, PhantomData);
    let draft = Draft { core, token, target, buffer, size, nargs: terms.nargs, dest, mode };
    Ok(Some(PreparedRequestMedium(draft)))
}

pub(crate) fn request_long<'t, M: Mode>(
    core: &'t Core,
    target: usize,
    terms: Terms<'t>,
    dest: Option<SegmentOffset>,
) -> Result<PreparedRequestLong<'t, M>, Error> {
    let (buffer, size) = long_buffer::<M>(core, target, MessageClass::Request, &terms)?;
    let (token, mode) = (None, PhantomData);
    let draft = Draft { core, token, target, buffer, size, nargs: terms.nargs, dest, mode };
    Ok(PreparedRequestLong(draft))
}

pub(crate) fn reply_medium<'t, M: Mode>(
    token: &'t RawToken<'t>,
    terms: Terms<'t>,
    flags: Flags,
) -> Result<Option<PreparedReplyMedium<'t, M>>, Error> {
    let core = token.core();
    let size = terms.settle(message::max_medium(terms.nargs.min(MAX_ARGS)))?;
    token.claim(terms.call)?;
    let buffer = match terms.client_buf {
        Some(bytes) => Buffer::Client(bytes),
        None => match block::<M>(core, token.source_target(), MessageClass::Reply, size) {
            Some(buffer) => buffer,
            None if flags.contains(Flags::IMMEDIATE) => {
                token.unclaim();
                return Ok(None);
            }
            // A reply never waits.
            None => Buffer::Owned(vec![0; size]),
        },
    };
    let (target, dest, mode) = (token.source_target(), None, PhantomData);
    let token = Some(token);
    let draft = Draft { core, token, target, buffer, size, nargs: terms.nargs, dest, mode };
    Ok(Some(PreparedReplyMedium(draft)))
}

pub(crate) fn reply_long<'t, M: Mode>(
    token: &'t RawToken<'t>,
    terms: Terms<'t>,
    dest: Option<SegmentOffset>,
) -> Result<PreparedReplyLong<'t, M>, Error> {
    let core = token.core();
    let target = token.source_target();
    let (buffer, size) = long_buffer::<M>(core, target, MessageClass::Reply, &terms)?;
    token.claim(terms.call)?;
    let mode = PhantomData;
    let token = Some(token);
    let draft = Draft { core, token, target, buffer, size, nargs: terms.nargs, dest, mode };
    Ok(PreparedReplyLong(draft))
}

/// The client's, else one of the network if there is one, else memory of its own: nothing to wait for.
fn long_buffer<'t, M: Mode>(
    core: &Core,
    target: usize,
    class: MessageClass,
    terms: &Terms<'t>,
) -> Result<(Buffer<'t>, usize), Error> {
    let alloc = message::max_long_alloc(terms.nargs.min(MAX_ARGS));
    let size = terms.settle(if terms.client_buf.is_some() { MAX_LONG } else { alloc })?;
    let own = || far::<M>(core, target, class).unwrap_or_else(|| Buffer::Owned(vec![0; size]));
    Ok((terms.client_buf.map_or_else(own, Buffer::Client), size))
}

macro_rules! prepared {
    ($name:ident, $what:literal) => {
        #[doc = $what]
        ///
        /// Dropping it cancels it. Until commit or cancel only local questions and exit are legal on this thread.
        #[must_use = "a prepared message is sent by commit; dropping cancels it"]
        pub struct $name<'a, M: Mode>(Draft<'a, M>);

        impl<M: Mode> std::fmt::Debug for $name<'_, M> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({} bytes)", stringify!($name), self.size())
            }
        }

        impl<M: Mode> $name<'_, M> {
            /// Bytes that may be committed: between the `least` and the `most` asked for.
            #[must_use]
            pub const fn size(&self) -> usize {
                self.0.size
            }

            /// The library's buffer of [`size`](Self::size) bytes, to be filled before commit. Contents undefined at first.
            /// Empty when the client gave its own.
            pub fn buffer_mut(&mut self) -> &mut [u8] {
                self.0.buffer_mut()
            }

            /// Gives the buffer and the right to send back.
            pub fn cancel(self) {}
        }
    };
}

macro_rules! commit_medium {
    ($name:ident, $call:literal) => {
        impl<M: Mode> $name<'_, M> {
            /// Sends the first `nbytes` bytes with `args` (as many as announced).
            ///
            /// # Errors
            /// More bytes than prepared, another number of arguments, the end of the job.
            pub fn commit(
                mut self,
                handler: HandlerIndex,
                nbytes: usize,
                args: &[i32],
            ) -> Result<(), Error> {
                let parts = SendParts { handler, nbytes, dest: None, args };
                self.0.send($call, parts, Flags::NONE).map(|_| ())
            }

            /// As `commit`, but gives the message back for another attempt instead of waiting: `None` when it was sent.
            ///
            /// # Errors
            /// As `commit`.
            pub fn try_commit(
                mut self,
                handler: HandlerIndex,
                nbytes: usize,
                args: &[i32],
            ) -> Result<Option<Self>, Error> {
                let parts = SendParts { handler, nbytes, dest: None, args };
                let outcome = self.0.send($call, parts, Flags::IMMEDIATE)?;
                Ok((outcome == Outcome::NotSent).then_some(self))
            }
        }
    };
}

macro_rules! commit_long {
    ($name:ident, $call:literal) => {
        impl<M: Mode> $name<'_, M> {
            /// Writes the first `nbytes` bytes to `dest` in the target's segment, then sends with `args`.
            ///
            /// # Errors
            /// More bytes than prepared, another number of arguments or destination, a destination outside the
            /// target's segment, the end of the job.
            pub fn commit(
                mut self,
                handler: HandlerIndex,
                nbytes: usize,
                dest: SegmentOffset,
                args: &[i32],
            ) -> Result<(), Error> {
                let parts = SendParts { handler, nbytes, dest: Some(dest), args };
                self.0.send($call, parts, Flags::NONE).map(|_| ())
            }

            /// As `commit`, but gives the message back for another attempt instead of waiting: `None` when it was sent.
            /// The contents of the destination are undefined until then.
            ///
            /// # Errors
            /// As `commit`.
            pub fn try_commit(
                mut self,
                handler: HandlerIndex,
                nbytes: usize,
                dest: SegmentOffset,
                args: &[i32],
            ) -> Result<Option<Self>, Error> {
                let parts = SendParts { handler, nbytes, dest: Some(dest), args };
                let outcome = self.0.send($call, parts, Flags::IMMEDIATE)?;
                Ok((outcome == Outcome::NotSent).then_some(self))
            }
        }
    };
}

prepared!(PreparedRequestMedium, "A Medium request between prepare and commit.");
prepared!(PreparedReplyMedium, "A Medium reply between prepare and commit.");
prepared!(PreparedRequestLong, "A Long request between prepare and commit.");
prepared!(PreparedReplyLong, "A Long reply between prepare and commit.");
commit_medium!(PreparedRequestMedium, "commit_request_medium");
commit_medium!(PreparedReplyMedium, "commit_reply_medium");
commit_long!(PreparedRequestLong, "commit_request_long");
commit_long!(PreparedReplyLong, "commit_reply_long");
