//! Where the segments of all ranks are: one table, which attach exchanged.

use bootstrap::{Rank, Shared};

use super::error::Error;
use super::memory::pool::SegmentMemory;

#[derive(Debug)]
pub(super) struct SegmentTable {
    pub(super) own: SegmentMemory,
    table: Shared,
    rails: usize,
}

/// A remote segment, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

impl SegmentTable {
    pub(super) const fn record_len(rails: usize) -> usize {
        16 + 4 * rails
    }

    pub(super) const fn new(own: SegmentMemory, table: Shared, rails: usize) -> Self {
        Self { own, table, rails }
    }

    fn record(&self, rank: Rank) -> &[u8] {
        let len = Self::record_len(self.rails);
        let at = rank.0 as usize * len;
        self.table.get(at..at + len).unwrap_or_default()
    }

    pub(super) fn remote(&self, rank: Rank) -> Remote {
        let word = |at: usize| {
            let bytes = self.record(rank).get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        Remote { base: word(0), len: word(8) }
    }

    /// Checks that the bytes `offset..offset + len` of a rank's segment exist; before attach none
    /// do.
    pub(super) fn check(
        segments: Option<&Self>,
        rank: Rank,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        let segment = segments.map_or(0, |segments| segments.remote(rank).len);
        let end = offset.saturating_add(len);
        if end > segment {
            return Err(Error::OutsideSegment { rank, offset, end, segment });
        }
        Ok(())
    }

    pub(super) fn key(&self, rank: Rank, rail: usize) -> u32 {
        let at = 16 + 4 * rail;
        let bytes = self.record(rank).get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    }
}
