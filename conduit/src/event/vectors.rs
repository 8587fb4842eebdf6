//! Non-blocking transfers of the Rust interface.

use bootstrap::Rank;

use super::{Event, Group, Scope, Started};
use crate::error::Error;
use crate::mode::Mode;
use crate::transport::message::{Flags, Outcome};
use crate::vis::describe::{Checked, Strided, Vectors};
use crate::vis::memory::Region;
use crate::vis::send::VisOp;

/// A transfer as it is called: its name, whether it is a put, the rank, options.
type Call = (&'static str, bool, Rank, Flags);

impl<'scope, M: Mode> Scope<'scope, '_, M> {
    fn start_vis(
        &self,
        (call, put, rank, flags): Call,
        local: Region,
        what: &Checked<'_>,
        group: Option<&Group>,
    ) -> Result<Started, Error> {
        let context = &self.client.context;
        let target = context.rma_target::<M>(call, rank)?;
        let Some(shape) = what.shape() else { return Ok(Started::Complete) };
        let immediate = flags.contains(Flags::IMMEDIATE);
        let op = VisOp { call, target, immediate, shape, local, peer: None };
        if context.vis_here(&op, put)?.is_some() {
            return Ok(Started::Complete);
        }
        self.counted(call, group, |row| context.start_vis::<M>(&op, put, row))
    }

    /// As [`Client::put_strided`](crate::Client::put_strided), not complete before its event.
    /// `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Client::put_strided`](crate::Client::put_strided).
    pub fn put_strided_nb(
        &'scope self,
        rank: Rank,
        source: &'scope [u8],
        what: &Strided<'_>,
        flags: Flags,
    ) -> Result<Option<Event<'scope>>, Error> {
        let call = "put_strided_nb";
        let (what, local) = (what.check(call, true)?, Region::source(source));
        Ok(self.event(self.start_vis((call, true, rank, flags), local, &what, None)?, ()))
    }

    /// As [`Client::get_strided`](crate::Client::get_strided); the event gives the buffer back.
    /// `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Client::get_strided`](crate::Client::get_strided).
    pub fn get_strided_nb(
        &'scope self,
        rank: Rank,
        into: &'scope mut [u8],
        what: &Strided<'_>,
        flags: Flags,
    ) -> Result<Option<Event<'scope, &'scope mut [u8]>>, Error> {
        let call = "get_strided_nb";
        let (what, local) = (what.check(call, false)?, Region::target(into));
        let started = self.start_vis((call, false, rank, flags), local, &what, None)?;
        Ok(self.event(started, into))
    }

    /// As [`Client::put_vector`](crate::Client::put_vector), not complete before its event. `None`
    /// only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Client::put_vector`](crate::Client::put_vector).
    pub fn put_vector_nb(
        &'scope self,
        rank: Rank,
        source: &'scope [u8],
        what: &Vectors<'_>,
        flags: Flags,
    ) -> Result<Option<Event<'scope>>, Error> {
        let call = "put_vector_nb";
        let (what, local) = (what.check(call)?, Region::source(source));
        Ok(self.event(self.start_vis((call, true, rank, flags), local, &what, None)?, ()))
    }

    /// As [`Client::get_vector`](crate::Client::get_vector); the event gives the buffer back.
    /// `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// As [`Client::get_vector`](crate::Client::get_vector).
    pub fn get_vector_nb(
        &'scope self,
        rank: Rank,
        into: &'scope mut [u8],
        what: &Vectors<'_>,
        flags: Flags,
    ) -> Result<Option<Event<'scope, &'scope mut [u8]>>, Error> {
        let call = "get_vector_nb";
        let (what, local) = (what.check(call)?, Region::target(into));
        let started = self.start_vis((call, false, rank, flags), local, &what, None)?;
        Ok(self.event(started, into))
    }

    /// As [`Scope::put_strided_nb`] without an event of its own; see [`Scope::nbi_wait`].
    ///
    /// # Errors
    /// As [`Client::put_strided`](crate::Client::put_strided).
    pub fn put_strided_nbi(
        &'scope self,
        rank: Rank,
        source: &'scope [u8],
        what: &Strided<'_>,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = "put_strided_nbi";
        let (what, local) = (what.check(call, true)?, Region::source(source));
        let group = Some(&self.implicit);
        Ok(self.start_vis((call, true, rank, flags), local, &what, group)?.outcome())
    }

    /// As [`Scope::get_strided_nb`] without an event of its own. The buffer is the caller's again
    /// when the scope ends.
    ///
    /// # Errors
    /// As [`Client::get_strided`](crate::Client::get_strided).
    pub fn get_strided_nbi(
        &'scope self,
        rank: Rank,
        into: &'scope mut [u8],
        what: &Strided<'_>,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = "get_strided_nbi";
        let (what, local) = (what.check(call, false)?, Region::target(into));
        let group = Some(&self.implicit);
        Ok(self.start_vis((call, false, rank, flags), local, &what, group)?.outcome())
    }

    /// As [`Scope::put_vector_nb`] without an event of its own.
    ///
    /// # Errors
    /// As [`Client::put_vector`](crate::Client::put_vector).
    pub fn put_vector_nbi(
        &'scope self,
        rank: Rank,
        source: &'scope [u8],
        what: &Vectors<'_>,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = "put_vector_nbi";
        let (what, local) = (what.check(call)?, Region::source(source));
        let group = Some(&self.implicit);
        Ok(self.start_vis((call, true, rank, flags), local, &what, group)?.outcome())
    }

    /// As [`Scope::get_vector_nb`] without an event of its own. The buffer is the caller's again
    /// when the scope ends.
    ///
    /// # Errors
    /// As [`Client::get_vector`](crate::Client::get_vector).
    pub fn get_vector_nbi(
        &'scope self,
        rank: Rank,
        into: &'scope mut [u8],
        what: &Vectors<'_>,
        flags: Flags,
    ) -> Result<Outcome, Error> {
        let call = "get_vector_nbi";
        let (what, local) = (what.check(call)?, Region::target(into));
        let group = Some(&self.implicit);
        Ok(self.start_vis((call, false, rank, flags), local, &what, group)?.outcome())
    }
}
