//! Messages on their way out: checked once, then sent at once where that is possible, else after
//! polls.

use crate::error::Error;
use crate::handler_index::HandlerIndex;
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::trace::{self, Category};
use crate::transport::OutsideSegment;
use crate::transport::limits::{MAX_ARGS, MAX_LONG, max_medium};
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass, Outcome, ReplyToken};
use crate::wait::Waiter;

/// Pauses of the processor between two attempts. About 100 ns.
const PAUSES: u32 = 4;

impl RankContext {
    /// Sends a checked request whose Long payload is in place; waits for room and polls unless told
    /// not to.
    #[inline(always)]
    pub(crate) fn request<M: Mode>(
        &self,
        call: &'static str,
        message: &AmMessage<'_>,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let waits = !flags.contains(Flags::IMMEDIATE);
        if waits && self.may_send::<M>() && self.try_send::<M>(message) {
            return Ok(Outcome::Sent);
        }
        self.request_slowly::<M>(call, message, flags)
    }

    /// [`RankContext::request`] when something has arrived, is to be refused, or has to wait.
    #[inline(never)]
    fn request_slowly<M: Mode>(
        &self,
        call: &'static str,
        message: &AmMessage<'_>,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        if flags.contains(Flags::IMMEDIATE) {
            self.check_open(call)?;
            self.check_outside::<M>(call)?;
            let sent = self.try_send::<M>(message);
            return Ok(if sent { Outcome::Sent } else { Outcome::NotSent });
        }
        self.poll::<M>(call)?;
        if !self.try_send::<M>(message) {
            let mut waiter = Waiter::for_room();
            loop {
                // Trying all the time would keep the receiver from making room.
                for _ in 0..PAUSES {
                    std::hint::spin_loop();
                }
                self.wait_for_room::<M>(call, &mut waiter)?;
                if self.try_send::<M>(message) {
                    break;
                }
            }
        }
        Ok(Outcome::Sent)
    }

    /// Polls once; spends a while when there was nothing.
    #[cold]
    pub(crate) fn wait_for_room<M: Mode>(
        &self,
        call: &'static str,
        waiter: &mut Waiter,
    ) -> Result<(), Error> {
        if self.poll::<M>(call)? > 0 {
            waiter.progressed();
        } else {
            waiter.idle(self, || self.has_work());
        }
        Ok(())
    }

    /// Whether a request may go out at once: nothing forbids it and nothing has arrived.
    #[inline(always)]
    fn may_send<M: Mode>(&self) -> bool {
        self.is_running::<M>() && !self.has_arrivals() && self.shm().count_checked::<M>()
    }

    /// Sends a Short request to a neighbour when nothing forbids it and nothing has arrived;
    /// `false` when it has to go another way. It is not traced.
    #[inline(always)]
    pub(crate) fn send_short_checked<M: Mode>(
        &self,
        local: usize,
        handler: u8,
        args: &[i32],
    ) -> bool {
        let to = (local, MessageClass::Request);
        self.shm().send_short::<M>(to, handler, args, || self.may_send::<M>())
    }
}

/// Messages on their way out.
impl RankContext {
    /// The message to send when its Long payload was taken care of.
    #[inline]
    pub(crate) fn placed<'m>(
        &self,
        call: &'static str,
        message: AmMessage<'m>,
    ) -> Result<AmMessage<'m>, Error> {
        self.transport.place(message).map_err(|outside| self.outside(call, outside))
    }

    /// One attempt to send a checked message whose payload is in place; `false` when there is no
    /// room.
    #[inline(always)]
    pub(crate) fn try_send<M: Mode>(&self, message: &AmMessage<'_>) -> bool {
        if trace::on(Category::Messages) {
            return self.try_send_traced::<M>(*message);
        }
        self.attempt::<M>(message)
    }

    #[inline(always)]
    pub(super) fn attempt<M: Mode>(&self, message: &AmMessage<'_>) -> bool {
        match self.transport.send::<M>(message) {
            Ok(sent) => sent,
            Err(error) => self.failed_send(&error),
        }
    }

    /// Replies to a message that came over the network. `false`: it is closing, and nobody waits
    /// for the reply.
    #[inline(always)]
    pub(crate) fn try_reply(&self, token: &ReplyToken<'_>, message: &AmMessage<'_>) -> bool {
        if trace::on(Category::Messages) {
            return self.try_reply_traced(token, *message);
        }
        self.attempt_reply(token, message)
    }

    #[inline(always)]
    pub(super) fn attempt_reply(&self, token: &ReplyToken<'_>, message: &AmMessage<'_>) -> bool {
        match self.transport.reply(token, message) {
            Ok(sent) => sent,
            Err(error) => self.failed_send(&error),
        }
    }

    /// Whether a message with `nargs` arguments, its payload elsewhere, would find room now. A
    /// hint.
    #[inline]
    pub fn has_room<M: Mode>(&self, target: usize, class: MessageClass, nargs: usize) -> bool {
        self.transport.has_room::<M>(target, class, nargs)
    }

    /// The error for a range outside a segment.
    #[cold]
    pub(crate) fn outside(&self, call: &'static str, outside: OutsideSegment) -> Error {
        let OutsideSegment { target, offset, len } = outside;
        let segment = self.transport.segment(target).map_or(0, |segment| segment.len);
        let end = offset.saturating_add(len as u64);
        Error::OutsideSegment { call, rank: self.rank_of(target), offset, end, segment }
    }
}

/// The one check of what a client sends.
impl AmMessage<'_> {
    /// Checks handler, counts and sizes against the limits. Nothing below checks them again.
    #[inline]
    pub(crate) fn check(&self, call: &'static str) -> Result<(), Error> {
        HandlerIndex(self.handler).check()?;
        let count = self.args.len();
        if count > MAX_ARGS {
            return Err(Error::TooManyArgs { call, count });
        }
        let (len, max) = match self.payload {
            AmPayload::Medium(payload) => (payload.len(), max_medium(count)),
            AmPayload::Long { payload, .. } => (payload.len(), MAX_LONG),
            // Checked when they were prepared.
            AmPayload::None
            | AmPayload::Block { .. }
            | AmPayload::Placed { .. }
            | AmPayload::SendBuffer { .. }
            | AmPayload::ZeroCopy(_) => return Ok(()),
        };
        if len > max {
            return Err(Error::PayloadSize { call, len, max });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_over_the_limits_are_refused() {
        let refused = |args: &[i32], payload: AmPayload<'_>| {
            let class = MessageClass::Request;
            let message = AmMessage { class, target: 0, handler: 200, args, payload };
            message.check("test").map_err(|error| error.to_string())
        };
        assert!(refused(&[0; 16], AmPayload::Medium(&[0; 65_464])).is_ok());
        let message = AmMessage {
            class: MessageClass::Reply,
            target: 0,
            handler: 127,
            args: &[],
            payload: AmPayload::None,
        };
        let text = message.check("test").unwrap_err().to_string();
        assert_eq!(text, "handler index 127 is outside 128..=255");
        let text = refused(&[0; 17], AmPayload::None).unwrap_err();
        assert!(text.contains("17 arguments"), "{text}");
        let text = refused(&[], AmPayload::Medium(&vec![0; 70_000])).unwrap_err();
        assert!(text.contains("70000"), "{text}");
        let text = refused(&[0; 16], AmPayload::Medium(&[0; 65_465])).unwrap_err();
        assert!(text.contains("65465") && text.contains("65464"), "{text}");
    }
}
