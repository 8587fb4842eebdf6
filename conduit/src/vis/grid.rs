//! Boxes of elements at regular distances on both sides: the description of strided transfers.
//! Pure: addresses are numbers.
//!
//! A [`Grid`] is brought into one form when it is made. Dimensions of one element vanish, those that
//! run backwards in the destination are turned round, the destination's smallest stride comes first,
//! and what is contiguous on both sides is one element. No order is promised between the elements
//! of a transfer, so each of these is legal. The bytes of a grid have an order nevertheless, that of
//! its dimensions, so that a part of them can be named by two numbers.

use super::list::{Extent, Piece};

/// One dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    /// Elements.
    pub count: usize,
    /// Bytes from one to the next on this rank.
    pub local: isize,
    /// Bytes from one to the next on the other.
    pub remote: isize,
}

/// What a strided transfer moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// First byte of the first element on this rank.
    pub local: usize,
    /// First byte of the first element on the other.
    pub remote: usize,
    /// Contiguous bytes of an element, at least 1.
    pub element: usize,
    /// Fastest first; each has at least two elements.
    pub dims: Vec<Dim>,
}

/// Why a description is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadGrid {
    /// More bytes than a number of the machine can say.
    Huge,
    /// Elements reach beyond the addresses of the machine.
    Outside,
    /// Elements of the destination overlap: this many elements are this many bytes apart.
    Overlap {
        /// Elements.
        count: usize,
        /// Bytes between them.
        stride: isize,
        /// Bytes of one.
        element: usize,
    },
}

impl std::fmt::Display for BadGrid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Huge => write!(f, "elements and counts make more than 2^64 bytes"),
            Self::Outside => write!(f, "elements reach beyond the address space"),
            Self::Overlap { count, stride, element } => write!(
                f,
                "{count} elements of {element} bytes overlap in the destination: they are {stride} bytes apart"
            ),
        }
    }
}

impl Grid {
    /// A grid in its one form; `None` when it has no bytes. `put`: the remote side is the
    /// destination. Only an overlap inside one dimension is found.
    ///
    /// # Errors
    /// `BadGrid`.
    pub fn new(
        (local, remote): (usize, usize),
        element: usize,
        dims: impl IntoIterator<Item = Dim>,
        put: bool,
    ) -> Result<Option<Self>, BadGrid> {
        let mut grid = Self { local, remote, element, dims: Vec::new() };
        let (mut total, mut empty) = (Some(element), element == 0);
        for dim in dims {
            empty |= dim.count == 0;
            total = total.and_then(|total| total.checked_mul(dim.count));
            if dim.count > 1 {
                grid.dims.push(dim);
            }
        }
        if empty {
            return Ok(None);
        }
        total.ok_or(BadGrid::Huge)?;
        for dim in &grid.dims {
            let (count, stride) = (dim.count, dim.dest(put));
            if stride.unsigned_abs() < element {
                return Err(BadGrid::Overlap { count, stride, element });
            }
        }
        grid.extent(false).zip(grid.extent(true)).ok_or(BadGrid::Outside)?;
        grid.normalise(put);
        Ok(Some(grid))
    }

    fn normalise(&mut self, put: bool) {
        for dim in self.dims.iter_mut().filter(|dim| dim.dest(put) < 0) {
            let last = (dim.count - 1).cast_signed();
            let step = |stride: isize| stride.wrapping_mul(last).cast_unsigned();
            self.local = self.local.wrapping_add(step(dim.local));
            self.remote = self.remote.wrapping_add(step(dim.remote));
            dim.local = dim.local.wrapping_neg();
            dim.remote = dim.remote.wrapping_neg();
        }
        self.dims.sort_by_key(|dim| (dim.dest(put), dim.source(put).unsigned_abs()));
        let mut kept: Vec<Dim> = Vec::with_capacity(self.dims.len());
        for dim in self.dims.drain(..) {
            match kept.last_mut() {
                None if dim.is(self.element) => self.element *= dim.count,
                Some(inner) if dim.continues(inner) => inner.count *= dim.count,
                _ => kept.push(dim),
            }
        }
        self.dims = kept;
    }

    /// All bytes.
    #[must_use]
    pub fn total(&self) -> usize {
        self.dims.iter().fold(self.element, |total, dim| total.wrapping_mul(dim.count))
    }

    /// Elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.total() / self.element.max(1)
    }

    /// The smallest range that holds one side; `None` when that is no range of addresses.
    #[must_use]
    pub fn extent(&self, remote: bool) -> Option<Extent> {
        let mut low = i128::try_from(if remote { self.remote } else { self.local }).ok()?;
        let mut end = low.checked_add(i128::try_from(self.element).ok()?)?;
        for dim in &self.dims {
            let stride = if remote { dim.remote } else { dim.local };
            let steps = i128::try_from(dim.count).ok()?.checked_sub(1)?;
            let reach = i128::try_from(stride).ok()?.checked_mul(steps)?;
            let side = if reach < 0 { &mut low } else { &mut end };
            *side = side.checked_add(reach)?;
        }
        let at = usize::try_from(low).ok()?;
        Some(Extent {
            at,
            len: usize::try_from(end - low).ok().filter(|len| at.checked_add(*len).is_some())?,
        })
    }

    /// The rows of `len` bytes from byte `from` on, as far as there are so many.
    #[must_use]
    pub fn rows(&self, from: usize, len: usize) -> Rows<'_> {
        let element = self.element.max(1);
        let (mut index, skip) = (from / element, from % element);
        let mut rows = Rows {
            grid: self,
            at: Vec::with_capacity(self.dims.len()),
            local: self.local,
            remote: self.remote,
            skip,
            left: len.min(self.total().saturating_sub(from)),
        };
        for dim in &self.dims {
            rows.at.push(index % dim.count);
            rows.step(dim, index % dim.count);
            index /= dim.count;
        }
        rows
    }
}

impl Dim {
    /// Stride of the destination.
    const fn dest(&self, put: bool) -> isize {
        if put { self.remote } else { self.local }
    }

    const fn source(&self, put: bool) -> isize {
        if put { self.local } else { self.remote }
    }

    /// Whether both sides have this stride.
    fn is(&self, stride: usize) -> bool {
        [self.local, self.remote].iter().all(|own| usize::try_from(*own) == Ok(stride))
    }

    /// Whether its elements begin where the rows of `inner` end.
    fn continues(&self, inner: &Self) -> bool {
        let end = |stride: isize| stride.checked_mul(inner.count.cast_signed());
        end(inner.local) == Some(self.local) && end(inner.remote) == Some(self.remote)
    }
}

/// Parts of elements at one distance on each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// First byte of the first on this rank.
    pub local: usize,
    /// First byte of the first on the other.
    pub remote: usize,
    /// Bytes from one to the next on this rank.
    pub local_stride: isize,
    /// Bytes from one to the next on the other.
    pub remote_stride: isize,
    /// Contiguous bytes of each.
    pub size: usize,
    /// How many, at least 1.
    pub count: usize,
}

impl Row {
    /// Bytes without what lies between; `None`: more than a number of the machine can say.
    #[must_use]
    pub const fn bytes(&self) -> Option<usize> {
        self.size.checked_mul(self.count)
    }

    /// Its elements, each contiguous.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> + use<> {
        let row = *self;
        (0..row.count).map(move |at| {
            let step = |stride: isize| stride.cast_unsigned().wrapping_mul(at);
            Piece {
                local: row.local.wrapping_add(step(row.local_stride)),
                remote: row.remote.wrapping_add(step(row.remote_stride)),
                len: row.size,
            }
        })
    }

    /// Contiguous bytes.
    #[must_use]
    pub const fn contiguous(local: usize, remote: usize, len: usize) -> Self {
        Self { local, remote, local_stride: 0, remote_stride: 0, size: len, count: 1 }
    }
}

/// Iterator of [`Grid::rows`].
#[derive(Clone, Debug)]
pub struct Rows<'a> {
    grid: &'a Grid,
    /// Index in each dimension.
    at: Vec<usize>,
    local: usize,
    remote: usize,
    /// Bytes of the element under way that were taken.
    skip: usize,
    left: usize,
}

impl Rows<'_> {
    /// Moves by elements of a dimension.
    fn step(&mut self, dim: &Dim, count: usize) {
        let bytes = |stride: isize| stride.cast_unsigned().wrapping_mul(count);
        self.local = self.local.wrapping_add(bytes(dim.local));
        self.remote = self.remote.wrapping_add(bytes(dim.remote));
    }

    /// Moves by elements of the row under way.
    fn advance(&mut self, count: usize) {
        let (grid, mut count) = (self.grid, count);
        for (number, dim) in grid.dims.iter().enumerate() {
            self.step(dim, count);
            let Some(at) = self.at.get_mut(number) else { return };
            *at += count;
            if *at < dim.count {
                return;
            }
            *at = 0;
            self.step(dim, dim.count.wrapping_neg());
            count = 1;
        }
    }
}

impl Iterator for Rows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.left == 0 {
            return None;
        }
        let element = self.grid.element;
        let inner = self.grid.dims.first();
        let mut row = Row {
            local: self.local.wrapping_add(self.skip),
            remote: self.remote.wrapping_add(self.skip),
            local_stride: inner.map_or(0, |dim| dim.local),
            remote_stride: inner.map_or(0, |dim| dim.remote),
            size: element,
            count: 1,
        };
        if self.skip > 0 || self.left < element {
            row.size = (element - self.skip).min(self.left);
            self.skip += row.size;
            if self.skip == element {
                self.skip = 0;
                self.advance(1);
            }
        } else {
            let rest = inner.map_or(1, |dim| dim.count - self.at.first().map_or(0, |at| *at));
            row.count = rest.min(self.left / element);
            self.advance(row.count);
        }
        self.left -= row.size * row.count;
        Some(row)
    }
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;
