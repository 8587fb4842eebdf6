//! This rank's ways to the others of its neighbourhood.

use std::io;

use super::map::SharedMemory;
use super::spsc_ring::Producer;

/// A producer for each neighbour and kind of traffic, in memory that exists where this rank has sent
/// something: what most ranks hold does not grow with the neighbourhood.
#[repr(C)]
pub(super) struct Producers {
    memory: SharedMemory,
    count: usize,
}

/// Of one neighbour: for requests and for replies. Side by side, as who is asked is often answered.
type Pair = [Producer; 2];

impl Producers {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        let bytes = count.checked_mul(size_of::<Pair>());
        let bytes = bytes.ok_or_else(|| io::Error::other("more ranks than memory"))?;
        Ok(Self { memory: SharedMemory::private(bytes)?, count })
    }

    /// The one to a neighbour; `net` is 0 for requests, 1 for replies.
    #[inline(always)]
    pub(super) fn get(&self, target: usize, net: usize) -> Option<&Producer> {
        if target >= self.count {
            return None;
        }
        // SAFETY: so many pairs are in the mapping (`new`).
        let pair = unsafe { self.memory.base().cast::<Pair>().add(target) };
        // SAFETY: the mapping is on a page and lives as long as `self`; its zero bytes are a value,
        // and change through atomics alone (`SharedLayout`).
        Some(&unsafe { pair.as_ref() }[net])
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn neighbours_that_nothing_was_sent_to_take_no_memory() {
        let (ranks, sent_to) = (1 << 16, [0, 1, 40_000, 65_535]);
        let producers = Producers::new(ranks).expect("memory");
        assert!(producers.get(ranks, 0).is_none());
        for (target, net) in sent_to.iter().flat_map(|rank| [(*rank, 0), (*rank, 1)]) {
            let producer = producers.get(target, net).expect("a neighbour");
            assert_eq!(producer.approach(1, || None), None);
        }
        // Looked at, as before every message; not written to.
        assert!(
            (0..ranks).all(|rank| producers.get(rank, 0).is_some_and(|to| to.lane().is_none()))
        );
        let table = producers.memory.range(0, ranks * size_of::<Pair>()).expect("its bytes");
        assert_eq!(written_pages(table.addr().get(), ranks * size_of::<Pair>()), 3);
    }

    /// Pages of a range that are this process's alone, as `/proc/self/pagemap` has them. The page of
    /// zeros, which is where nothing was written, is everybody's.
    fn written_pages(at: usize, len: usize) -> usize {
        const THERE_AND_EXCLUSIVE: u64 = 1 << 63 | 1 << 56;
        let page = usize::try_from(crate::sys::page_size()).expect("a page");
        let mut rows = vec![0; len / page * 8];
        let map = std::fs::File::open("/proc/self/pagemap").expect("the map of pages");
        map.read_exact_at(&mut rows, (at / page * 8) as u64).expect("rows");
        let (rows, []) = rows.as_chunks() else { unreachable!("whole rows") };
        let written =
            |row: &&[u8; 8]| u64::from_ne_bytes(**row) & THERE_AND_EXCLUSIVE == THERE_AND_EXCLUSIVE;
        rows.iter().filter(written).count()
    }
}
