//! The segments of a host's ranks: one mapping that holds all of them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::layout::SegmentRow;
use super::map::SharedMemory;

pub(crate) struct Segments {
    memory: SharedMemory,
}

impl Segments {
    pub(crate) const fn new(memory: SharedMemory) -> Self {
        Self { memory }
    }

    /// Address of `len` bytes at `offset` of the segment in `row`; `None` when they are not all
    /// inside. Rows are written by other ranks: the mapping's own bounds are checked too.
    #[inline]
    pub(crate) fn range(&self, row: &SegmentRow, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len as u64)?;
        if end > row.len.load(Ordering::Acquire) {
            return None;
        }
        let at = row.offset.load(Ordering::Relaxed).checked_add(offset)?;
        self.memory.range(usize::try_from(at).ok()?, len)
    }

    /// Copies into a segment; `false` when the range is outside.
    #[inline]
    pub(crate) fn write(&self, row: &SegmentRow, offset: u64, from: &[u8]) -> bool {
        let Some(at) = self.range(row, offset, from.len()) else { return false };
        // SAFETY: the range is inside the mapping (`range`); `from` is ordinary memory of this
        // process, which cannot overlap the mapping because safe code gets no slice of it. Bytes
        // that race with another rank's access are the client's concern, as for any one-sided
        // access; no Rust reference to them exists.
        unsafe { at.as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        true
    }

    /// Copies out of a segment; `false` when the range is outside.
    #[inline]
    pub(crate) fn read(&self, row: &SegmentRow, offset: u64, into: &mut [u8]) -> bool {
        let Some(at) = self.range(row, offset, into.len()) else { return false };
        // SAFETY: as in `write`, the other way round.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(at.as_ptr(), into.len()) };
        true
    }

    /// An aligned word of a segment; `None` when outside or misaligned.
    pub(crate) fn word64(&self, row: &SegmentRow, offset: u64) -> Option<&AtomicU64> {
        let at = self.range(row, offset, 8)?.cast::<u64>();
        // SAFETY: in bounds (`range`) and aligned (checked here); lives as long as the mapping,
        // which `self` holds.
        at.is_aligned().then(|| unsafe { AtomicU64::from_ptr(at.as_ptr()) })
    }

    /// As [`Segments::word64`] for 4 bytes.
    pub(crate) fn word32(&self, row: &SegmentRow, offset: u64) -> Option<&AtomicU32> {
        let at = self.range(row, offset, 4)?.cast::<u32>();
        // SAFETY: as in `word64`.
        at.is_aligned().then(|| unsafe { AtomicU32::from_ptr(at.as_ptr()) })
    }
}
