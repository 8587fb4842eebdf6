//! Descriptions of transfers as programs of the Rust interface give them, checked, and what is wrong
//! with one, in words.

use std::sync::Arc;

use super::grid::{Dim, Grid};
use super::list::{Entries, Extent, List};
use crate::error::Error;

/// Which bytes a transfer moves. The remote side is in offsets of the target's attached segment, or
/// words of a [`Place`](crate::inner::Place), the local one in numbers of its region; both sides have the same number of bytes.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// Strided.
    Grid(&'a Arc<Grid>),
    /// Vector and indexed.
    Lists {
        /// On this rank.
        local: List<'a>,
        /// On the other.
        remote: List<'a>,
    },
}

/// One side of a strided transfer.
#[derive(Clone, Copy, Debug)]
pub struct Strides<'a> {
    /// Offset of the first byte of the first element: in the buffer, or in the segment.
    pub first: usize,
    /// Bytes from one element to the next, one number for each dimension; negative ones run
    /// backwards from `first`. In a source they may be 0, and elements may overlap.
    pub strides: &'a [isize],
}

/// A box of elements, with as many dimensions as `counts` has entries (none: one element).
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// Contiguous bytes of an element; 0: nothing is moved.
    pub element: usize,
    /// Elements in each dimension; a 0 among them: nothing is moved.
    pub counts: &'a [usize],
    /// Where they are in the buffer.
    pub local: Strides<'a>,
    /// Where they are in the segment of the other rank.
    pub remote: Strides<'a>,
}

/// Two lists of ranges with the same number of bytes, which are moved in their order. The ranges of
/// the two sides need not match.
#[derive(Clone, Copy, Debug)]
pub struct Vectors<'a> {
    /// In the buffer.
    pub local: &'a [Extent],
    /// In the segment of the other rank.
    pub remote: &'a [Extent],
}

/// A description that was checked.
pub(crate) enum Checked<'a> {
    Nothing,
    Grid(Arc<Grid>),
    Lists { local: List<'a>, remote: List<'a> },
}

impl Strided<'_> {
    pub(crate) fn check(&self, call: &'static str, put: bool) -> Result<Checked<'static>, Error> {
        let Self { element, counts, local, remote } = *self;
        let (here, there) = (local.strides, remote.strides);
        if here.len() != counts.len() || there.len() != counts.len() {
            let (local, remote, counts) = (here.len(), there.len(), counts.len());
            let problem =
                format!("{local} local and {remote} remote strides for {counts} dimensions");
            return Err(bad(call, problem));
        }
        let dims = counts.iter().zip(here).zip(there);
        let dims = dims.map(|((&count, &local), &remote)| Dim { count, local, remote });
        let grid = Grid::new((local.first, remote.first), element, dims, put);
        let grid = grid.map_err(|problem| bad(call, problem.to_string()))?;
        Ok(grid.map_or(Checked::Nothing, |grid| Checked::Grid(Arc::new(grid))))
    }
}

impl<'a> Vectors<'a> {
    pub(crate) fn check(&self, call: &'static str) -> Result<Checked<'a>, Error> {
        let list = |all| List { entries: Entries::Vector(all), base: 0 };
        let (local, remote) = (list(self.local), list(self.remote));
        match (local.total(), remote.total()) {
            (Some(0), Some(0)) => Ok(Checked::Nothing),
            (Some(here), Some(there)) if here == there => Ok(Checked::Lists { local, remote }),
            (here, there) => Err(bad(call, unequal(here, there))),
        }
    }
}

/// In words: lists of different totals.
pub fn unequal(local: Option<usize>, remote: Option<usize>) -> String {
    let [local, remote] = [local, remote]
        .map(|bytes| bytes.map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string()));
    format!("the local side has {local} bytes and the remote side {remote}: both must be the same")
}

impl Checked<'_> {
    pub(crate) const fn shape(&self) -> Option<Shape<'_>> {
        match self {
            Self::Nothing => None,
            Self::Grid(grid) => Some(Shape::Grid(grid)),
            Self::Lists { local, remote } => Some(Shape::Lists { local: *local, remote: *remote }),
        }
    }
}

#[cold]
pub(crate) fn bad(call: &'static str, problem: impl Into<String>) -> Error {
    Error::BadTransfer { call, problem: problem.into() }
}

#[cold]
pub(crate) fn outside_local(call: &'static str, range: Extent) -> Error {
    let Extent { at, len } = range;
    bad(call, format!("bytes {at}..{} are outside the local buffer", at.saturating_add(len)))
}
