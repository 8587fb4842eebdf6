//! Small messages on the stream of the peer's requests.
//!
//! A stream that carries data one way only makes the system send its own acknowledgement for each small message, which takes as
//! long as the message. So of a pair of queue pairs one, the same on both sides, sends small messages back on the stream of the
//! other's requests, where they acknowledge them. Nothing may wait there, because responses come on the same way: only a
//! message for which the peer has said that there is a receive goes back, and only when nothing that the peer might keep
//! waiting is before it. What follows on the own stream waits at the peer until all that went back has come.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use super::limits::BACK;
use super::low;
use super::qp::Qp;
use super::queue::Taken;
use super::tx::wqe::Wqe;
use super::wire::{Garbage, Refusal, Request, Verb};
use crate::{Completion, Operation, Status};

/// What a queue pair does with small messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Both sides send on streams of their own.
    Apart,
    /// This one sends them back on the peer's stream.
    Sends,
    /// This one's peer does.
    Takes,
}

impl Way {
    /// By the names of both, so that they come to the same.
    pub(super) fn between(own: (IpAddr, u16, u32), peer: (IpAddr, u16, u32)) -> Self {
        match own.cmp(&peer) {
            std::cmp::Ordering::Less => Self::Takes,
            std::cmp::Ordering::Equal => Self::Apart,
            std::cmp::Ordering::Greater => Self::Sends,
        }
    }
}

/// The sender's book.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    pub(super) way: Way,
    /// Messages of this connection that were posted (low bits).
    messages: u32,
    /// Requests before this number went on the own stream, or will.
    pub(super) apart_until: u64,
    /// Requests before this number went back, or need not be waited for.
    pub(super) back_until: u64,
    /// The peer's stream is gone, and what was on its way with it.
    pub(super) is_lost: bool,
}

impl Back {
    pub(super) const fn new(way: Way) -> Self {
        Self { way, messages: 0, apart_until: 0, back_until: 0, is_lost: false }
    }

    /// For a connection that begins with request `number`.
    pub(super) const fn from(self, number: u64) -> Self {
        Self { apart_until: number, back_until: number, ..self }
    }

    /// A request was posted.
    pub(super) const fn count(&mut self, operation: &Operation) {
        if matches!(operation, Operation::Send { .. }) {
            self.messages = self.messages.wrapping_add(1);
        }
    }

    /// Whether the next request may go back. `acked`: requests before this number are done; `room`: messages that the peer
    /// has receives for.
    pub(super) fn takes(&self, wqe: &Wqe, acked: u64, room: u32) -> bool {
        let left = room.wrapping_sub(self.messages);
        self.way == Way::Sends
            && matches!(wqe.operation, Operation::Send { .. })
            && (1..=BACK).contains(&(wqe.len as usize))
            && acked >= self.apart_until
            && left != 0
            && left < 1 << 31
    }
}

/// What became of a message that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taking {
    /// It is in its buffer.
    Done,
    /// Another thread is in the queue of receives: once more later.
    Busy,
    /// It does not fit.
    Refused(Refusal),
}

impl Qp {
    /// Messages of the peer (low bits) that there have been receives for on this connection. Shared queues promise nothing.
    pub(super) fn room(&self) -> u32 {
        if self.shares_receives() {
            return 0;
        }
        low(self.receives().posted().wrapping_sub(self.first_receive.load(Ordering::Relaxed)))
    }

    /// Takes a message that came back on the stream of this queue pair's own requests.
    pub(super) fn take_back(&self, request: &Request, bytes: &[u8]) -> Result<Taking, Garbage> {
        let Verb::Send { imm, .. } = request.verb else {
            return Err(Garbage::Sequence(request.msn));
        };
        if request.msn != self.next_msn() {
            return Err(Garbage::Sequence(request.msn));
        }
        let (receive, number) = match self.receives().take() {
            Taken::One(receive, number) => (receive, number),
            Taken::Busy => return Ok(Taking::Busy),
            // All were flushed.
            Taken::None if self.is_error() => return Ok(Taking::Done),
            Taken::None => return Err(Garbage::Sequence(request.msn)),
        };
        let end = |status, len, imm| {
            let entry = Completion { id: receive.id, status, len, imm, ..Completion::EMPTY };
            self.received(&entry, self.gives(number));
        };
        if request.len > receive.buffer.len {
            end(Status::LocalLength, 0, None);
            return Ok(Taking::Refused(Refusal::Invalid));
        }
        let Some(span) = self.dev().table().local(&receive.buffer, true) else {
            end(Status::LocalProtection, 0, None);
            return Ok(Taking::Refused(Refusal::Operation));
        };
        span.fill(bytes);
        drop(span);
        end(Status::Success, request.len, imm);
        self.did_one();
        self.next_msn_is(request.msn.wrapping_add(1));
        Ok(Taking::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Exactly one of two queue pairs sends back.
        #[test]
        fn both_sides_agree(
            ports in any::<[u16; 2]>(),
            numbers in any::<[u32; 2]>(),
            hosts in any::<[[u8; 4]; 2]>(),
        ) {
            let name = |side: usize| (IpAddr::from(hosts[side]), ports[side], numbers[side]);
            let (one, two) = (Way::between(name(0), name(1)), Way::between(name(1), name(0)));
            match one {
                Way::Apart => prop_assert!(name(0) == name(1) && two == Way::Apart),
                Way::Sends => prop_assert_eq!(two, Way::Takes),
                Way::Takes => prop_assert_eq!(two, Way::Sends),
            }
        }

        /// Never more messages than there are receives for, and never past one that may wait.
        #[test]
        fn nothing_that_may_wait_goes_back(
            messages in any::<u32>(),
            left in -3_i32..100,
            [apart, acked] in any::<[u8; 2]>(),
            len in 0..2 * BACK,
        ) {
            let back = Back { messages, apart_until: apart.into(), ..Back::new(Way::Sends) };
            let wqe = Wqe { len: super::super::narrow(len), ..Wqe::EMPTY };
            let room = messages.wrapping_add_signed(left);
            prop_assert_eq!(
                back.takes(&wqe, acked.into(), room),
                left > 0 && acked >= apart && len != 0 && len <= BACK
            );
        }
    }
}
