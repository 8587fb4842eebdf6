//! Requests whose payload is lent until its event says that it is free.

use std::cell::Cell;
use std::sync::Arc;

use bootstrap::Rank;

use super::{Event, Scope, Started};
use crate::am::lend::Lender;
use crate::error::Error;
use crate::handler::HandlerIndex;
use crate::long_payload::SegmentOffset;
use crate::mode::Mode;
use crate::rma::operations::{Op, OpCounters};
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass, Outcome};

impl<'scope, M: Mode> Scope<'scope, '_, M> {
    /// As [`Team::request_medium`](crate::Team::request_medium), but `payload` may still be read
    /// after the call: from the own segment, towards a rank that is reached over the network. The
    /// event says when it is free. `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Team::request_medium`](crate::Team::request_medium).
    pub fn request_medium_nb(
        &'scope self,
        rank: Rank,
        handler: HandlerIndex,
        payload: &'scope [u8],
        args: &[i32],
        flags: Flags,
    ) -> Result<Option<Event<'scope>>, Error> {
        self.request_nb("request_medium_nb", (rank, handler), (payload, None), args, flags)
    }

    /// As [`Team::request_long`](crate::Team::request_long), with a payload as in
    /// [`Scope::request_medium_nb`].
    ///
    /// # Errors
    /// As [`Team::request_long`](crate::Team::request_long).
    pub fn request_long_nb(
        &'scope self,
        rank: Rank,
        handler: HandlerIndex,
        payload: &'scope [u8],
        dest: SegmentOffset,
        args: &[i32],
        flags: Flags,
    ) -> Result<Option<Event<'scope>>, Error> {
        self.request_nb("request_long_nb", (rank, handler), (payload, Some(dest)), args, flags)
    }

    fn request_nb(
        &'scope self,
        call: &'static str,
        (rank, handler): (Rank, HandlerIndex),
        (payload, dest): (&[u8], Option<SegmentOffset>),
        args: &[i32],
        flags: Flags,
    ) -> Result<Option<Event<'scope>>, Error> {
        let context = &self.client.context;
        let target = context.rma_target::<M>(call, rank)?;
        let dest = dest.map(|dest| dest.0);
        let payload =
            dest.map_or(AmPayload::Medium(payload), |dest| AmPayload::Long { payload, dest });
        let message =
            AmMessage { class: MessageClass::Request, target, handler: handler.0, args, payload };
        message.check(call)?;
        if dest.is_some()
            && flags.contains(Flags::IMMEDIATE)
            && !context.has_room::<M>(target, MessageClass::Request, args.len())
        {
            return Ok(None);
        }
        let message = context.placed(call, message)?;
        let lent = Lent { scope: self, call, op: Cell::new(None) };
        let send = |message: &AmMessage<'_>| context.request::<M>(call, message, flags);
        let outcome = context.send_lent::<M>(call, &message, flags, &lent, send)?;
        let started = match lent.op.get() {
            Some(op) => Started::of(outcome, op),
            None if outcome == Outcome::Sent => Started::Complete,
            None => Started::NotSent,
        };
        Ok(self.event(started, ()))
    }
}

/// A payload that a scope waits for, once it is lent.
struct Lent<'l, 'scope, 'env, M: Mode> {
    scope: &'l Scope<'scope, 'env, M>,
    call: &'static str,
    op: Cell<Option<Op>>,
}

impl<M: Mode> Lender for Lent<'_, '_, '_, M> {
    fn lends(&self) -> bool {
        true
    }

    fn counters(&self) -> Result<Arc<OpCounters>, Error> {
        let (op, row) = self.scope.row(self.call)?;
        self.op.set(Some(op));
        Ok(row)
    }
}
