//! Requests whose payload is lent until its event says that it is free.

use std::sync::Arc;

use bootstrap::Rank;

use super::{Event, Scope};
use crate::error::Error;
use crate::handler::HandlerIndex;
use crate::mode::Mode;
use crate::segment::SegmentOffset;
use crate::transport::message::MessageClass;
use crate::transport::message::{AmMessage, AmPayload, ZeroCopy};
use crate::transport::message::{Flags, Outcome};

impl<'scope, M: Mode> Scope<'scope, '_, M> {
    /// As [`Team::request_medium`](crate::Team::request_medium), but `payload` may still be read after the call: from the own
    /// segment, towards a rank that is reached over the network. The event says when it is free. `None` only with
    /// [`Flags::IMMEDIATE`].
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

    /// As [`Team::request_long`](crate::Team::request_long), with a payload as in [`Scope::request_medium_nb`].
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
        let core = &self.client.core;
        let target = core.rma_target::<M>(call, rank)?;
        let dest = dest.map(|dest| dest.0);
        let copied =
            dest.map_or(AmPayload::Medium(payload), |dest| AmPayload::Long { payload, dest });
        let (class, handler) = (MessageClass::Request, handler.0);
        let message = AmMessage { class, target, handler, args, payload: copied };
        message.check(call)?;
        let event = |outcome, event| Ok((outcome == Outcome::Sent).then_some(event));
        if !core.stays(&message, flags) {
            if dest.is_some()
                && flags.contains(Flags::IMMEDIATE)
                && !core.has_room::<M>(target, class, args.len())
            {
                return Ok(None);
            }
            let outcome = core.request::<M>(call, &core.placed(call, message)?, flags)?;
            return event(outcome, Event::complete(()));
        }
        let message = core.placed(call, message)?;
        let (op, row) = self.row(call)?;
        let completion: &Arc<_> = &row.puts;
        let zero_copy = ZeroCopy { payload, dest, completion };
        let message = AmMessage { payload: AmPayload::ZeroCopy(&zero_copy), ..message };
        event(core.request::<M>(call, &message, flags)?, self.event((), op))
    }
}
