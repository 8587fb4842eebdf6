//! Messages of the library itself: of exits, of barriers between neighbourhoods, and of mailboxes.

use bootstrap::Rank;

use crate::rank::RankContext;
use crate::transport::message::Arrived;

const MAX_ARGS: usize = 8;
/// Messages below this number belong to the exit.
const EXITS: u8 = 8;
pub(crate) const BARRIER: u8 = 8;
/// Where small reductions write.
pub(crate) const MAILBOXES: u8 = 9;

impl RankContext {
    /// Sends a message of the library (`id` 1..=9, at most 8 arguments) to any rank, this one
    /// included. It travels in a queue of its own, never behind messages of the client. Does not
    /// wait: `false` when the queue is full (try again later) or the rank cannot be reached.
    /// Async-signal-safe.
    pub(crate) fn send_internal(&self, rank: Rank, id: u8, args: &[i32]) -> bool {
        let target = self.target("send_internal", rank);
        args.len() <= MAX_ARGS
            && target.is_ok_and(|target| self.transport.send_internal(target, id, args))
    }

    /// Takes a message of the library that came over the network; `false` for what is none. Those
    /// of the exit are kept until the network's poll has returned, because an exit never returns.
    pub(super) fn take_internal_am(&self, message: &Arrived<'_>) -> bool {
        let source = self.rank_of(message.source);
        match (message.handler, message.args) {
            (1..EXITS, args) => self.exit_inbox.keep(source, message.handler, args),
            (BARRIER, &[which, head, low]) => self.barrier_word(source, which, [head, low]),
            (BARRIER, &[kind, a, b, c]) => self.barrier_inbox(source, [kind, a, b, c]),
            (MAILBOXES, words) => self.mailbox_words(source, words),
            _ => false,
        }
    }
}
