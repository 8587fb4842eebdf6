//! Segments that programs make by themselves: what a rank tells others of them, and keeps of theirs.

use bootstrap::Rank;

use crate::rank::RankContext;
use crate::transport::net::AtomicCap;

/// Most endpoints of a process, the first one included.
pub const MAX_ENDPOINTS: usize = 33;

/// A segment bound to an endpoint, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundSegment {
    /// Index of the endpoint, below [`MAX_ENDPOINTS`].
    pub endpoint: u16,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

/// A segment with the bytes that the network needs to reach it.
type Entry<'k> = (BoundSegment, &'k [u8]);

const WORD: usize = size_of::<u64>();

/// Bytes of a row: the owner's process, then for each segment its endpoint + 1 (0: no more),
/// address, size and keys.
const fn row_len(keys: usize) -> usize {
    WORD + MAX_ENDPOINTS * (3 * WORD + keys)
}

/// A row with at most [`MAX_ENDPOINTS`] segments, each with `keys` bytes of keys.
fn encode(process: u32, keys: usize, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut row = u64::from(process).to_le_bytes().to_vec();
    for (segment, key) in entries {
        let BoundSegment { endpoint, address, size } = *segment;
        let words = [u64::from(endpoint) + 1, address, size].map(u64::to_le_bytes);
        row.extend(words.as_flattened());
        row.extend(key.iter().chain(std::iter::repeat(&0)).take(keys));
    }
    row.resize(row_len(keys), 0);
    row
}

/// Process and segments of a row; what cannot be is left out.
fn decode(row: &[u8], keys: usize) -> Option<(u32, Vec<Entry<'_>>)> {
    let (process, segments) = row.split_first_chunk()?;
    let process = u32::try_from(u64::from_le_bytes(*process)).ok()?;
    let entries = segments.chunks_exact(3 * WORD + keys).map_while(|entry| {
        let (words, keys) = entry.split_at(3 * WORD);
        let [first, second, third] = words.as_chunks().0 else { return None };
        let [endpoint, address, size] =
            [first, second, third].map(|word| u64::from_le_bytes(*word));
        let endpoint = u16::try_from(endpoint.checked_sub(1)?).ok()?;
        let fits = usize::from(endpoint) < MAX_ENDPOINTS && address.checked_add(size).is_some();
        fits.then_some((BoundSegment { endpoint, address, size }, keys))
    });
    Some((process, entries.collect()))
}

impl RankContext {
    fn keys_len(&self) -> usize {
        self.transport.net().map_or(0, |net| net.keys_len())
    }

    /// What this rank tells others of segments that are bound to its endpoints.
    #[must_use]
    pub fn publication(&self, segments: &[BoundSegment]) -> Vec<u8> {
        let keys_of = |segment: &BoundSegment| {
            self.transport.net().map(|net| net.keys(segment.endpoint)).unwrap_or_default()
        };
        let keys: Vec<_> = segments.iter().map(keys_of).collect();
        let entries: Vec<_> =
            segments.iter().copied().zip(keys.iter().map(Vec::as_slice)).collect();
        encode(std::process::id(), self.keys_len(), &entries)
    }

    /// Keeps a row of a rank's [`RankContext::publication`], so that the network reaches its
    /// segments: its process and segments. `None`: not such a row.
    pub fn learn_publication(&self, rank: Rank, row: &[u8]) -> Option<(u32, Vec<BoundSegment>)> {
        let (process, entries) = decode(row, self.keys_len())?;
        // Atomics that only adapters do go through them at neighbours, too.
        let net = self.transport.net();
        let net =
            net.filter(|net| self.local_of(rank).is_none() || net.atomics() == AtomicCap::Device);
        for (segment, keys) in &entries {
            if let Some(net) = net {
                let BoundSegment { endpoint, address, size } = *segment;
                net.learn(rank, endpoint, (address, size), keys);
            }
        }
        Some((process, entries.into_iter().map(|(segment, _)| segment).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn segments() -> impl Strategy<Value = Vec<BoundSegment>> {
        let one = (0..33_u16, 0..1_u64 << 47, 1..1_u64 << 47)
            .prop_map(|(endpoint, address, size)| BoundSegment { endpoint, address, size });
        vec(one, 0..=MAX_ENDPOINTS)
    }

    proptest! {
        #[test]
        fn a_row_says_what_was_put_into_it(
            process: u32,
            segments in segments(),
            key in vec(any::<u8>(), 0..20),
        ) {
            let entries: Vec<Entry<'_>> =
                segments.iter().map(|segment| (*segment, key.as_slice())).collect();
            let row = encode(process, key.len(), &entries);
            prop_assert_eq!(row.len(), row_len(key.len()));
            prop_assert_eq!(decode(&row, key.len()), Some((process, entries)));
        }

        #[test]
        fn any_bytes_are_a_row_of_possible_segments_or_none(row in vec(any::<u8>(), 0..2000)) {
            if let Some((_, entries)) = decode(&row, 8) {
                for (segment, keys) in entries {
                    prop_assert!(usize::from(segment.endpoint) < MAX_ENDPOINTS);
                    prop_assert!(segment.address.checked_add(segment.size).is_some());
                    prop_assert_eq!(keys.len(), 8);
                }
            }
        }
    }
}
