//! Small messages on the stream of the peer's requests.
//!
//! On a stream that carries data one way only, the system sends its own acknowledgement for each
//! small message, which costs as much as the message. So one of the two queue pairs, the same on
//! both sides, sends small messages on the stream of the other's requests, where they acknowledge
//! these. Nothing may wait there, because responses use the same path: only a message for which the
//! peer announced a receive goes there, and only when nothing before it may wait at the peer. What
//! follows on the own stream waits at the peer until all messages of the reverse path have arrived.

use std::cmp::Ordering;
use std::net::IpAddr;

use super::limits::REVERSE_MAX;
use crate::Operation;

/// What a queue pair does with small messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReverseRole {
    /// Both sides send on streams of their own.
    #[default]
    Unused,
    /// This side sends them on the peer's stream.
    Sender,
    /// The peer does.
    Receiver,
}

impl ReverseRole {
    /// By the names of both, so that both sides agree.
    pub(super) fn between(own: (IpAddr, u16, u32), peer: (IpAddr, u16, u32)) -> Self {
        match own.cmp(&peer) {
            Ordering::Less => Self::Receiver,
            Ordering::Equal => Self::Unused,
            Ordering::Greater => Self::Sender,
        }
    }
}

/// What the sender knows of the reverse path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReversePath {
    pub(super) role: ReverseRole,
    /// Messages of this connection that were posted, and what else takes a receive (low bits).
    messages: u32,
    /// Requests before this number went on the own stream, or will.
    pub(super) forward_until: u64,
    /// Requests before this number went on the reverse path, or need not be waited for.
    pub(super) reverse_until: u64,
    /// The peer's stream is gone, and what was on its way with it.
    pub(super) is_broken: bool,
}

impl ReversePath {
    /// For a connection that begins with request `number`.
    pub(super) fn new(role: ReverseRole, number: u64) -> Self {
        Self { role, forward_until: number, reverse_until: number, ..Self::default() }
    }

    /// A request was posted.
    pub(super) const fn count(&mut self, operation: &Operation) {
        if matches!(operation, Operation::Send { .. } | Operation::WriteImm { .. }) {
            self.messages = self.messages.wrapping_add(1);
        }
    }

    /// Whether there is a receive for all messages so far, where the peer has those up to
    /// `credit_limit`.
    pub(super) const fn has_receives(&self, credit_limit: u32) -> bool {
        self.receives_left(credit_limit).is_some()
    }

    /// Receives beyond those for all messages so far. `None`: not even these have one.
    const fn receives_left(&self, credit_limit: u32) -> Option<u32> {
        let left = credit_limit.wrapping_sub(self.messages);
        if left < 1 << 31 { Some(left) } else { None }
    }

    /// Whether a request of `len` bytes may use the reverse path. `acked`: requests before this
    /// number are done; `credit_limit`: messages that the peer has receives for.
    pub(super) fn takes(
        &self,
        operation: &Operation,
        len: u32,
        acked: u64,
        credit_limit: u32,
    ) -> bool {
        self.role == ReverseRole::Sender
            && matches!(operation, Operation::Send { .. })
            && (1..=REVERSE_MAX).contains(&(len as usize))
            && acked >= self.forward_until
            && self.receives_left(credit_limit).is_some_and(|left| left != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Exactly one of two queue pairs sends on the reverse path.
        #[test]
        fn both_sides_agree(
            ports in any::<[u16; 2]>(),
            numbers in any::<[u32; 2]>(),
            hosts in any::<[[u8; 4]; 2]>(),
        ) {
            let name = |side: usize| (IpAddr::from(hosts[side]), ports[side], numbers[side]);
            let one = ReverseRole::between(name(0), name(1));
            let two = ReverseRole::between(name(1), name(0));
            match one {
                ReverseRole::Unused => {
                    prop_assert!(name(0) == name(1) && two == ReverseRole::Unused);
                }
                ReverseRole::Sender => prop_assert_eq!(two, ReverseRole::Receiver),
                ReverseRole::Receiver => prop_assert_eq!(two, ReverseRole::Sender),
            }
        }

        /// All messages have receives up to the credit limit, also where the numbers wrap.
        #[test]
        fn messages_within_the_credit_limit_have_receives(
            messages in any::<u32>(),
            left in -1000_i32..1000,
        ) {
            let path = ReversePath { messages, ..ReversePath::default() };
            prop_assert_eq!(path.has_receives(messages.wrapping_add_signed(left)), left >= 0);
        }

        /// Never more messages than there are receives for, and never past one that may wait.
        #[test]
        fn nothing_that_may_wait_uses_it(
            messages in any::<u32>(),
            left in -3_i32..100,
            [forward, acked] in any::<[u8; 2]>(),
            len in 0..2 * u32::try_from(REVERSE_MAX).unwrap(),
        ) {
            let new = ReversePath::new(ReverseRole::Sender, forward.into());
            let path = ReversePath { messages, ..new };
            let credit_limit = messages.wrapping_add_signed(left);
            let send = Operation::Send { imm: None };
            prop_assert_eq!(
                path.takes(&send, len, acked.into(), credit_limit),
                left > 0 && acked >= forward && len != 0 && len as usize <= REVERSE_MAX
            );
        }
    }
}
