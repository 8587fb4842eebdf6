//! Non-blocking operations and their events.
//!
//! Operations borrow buffers of the caller until they complete. [`Client::scope`] makes that sound as `std::thread::scope`
//! does: whatever happens to the events, the scope does not end before every operation has. The event of a get gives its
//! buffer back, so the data can be used inside the scope as soon as it is there, and no sooner.
//!
//! Inside a host an operation is complete when it is started, so no event here has anything to wait for.

use std::marker::PhantomData;

use bootstrap::Rank;

use crate::client::Client;
use crate::error::Error;
use crate::message::{Flags, Outcome};
use crate::mode::Mode;
use crate::rma::value_bytes;

/// Sets of operations and of their steps, for NBI synchronisation and leaf events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(u32);

impl Operations {
    /// Local completion: source buffers may be used again.
    pub const LOCAL: Self = Self(1);
    /// Puts (includes their local completion).
    pub const PUT: Self = Self(3);
    /// Gets.
    pub const GET: Self = Self(4);
    /// Everything.
    pub const ALL: Self = Self(7);

    /// Whether all of `other` are in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Operations {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
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

/// Completion of an operation that was started; holds what the operation borrowed and gives it back. Any thread that may
/// use the client may synchronise it. Dropping it is legal: the scope waits.
#[derive(Debug)]
#[must_use = "an event is synchronised with wait or test"]
pub struct Event<'scope, B = ()> {
    borrowed: B,
    scope: PhantomData<&'scope ()>,
}

impl<'scope, B> Event<'scope, B> {
    const fn complete(borrowed: B) -> Self {
        Self { borrowed, scope: PhantomData }
    }

    /// Waits (and polls) until the operation is complete; gives back what it borrowed.
    ///
    /// # Errors
    /// The end of the job.
    pub fn wait(self) -> Result<B, Error> {
        Ok(self.borrowed)
    }

    /// What the operation borrowed when it is complete. Does not poll.
    ///
    /// # Errors
    /// The event itself: not complete yet.
    pub fn test(self) -> Result<B, Self> {
        Ok(self.borrowed)
    }

    /// The leaf event of a step of this operation: [`Operations::LOCAL`] for a put started with
    /// [`LocalCompletion::Separate`], one of the sets for an access region. Waiting for the root covers its leaves.
    pub const fn leaf(&self, step: Operations) -> Event<'scope> {
        let _ = step;
        Event::complete(())
    }
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

/// Where non-blocking operations live; made by [`Client::scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope, M: Mode> {
    client: &'env Client<M>,
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
        let scope = Scope { client: self, scope: PhantomData, env: PhantomData };
        Ok(body(&scope))
    }
}

impl<'scope, 'env, M: Mode> Scope<'scope, 'env, M> {
    /// Starts a put of `source` to `offset` in `rank`'s segment. `None` only with [`Flags::IMMEDIATE`].
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
        let _ = (local, flags);
        self.client.put(rank, offset, source)?;
        Ok(Some(Event::complete(())))
    }

    /// Starts a get from `offset` in `rank`'s segment; the event gives the buffer back. `None` only with
    /// [`Flags::IMMEDIATE`].
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
        let _ = flags;
        self.client.get(rank, offset, into)?;
        Ok(Some(Event::complete(into)))
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
        let _ = flags;
        let bytes = value_bytes("put_value_nb", value, len)?;
        self.client.put(rank, offset, &bytes[..len])?;
        Ok(Some(Event::complete(())))
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
        let _ = (local, flags);
        self.client.put(rank, offset, source)?;
        Ok(Outcome::Sent)
    }

    /// Starts a get without an event of its own. The buffer is the caller's again when the scope ends.
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
        let _ = flags;
        self.client.get(rank, offset, into)?;
        Ok(Outcome::Sent)
    }

    /// Waits (and polls) until all operations without event that this thread started in the scope, and that are in `set`, are
    /// complete.
    ///
    /// # Errors
    /// The end of the job.
    pub fn nbi_wait(&self, set: Operations) -> Result<(), Error> {
        let _ = set;
        self.client.poll()
    }

    /// As [`Scope::nbi_wait`] without waiting or polling: whether they are complete.
    #[must_use]
    pub const fn nbi_test(&self, set: Operations) -> bool {
        let _ = set;
        true
    }

    /// Begins an access region: operations started through it complete together, with one event.
    pub const fn access_region(&'scope self) -> AccessRegion<'scope, 'env, M> {
        AccessRegion { scope: self }
    }
}

/// Operations that share one event; see [`Scope::access_region`].
#[derive(Debug)]
pub struct AccessRegion<'scope, 'env: 'scope, M: Mode> {
    scope: &'scope Scope<'scope, 'env, M>,
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
        self.scope.put_nbi(rank, offset, source, LocalCompletion::Defer, flags)
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
        self.scope.get_nbi(rank, offset, into, flags)
    }

    /// Ends the region: the event of all its operations.
    pub fn end(self) -> Event<'scope> {
        Event::complete(())
    }
}
