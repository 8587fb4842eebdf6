//! Non-blocking operations and their events.
//!
//! Operations borrow buffers of the caller until they complete. [`Client::scope`] makes that sound
//! as `std::thread::scope` does: whatever happens to the events, the scope does not end before
//! every operation has. The event of a get gives its buffer back, so the data can be used inside
//! the scope as soon as it is there, and no sooner.
//!
//! Inside a neighbourhood an operation is complete when it is started. Those at remote ranks have a
//! row among the rank's [`operations`](crate::rma::operations) until they are.

mod atomics;
mod collectives;
mod requests;
mod vectors;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bitflags::bitflags;
use bootstrap::Rank;

use crate::client::Client;
use crate::error::Error;
use crate::mode::Mode;
use crate::progress::PollFn;
use crate::rank::RankContext;
use crate::rma::operations::{Op, OpCounters, Part};
use crate::rma::remote::RemoteOp;
use crate::rma::value_bytes;
use crate::sys;
use crate::trace::{self, TransferKind};
use crate::transport::message::{Flags, Outcome};
use crate::wait::Waiter;

bitflags! {
    /// Sets of operations and of their steps, for NBI synchronisation and leaf events.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Operations: u32 {
        /// Local completion: source buffers may be used again.
        const LOCAL = 1;
        /// Puts (includes their local completion).
        const PUT = 3;
        /// Gets.
        const GET = 4;
        /// Atomic operations other than a plain set (a put) and a plain get.
        const RMW = 8;
        /// Everything.
        const ALL = 15;
    }
}

/// When the source buffer of a put is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalCompletion {
    /// Before the call returns.
    Now,
    /// With the operation.
    Defer,
    /// Seen through the leaf event of a root, or for NBI through [`Operations::LOCAL`].
    Separate,
}

/// An operation that was in flight when its event was made.
#[derive(Clone, Copy)]
struct PendingOp<'scope> {
    context: &'scope RankContext,
    op: Op,
    part: Part,
    poll: PollFn,
    /// The one thread that may poll, in modes where only one is in the library.
    only: Option<usize>,
}

impl PendingOp<'_> {
    fn is_complete(&self) -> bool {
        // The number is one that the table gave.
        self.context.operations.is_complete(self.op, self.part).unwrap_or(true)
    }

    fn wait(&self) -> Result<(), Error> {
        let watched = self.context.operations.watch(self.op);
        watched.map_or(Ok(()), |row| self.wait_for(&row))
    }

    /// As [`PendingOp::wait`], by its row.
    fn wait_for(&self, row: &OpCounters) -> Result<(), Error> {
        let (call, context) = ("Event::wait", self.context);
        let complete = || row.is_over(self.op, self.part);
        if self.only.is_none_or(|only| only == sys::thread()) {
            return context.wait_polling(call, self.poll, complete);
        }
        while !complete() {
            // Another thread's client polls for it.
            std::thread::yield_now();
            context.check_open(call)?;
        }
        Ok(())
    }
}

/// Completion of an operation that was started; holds what the operation borrowed and gives it
/// back. Any thread that may use the client may synchronise it. Dropping it is legal: the scope
/// waits.
#[must_use = "an event is synchronised with wait or test"]
pub struct Event<'scope, B = ()> {
    borrowed: B,
    pending: Option<PendingOp<'scope>>,
    scope: PhantomData<&'scope ()>,
}

impl<B> std::fmt::Debug for Event<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pending {
            Some(pending) => write!(f, "Event({:?} of {:?})", pending.part, pending.op),
            None => write!(f, "Event(complete)"),
        }
    }
}

impl<'scope, B> Event<'scope, B> {
    /// Waits (and polls) until the operation is complete; gives back what it borrowed.
    ///
    /// # Errors
    /// The end of the job.
    pub fn wait(self) -> Result<B, Error> {
        if let Some(pending) = &self.pending {
            pending.wait()?;
        }
        Ok(self.borrowed)
    }

    /// What the operation borrowed when it is complete. Does not poll.
    ///
    /// # Errors
    /// The event itself: not complete yet.
    pub fn test(self) -> Result<B, Self> {
        if self.pending.is_none_or(|pending| pending.is_complete()) {
            Ok(self.borrowed)
        } else {
            Err(self)
        }
    }

    /// The leaf event of a step of this operation: [`Operations::LOCAL`] for a put started with
    /// [`LocalCompletion::Separate`], one of the sets for an access region. Waiting for the root
    /// covers its leaves.
    pub fn leaf(&self, step: Operations) -> Event<'scope> {
        let part = part_of(step);
        let pending = self.pending.map(|pending| PendingOp { part, ..pending });
        Event { borrowed: (), pending, scope: PhantomData }
    }
}

/// What of a group a set of steps speaks of.
fn part_of(set: Operations) -> Part {
    let chosen = |step, part| if set.contains(step) { part } else { Part::empty() };
    let (local, puts) =
        (chosen(Operations::LOCAL, Part::LOCAL), chosen(Operations::PUT, Part::PUTS));
    let (gets, rmws) = (chosen(Operations::GET, Part::GETS), chosen(Operations::RMW, Part::RMWS));
    local.union(puts).union(gets).union(rmws)
}

/// Waits for all events and returns what they borrowed, in order.
///
/// # Errors
/// The end of the job.
pub fn wait_all<'scope, B: 'scope>(
    events: impl IntoIterator<Item = Event<'scope, B>>,
) -> Result<Vec<B>, Error> {
    events.into_iter().map(Event::wait).collect()
}

/// A group of operations, once there is one at a remote rank.
type Group = OnceLock<(Op, Arc<OpCounters>)>;

/// Where non-blocking operations live; made by [`Client::scope`].
pub struct Scope<'scope, 'env: 'scope, M: Mode> {
    client: &'env Client<M>,
    /// Operations in flight, and some that have completed.
    started: Mutex<Vec<Op>>,
    /// Groups of them, which may grow and so stay until the end.
    groups: Mutex<Vec<Op>>,
    /// The group of those without event.
    implicit: Group,
    /// Invariant in both lifetimes, as in `std::thread::Scope`.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<M: Mode> Client<M> {
    /// Runs `body` with a scope for non-blocking operations and waits for all of them.
    ///
    /// ```no_run
    /// # use gasnet_ibv::{Client, Error, Flags, LocalCompletion, Rank, Seq};
    /// # fn f(client: &Client<Seq>) -> Result<(), Error> {
    /// let (source, mut target) = ([1; 64], [0; 64]);
    /// client.scope(|scope| {
    ///     let put = scope.put_nb(Rank(1), 0, &source, LocalCompletion::Defer, Flags::NONE)?;
    ///     let get = scope.get_nb(Rank(2), 0, &mut target, Flags::NONE)?;
    ///     if let Some(get) = get {
    ///         println!("{:?}", get.wait()?);
    ///     }
    ///     put.map_or(Ok(()), |put| put.wait())
    /// })?
    /// # }
    /// ```
    ///
    /// # Errors
    /// The end of the job while waiting.
    pub fn scope<'env, T>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, M>) -> T,
    ) -> Result<T, Error> {
        let (started, groups) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let (implicit, scope, env) = (Group::new(), PhantomData, PhantomData);
        let scope = Scope { client: self, started, groups, implicit, scope, env };
        // Also when the body panics, nothing that it lent may be in flight afterwards.
        let end = End(&scope);
        let result = body(&scope);
        std::mem::forget(end);
        scope.finish()?;
        Ok(result)
    }
}

/// Ends the operations of a scope whose body panicked.
struct End<'a, 'scope, 'env: 'scope, M: Mode>(&'a Scope<'scope, 'env, M>);

impl<M: Mode> Drop for End<'_, '_, '_, M> {
    fn drop(&mut self) {
        // What cannot be waited for was cut off.
        let _ended = self.0.finish();
    }
}

impl<M: Mode> std::fmt::Debug for Scope<'_, '_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scope({:?})", self.client)
    }
}

/// What became of an operation.
enum Started {
    NotSent,
    Complete,
    Pending(Op),
}

impl Started {
    const fn of(outcome: Outcome, op: Op) -> Self {
        match outcome {
            Outcome::Sent => Self::Pending(op),
            Outcome::NotSent => Self::NotSent,
        }
    }

    const fn outcome(&self) -> Outcome {
        if matches!(self, Self::NotSent) { Outcome::NotSent } else { Outcome::Sent }
    }
}

/// An operation as it is called: its name, the rank and the offset in its segment, options.
type Call = (&'static str, Rank, u64, Flags);

impl<'scope, 'env, M: Mode> Scope<'scope, 'env, M> {
    /// A remote rank's operation, checked like all; `None` for what is done at once.
    fn remote(
        &self,
        (call, rank, offset, flags): Call,
        len: usize,
    ) -> Result<Option<RemoteOp>, Error> {
        let context = &self.client.context;
        if len == 0 || !context.networked() {
            return Ok(None);
        }
        let target = context.rma_target::<M>(call, rank)?;
        let immediate = flags.contains(Flags::IMMEDIATE);
        let remote = context.transport.is_remote(target);
        Ok(remote.then_some(RemoteOp { call, target, offset, immediate }))
    }

    /// Starts a put, of a group or by itself.
    fn start_put(
        &self,
        call: Call,
        source: &[u8],
        local: LocalCompletion,
        group: Option<&Group>,
    ) -> Result<Started, Error> {
        let Some(remote) = self.remote(call, source.len())? else {
            let (_, rank, offset, _) = call;
            return self.client.put(rank, offset, source).map(|()| Started::Complete);
        };
        let (context, now) = (&self.client.context, local == LocalCompletion::Now);
        let _span = trace::transfer(TransferKind::Put, call.1, source.len());
        self.counted(remote.call, group, |row| {
            context.put_counted::<M>(remote, (row, group.is_some()), source, now)
        })
    }

    fn start_get(
        &self,
        call: Call,
        into: &mut [u8],
        group: Option<&Group>,
    ) -> Result<Started, Error> {
        let Some(remote) = self.remote(call, into.len())? else {
            let (_, rank, offset, _) = call;
            return self.client.get(rank, offset, into).map(|()| Started::Complete);
        };
        let context = &self.client.context;
        let _span = trace::transfer(TransferKind::Get, call.1, into.len());
        self.counted(remote.call, group, |row| context.get_counted::<M>(remote, row, into))
    }

    /// The event of an operation; holds what it borrowed.
    fn event<B>(&'scope self, started: Started, borrowed: B) -> Option<Event<'scope, B>> {
        let pending = match started {
            Started::NotSent => return None,
            Started::Complete => None,
            Started::Pending(op) => Some(self.pending(op, Part::ALL)),
        };
        Some(Event { borrowed, pending, scope: PhantomData })
    }

    /// Starts an operation that the row of its group counts, or a row of its own.
    fn counted(
        &self,
        call: &'static str,
        group: Option<&Group>,
        start: impl FnOnce(&Arc<OpCounters>) -> Result<Outcome, Error>,
    ) -> Result<Started, Error> {
        let own;
        let (op, row) = match group {
            Some(group) => self.group(call, group)?,
            None => {
                own = self.row(call)?;
                &own
            }
        };
        Ok(Started::of(start(row)?, *op))
    }

    /// A row for an operation, which the scope waits for.
    fn row(&self, call: &'static str) -> Result<(Op, Arc<OpCounters>), Error> {
        let (op, row) = self.client.context.begin(call)?;
        self.keep(op);
        Ok((op, row))
    }

    /// The scope waits for an operation that was started.
    fn keep(&self, op: Op) {
        let operations = &self.client.context.operations;
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if started.len() == started.capacity() {
            // Instead of growing for ever.
            started.retain(|op| !operations.finish(*op).unwrap_or(true));
        }
        started.push(op);
    }

    fn group<'g>(
        &self,
        call: &'static str,
        group: &'g Group,
    ) -> Result<&'g (Op, Arc<OpCounters>), Error> {
        if let Some(row) = group.get() {
            return Ok(row);
        }
        let new = self.client.context.begin(call)?;
        let op = new.0;
        // Another thread may be faster; then this row is complete as it is.
        let row = group.get_or_init(|| new);
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).push(op);
        Ok(row)
    }

    fn finish(&self) -> Result<(), Error> {
        let context = &self.client.context;
        let take = |list: &Mutex<Vec<Op>>| {
            std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
        };
        for op in take(&self.started).into_iter().chain(take(&self.groups)) {
            let waited = self.pending(op, Part::ALL).wait();
            if let Err(error) = waited {
                // What is borrowed is the caller's again.
                context.cut_off();
                return Err(error);
            }
            context.operations.forget(op);
        }
        Ok(())
    }

    fn pending(&self, op: Op, part: Part) -> PendingOp<'_> {
        let only = if M::THREADED { None } else { Some(sys::thread()) };
        PendingOp { context: &self.client.context, op, part, poll: Waiter::poll_for::<M>, only }
    }

    /// Starts a put of `source` to `offset` in `rank`'s segment. `None` only with
    /// [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// A rank outside the team, a range outside the segment, the end of the job.
    pub fn put_nb(
        &'scope self,
        rank: Rank,
        offset: u64,
        source: &'scope [u8],
        local: LocalCompletion,
        flags: Flags,
    ) -> Result<Option<Event<'scope>>, Error> {
        let call = ("put_nb", rank, offset, flags);
        Ok(self.event(self.start_put(call, source, local, None)?, ()))
    }

    /// Starts a get from `offset` in `rank`'s segment; the event gives the buffer back. `None` only
    /// with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Scope::put_nb`].
    pub fn get_nb(
        &'scope self,
        rank: Rank,
        offset: u64,
        into: &'scope mut [u8],
        flags: Flags,
    ) -> Result<Option<Event<'scope, &'scope mut [u8]>>, Error> {
        let call = ("get_nb", rank, offset, flags);
        let started = self.start_get(call, &mut *into, None)?;
        Ok(self.event(started, into))
    }

    /// Starts a put of the low `len` (1 to 8) bytes of `value`.
    ///
    /// # Errors
    /// As [`Scope::put_nb`]; also a bad `len`.
    pub fn put_value_nb(
        &'scope self,
        rank: Rank,
        offset: u64,
        value: u64,
        len: usize,
        flags: Flags,
    ) -> Result<Option<Event<'scope>>, Error> {
        let call = ("put_value_nb", rank, offset, flags);
        let bytes = value_bytes(call.0, value, len)?;
        Ok(self.event(self.start_put(call, &bytes[..len], LocalCompletion::Now, None)?, ()))
    }

    /// As [`Scope::put_value_nb`], without an event of its own; see [`Scope::nbi_wait`].
    ///
    /// # Errors
    /// As [`Scope::put_value_nb`].
    pub fn put_value_nbi(
        &'scope self,
        rank: Rank,
        offset: u64,
        value: u64,
        len: usize,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = || ("put_value_nbi", rank, offset, flags);
        let bytes = value_bytes("put_value_nbi", value, len)?;
        self.put_in(&self.implicit, call, &bytes[..len], LocalCompletion::Now)
    }

    /// Starts a put without an event of its own; see [`Scope::nbi_wait`].
    ///
    /// # Errors
    /// As [`Scope::put_nb`].
    pub fn put_nbi(
        &'scope self,
        rank: Rank,
        offset: u64,
        source: &'scope [u8],
        local: LocalCompletion,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        self.put_in(&self.implicit, || ("put_nbi", rank, offset, flags), source, local)
    }

    #[inline(always)]
    fn put_in(
        &self,
        group: &Group,
        call: impl Fn() -> Call,
        source: &[u8],
        local: LocalCompletion,
    ) -> Result<Outcome, Error> {
        let (context, (_, rank, offset, _)) = (&self.client.context, call());
        let row = group.get().filter(|_| context.is_running::<M>());
        if row.is_some_and(|(_, row)| context.known_put((rank, offset), (row, true), source)) {
            return Ok(Outcome::Sent);
        }
        // Made here, so that the way above keeps less.
        Ok(self.start_put(call(), source, local, Some(group))?.outcome())
    }

    fn get_in(
        &self,
        group: &Group,
        (rank, offset, flags): (Rank, u64, Flags),
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        Ok(self.start_get(("get_nbi", rank, offset, flags), into, Some(group))?.outcome())
    }

    /// Starts a get without an event of its own. The buffer is the caller's again when the scope
    /// ends.
    ///
    /// # Errors
    /// As [`Scope::put_nb`].
    pub fn get_nbi(
        &'scope self,
        rank: Rank,
        offset: u64,
        into: &'scope mut [u8],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        self.get_in(&self.implicit, (rank, offset, flags), into)
    }

    /// Waits (and polls) until all operations without event that this thread started in the scope,
    /// and that are in `set`, are complete.
    ///
    /// # Errors
    /// The end of the job.
    pub fn nbi_wait(&self, set: Operations) -> Result<(), Error> {
        match self.implicit.get() {
            Some((op, row)) => self.pending(*op, part_of(set)).wait_for(row),
            None => self.client.poll(),
        }
    }

    /// As [`Scope::nbi_wait`] without waiting or polling: whether they are complete.
    #[must_use]
    pub fn nbi_test(&self, set: Operations) -> bool {
        self.implicit.get().is_none_or(|(_, row)| row.is_complete(part_of(set)))
    }

    /// Begins an access region: operations started through it complete together, with one event.
    pub const fn access_region(&'scope self) -> AccessRegion<'scope, 'env, M> {
        AccessRegion { scope: self, group: Group::new() }
    }
}

/// Operations that share one event; see [`Scope::access_region`].
#[derive(Debug)]
pub struct AccessRegion<'scope, 'env: 'scope, M: Mode> {
    scope: &'scope Scope<'scope, 'env, M>,
    group: Group,
}

impl<'scope, M: Mode> AccessRegion<'scope, '_, M> {
    /// Starts a put in the region.
    ///
    /// # Errors
    /// As [`Scope::put_nb`].
    pub fn put(
        &self,
        rank: Rank,
        offset: u64,
        source: &'scope [u8],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = || ("put_nbi", rank, offset, flags);
        self.scope.put_in(&self.group, call, source, LocalCompletion::Defer)
    }

    /// Starts a get in the region.
    ///
    /// # Errors
    /// As [`Scope::put_nb`].
    pub fn get(
        &self,
        rank: Rank,
        offset: u64,
        into: &'scope mut [u8],
        flags: Flags,
    ) -> Result<Outcome, Error> {
        self.scope.get_in(&self.group, (rank, offset, flags), into)
    }

    /// Ends the region: the event of all its operations.
    pub fn end(self) -> Event<'scope> {
        let pending = self.group.get().map(|(op, _)| self.scope.pending(*op, Part::ALL));
        Event { borrowed: (), pending, scope: PhantomData }
    }
}
