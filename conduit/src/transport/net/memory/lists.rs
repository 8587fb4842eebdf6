//! Buffers of a pool that belong to nobody: spares, one that waits to be posted, messages that wait to
//! be delivered.

use super::pool::{Buffer, Pool};
use crate::sys::atomic::Ordering;
use crate::sys::tally::{Sharing, Tally};
use crate::transport::net::credits::Permits;
use crate::transport::net::lockfree::IndexStack;

/// Buffers that wait to be used. Lock free, so that signal handlers may use it.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    stack: IndexStack,
    count: Permits,
}

impl FreeList {
    pub(crate) fn put(&self, pool: &Pool, buffer: Buffer) {
        let index = pool.lend(buffer);
        self.stack.push(index, |index| &pool.rows.at(index).next);
        self.count.give(1);
    }

    /// Takes one if more than `reserve` are left.
    pub(crate) fn take(&self, pool: &Pool, reserve: u32) -> Option<Buffer> {
        if !self.count.take(reserve) {
            return None;
        }
        let index = self.stack.pop(|index| &pool.rows.at(index).next)?;
        pool.reclaim(index)
    }

    pub(crate) fn len(&self) -> u32 {
        self.count.left()
    }
}

/// A buffer that waits to be posted, at most one, with the place where it goes.
#[derive(Debug, Default)]
pub(crate) struct WaitingBuffer(Tally);

impl WaitingBuffer {
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self(Tally::new(0, sharing))
    }

    /// Puts a buffer in; returns the one that waited before.
    #[inline(always)]
    pub(crate) fn put(
        &self,
        pool: &Pool,
        buffer: Buffer,
        place: [u32; 2],
    ) -> Option<(Buffer, [u32; 2])> {
        let row = pool.row(&buffer);
        for (word, value) in row.note.iter().zip(place) {
            word.store(value, Ordering::Relaxed);
        }
        // One more than the index; 0 is none.
        let before = self.0.replace(pool.lend(buffer) + 1);
        if before == 0 { None } else { Self::reclaim(pool, before) }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.peek() == 0
    }

    pub(crate) fn take(&self, pool: &Pool) -> Option<(Buffer, [u32; 2])> {
        Self::reclaim(pool, self.0.replace(0))
    }

    #[inline(never)]
    fn reclaim(pool: &Pool, word: u32) -> Option<(Buffer, [u32; 2])> {
        let index = word.checked_sub(1)?;
        let note = &pool.rows.get(index)?.note;
        let place = std::array::from_fn(|word| note[word].load(Ordering::Relaxed));
        Some((pool.reclaim(index)?, place))
    }
}

/// A received message that waits for a poll that may deliver it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecvInfo {
    pub(crate) imm: u32,
    pub(crate) len: u32,
    pub(crate) qpn: u32,
    /// The rail that it came on: devices number their queue pairs independently.
    pub(crate) rail: u32,
}

#[derive(Debug, Default)]
pub(crate) struct DeferredMessages {
    stack: IndexStack,
}

impl DeferredMessages {
    pub(crate) fn is_empty(&self) -> bool {
        self.stack.is_empty()
    }

    pub(crate) fn put(&self, pool: &Pool, buffer: Buffer, note: RecvInfo) {
        let row = pool.row(&buffer);
        for (word, value) in row.note.iter().zip([note.imm, note.len, note.qpn, note.rail]) {
            word.store(value, Ordering::Relaxed);
        }
        let index = pool.lend(buffer);
        self.stack.push(index, |index| &pool.rows.at(index).next);
    }

    /// All that wait, oldest first.
    pub(crate) fn take_all(&self, pool: &Pool) -> Vec<(Buffer, RecvInfo)> {
        let pop = || self.stack.pop(|index| &pool.rows.at(index).next);
        let mut all = Vec::new();
        while let Some(index) = pop() {
            let note = &pool.rows.at(index).note;
            let [imm, len, qpn, rail] =
                std::array::from_fn(|word| note[word].load(Ordering::Relaxed));
            let info = RecvInfo { imm, len, qpn, rail };
            all.extend(pool.reclaim(index).map(|buffer| (buffer, info)));
        }
        all.reverse();
        all
    }
}
