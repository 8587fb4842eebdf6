//! Messages and their handlers.

use super::{Inner, Target};
use crate::am::lend::Lender;
use crate::error::Error;
use crate::foreign::Foreign;
use crate::handler::{Function, Registered, Role};
use crate::mode::Mode;
use crate::negotiate::{Prepared, Terms};
use crate::token::RawToken;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass, Outcome};

/// What a message carries besides its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing: a Short.
    None,
    /// Bytes of a Medium.
    Medium(&'a [u8]),
    /// Bytes of a Long and the offset of their destination; for ranks that share no memory with
    /// this one.
    Long(&'a [u8], u64),
    /// A Long whose bytes are at their destination already: how many, and the address that the
    /// handler is told.
    Placed(usize, u64),
}

/// A message, its counts and sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// What the program called.
    pub call: &'static str,
    /// Handler.
    pub handler: u8,
    /// Arguments.
    pub args: &'a [i32],
    /// Payload.
    pub payload: Payload<'a>,
}

impl<'a> Outgoing<'a> {
    #[inline(always)]
    fn message(&self, class: MessageClass, target: usize) -> AmMessage<'a> {
        let Self { handler, args, payload, .. } = *self;
        let payload = match payload {
            Payload::None => AmPayload::None,
            Payload::Medium(bytes) => AmPayload::Medium(bytes),
            Payload::Long(payload, dest) => AmPayload::Long { payload, dest },
            Payload::Placed(len, dest) => {
                AmPayload::Placed { len: u32::try_from(len).unwrap_or(u32::MAX), dest }
            }
        };
        AmMessage { class, target, handler, args, payload }
    }
}

/// One row of a table of C handlers.
pub struct HandlerRow {
    /// Index asked for, 0 for any.
    pub index: u8,
    /// Name for diagnostics.
    pub name: String,
    /// Number of arguments, or `ANY_ARGS`.
    pub nargs: usize,
    /// Requests, replies or both.
    pub role: Role,
    /// How it is run.
    pub foreign: Foreign,
}

impl HandlerRow {
    fn registered(self) -> Registered {
        let Self { index, name, nargs, role, foreign } = self;
        Registered::new(index, name, nargs, role, Function::Foreign(foreign))
    }
}

impl Inner {
    /// Registers all of `rows` or none; their indices. `settle` is told each, by position, before a
    /// message can reach it.
    ///
    /// # Errors
    /// Indices out of range or taken, no index free.
    pub fn register(
        self,
        rows: Vec<HandlerRow>,
        settle: impl Fn(usize, u8),
    ) -> Result<Vec<u8>, Error> {
        let rows = rows.into_iter().map(HandlerRow::registered).collect();
        self.0.handlers.register_rows(rows, settle)
    }

    /// Registers the handler of the library's own messages.
    pub fn register_library(self, row: HandlerRow) {
        self.0.handlers.register_library(row.registered());
    }

    /// Sends a request; waits for room and polls unless told not to. What `lender` has counters for
    /// it may lend.
    ///
    /// # Errors
    /// Inside a handler; the end of the job.
    #[inline]
    pub fn request<M: Mode>(
        self,
        target: Target,
        outgoing: &Outgoing<'_>,
        flags: Flags,
        lender: &impl Lender,
    ) -> Result<Outcome, Error> {
        let message = outgoing.message(MessageClass::Request, target.0);
        let send = |message: &AmMessage<'_>| self.0.request::<M>(outgoing.call, message, flags);
        self.0.send_lent(&message, flags, lender, send)
    }

    /// Sends the reply of a token that was claimed; gives the right back when nothing was sent.
    ///
    /// # Errors
    /// Of the lender.
    #[inline]
    pub fn reply<M: Mode>(
        self,
        token: &RawToken<'_>,
        outgoing: &Outgoing<'_>,
        flags: Flags,
        lender: &impl Lender,
    ) -> Result<Outcome, Error> {
        let message = outgoing.message(MessageClass::Reply, token.source);
        let send = |message: &AmMessage<'_>| Ok(token.send::<M>(message, flags));
        self.0.send_lent(&message, flags, lender, send)
    }

    /// Whether a message to a target would find room now. A hint.
    #[inline]
    #[must_use]
    pub fn has_room<M: Mode>(self, target: Target, reply: bool, nargs: usize) -> bool {
        let class = if reply { MessageClass::Reply } else { MessageClass::Request };
        self.0.has_room::<M>(target.0, class, nargs)
    }

    /// Where the reply of a token goes.
    #[inline]
    #[must_use]
    pub const fn reply_target(self, token: &RawToken<'_>) -> Target {
        Target(token.source)
    }

    /// Sends a Short request to a neighbour when there is nothing to refuse and nothing to wait
    /// for: one of a row, or after a `LOOK` for messages. `false` when it needs [`Inner::request`].
    /// Calls no function, so that a row saves no registers.
    #[inline(always)]
    #[must_use]
    pub fn pass_short<M: Mode, const LOOK: bool>(
        self,
        rank: u32,
        handler: u8,
        args: &[i32],
    ) -> bool {
        // For a remote rank this is no neighbour's index, and is found out.
        let target = self.0.shm().span().offset(rank);
        if LOOK {
            self.0.send_short_checked::<M>(target, handler, args)
        } else {
            self.0.shm().send_unchecked::<M>(target, handler, args)
        }
    }

    /// As [`Inner::pass_short`] for the reply of a handler.
    #[inline(always)]
    #[must_use]
    pub fn pass_reply<M: Mode>(self, token: &RawToken<'_>, handler: u8, args: &[i32]) -> bool {
        if !token.may_reply() {
            return false;
        }
        let to = (token.source, MessageClass::Reply);
        let sent = self.0.shm().send_short::<M>(to, handler, args, || true);
        if sent {
            token.replied.set(true);
        }
        sent
    }

    /// Prepares a message; with a `token` a reply. `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// Sizes and counts that cannot be; the end of the job.
    pub fn prepare<M: Mode>(
        self,
        target: Target,
        token: Option<&RawToken<'_>>,
        terms: &Terms,
        flags: Flags,
    ) -> Result<Option<Prepared>, Error> {
        Prepared::new::<M>(self.0, target.0, token, terms, flags)
    }

    /// Where a prepared message goes.
    #[must_use]
    pub const fn prepared_target(self, prepared: &Prepared) -> Target {
        Target(prepared.target())
    }
}
