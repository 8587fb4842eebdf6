//! Atomics that complete later.

use bootstrap::Rank;

use super::{AccessRegion, Event, Group, Scope, Started};
use crate::atomics::{AtomicOp, AtomicType};
use crate::error::Error;
use crate::mode::Mode;
use crate::team::{AtomicDomain, Fetched};
use crate::transport::message::{Flags, Outcome};

/// Where a word is, and what is done to it.
type Operation<T> = ((Rank, u64), AtomicOp, [T; 2], Flags);

impl<'scope, M: Mode> Scope<'scope, '_, M> {
    /// Starts an operation of a domain, one of this scope's client, on the word at `offset` of
    /// `rank`'s segment. The event gives what it fetches. `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`AtomicDomain::apply`].
    pub fn atomic_nb<T: AtomicType>(
        &'scope self,
        domain: &AtomicDomain<'_, T, M>,
        (rank, offset): (Rank, u64),
        op: AtomicOp,
        operands: [T; 2],
        flags: Flags,
    ) -> Result<Option<Event<'scope, Fetched<T>>>, Error> {
        let operation = ((rank, offset), op, operands, flags);
        let (started, fetched) = self.start_atomic("atomic_nb", domain, operation, None)?;
        Ok(self.event(started, fetched))
    }

    /// Starts an operation without an event of its own; see [`Scope::nbi_wait`]. A plain set counts
    /// as a put, a get as a get, all others as [`Operations::RMW`](crate::Operations::RMW). What it
    /// fetches is lost.
    ///
    /// # Errors
    /// As [`AtomicDomain::apply`].
    pub fn atomic_nbi<T: AtomicType>(
        &'scope self,
        domain: &AtomicDomain<'_, T, M>,
        (rank, offset): (Rank, u64),
        op: AtomicOp,
        operands: [T; 2],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let operation = ((rank, offset), op, operands, flags);
        let group = Some(&self.implicit);
        Ok(self.start_atomic("atomic_nbi", domain, operation, group)?.0.outcome())
    }

    fn start_atomic<T: AtomicType>(
        &self,
        call: &'static str,
        domain: &AtomicDomain<'_, T, M>,
        ((rank, offset), op, operands, flags): Operation<T>,
        group: Option<&Group>,
    ) -> Result<(Started, Fetched<T>), Error> {
        domain.domain.check(call, op)?;
        let context = &self.client.context;
        let target = domain.target(call, rank)?;
        let word = context.atomic_word(call, (target, offset), &domain.domain)?;
        if let Some(old) = word.and_then(|word| word.operate(op, operands)) {
            let old = if op.fetches() { old } else { T::default() };
            return Ok((Started::Complete, Fetched::here(old)));
        }
        let immediate = flags.contains(Flags::IMMEDIATE);
        let remote = AtomicDomain::<T, M>::request((call, target, offset), op, operands, immediate);
        let (fetched, place) = Fetched::to_come(op);
        let started = self.counted(call, group, |row| {
            context.atomic_counted::<M>(&domain.domain, &remote, row, place)
        })?;
        Ok((started, fetched))
    }
}

impl<M: Mode> AccessRegion<'_, '_, M> {
    /// Starts an operation of a domain in the region, as [`Scope::atomic_nbi`] does.
    ///
    /// # Errors
    /// As [`AtomicDomain::apply`].
    pub fn atomic<T: AtomicType>(
        &self,
        domain: &AtomicDomain<'_, T, M>,
        (rank, offset): (Rank, u64),
        op: AtomicOp,
        operands: [T; 2],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let operation = ((rank, offset), op, operands, flags);
        let group = Some(&self.group);
        Ok(self.scope.start_atomic("atomic_nbi", domain, operation, group)?.0.outcome())
    }
}
