//! Small lock-free containers: a table that only grows, a stack of table indices, and a mailbox of
//! numbered callers.

use std::io;
use std::sync::OnceLock;

use crate::sys::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::transport::shm::Sparse;

const CHUNKS: usize = 26;

type Chunk<T> = OnceLock<Box<[OnceLock<T>]>>;

/// A table whose elements never move: chunk `k` holds `FIRST * 2^k` of them. `FIRST`: a power of two.
#[derive(Debug)]
pub(super) struct AppendTable<T, const FIRST: u32 = 64> {
    /// Chunk 0, where most tables have all.
    first: Box<[OnceLock<T>]>,
    /// All but chunk 0.
    chunks: [Chunk<T>; CHUNKS],
    len: AtomicU32,
}

#[inline]
fn place<const FIRST: u32>(index: u32) -> (usize, usize) {
    let shifted = index + FIRST;
    let chunk = shifted.ilog2() - FIRST.ilog2();
    (chunk as usize, (shifted - (FIRST << chunk)) as usize)
}

impl<T, const FIRST: u32> AppendTable<T, FIRST> {
    pub(super) fn new() -> Self {
        let first = (0..FIRST).map(|_| OnceLock::new()).collect();
        Self { first, chunks: std::array::from_fn(|_| OnceLock::new()), len: AtomicU32::new(0) }
    }

    /// Adds an element; returns its index.
    pub(super) fn push(&self, value: T) -> u32 {
        let index = self.len.fetch_add(1, Ordering::Relaxed);
        let row = match self.first.get(index as usize) {
            Some(row) => row,
            None => {
                let (chunk, at) = place::<FIRST>(index);
                let fresh = || (0..FIRST << chunk).map(|_| OnceLock::new()).collect();
                &self.chunks[chunk].get_or_init(fresh)[at]
            }
        };
        let _ = row.set(value);
        index
    }

    /// An element that was pushed; `None` for any other index.
    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        match self.first.get(index as usize) {
            Some(row) => row.get(),
            None => self.get_beyond(index),
        }
    }

    /// As [`AppendTable::get`], of one that is in no first chunk.
    #[inline(never)]
    fn get_beyond(&self, index: u32) -> Option<&T> {
        let (chunk, at) = place::<FIRST>(index.min(u32::MAX - FIRST));
        self.chunks.get(chunk)?.get()?.get(at)?.get()
    }

    /// As [`AppendTable::get`] for an index that [`AppendTable::push`] returned.
    #[inline]
    pub(super) fn at(&self, index: u32) -> &T {
        match self.get(index) {
            Some(value) => value,
            None => unreachable!("index {index} was never pushed"),
        }
    }

    /// All elements that are complete.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len.load(Ordering::Acquire)).filter_map(|index| self.get(index))
    }
}

/// A stack of indices whose links are elsewhere. The upper half of the word counts changes, so that
/// an index which was taken and put back meanwhile is not mistaken for one that stayed.
#[derive(Debug, Default)]
pub(super) struct IndexStack(AtomicU64);

#[expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]
const fn top(word: u64) -> u32 {
    word as u32
}

impl IndexStack {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn is_empty(&self) -> bool {
        top(self.0.load(Ordering::Acquire)) == 0
    }

    fn change(&self, old: u64, top: u32) -> Result<u64, u64> {
        let new = ((old >> 32) + 1) << 32 | u64::from(top);
        self.0.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Puts an index on top; `next` finds its link.
    #[inline]
    pub(super) fn push<'a>(&self, index: u32, next: impl Fn(u32) -> &'a AtomicU32) {
        let mut old = self.0.load(Ordering::Acquire);
        loop {
            next(index).store(top(old), Ordering::Release);
            match self.change(old, index + 1) {
                Ok(_) => return,
                Err(seen) => old = seen,
            }
        }
    }

    #[inline]
    pub(super) fn pop<'a>(&self, next: impl Fn(u32) -> &'a AtomicU32) -> Option<u32> {
        let mut old = self.0.load(Ordering::Acquire);
        loop {
            let index = top(old).checked_sub(1)?;
            match self.change(old, next(index).load(Ordering::Acquire)) {
                Ok(_) => return Some(index),
                Err(seen) => old = seen,
            }
        }
    }
}

/// Callers by number that wait to be served, each with reasons that stay set once given. One byte
/// and a link for each, in memory that exists where callers were put in.
#[derive(Debug)]
pub(super) struct Mailbox {
    reasons: Sparse<AtomicU8>,
    links: Sparse<AtomicU32>,
    stack: IndexStack,
}

/// In the stack; reasons are the other bits.
const QUEUED: u8 = 1 << 7;

impl Mailbox {
    pub(super) fn new(size: u32) -> io::Result<Self> {
        let (reasons, links) = (Sparse::new(size as usize)?, Sparse::new(size as usize)?);
        Ok(Self { reasons, links, stack: IndexStack::new() })
    }

    /// Puts a caller in for a reason, unless it was given before. Whether whoever serves must be
    /// woken.
    #[inline]
    pub(super) fn put(&self, index: u32, reason: u8) -> bool {
        let Some(reasons) = self.reasons.get(index as usize) else { return false };
        if reasons.load(Ordering::Relaxed) & reason != 0 {
            return false;
        }
        let before = reasons.fetch_or(reason | QUEUED, Ordering::AcqRel);
        let is_new = before & (reason | QUEUED) == 0;
        if is_new {
            self.stack.push(index, |index| &self.links[index as usize]);
        }
        is_new
    }

    /// Whether somebody is in. A hint.
    pub(super) fn is_waiting(&self) -> bool {
        !self.stack.is_empty()
    }

    /// The next caller with all its reasons.
    pub(super) fn take(&self) -> Option<(u32, u8)> {
        let index = self.stack.pop(|index| &self.links[index as usize])?;
        let reasons = self.reasons[index as usize].fetch_and(!QUEUED, Ordering::AcqRel);
        Some((index, reasons & !QUEUED))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_where_they_are() {
        stay::<64>();
        stay::<256>();
    }

    fn stay<const FIRST: u32>() {
        let table: AppendTable<u32, FIRST> = AppendTable::new();
        for value in 0..1000u32 {
            assert_eq!(table.push(value), value);
        }
        assert!((0..1000).all(|index| table.get(index) == Some(&index)));
        assert_eq!(table.get(1000), None);
        assert_eq!(table.get(u32::MAX), None);
        assert_eq!(table.iter().count(), 1000);
    }

    #[test]
    fn a_stack_gives_each_index_to_one() {
        let links: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        let held: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
        let next = |index: u32| &links[index as usize];
        let stack = IndexStack::new();
        for index in 0..64 {
            stack.push(index, next);
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(index) = stack.pop(next) {
                            let before = held[index as usize].fetch_add(1, Ordering::SeqCst);
                            assert_eq!(before, 0, "index {index} given twice");
                            held[index as usize].fetch_sub(1, Ordering::SeqCst);
                            stack.push(index, next);
                        }
                    }
                });
            }
        });
        let mut count = 0;
        while stack.pop(next).is_some() {
            count += 1;
        }
        assert_eq!(count, 64);
    }
}
