//! Blocking vector and strided transfers.

use bootstrap::Rank;

use super::Client;
use crate::error::Error;
use crate::mode::Mode;
use crate::vis::describe::{Checked, Strided, Vectors};
use crate::vis::memory::Region;
use crate::vis::send::VisOp;

impl<M: Mode> Client<M> {
    /// Copies elements of `source` to elements of `rank`'s segment; complete on return. The
    /// elements of the segment must not overlap.
    ///
    /// ```no_run
    /// # use gasnet_ibv::{Client, Error, Rank, Seq, Strided, Strides};
    /// # fn f(client: &Client<Seq>, matrix: &[u8]) -> Result<(), Error> {
    /// // A column of a 100 x 100 matrix of 8 byte numbers to 800 contiguous bytes.
    /// let column = Strides { first: 3 * 8, strides: &[800] };
    /// let row = Strides { first: 0, strides: &[8] };
    /// let what = Strided { element: 8, counts: &[100], local: column, remote: row };
    /// client.put_strided(Rank(1), matrix, &what)
    /// # }
    /// ```
    ///
    /// # Errors
    /// A rank outside the team, elements outside the buffer or the segment, a number of strides
    /// that is not that of the dimensions, an overlap that is seen, a call inside a handler, the
    /// end of the job.
    pub fn put_strided(&self, rank: Rank, source: &[u8], what: &Strided<'_>) -> Result<(), Error> {
        let call = "put_strided";
        self.transfer((call, true), rank, Region::source(source), &what.check(call, true)?)
    }

    /// Copies elements of `rank`'s segment to elements of `into`; complete on return. The elements
    /// of `into` must not overlap.
    ///
    /// # Errors
    /// As [`Client::put_strided`].
    pub fn get_strided(
        &self,
        rank: Rank,
        into: &mut [u8],
        what: &Strided<'_>,
    ) -> Result<(), Error> {
        let call = "get_strided";
        self.transfer((call, false), rank, Region::target(into), &what.check(call, false)?)
    }

    /// Copies ranges of `source` to ranges of `rank`'s segment; complete on return. The ranges of
    /// the segment must not overlap.
    ///
    /// # Errors
    /// As [`Client::put_strided`]; lists of different totals.
    pub fn put_vector(&self, rank: Rank, source: &[u8], what: &Vectors<'_>) -> Result<(), Error> {
        let call = "put_vector";
        self.transfer((call, true), rank, Region::source(source), &what.check(call)?)
    }

    /// Copies ranges of `rank`'s segment to ranges of `into`; complete on return. The ranges of
    /// `into` must not overlap.
    ///
    /// # Errors
    /// As [`Client::put_vector`].
    pub fn get_vector(&self, rank: Rank, into: &mut [u8], what: &Vectors<'_>) -> Result<(), Error> {
        let call = "get_vector";
        self.transfer((call, false), rank, Region::target(into), &what.check(call)?)
    }

    fn transfer(
        &self,
        (call, put): (&'static str, bool),
        rank: Rank,
        local: Region,
        what: &Checked<'_>,
    ) -> Result<(), Error> {
        let target = self.context.rma_target::<M>(call, rank)?;
        let Some(shape) = what.shape() else { return Ok(()) };
        let op = VisOp { call, target, immediate: false, shape, local, peer: None };
        match self.context.vis_here(&op, put)? {
            Some(()) => Ok(()),
            None => self.context.vis_blocking::<M>(&op, put),
        }
    }
}
