//! Whose bytes wait for a reader of our output, and whose were dropped because nobody read them.

use std::collections::{BTreeMap, VecDeque};

use settings::deadlines::agent::UNREAD;

/// Ranks that are named; the others are counted.
const NAMED: usize = 8;

/// The owners of what waits, in its order. Without a rank it is our own.
#[derive(Debug, Default)]
pub(super) struct Owners(VecDeque<(Option<u32>, usize)>);

impl Owners {
    pub(super) fn add(&mut self, rank: Option<u32>, bytes: usize) {
        match self.0.back_mut() {
            Some((last, count)) if *last == rank => *count += bytes,
            _ if bytes > 0 => self.0.push_back((rank, bytes)),
            _ => {}
        }
    }

    /// The first `bytes` of what waits have been read.
    pub(super) fn take(&mut self, mut bytes: usize) {
        while let Some((_, count)) = self.0.front_mut().filter(|_| bytes > 0) {
            let here = bytes.min(*count);
            *count -= here;
            bytes -= here;
            if *count == 0 {
                self.0.pop_front();
            }
        }
    }

    /// Nothing waits any more, because it is dropped.
    pub(super) fn drop_all(&mut self, dropped: &mut Dropped) {
        for (rank, bytes) in self.0.drain(..) {
            dropped.add(rank, bytes);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Bytes that were dropped, by rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Dropped(BTreeMap<u32, u64>);

impl Dropped {
    pub(super) fn add(&mut self, rank: Option<u32>, bytes: usize) {
        // A line of our own is not missed like a result.
        if let Some(rank) = rank.filter(|_| bytes > 0) {
            *self.0.entry(rank).or_default() += bytes as u64;
        }
    }

    pub(super) fn and(mut self, other: &Self) -> Self {
        for (rank, bytes) in &other.0 {
            *self.0.entry(*rank).or_default() += bytes;
        }
        self
    }

    /// What is to be said of it, if there is anything.
    pub(super) fn text(&self) -> Option<String> {
        let total: u64 = self.0.values().sum();
        if total == 0 {
            return None;
        }
        let named = self.0.iter().take(NAMED);
        let mut parts: Vec<String> =
            named.map(|(rank, bytes)| format!("{bytes} of rank {rank}")).collect();
        let rest: u64 = self.0.values().skip(NAMED).sum();
        if rest > 0 {
            parts.push(format!("{rest} of {} further ranks", self.0.len() - NAMED));
        }
        Some(format!(
            "dropped {total} bytes of output that nobody read for {} s: {}",
            UNREAD.limit.as_secs(),
            parts.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is queued and read in whatever pieces: what is dropped is the rest of each.
        #[test]
        fn what_is_dropped_is_what_was_not_read(
            pieces in proptest::collection::vec((0u32..4, 0usize..50), 1..40), read in 0usize..2000,
        ) {
            let mut owners = Owners::default();
            let mut bytes = Vec::new();
            for (rank, count) in pieces {
                owners.add(Some(rank), count);
                bytes.extend(vec![rank; count]);
            }
            owners.take(read);
            let mut dropped = Dropped::default();
            owners.drop_all(&mut dropped);
            let left = &bytes[read.min(bytes.len())..];
            for rank in 0..4 {
                let expected = left.iter().filter(|owner| **owner == rank).count() as u64;
                prop_assert_eq!(dropped.0.get(&rank).copied().unwrap_or(0), expected);
            }
        }
    }

    #[test]
    fn many_ranks_are_counted() {
        let mut dropped = Dropped::default();
        assert_eq!(dropped.text(), None);
        for rank in 0..10 {
            dropped.add(Some(rank), 5);
        }
        dropped.add(None, 1000);
        let text = dropped.text().unwrap();
        assert!(text.starts_with("dropped 50 bytes of output that nobody read for "), "{text}");
        assert!(text.ends_with(" 5 of rank 7, 10 of 2 further ranks"), "{text}");
    }
}
