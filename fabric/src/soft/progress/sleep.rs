//! What a thread that polls sleeps on.

use std::sync::Arc;

use super::{Conn, Entry, Progress, find};
use crate::Sleep;
use crate::soft::context::Context;

impl Progress {
    /// Moves what there is, acknowledges, and says what ends the sleep. `None`: there was something.
    ///
    /// Hot streams end it themselves, not by the epoll: it would announce each of them again, as it
    /// can be written, and the system lets a thread that waits for a stream itself run sooner.
    pub(in crate::soft) fn begin_sleep(&mut self, ctx: &Arc<Context>) -> Option<Sleep> {
        self.flush_deferred(ctx, true);
        if !self.is_quiet(ctx) {
            let pass = self.pass(ctx, true);
            if pass.found || pass.soon {
                return None;
            }
            return Some(Sleep::until(Arc::clone(ctx) as _, self.rest()));
        }
        self.slept = true;
        let mut sleep = Sleep::until(Arc::clone(ctx) as _, self.rest());
        let (entries, unwatched) = (&mut self.entries, &mut self.unwatched);
        for token in &self.hot {
            let Some(entry) = find(entries, *token) else { continue };
            // What ends the sleep is read at once.
            entry.rests = None;
            let stream = match &mut entry.conn {
                Some(Conn::Responder(responder)) => {
                    if responder.ack_pending() {
                        responder.flush_acks(&ctx.regions);
                    }
                    &responder.stream
                }
                Some(Conn::Requester(_, stream)) => stream,
                _ => continue,
            };
            if sleep.or(Arc::clone(stream) as _) && entry.watched {
                *unwatched += u32::from(entry.unwatch(ctx));
            }
        }
        Some(sleep)
    }

    /// Whether nothing is to be done but to wait for what streams bring.
    fn is_quiet(&mut self, ctx: &Context) -> bool {
        let activity = &ctx.activity;
        let entries = &mut self.entries;
        let mut reads = self.hot.iter().map(|token| match find(entries, *token) {
            Some(Entry { conn: Some(Conn::Responder(responder)), .. }) => responder.only_reads(),
            _ => true,
        });
        activity.waker.is_napping()
            && self.again.is_empty()
            && !activity.is_blocked()
            && !activity.attention.is_set()
            && !activity.deferred.is_any()
            && !ctx.faults.is_active()
            && reads.all(|reads| reads)
    }
}
