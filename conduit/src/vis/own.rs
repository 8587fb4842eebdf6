//! Memory of this rank that packets of other ranks name: a segment, or all of it.

use super::grid::Row;
use super::list::Extent;
use super::memory::{self, OutsideRegion, Region, gather, scatter};
use super::wire::Described;
use crate::rank::RankContext;
use crate::sys::own_memory::{self, Range, Unmapped};
use crate::transport::place::Place;

/// What other ranks may name.
pub(crate) enum OwnMemory {
    /// A segment, by offset: it is mapped.
    Segment(Region),
    /// All memory, by address: the system says what is mapped.
    Everything,
}

/// Why bytes were not moved.
#[derive(Debug)]
pub(crate) enum Lack {
    /// Whoever asked did not check what it asked for.
    Outside,
    /// Nothing is mapped there, or nothing that may be written.
    Unmapped(Unmapped),
}

impl From<OutsideRegion> for Lack {
    fn from(_: OutsideRegion) -> Self {
        Self::Outside
    }
}

impl From<Unmapped> for Lack {
    fn from(unmapped: Unmapped) -> Self {
        Self::Unmapped(unmapped)
    }
}

impl RankContext {
    /// The memory of an endpoint of this rank, with its bytes, for another that reaches it by
    /// messages.
    pub(crate) fn own_memory(&self, endpoint: u16) -> Option<(OwnMemory, usize)> {
        if endpoint == 0 && self.settings.segment_mode.is_everything() {
            let most = usize::try_from(Place::MAX_LEN).unwrap_or(usize::MAX);
            return Some((OwnMemory::Everything, most));
        }
        let own = self.transport.net()?.own_segment(endpoint)?;
        Some((OwnMemory::Segment(memory::segment(own.base.as_ptr(), own.len)), own.len))
    }
}

impl OwnMemory {
    /// Copies packed bytes to where a description says.
    pub(crate) fn scatter(&self, described: &Described, data: &[u8]) -> Result<(), Lack> {
        match self {
            Self::Segment(segment) => each_row(described, data.len(), data, |rest, row| {
                scatter(rest, segment, (row.remote, row.remote_stride), row)
            })
            .map(|_rest| ())
            .map_err(Lack::from),
            Self::Everything => Ok(own_memory::store(data, ranges(described, data.len()))?),
        }
    }

    /// Fills `bytes` with what a description names.
    pub(crate) fn gather(&self, described: &Described, bytes: &mut [u8]) -> Result<(), Lack> {
        let len = bytes.len();
        match self {
            Self::Segment(segment) => each_row(described, len, bytes, |rest, row| {
                gather(rest, segment, (row.remote, row.remote_stride), row)
            })
            .map(|_rest| ())
            .map_err(Lack::from),
            Self::Everything => Ok(own_memory::load(bytes, ranges(described, len))?),
        }
    }

    /// Sets each byte of a range.
    pub(crate) fn fill(&self, range: Extent, value: u8) -> Result<(), Lack> {
        match self {
            Self::Segment(segment) => Ok(memory::fill(segment, range, value)?),
            Self::Everything => {
                Ok(own_memory::fill(Range { at: range.at, len: range.len }, value)?)
            }
        }
    }

    /// Copies the payload of a Long to its destination.
    pub(crate) fn write(&self, at: usize, data: &[u8]) -> Result<(), Lack> {
        let run = Extent { at, len: data.len() };
        self.scatter(&Described::List(vec![run]), data)
    }
}

/// Rows that a description names, in order.
fn each_row<T>(
    described: &Described,
    len: usize,
    start: T,
    mut step: impl FnMut(T, &Row) -> Result<T, OutsideRegion>,
) -> Result<T, OutsideRegion> {
    match described {
        Described::List(runs) => runs
            .iter()
            .map(|run| Row::contiguous(0, run.at, run.len))
            .try_fold(start, |state, row| step(state, &row)),
        Described::Grid(grid, from) => {
            grid.rows(*from, len).try_fold(start, |state, row| step(state, &row))
        }
    }
}

/// The ranges of the same rows.
fn ranges(described: &Described, len: usize) -> Box<dyn Iterator<Item = Range> + '_> {
    match described {
        Described::List(runs) => {
            Box::new(runs.iter().map(|run| Range { at: run.at, len: run.len }))
        }
        Described::Grid(grid, from) => {
            let pieces = grid.rows(*from, len).flat_map(|row| row.pieces());
            Box::new(pieces.map(|piece| Range { at: piece.remote, len: piece.len }))
        }
    }
}
