//! The token: a handler's link to the message that it serves, and the way to reply.

use std::cell::Cell;
use std::marker::PhantomData;

use bootstrap::Rank;

use crate::am::deferred::Deferred;
use crate::error::Error;
use crate::handler::{Function, HandlerIndex, Registered};
use crate::long_payload::SegmentOffset;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::limits::max_reply_long;
use crate::transport::message::{
    self, AmMessage, AmPayload, Flags, MessageClass, Outcome, ReplyToken,
};

/// Token without the thread mode; what dispatch makes.
pub struct RawToken<'a> {
    pub(crate) context: &'a RankContext,
    /// Where a reply goes.
    pub(crate) source: usize,
    class: MessageClass,
    is_long: bool,
    pub(crate) entry: &'a Registered,
    /// The handler has replied, or prepared to.
    pub(crate) replied: Cell<bool>,
    pub(crate) deferred: Cell<Option<Box<Deferred>>>,
    reply: Option<&'a ReplyToken<'a>>,
}

impl std::fmt::Debug for RawToken<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawToken(from {} for {:?})", self.source(), self.entry)
    }
}

impl<'a> RawToken<'a> {
    #[inline]
    pub(crate) fn new(
        context: &'a RankContext,
        (source, class): (usize, MessageClass),
        is_long: bool,
        entry: &'a Registered,
        reply: Option<&'a ReplyToken<'a>>,
    ) -> Self {
        let (replied, deferred) = (Cell::new(false), Cell::new(None));
        Self { context, source, class, is_long, entry, replied, deferred, reply }
    }

    /// The token of the Long that came in the message of this one.
    pub(crate) fn of_carried(&self, entry: &'a Registered) -> Self {
        Self::new(self.context, (self.source, self.class), true, entry, self.reply)
    }

    /// Its class.
    pub(crate) const fn class(&self) -> MessageClass {
        self.class
    }

    /// One attempt to send a reply. Replies over the network wait inside it, and are lost where the
    /// network is closing.
    #[inline(always)]
    pub(crate) fn post<M: Mode>(&self, message: &AmMessage<'_>) -> bool {
        match self.reply {
            None => self.context.try_send::<M>(message),
            Some(reply) => {
                self.context.try_reply(reply, message);
                true
            }
        }
    }

    /// Job rank of the sender.
    #[must_use]
    pub fn source(&self) -> Rank {
        self.context.rank_of(self.source)
    }

    /// The sender, where a reply goes.
    pub(crate) const fn source_target(&self) -> usize {
        self.source
    }

    /// Whether the message is a request.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.class == MessageClass::Request
    }

    /// Whether the message is a Long.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.is_long
    }

    /// The context of a foreign handler.
    #[must_use]
    pub fn foreign_context(&self) -> Option<*mut ()> {
        match &self.entry.function {
            Function::Foreign(foreign) => Some(foreign.context()),
            _ => None,
        }
    }

    pub(crate) fn has_deferred(&self) -> bool {
        let deferred = self.deferred.take();
        let has = deferred.is_some();
        self.deferred.set(deferred);
        has
    }

    /// Whether the handler has replied, or prepared to.
    #[must_use]
    pub const fn has_replied(&self) -> bool {
        self.replied.get()
    }

    /// Whether [`RawToken::claim`] would succeed.
    #[inline(always)]
    pub(crate) fn may_reply(&self) -> bool {
        self.class == MessageClass::Request && !self.replied.get()
    }

    /// Takes the right to reply.
    ///
    /// # Errors
    /// A reply to a reply, or a second one.
    pub fn claim(&self, call: &'static str) -> Result<(), Error> {
        if self.class == MessageClass::Reply {
            let problem = "a reply handler cannot reply; only requests are answered";
            return Err(Error::Reply { call, problem });
        }
        if self.replied.replace(true) {
            let problem = "this request was answered already; a request gets at most one reply";
            return Err(Error::Reply { call, problem });
        }
        Ok(())
    }

    /// Gives the right back.
    pub fn unclaim(&self) {
        self.replied.set(false);
    }

    /// Sends a checked reply whose Long payload is in place; what finds no room waits for the end
    /// of the handler.
    #[inline(always)]
    pub(crate) fn send<M: Mode>(&self, message: &AmMessage<'_>, flags: Flags) -> Outcome {
        let outcome = self.try_send::<M>(message, flags);
        if outcome == Outcome::NotSent {
            self.unclaim();
        }
        outcome
    }

    /// Answers a message of the library, which `call` names; `None`: it was answered before.
    pub(crate) fn answer<M: Mode>(
        &self,
        call: &'static str,
        handler: u8,
        args: &[i32],
        payload: AmPayload<'_>,
    ) -> Option<()> {
        self.claim(call).ok()?;
        let (class, target) = (MessageClass::Reply, self.source_target());
        let message = AmMessage { class, target, handler, args, payload };
        // Nothing is lost but where the network closes.
        let _sent = self.send::<M>(&message, Flags::NONE);
        Some(())
    }

    /// As [`RawToken::send`], but keeps the right to reply when nothing was sent.
    #[inline(always)]
    pub(crate) fn try_send<M: Mode>(&self, message: &AmMessage<'_>, flags: Flags) -> Outcome {
        if self.post::<M>(message) {
            return Outcome::Sent;
        }
        if flags.contains(Flags::IMMEDIATE) {
            return Outcome::NotSent;
        }
        self.defer(message);
        Outcome::Sent
    }

    #[cold]
    fn defer(&self, message: &AmMessage<'_>) {
        self.deferred.set(Some(Deferred::of(message)));
    }

    /// A checked reply, with the right to send it.
    #[inline]
    fn reply<'m>(
        &self,
        call: &'static str,
        HandlerIndex(handler): HandlerIndex,
        args: &'m [i32],
        payload: AmPayload<'m>,
    ) -> Result<AmMessage<'m>, Error> {
        let (class, target) = (MessageClass::Reply, self.source);
        let message = AmMessage { class, target, handler, args, payload };
        message.check(call)?;
        self.claim(call)?;
        Ok(message)
    }
}

/// A handler's view of the message it serves. Valid inside the handler only.
pub struct Token<'a, M: Mode> {
    raw: &'a RawToken<'a>,
    mode: PhantomData<M>,
}

impl<M: Mode> std::fmt::Debug for Token<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token(from {} for {:?})", self.source(), self.entry())
    }
}

impl<'a, M: Mode> Token<'a, M> {
    #[inline]
    pub(crate) const fn new(raw: &'a RawToken<'a>) -> Self {
        Self { raw, mode: PhantomData }
    }

    pub(crate) const fn raw(&self) -> &'a RawToken<'a> {
        self.raw
    }

    /// Job rank of the sender.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Rank {
        self.raw.source()
    }

    /// Whether the message is a request.
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.raw.is_request()
    }

    /// Whether the message is a Long.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.raw.is_long
    }

    /// The running handler as it was registered.
    #[must_use]
    pub const fn entry(&self) -> &Registered {
        self.raw.entry
    }

    /// Most payload bytes of [`Token::reply_medium`] with `nargs` arguments.
    #[must_use]
    pub const fn max_reply_medium(&self, nargs: usize) -> usize {
        message::medium_limit(nargs)
    }

    /// Most payload bytes of [`Token::reply_long`].
    #[must_use]
    pub fn max_reply_long(&self) -> usize {
        max_reply_long(self.raw.context.settings.segment_mode)
    }

    /// Replies with a Short. At most one reply is allowed, from a request handler. Never waits:
    /// what cannot be sent at once goes out after the handler has returned, before the next request
    /// is delivered to this rank.
    ///
    /// # Errors
    /// Reply to a reply, second reply, too many arguments.
    #[inline]
    pub fn reply_short(
        &self,
        handler: HandlerIndex,
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let message = self.raw.reply("reply_short", handler, args, AmPayload::None)?;
        Ok(self.raw.send::<M>(&message, flags))
    }

    /// Replies with a Medium; `payload` may be used again on return, also when it is the payload of
    /// the request.
    ///
    /// # Errors
    /// As [`Token::reply_short`]; also a payload over the limit.
    #[inline]
    pub fn reply_medium(
        &self,
        handler: HandlerIndex,
        payload: &[u8],
        args: &[i32],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let message = self.raw.reply("reply_medium", handler, args, AmPayload::Medium(payload))?;
        Ok(self.raw.send::<M>(&message, flags))
    }

    /// Replies with a Long into the requester's segment. With [`Flags::IMMEDIATE`] and
    /// [`Outcome::NotSent`] the contents of the destination are undefined.
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
        let call = "reply_long";
        let payload = AmPayload::Long { payload, dest: dest.0 };
        let (message, context) = (self.raw.reply(call, handler, args, payload)?, self.raw.context);
        let has_room = || context.has_room::<M>(message.target, message.class, args.len());
        if flags.contains(Flags::IMMEDIATE) && !has_room() {
            self.raw.unclaim();
            return Ok(Outcome::NotSent);
        }
        let placed = context.placed(call, message);
        let message = placed.inspect_err(|_| self.raw.unclaim())?;
        let send = |message: &AmMessage<'_>| Ok(self.raw.send::<M>(message, flags));
        let sent = context.send_lent::<M>(call, &message, flags, &(), send);
        sent.inspect_err(|_| self.raw.unclaim())
    }
}
