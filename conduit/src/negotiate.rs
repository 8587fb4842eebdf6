//! Messages with a negotiated payload: prepare, fill, commit.
//!
//! A Medium that is prepared without a buffer of the client is filled where the receiver's handler
//! will see it: nothing is copied. A prepared message holds its block of the arena, not a place in
//! the receiver's queue.
//!
//! [`Prepared`] is the message itself. It knows nothing of the client's buffer, which its holder
//! keeps: the types of the Rust interface as a borrow, the C interface as a pointer.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::am::lend::Lender;
use crate::error::Error;
use crate::handler::HandlerIndex;
use crate::long_payload::SegmentOffset;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::token::{RawToken, Token};
use crate::transport::Reserved;
use crate::transport::limits::max_reply_long;
use crate::transport::message::{
    self, AmMessage, AmPayload, Block, Flags, MAX_ARGS, MAX_LONG, MessageClass, Outcome,
};
use crate::transport::net::SendBuffer;
use crate::wait::Waiter;

/// What is negotiated.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// What the program called.
    pub call: &'static str,
    /// A Long, not a Medium.
    pub long: bool,
    /// Bytes of the client's buffer, if it gives one.
    pub client: Option<usize>,
    /// Fewest bytes that will do.
    pub least: usize,
    /// Most bytes of use.
    pub most: usize,
    /// Arguments.
    pub nargs: usize,
    /// Destination of a Long, if it is known already.
    pub dest: Option<u64>,
}

impl Terms {
    /// Of a Medium; the client's buffer is counted later.
    pub(crate) const fn medium(
        call: &'static str,
        (least, most): (usize, usize),
        nargs: usize,
    ) -> Self {
        Self { call, long: false, client: None, least, most, nargs, dest: None }
    }

    pub(crate) fn long(
        call: &'static str,
        bounds: (usize, usize),
        nargs: usize,
        dest: Option<SegmentOffset>,
    ) -> Self {
        Self { long: true, dest: dest.map(|dest| dest.0), ..Self::medium(call, bounds, nargs) }
    }

    /// The same with no more than `limit` bytes.
    fn within(&self, limit: usize) -> Result<Self, Error> {
        let Self { call, least, most, .. } = *self;
        if least > limit && least <= most {
            return Err(Error::PayloadSize { call, len: least, max: limit });
        }
        Ok(Self { most: if least <= most { most.min(limit) } else { most }, ..*self })
    }

    fn settle(&self) -> Result<usize, Error> {
        let Self { call, least, most, nargs, .. } = *self;
        if nargs > MAX_ARGS {
            return Err(Error::TooManyArgs { call, count: nargs });
        }
        if least > most {
            return Err(Error::PayloadBounds { call, least, most });
        }
        let limit = match (self.long, self.client) {
            (false, _) => message::max_medium(nargs),
            (true, Some(_)) => MAX_LONG,
            (true, None) => message::max_long_alloc(nargs),
        };
        let max = self.client.map_or(limit, |bytes| bytes.min(limit));
        if least > max {
            return Err(Error::PayloadSize { call, len: least, max });
        }
        Ok(most.min(max))
    }
}

enum Buffer {
    /// The client's.
    Client,
    /// The network's, for a remote rank.
    Network(Cell<Option<SendBuffer>>),
    /// Where the receiver's handler will see it.
    Block(Block),
    Owned(Vec<u8>),
    /// Sent, or given back.
    Spent,
}

/// A message between prepare and commit. A reply is committed and cancelled with the token that it
/// was prepared with.
pub struct Prepared {
    class: MessageClass,
    target: usize,
    buffer: Buffer,
    size: usize,
    nargs: usize,
    dest: Option<u64>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prepared({:?}, {} bytes)", self.class, self.size)
    }
}

/// Where the payload of a prepared message goes.
#[derive(Clone, Copy, Debug)]
pub enum Destination {
    /// To the handler of a Medium.
    Handler,
    /// Offset in the target's segment.
    Offset(u64),
    /// The address that the receiver's handler is told: the bytes are there already.
    Placed(u64),
}

/// What a commit adds.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'m> {
    /// What the program called.
    pub call: &'static str,
    /// Handler.
    pub handler: u8,
    /// Bytes of payload.
    pub nbytes: usize,
    /// Where they go.
    pub dest: Destination,
    /// Arguments.
    pub args: &'m [i32],
}

impl Prepared {
    /// `None` only with [`Flags::IMMEDIATE`]. A `token` makes it a reply, and gives its right to
    /// reply to it.
    pub fn new<M: Mode>(
        context: &RankContext,
        target: usize,
        token: Option<&RawToken<'_>>,
        terms: &Terms,
        flags: Flags,
    ) -> Result<Option<Self>, Error> {
        if terms.long {
            return Self::new_long::<M>(context, target, token, terms).map(Some);
        }
        let mut prepared = Self::claim(target, token, terms)?;
        let (class, size) = (prepared.class, prepared.size);
        let immediate = flags.contains(Flags::IMMEDIATE);
        let mut waiter = Waiter::for_room();
        while terms.client.is_none() {
            if let Some(reserved) = context.transport.reserve::<M>(target, class, size, false) {
                prepared.buffer = Buffer::of(reserved);
                break;
            }
            if immediate {
                prepared.cancel::<M>(context, token);
                return Ok(None);
            }
            if class == MessageClass::Reply {
                // A reply never waits.
                prepared.buffer = Buffer::Owned(vec![0; size]);
                break;
            }
            context.wait_for_room::<M>(terms.call, &mut waiter)?;
        }
        Ok(Some(prepared))
    }

    /// A Long. Memory of its own will do for it, which is copied where it goes: it never waits.
    pub(crate) fn new_long<M: Mode>(
        context: &RankContext,
        target: usize,
        token: Option<&RawToken<'_>>,
        terms: &Terms,
    ) -> Result<Self, Error> {
        let mode = context.settings.segment_mode;
        let limit = if token.is_some() { max_reply_long(mode) } else { MAX_LONG };
        let terms = &terms.within(limit)?;
        let mut prepared = Self::claim(target, token, terms)?;
        let (class, size) = (prepared.class, prepared.size);
        if terms.client.is_none() && !mode.is_fast() {
            // A message of the library may carry it.
            prepared.buffer = Buffer::Owned(vec![0; size]);
        } else if terms.client.is_none() {
            let reserved = context.transport.reserve::<M>(target, class, size, true);
            prepared.buffer = reserved.map_or_else(|| Buffer::Owned(vec![0; size]), Buffer::of);
        }
        Ok(prepared)
    }

    /// A message in the client's buffer, with the right to reply.
    fn claim(target: usize, token: Option<&RawToken<'_>>, terms: &Terms) -> Result<Self, Error> {
        let (size, Terms { nargs, dest, .. }) = (terms.settle()?, *terms);
        if let Some(token) = token {
            token.claim(terms.call)?;
        }
        let class = if token.is_some() { MessageClass::Reply } else { MessageClass::Request };
        Ok(Self { class, target, buffer: Buffer::Client, size, nargs, dest })
    }

    /// Bytes that may be committed.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The library's buffer; empty when the client gave its own.
    pub fn buffer_mut<'b>(&'b mut self, context: &'b RankContext) -> &'b mut [u8] {
        let size = self.size;
        match &mut self.buffer {
            Buffer::Block(block) => {
                context.shm().block_bytes(self.class, *block, size).unwrap_or_default()
            }
            Buffer::Owned(bytes) => bytes,
            Buffer::Network(buffer) => buffer
                .get_mut()
                .as_mut()
                .and_then(|buffer| buffer.bytes().get_mut(..size))
                .unwrap_or_default(),
            Buffer::Client | Buffer::Spent => &mut [],
        }
    }

    /// The payload, when it is in the client's buffer or memory of the library's own; empty where
    /// nothing is copied.
    #[must_use]
    pub fn payload<'b>(&'b self, client: &'b [u8], nbytes: usize) -> &'b [u8] {
        let bytes = match &self.buffer {
            Buffer::Client => client,
            Buffer::Owned(bytes) => bytes,
            Buffer::Block(_) | Buffer::Network(_) | Buffer::Spent => &[],
        };
        bytes.get(..nbytes).unwrap_or(bytes)
    }

    /// Checks a commit against what was announced. `dest` as the program gives it.
    ///
    /// # Errors
    /// More bytes than prepared, another number of arguments or destination.
    pub fn check(
        &self,
        call: &'static str,
        nbytes: usize,
        dest: Option<u64>,
        nargs: usize,
    ) -> Result<(), Error> {
        if nargs != self.nargs {
            return Err(Error::ArgCount { call, given: nargs, promised: self.nargs });
        }
        if nbytes > self.size {
            return Err(Error::PayloadSize { call, len: nbytes, max: self.size });
        }
        if self.dest.is_some() && self.dest != dest {
            return Err(Error::DestinationChanged { call });
        }
        Ok(())
    }

    /// Sends what was checked; `NotSent` (with [`Flags::IMMEDIATE`]) and errors leave everything as
    /// it was.
    pub fn commit<M: Mode>(
        &mut self,
        context: &RankContext,
        token: Option<&RawToken<'_>>,
        commit: &Commit<'_>,
        client: &[u8],
        flags: Flags,
        lender: &impl Lender,
    ) -> Result<Outcome, Error> {
        let Commit { call, handler, nbytes, args, .. } = *commit;
        let (class, target) = (self.class, self.target);
        if flags.contains(Flags::IMMEDIATE) && !context.has_room::<M>(target, class, args.len()) {
            return Ok(Outcome::NotSent);
        }
        let payload = self.loaded(commit.dest, client, nbytes);
        let message = context.placed(call, AmMessage { class, target, handler, args, payload })?;
        let outcome =
            context.send_lent::<M>(call, &message, flags, lender, |message| match token {
                None => context.request::<M>(call, message, flags),
                Some(token) => Ok(token.try_send::<M>(message, flags)),
            })?;
        if outcome == Outcome::Sent {
            self.buffer = Buffer::Spent;
        }
        Ok(outcome)
    }

    fn loaded<'b>(&'b self, dest: Destination, client: &'b [u8], nbytes: usize) -> AmPayload<'b> {
        let len = u32::try_from(nbytes).unwrap_or(u32::MAX);
        let offset = if let Destination::Offset(offset) = dest { Some(offset) } else { None };
        match (dest, &self.buffer) {
            (Destination::Placed(dest), _) => AmPayload::Placed { len, dest },
            (_, Buffer::Network(buffer)) => AmPayload::SendBuffer { buffer, len, dest: offset },
            (Destination::Offset(dest), _) => {
                AmPayload::Long { payload: self.payload(client, nbytes), dest }
            }
            (Destination::Handler, Buffer::Block(block)) => AmPayload::Block { block: *block, len },
            (Destination::Handler, _) => AmPayload::Medium(self.payload(client, nbytes)),
        }
    }

    /// Gives buffer and right to reply back, unless it was sent.
    pub fn cancel<M: Mode>(&mut self, context: &RankContext, token: Option<&RawToken<'_>>) {
        match std::mem::replace(&mut self.buffer, Buffer::Spent) {
            Buffer::Spent => return,
            Buffer::Block(block) => context.shm().forget::<M>(self.class, block),
            Buffer::Client | Buffer::Network(_) | Buffer::Owned(_) => {}
        }
        if let Some(token) = token {
            token.unclaim();
        }
    }
}

impl Buffer {
    fn of(reserved: Reserved) -> Self {
        match reserved {
            Reserved::Block(block) => Self::Block(block),
            Reserved::SendBuffer(buffer) => Self::Network(Cell::new(Some(buffer))),
        }
    }
}

/// A message between prepare and commit, with what it borrows. `D` is the destination that its
/// commit is given: none for a Medium, a [`SegmentOffset`] for a Long.
///
/// Dropping it cancels it. Until commit or cancel only local questions and exit are legal on this
/// thread.
#[must_use = "a prepared message is sent by commit; dropping cancels it"]
pub struct PreparedMessage<'a, M: Mode, D> {
    prepared: Prepared,
    context: &'a RankContext,
    client: &'a [u8],
    token: Option<&'a RawToken<'a>>,
    kind: PhantomData<(M, fn(D))>,
}

/// A Medium request between prepare and commit.
pub type PreparedRequestMedium<'a, M> = PreparedMessage<'a, M, ()>;
/// A Medium reply between prepare and commit.
pub type PreparedReplyMedium<'a, M> = PreparedMessage<'a, M, ()>;
/// A Long request between prepare and commit.
pub type PreparedRequestLong<'a, M> = PreparedMessage<'a, M, SegmentOffset>;
/// A Long reply between prepare and commit.
pub type PreparedReplyLong<'a, M> = PreparedMessage<'a, M, SegmentOffset>;

impl<M: Mode, D> std::fmt::Debug for PreparedMessage<'_, M, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.prepared.fmt(f)
    }
}

impl<M: Mode, D> Drop for PreparedMessage<'_, M, D> {
    fn drop(&mut self) {
        self.prepared.cancel::<M>(self.context, self.token);
    }
}

impl<'a, M: Mode, D> PreparedMessage<'a, M, D> {
    /// Bytes that may be committed: between the `least` and the `most` asked for.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.prepared.size
    }

    /// The library's buffer of [`size`](Self::size) bytes, to be filled before commit. Contents
    /// undefined at first. Empty when the client gave its own.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        self.prepared.buffer_mut(self.context)
    }

    /// Gives the buffer and the right to send back.
    pub fn cancel(self) {}

    fn send(
        &mut self,
        handler: HandlerIndex,
        (nbytes, dest): (usize, Option<SegmentOffset>),
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = match (self.token, dest) {
            (None, None) => "commit_request_medium",
            (None, Some(_)) => "commit_request_long",
            (Some(_), None) => "commit_reply_medium",
            (Some(_), Some(_)) => "commit_reply_long",
        };
        handler.check()?;
        self.prepared.check(call, nbytes, dest.map(|dest| dest.0), args.len())?;
        let dest = dest.map_or(Destination::Handler, |dest| Destination::Offset(dest.0));
        let commit = Commit { call, handler: handler.0, nbytes, dest, args };
        self.prepared.commit::<M>(self.context, self.token, &commit, self.client, flags, &())
    }

    fn unless_sent(self, outcome: Outcome) -> Option<Self> {
        (outcome == Outcome::NotSent).then_some(self)
    }
}

impl<'a, M: Mode> PreparedMessage<'a, M, ()> {
    /// Prepares a Medium request to `target`, or the reply of `token`.
    pub(crate) fn medium(
        context: &'a RankContext,
        (target, token): (usize, Option<&'a RawToken<'a>>),
        (mut terms, client): (Terms, Option<&'a [u8]>),
        flags: Flags,
    ) -> Result<Option<Self>, Error> {
        terms.client = client.map(<[u8]>::len);
        let prepared = Prepared::new::<M>(context, target, token, &terms, flags)?;
        let (client, kind) = (client.unwrap_or_default(), PhantomData);
        Ok(prepared.map(|prepared| Self { prepared, context, client, token, kind }))
    }

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
        self.send(handler, (nbytes, None), args, Flags::NONE).map(|_| ())
    }

    /// As `commit`, but gives the message back for another attempt instead of waiting: `None` when
    /// it was sent.
    ///
    /// # Errors
    /// As `commit`.
    pub fn try_commit(
        mut self,
        handler: HandlerIndex,
        nbytes: usize,
        args: &[i32],
    ) -> Result<Option<Self>, Error> {
        let outcome = self.send(handler, (nbytes, None), args, Flags::IMMEDIATE)?;
        Ok(self.unless_sent(outcome))
    }
}

impl<'a, M: Mode> PreparedMessage<'a, M, SegmentOffset> {
    pub(crate) fn long(
        context: &'a RankContext,
        (target, token): (usize, Option<&'a RawToken<'a>>),
        (mut terms, client): (Terms, Option<&'a [u8]>),
    ) -> Result<Self, Error> {
        terms.client = client.map(<[u8]>::len);
        let prepared = Prepared::new_long::<M>(context, target, token, &terms)?;
        let (client, kind) = (client.unwrap_or_default(), PhantomData);
        Ok(Self { prepared, context, client, token, kind })
    }

    /// Writes the first `nbytes` bytes to `dest` in the target's segment, then sends with `args`.
    ///
    /// # Errors
    /// More bytes than prepared, another number of arguments or destination, a destination outside
    /// the target's segment, the end of the job.
    pub fn commit(
        mut self,
        handler: HandlerIndex,
        nbytes: usize,
        dest: SegmentOffset,
        args: &[i32],
    ) -> Result<(), Error> {
        self.send(handler, (nbytes, Some(dest)), args, Flags::NONE).map(|_| ())
    }

    /// As `commit`, but gives the message back for another attempt instead of waiting: `None` when
    /// it was sent. The contents of the destination are undefined until then.
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
        let outcome = self.send(handler, (nbytes, Some(dest)), args, Flags::IMMEDIATE)?;
        Ok(self.unless_sent(outcome))
    }
}

/// Replies with a negotiated payload.
impl<M: Mode> Token<'_, M> {
    /// Prepares a Medium reply of `least` to `most` bytes with a buffer of the library, or with the
    /// client's. It counts as the one reply; cancelling gives the right back. `None` only with
    /// [`Flags::IMMEDIATE`].
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
        let terms = Terms::medium("prepare_reply_medium", (least, most), nargs);
        let (context, to) = (self.raw().context, (self.raw().source, Some(self.raw())));
        PreparedMessage::medium(context, to, (terms, client_buf), flags)
    }

    /// Prepares a Long reply. `dest` may be given now (and must then be repeated at commit) or only
    /// at commit.
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
    ) -> Result<PreparedReplyLong<'t, M>, Error> {
        let terms = Terms::long("prepare_reply_long", (least, most), nargs, dest);
        let (context, to) = (self.raw().context, (self.raw().source, Some(self.raw())));
        PreparedMessage::long(context, to, (terms, client_buf))
    }
}
