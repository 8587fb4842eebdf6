//! Non-blocking operations and their events.
//!
//! Operations borrow buffers of the caller until they complete. [`Client::scope`](crate::Client::scope) makes that sound
//! as `std::thread::scope` does: whatever happens to the events, the scope does not end before every operation has.

use std::marker::PhantomData;

use bootstrap::Rank;

use crate::error::Error;
use crate::message::Flags;
use crate::mode::Mode;

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

/// Completion of an operation that was started; holds what the operation borrowed and gives it back.
/// Dropping it waits.
#[must_use = "an event is synchronised with wait or test; dropping waits"]
pub struct Event<'scope, B = ()> {
    life: PhantomData<&'scope ()>,
    borrowed: Option<B>,
}

impl<'scope, B> Event<'scope, B> {
    /// Waits (and polls) until the operation is complete.
    ///
    /// # Errors
    /// The end of the job.
    pub fn wait(self) -> Result<B, Error> {
        let _ = self.life;
        todo!()
    }

    /// What the operation borrowed when it is complete, else the event back. Does not poll.
    ///
    /// # Errors
    /// The event itself: not complete yet.
    pub fn test(self) -> Result<B, Self> {
        let _ = &self.borrowed;
        todo!()
    }

    /// The leaf event of a step of this operation. Waiting for the root covers its leaves.
    pub fn leaf(&self, step: Operations) -> Event<'scope> {
        let _ = step;
        todo!()
    }
}

/// Where non-blocking operations live; made by [`Client::scope`](crate::Client::scope).
pub struct Scope<'scope, 'env: 'scope, M: Mode> {
    life: PhantomData<(&'scope mut &'scope (), &'env mut &'env (), M)>,
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
        let _ = (rank, offset, source, local, flags, self.life);
        todo!()
    }

    /// Starts a get from `offset` in `rank`'s segment; the event gives the buffer back.
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
        let _ = (rank, offset, into, flags);
        todo!()
    }
}
