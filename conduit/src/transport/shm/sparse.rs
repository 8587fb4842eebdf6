//! Tables of this process with a row for each rank, few of which are ever used.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ops::Index;
use std::ptr::NonNull;

use super::map::{SharedLayout, SharedMemory};
use crate::sys;

/// Rows of zero bytes at first. A large table is a mapping of which pages exist where a row was
/// written to, so that what a rank holds does not grow with the ranks that it has nothing to do
/// with. One of no more than a page is allocated whole.
pub(crate) struct Sparse<T> {
    rows: NonNull<T>,
    count: usize,
    /// What `rows` is in; `None` for one that is allocated.
    mapping: Option<SharedMemory>,
}

// SAFETY: rows are reached through shared references only, and change through atomics alone
// (`SharedLayout`, which `new` asks for).
unsafe impl<T: Sync> Send for Sparse<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Sparse<T> {}

impl<T: SharedLayout> Sparse<T> {
    /// A table of `count` rows.
    pub(crate) fn new(count: usize) -> io::Result<Self> {
        let layout = Layout::array::<T>(count).map_err(io::Error::other)?;
        if layout.size() as u64 > sys::page_size() {
            let mapping = SharedMemory::private(layout.size())?;
            return Ok(Self { rows: mapping.base().cast(), count, mapping: Some(mapping) });
        }
        let rows = match layout.size() {
            0 => NonNull::dangling(),
            // SAFETY: some bytes.
            _ => NonNull::new(unsafe { alloc_zeroed(layout) }.cast())
                .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?,
        };
        Ok(Self { rows, count, mapping: None })
    }

    #[inline(always)]
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        if at >= self.count {
            return None;
        }
        // SAFETY: so many rows are at `rows` (`new`).
        let row = unsafe { self.rows.add(at) };
        // SAFETY: the memory is aligned for it and lives as long as `self`; its zero bytes are a
        // value, and change through atomics alone (`SharedLayout`).
        Some(unsafe { row.as_ref() })
    }
}

impl<T: SharedLayout> Index<usize> for Sparse<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        self.get(at).expect("a row of the table")
    }
}

impl<T> Drop for Sparse<T> {
    fn drop(&mut self) {
        let layout = Layout::array::<T>(self.count).ok().filter(|layout| layout.size() > 0);
        if let (None, Some(layout)) = (&self.mapping, layout) {
            // SAFETY: allocated with this layout (`new`), and rows have nothing to drop: zero bytes
            // and atomics.
            unsafe { dealloc(self.rows.as_ptr().cast(), layout) };
        }
    }
}

impl<T> std::fmt::Debug for Sparse<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sparse({})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::transport::shm::spsc_ring::Producer;

    #[test]
    fn rows_are_zero_and_stay_what_they_were_set_to() {
        for count in [0, 1, 100, 1024, 1025, 10_000] {
            let table: Sparse<AtomicU32> = Sparse::new(count).expect("memory");
            assert_eq!(table.mapping.is_some(), count > 1024);
            for at in 0..count {
                assert_eq!(table[at].load(Ordering::Relaxed), 0);
                table[at].store(u32::try_from(at).expect("few"), Ordering::Relaxed);
            }
            assert!((0..count).all(|at| table[at].load(Ordering::Relaxed) as usize == at));
            assert!(table.get(count).is_none() && table.get(usize::MAX).is_none());
        }
        assert!(Sparse::<AtomicU32>::new(usize::MAX).is_err());
    }

    #[test]
    fn neighbours_that_nothing_was_sent_to_take_no_memory() {
        let (ranks, sent_to) = (1 << 16, [0, 1, 40_000, 65_535]);
        let producers: Sparse<[Producer; 2]> = Sparse::new(ranks).expect("memory");
        for rank in sent_to {
            assert!(producers[rank].iter().all(|producer| producer.approach(1, || None).is_none()));
        }
        // Looked at, as before every message; not written to.
        assert!((0..ranks).all(|rank| producers[rank][0].lane().is_none()));
        assert_eq!(written_pages(&producers), 3);
    }

    /// Pages of a table that are this process's alone, as `/proc/self/pagemap` has them. The page of
    /// zeros, which is where nothing was written, is everybody's.
    fn written_pages<T>(table: &Sparse<T>) -> usize {
        const THERE_AND_EXCLUSIVE: u64 = 1 << 63 | 1 << 56;
        let page = usize::try_from(sys::page_size()).expect("a page");
        let (at, len) = (table.rows.addr().get(), table.count * size_of::<T>());
        let mut rows = vec![0; len / page * 8];
        let map = std::fs::File::open("/proc/self/pagemap").expect("the map of pages");
        map.read_exact_at(&mut rows, (at / page * 8) as u64).expect("rows");
        let (rows, []) = rows.as_chunks() else { unreachable!("whole rows") };
        let written =
            |row: &&[u8; 8]| u64::from_ne_bytes(**row) & THERE_AND_EXCLUSIVE == THERE_AND_EXCLUSIVE;
        rows.iter().filter(written).count()
    }
}
