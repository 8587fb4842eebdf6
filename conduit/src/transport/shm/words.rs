//! A row of numbers in shared memory.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU32;

use super::map::SharedMemory;

/// Numbers that any rank with the mapping may change; 0 at first.
pub(crate) struct SharedWords {
    memory: SharedMemory,
    count: usize,
}

impl std::fmt::Debug for SharedWords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedWords({})", self.count)
    }
}

impl SharedWords {
    /// Bytes of host memory that `count` numbers take, a multiple of the page size.
    pub(crate) fn room(count: usize) -> usize {
        let page = usize::try_from(crate::sys::page_size()).unwrap_or(4096);
        count.saturating_mul(size_of::<AtomicU32>()).max(1).next_multiple_of(page)
    }

    /// Maps `count` numbers of `memory` from byte `first` on, a multiple of the page size.
    pub(crate) fn map(memory: &OwnedFd, first: usize, count: usize) -> io::Result<Self> {
        let memory = SharedMemory::map_at(memory, first, Self::room(count))?;
        Ok(Self { memory, count })
    }

    pub(crate) fn word(&self, at: usize) -> Option<&AtomicU32> {
        if at >= self.count {
            return None;
        }
        let place = self.memory.range(at * size_of::<AtomicU32>(), size_of::<AtomicU32>())?;
        // SAFETY: inside the mapping, which is page aligned and lives as long as `self`; every
        // access to these bytes, by any process, is an atomic one of this type, and any value is
        // one.
        Some(unsafe { place.cast::<AtomicU32>().as_ref() })
    }
}
