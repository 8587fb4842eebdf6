//! The bytes that lists and grids name: copied row by row, between regions and packed buffers.
#![allow(unsafe_code, reason = "copies between memory that is named by address")]

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use super::grid::Row;
use super::list::Extent;
use crate::transport::net::OwnPart;

/// Memory that a transfer may read and write. Ranges in it are named by numbers from `first` on:
/// addresses of this process, or of the rank that owns the memory, or offsets in a segment.
///
/// Who makes one promises that the memory stays what it is for as long as copies of the region are
/// used. Nothing outside it is touched, whatever is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    first: usize,
    /// Address here of the byte of number `first`.
    at: usize,
    len: usize,
}

impl Region {
    /// `len` bytes at the address `at`, the first of which has the number `first`.
    ///
    /// # Safety
    /// Until the last use of a copy the bytes can be read, and written if they are the destination
    /// of a transfer; the provenance of `at` is exposed; nobody has a reference to bytes that are
    /// written.
    #[must_use]
    pub const unsafe fn new(first: usize, at: usize, len: usize) -> Self {
        Self { first, at, len }
    }

    /// Whatever a program names by its address: each range is its promise, as that of
    /// [`Region::new`].
    ///
    /// # Safety
    /// As [`Region::new`] for each range that is copied.
    #[must_use]
    pub const unsafe fn all() -> Self {
        Self { first: 0, at: 0, len: usize::MAX }
    }

    /// A source that is borrowed until the transfer is complete.
    pub(crate) fn source(bytes: &[u8]) -> Self {
        Self { first: 0, at: bytes.as_ptr().expose_provenance(), len: bytes.len() }
    }

    /// A destination that is borrowed until the transfer is complete.
    pub(crate) fn target(bytes: &mut [u8]) -> Self {
        Self { first: 0, at: bytes.as_mut_ptr().expose_provenance(), len: bytes.len() }
    }

    /// All of it.
    pub(crate) const fn extent(&self) -> Extent {
        Extent { at: self.first, len: self.len }
    }

    /// Whether a range is in it.
    #[must_use]
    #[inline]
    pub const fn holds(&self, range: Extent) -> bool {
        let offset = range.at.wrapping_sub(self.first);
        offset <= self.len && range.len <= self.len - offset
    }

    /// Address here of the first element of a row; `None` when the row is not all inside.
    #[inline]
    fn row(&self, first: usize, stride: isize, row: &Row) -> Option<usize> {
        let reach = match (row.count, stride) {
            (1, _) => 0,
            // A buffer of elements without gaps, and most rows of grids.
            (count, stride) => stride.unsigned_abs().checked_mul(count - 1)?,
        };
        let at = if stride < 0 { first.checked_sub(reach)? } else { first };
        let len = reach.checked_add(row.size)?;
        self.holds(Extent { at, len }).then(|| self.at.wrapping_add(first.wrapping_sub(self.first)))
    }

    /// Where a range is in this process; `None` when it is outside.
    pub(crate) fn part(&self, range: Extent) -> Option<OwnPart> {
        let address = self.at.wrapping_add(range.at.wrapping_sub(self.first));
        self.holds(range).then_some(OwnPart { address, len: range.len })
    }

    /// The bytes of a range; `None` when it is outside.
    pub(crate) fn bytes(&self, range: Extent) -> Option<&[u8]> {
        let at = self.at.wrapping_add(range.at.wrapping_sub(self.first));
        // SAFETY: inside the region, which is readable (`new`).
        self.holds(range).then(|| unsafe {
            std::slice::from_raw_parts(with_exposed_provenance::<u8>(at), range.len)
        })
    }

    /// The bytes of a range that is a destination; `None` when it is outside.
    #[expect(clippy::mut_from_ref, reason = "for the network, which writes them")]
    pub(crate) fn bytes_mut(&self, range: Extent) -> Option<&mut [u8]> {
        let at = self.at.wrapping_add(range.at.wrapping_sub(self.first));
        // SAFETY: inside the region, which is writable, and nobody else's (`new`).
        self.holds(range).then(|| unsafe {
            std::slice::from_raw_parts_mut(with_exposed_provenance_mut::<u8>(at), range.len)
        })
    }
}

/// Sets each byte of a range.
///
/// # Errors
/// A range that is not all inside.
pub(crate) fn fill(region: &Region, range: Extent, value: u8) -> Result<(), OutsideRegion> {
    let part = region.part(range).ok_or(OutsideRegion)?;
    // SAFETY: the range is inside its region, which is writable (`Region::new`).
    unsafe { with_exposed_provenance_mut::<u8>(part.address).write_bytes(value, part.len) };
    Ok(())
}

/// An attached segment of this neighbourhood, by offset.
pub(crate) fn segment(base: *mut u8, len: usize) -> Region {
    Region { first: 0, at: base.expose_provenance(), len }
}

/// A part of a transfer was outside of memory that was checked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideRegion;

/// Copies a row between this rank's memory and another's that is mapped here.
///
/// # Errors
/// A row that is not all inside.
#[inline]
pub fn copy(local: &Region, remote: &Region, row: &Row, put: bool) -> Result<(), OutsideRegion> {
    let here = local.row(row.local, row.local_stride, row).ok_or(OutsideRegion)?;
    let there = remote.row(row.remote, row.remote_stride, row).ok_or(OutsideRegion)?;
    let (here, there) = ((here, row.local_stride), (there, row.remote_stride));
    let (to, from) = if put { (there, here) } else { (here, there) };
    // SAFETY: both rows are inside their regions.
    unsafe { copy_row(to, from, row.size, row.count) };
    Ok(())
}

/// Copies the first bytes of `packed` to a row of elements; the rest of `packed`.
#[inline]
pub(crate) fn scatter<'p>(
    packed: &'p [u8],
    into: &Region,
    (first, stride): (usize, isize),
    row: &Row,
) -> Result<&'p [u8], OutsideRegion> {
    let (part, rest) =
        row.bytes().and_then(|len| packed.split_at_checked(len)).ok_or(OutsideRegion)?;
    let to = into.row(first, stride, row).ok_or(OutsideRegion)?;
    let from = part.as_ptr().expose_provenance();
    // SAFETY: the row is inside its region, `part` has so many bytes.
    unsafe { copy_row((to, stride), (from, row.size.cast_signed()), row.size, row.count) };
    Ok(rest)
}

/// Copies a row of elements to the first bytes of `packed`; the rest of `packed`.
#[inline]
pub(crate) fn gather<'p>(
    packed: &'p mut [u8],
    from: &Region,
    (first, stride): (usize, isize),
    row: &Row,
) -> Result<&'p mut [u8], OutsideRegion> {
    let (part, rest) =
        row.bytes().and_then(|len| packed.split_at_mut_checked(len)).ok_or(OutsideRegion)?;
    let from = from.row(first, stride, row).ok_or(OutsideRegion)?;
    let to = part.as_mut_ptr().expose_provenance();
    // SAFETY: as in `scatter`.
    unsafe { copy_row((to, row.size.cast_signed()), (from, stride), row.size, row.count) };
    Ok(rest)
}

/// Copies elements at one distance to places at one distance. The sizes that programs use most are
/// copies without a call.
///
/// # Safety
/// All elements can be read, all places written; they are addresses with exposed provenance.
#[inline]
unsafe fn copy_row(to: (usize, isize), from: (usize, isize), size: usize, count: usize) {
    let (to, from) = (
        (with_exposed_provenance_mut::<u8>(to.0), to.1),
        (with_exposed_provenance::<u8>(from.0), from.1),
    );
    if count == 1 {
        // SAFETY: one element, as promised.
        return unsafe { std::ptr::copy(from.0, to.0, size) };
    }
    let elements: Elements = match size {
        1 => fixed::<1>,
        2 => fixed::<2>,
        4 => fixed::<4>,
        8 => fixed::<8>,
        16 => fixed::<16>,
        24 => fixed::<24>,
        32 => fixed::<32>,
        64 => fixed::<64>,
        128 => fixed::<128>,
        _ => any,
    };
    // SAFETY: as promised; each of them copies `size` bytes `count` times.
    unsafe { elements(to, from, size, count) }
}

/// Copies elements of one size.
type Elements = unsafe fn((*mut u8, isize), (*const u8, isize), usize, usize);

/// # Safety
/// As [`copy_row`].
unsafe fn fixed<const SIZE: usize>(
    to: (*mut u8, isize),
    from: (*const u8, isize),
    _size: usize,
    count: usize,
) {
    let ((mut at, to), (mut source, from)) = (to, from);
    for _ in 0..count {
        // SAFETY: the next element.
        let element = unsafe { source.cast::<[u8; SIZE]>().read_unaligned() };
        // SAFETY: the next place.
        unsafe { at.cast::<[u8; SIZE]>().write_unaligned(element) };
        at = at.wrapping_offset(to);
        source = source.wrapping_offset(from);
    }
}

/// # Safety
/// As [`copy_row`].
unsafe fn any(to: (*mut u8, isize), from: (*const u8, isize), size: usize, count: usize) {
    let ((mut at, to), (mut source, from)) = (to, from);
    for _ in 0..count {
        // SAFETY: the next element and its place.
        unsafe { std::ptr::copy(source, at, size) };
        at = at.wrapping_offset(to);
        source = source.wrapping_offset(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(local: usize, local_stride: isize, size: usize, count: usize) -> Row {
        Row { local, remote: 0, local_stride, remote_stride: 0, size, count }
    }

    #[test]
    fn rows_come_out_as_they_went_in() {
        for size in [1_usize, 2, 3, 4, 8, 9, 16, 24, 32, 64, 128, 200] {
            for stride in [size.cast_signed(), -size.cast_signed() - 3, size.cast_signed() + 1] {
                let packed: Vec<u8> = (0..=255).cycle().take(5 * size + 2).collect();
                let mut memory = vec![0; 2048];
                let place = row(900, stride, size, 5);
                let region = Region::target(&mut memory);
                let rest = scatter(&packed, &region, (900, stride), &place).expect("inside");
                assert_eq!(rest.len(), 2);
                for at in 0..5_usize {
                    let from = 900_usize.wrapping_add_signed(stride * at.cast_signed());
                    assert_eq!(memory[from..from + size], packed[at * size..(at + 1) * size]);
                }
                assert_eq!(
                    memory.iter().filter(|byte| **byte != 0).count(),
                    packed[..5 * size].iter().filter(|byte| **byte != 0).count()
                );
                let mut back = vec![0; 5 * size];
                let region = Region::source(&memory);
                gather(&mut back, &region, (900, stride), &place).expect("inside");
                assert_eq!(back, packed[..5 * size]);
            }
        }
    }

    #[test]
    fn nothing_outside_is_touched() {
        let mut memory = [0; 64];
        let region = Region::target(&mut memory);
        let packed = [1; 64];
        for (first, stride, size, count) in [
            (57, 0, 8, 1),
            (0, -1, 1, 2),
            (0, 32, 8, 3),
            (usize::MAX, 8, 8, 2),
            (8, isize::MIN, 8, 2),
            (8, isize::MAX, 8, 3),
            (0, 1, 1, 65),
        ] {
            let bad = row(first, stride, size, count);
            assert_eq!(scatter(&packed, &region, (first, stride), &bad), Err(OutsideRegion));
        }
        assert_eq!(memory, [0; 64]);
        assert!(!Region::source(&memory).holds(Extent { at: 60, len: usize::MAX }));
        assert!(Region::source(&memory).bytes(Extent { at: 64, len: 0 }).is_some());
    }
}
