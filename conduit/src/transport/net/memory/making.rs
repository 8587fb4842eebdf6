//! Making a region that is missing: room for it, the system's word for its pages, the devices.

use super::cache::{Found, Held, Parts, Shared, State, Users, Wanted, lock};
use super::loan_parts::MOST;
use super::regions::{Plan, Span};
use super::registrar::{Registered, Rights, as_len};
use super::watch::Watch;
use crate::sys::spin_lock::SpinLock;
use crate::trace::{self, Cause, Counter};

/// Idle regions that give way when a device refuses one more.
const GIVE_WAY: usize = 8;

impl Shared {
    /// Registers pages of one block that no region covers. `false`: they have to be copied.
    pub(super) fn make(&self, state: &SpinLock<State>, span: Span, wanted: Wanted) -> bool {
        let _time = trace::timed(Cause::Move);
        let Wanted { write, users, .. } = wanted;
        let mut refusals = lock(&self.refusals);
        let watch = {
            let mut state = state.lock();
            if state.of(users).regions.hold(span, write).is_some() {
                // Another thread was faster.
                return true;
            }
            state.watch.clone()
        };
        // The lowest bits are free.
        let rights = u64::from(write) | u64::from(users == Users::Peers) << 1;
        let block = span.from & !(self.limits.block - 1) | rights;
        let Some(watch) = watch.filter(|_| !refusals.0.leaves_out(block)) else {
            state.lock().of(users).counts.copy();
            return false;
        };
        let making = Making { shared: self, state, watch: &watch, wanted };
        let Some((union, union_write)) = making.room(span) else {
            state.lock().of(users).counts.copy();
            return false;
        };
        let mut made = making.attempt(union, union_write);
        if made.is_err() && (union, union_write) != (span, write) {
            // Memory around it may be read-only, or gone.
            state.lock().of(users).regions.begin(span);
            made = making.attempt(span, write);
        }
        if made.is_err() && making.give_way() {
            state.lock().of(users).regions.begin(span);
            made = making.attempt(span, write);
        }
        if let Err(reason) = &made {
            refusals.0.add(block);
            if !std::mem::replace(&mut refusals.1, true) {
                self.say(&format!(
                    "a transfer from or to memory outside segments is copied: {reason}"
                ));
            }
        }
        let made = made.unwrap_or(false);
        let mut state = state.lock();
        let counts = &mut state.of(users).counts;
        counts.made += u64::from(made);
        if !made {
            counts.copy();
        }
        made
    }

    /// As [`Shared::find`], when a region is missing from an address on; `held` are those before it.
    #[cold]
    pub(super) fn make_and_hold(
        &self,
        state: &SpinLock<State>,
        wanted: Wanted,
        (mut held, mut at): (Held, u64),
        parts: &mut impl Parts,
    ) -> Option<Held> {
        let (mut wanted, mut attempts) = (wanted, 2 * MOST);
        loop {
            let is_made = attempts > 0
                && self
                    .limits
                    .first_block(at, wanted.to - at)
                    .is_some_and(|span| self.make(state, span, wanted));
            held.0.clear();
            parts.clear();
            if !is_made {
                if at == wanted.from {
                    return None;
                }
                // Those before it are tried once more.
                (wanted.to, attempts) = (at, 0);
            }
            attempts = attempts.saturating_sub(1);
            match self.find(state, wanted, (&mut held, parts)) {
                Found::All => return Some(held),
                Found::Unsettled => return None,
                Found::Missing(missing) => at = missing,
            }
        }
    }
}

/// A region being made, by the one who may.
struct Making<'a> {
    shared: &'a Shared,
    state: &'a SpinLock<State>,
    watch: &'a Watch,
    wanted: Wanted,
}

impl Making<'_> {
    /// Makes room; what to register then.
    fn room(&self, span: Span) -> Option<(Span, bool)> {
        let Wanted { write, users, .. } = self.wanted;
        loop {
            let plan = self.state.lock().of(users).regions.plan(span, write);
            match plan {
                Plan::Register(union, write) => return Some((union, write)),
                Plan::Evict(pages, region) => self.end(pages, region),
                Plan::Full => return None,
            }
        }
    }

    fn end(&self, pages: Span, region: Registered) {
        let users = self.wanted.users;
        drop(region);
        if pages.len() > 0 {
            // Who registers for others waits for this thread: they come to have none meanwhile.
            let is_shared = self.state.lock().others_have(users, pages);
            if !is_shared {
                self.watch.remove(pages);
            }
            self.state.lock().of(users).counts.evicted += 1;
            trace::count(Counter::Evicted, as_len(pages.len()));
        }
    }

    /// Deregisters some that nobody uses; whether there were any.
    fn give_way(&self) -> bool {
        for count in 0..GIVE_WAY {
            let victim = self.state.lock().of(self.wanted.users).regions.evict();
            match victim {
                Some((pages, region)) => self.end(pages, region),
                None => return count > 0,
            }
        }
        true
    }

    /// Watches and registers pages that have begun. `Ok(false)`: they were unmapped meanwhile.
    fn attempt(&self, span: Span, write: bool) -> Result<bool, String> {
        let Wanted { users, lasts, .. } = self.wanted;
        if !lasts {
            self.watch.add(span).map_err(|error| {
                format!(
                    "it cannot be watched for being unmapped, as a mapped file cannot ({error})"
                )
            })?;
        }
        let rights = Rights { write, peers: users == Users::Peers };
        let region =
            self.shared.registrar.register(span, rights).map_err(|error| error.to_string())?;
        if !lasts && !self.watch.is_private(span, self.shared.limits.page) {
            return Err("others share its pages and may exchange them".to_owned());
        }
        let lost = self.state.lock().of(users).regions.insert(span, write, region);
        Ok(lost.is_ok())
    }
}
