//! Where the segments of all ranks are: attached ones in one table, which attach exchanged; those
//! that programs bound to endpoints by themselves as they were published.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use bootstrap::{Rank, Shared};
use fabric::Region;

use super::error::Error;
use super::lockfree::AppendTable;
use super::memory::pool::SegmentMemory;
use super::rail::Rail;
use crate::transport::place::Place;

/// Where the keys begin in what a rank says of its attached segment.
const KEYS: usize = 20;

/// What attach exchanged.
#[derive(Debug)]
struct Attached {
    own: SegmentMemory,
    /// Adapters reach it.
    keyed: bool,
    table: Shared,
}

impl Attached {
    /// Whether adapters reach so many bytes from an address on.
    fn covers(&self, address: usize, len: usize) -> bool {
        self.keyed && self.own.covers(address, len)
    }
}

/// Memory of this rank that the program bound to an endpoint.
#[derive(Debug)]
struct Registered {
    memory: SegmentMemory,
    /// By rail.
    regions: Box<[Arc<dyn Region>]>,
}

/// A segment that another rank published.
#[derive(Debug)]
struct Published {
    remote: Remote,
    /// By rail.
    keys: Box<[u32]>,
}

#[derive(Debug)]
pub(super) struct Segments {
    rails: usize,
    attached: OnceLock<Attached>,
    registered: AppendTable<Registered>,
    /// Which of `registered` an endpoint has.
    bound: Mutex<HashMap<u16, u32>>,
    /// That of the first endpoint, where messages land.
    first: OnceLock<SegmentMemory>,
    published: RwLock<HashMap<(Rank, u16), Published>>,
}

/// A remote segment, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

impl Remote {
    /// Whether a place (its word) is in it, where it is an attached segment.
    pub(super) const fn holds(&self, place: u64) -> bool {
        place < self.len
    }
}

impl Segments {
    pub(super) fn new(rails: usize) -> Self {
        Self {
            rails,
            attached: OnceLock::new(),
            registered: AppendTable::new(),
            bound: Mutex::default(),
            first: OnceLock::new(),
            published: RwLock::default(),
        }
    }

    /// Bytes of what a rank says of its attached segment: address, length, whether it has keys, a
    /// key for each rail.
    pub(super) const fn record_len(rails: usize) -> usize {
        KEYS + 4 * rails
    }

    /// Whether a rank has attached a segment that adapters cannot reach.
    pub(super) fn is_keyless(&self, rank: Rank) -> bool {
        let keyed = |record: &[u8]| record.get(16..KEYS).is_some_and(|word| word != [0; 4]);
        let attached = self.attached(rank).is_some_and(|attached| attached.len > 0);
        attached && !self.record(rank).is_some_and(keyed)
    }

    /// Once: what attach exchanged.
    pub(super) fn attach(&self, (own, keyed): (SegmentMemory, bool), table: Shared) {
        let _ = self.attached.set(Attached { own, keyed, table });
    }

    fn record(&self, rank: Rank) -> Option<&[u8]> {
        let len = Self::record_len(self.rails);
        let at = rank.0 as usize * len;
        self.attached.get()?.table.get(at..at + len)
    }

    /// The attached segment of a rank; `None` before attach.
    pub(super) fn attached(&self, rank: Rank) -> Option<Remote> {
        let record = self.record(rank)?;
        let word = |at: usize| {
            let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        Some(Remote { base: word(0), len: word(8) })
    }

    fn attached_key(&self, rank: Rank, rail: usize) -> u32 {
        let at = KEYS + 4 * rail;
        let bytes = self.record(rank).and_then(|record| record.get(at..at + 4)?.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    }

    /// Runs `see` with a published segment.
    fn with_published<T>(
        &self,
        rank: Rank,
        endpoint: u16,
        see: impl FnOnce(&Published) -> T,
    ) -> Option<T> {
        let published = self.published.read().unwrap_or_else(PoisonError::into_inner);
        published.get(&(rank, endpoint)).map(see)
    }

    /// The segment of a place, as far as this rank knows it.
    fn remote(&self, rank: Rank, endpoint: u16) -> Option<Remote> {
        let attached = || self.attached(rank).filter(|attached| attached.len > 0);
        (endpoint == 0)
            .then(attached)
            .flatten()
            .or_else(|| self.with_published(rank, endpoint, |published| published.remote))
    }

    /// Whether `len` bytes from a place (its word) on exist in a rank's segment; before attach and
    /// publication none do.
    #[inline]
    pub(super) fn check(&self, rank: Rank, word: u64, len: u64) -> Result<(), Error> {
        let Place { endpoint, offset } = Place::of(word);
        let (offset, segment) = match self.remote(rank, endpoint) {
            Some(segment) => (offset, segment.len),
            // Nobody published it: an offset that is out of bounds of any segment.
            None => (word, self.attached(rank).map_or(0, |segment| segment.len)),
        };
        let end = offset.saturating_add(len);
        if end > segment {
            return Err(Error::OutsideSegment { rank, offset, end, segment });
        }
        Ok(())
    }

    /// Address and key of a place that was checked, for requests on a rail.
    #[inline]
    pub(super) fn aim(&self, rank: Rank, word: u64, rail: usize) -> Option<(u64, u32)> {
        let Place { endpoint, offset } = Place::of(word);
        let attached = if endpoint == 0 { self.attached(rank) } else { None };
        if let Some(attached) = attached.filter(|attached| attached.len > 0) {
            return Some((attached.base.wrapping_add(offset), self.attached_key(rank, rail)));
        }
        self.with_published(rank, endpoint, |published| {
            let key = published.keys.get(rail).copied().unwrap_or_default();
            (published.remote.base.wrapping_add(offset), key)
        })
    }

    /// As [`Segments::check`] and [`Segments::aim`], with one look at what attach exchanged.
    #[inline]
    pub(super) fn reach(
        &self,
        rank: Rank,
        word: u64,
        len: u64,
        rail: usize,
    ) -> Result<Option<(u64, u32)>, Error> {
        let Place { endpoint, offset } = Place::of(word);
        if endpoint == 0
            && let Some(attached) = self.attached(rank)
            && offset.saturating_add(len) <= attached.len
            && attached.len > 0
        {
            let key = self.attached_key(rank, rail);
            return Ok(Some((attached.base.wrapping_add(offset), key)));
        }
        self.check(rank, word, len)?;
        Ok(self.aim(rank, word, rail))
    }

    /// Keeps what a rank published of an endpoint's segment; `keys` are bytes of its
    /// [`Segments::keys`].
    pub(super) fn learn(&self, rank: Rank, endpoint: u16, remote: Remote, keys: &[u8]) {
        let keys = keys.as_chunks().0.iter().map(|key| u32::from_ne_bytes(*key)).collect();
        let mut published = self.published.write().unwrap_or_else(PoisonError::into_inner);
        published.insert((rank, endpoint), Published { remote, keys });
    }

    /// Registers memory with the devices of all rails, unless it is already, for an endpoint that
    /// has none.
    pub(super) fn bind(
        &self,
        endpoint: u16,
        memory: SegmentMemory,
        rails: &[Rail],
    ) -> Result<(), Error> {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |index: &u32| {
            let one = self.registered.get(*index).map(|one| one.memory);
            one.is_some_and(|one| one.base == memory.base && one.len == memory.len)
        };
        let index = match bound.values().copied().find(same) {
            Some(index) => index,
            None => {
                let register = |rail: &Rail| memory.register(&*rail.device);
                let regions = rails.iter().map(register).collect::<Result<_, _>>()?;
                self.registered.push(Registered { memory, regions })
            }
        };
        bound.insert(endpoint, index);
        if endpoint == 0 {
            let _ = self.first.set(memory);
        }
        Ok(())
    }

    /// What peers need to reach the segment that was bound to an endpoint: a key for each rail.
    pub(super) fn keys(&self, endpoint: u16) -> Vec<u8> {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let one = bound.get(&endpoint).and_then(|index| self.registered.get(*index));
        let regions = one.map_or(&[][..], |one| &one.regions);
        regions.iter().flat_map(|region| region.rkey().to_ne_bytes()).collect()
    }

    /// Where payloads of Longs land, and what added to an offset there is its distance from the
    /// attached segment (from address 0 without one).
    #[inline]
    pub(super) fn landing(&self) -> Option<(SegmentMemory, u64)> {
        match self.attached.get() {
            Some(attached) if attached.own.len > 0 => Some((attached.own, 0)),
            _ => self.first.get().map(|first| (*first, first.address())),
        }
    }

    /// The segment of an endpoint of this rank, as others name it.
    pub(super) fn own(&self, endpoint: u16) -> Option<SegmentMemory> {
        let attached = self.attached.get().filter(|attached| endpoint == 0 && attached.own.len > 0);
        attached.map(|attached| attached.own).or_else(|| {
            let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
            self.registered.get(*bound.get(&endpoint)?).map(|one| one.memory)
        })
    }

    /// Key for requests of this rank on a rail that name `len` bytes from `address` on, where
    /// devices can reach them; `None` for memory that was not registered.
    #[inline]
    pub(super) fn own_key(&self, rail: (usize, &Rail), address: usize, len: usize) -> Option<u32> {
        let attached = self.attached.get();
        if attached.is_some_and(|attached| attached.covers(address, len)) {
            return Some(rail.1.segment_key());
        }
        let one = self.registered.iter().find(|one| one.memory.covers(address, len))?;
        one.regions.get(rail.0).map(|region| region.lkey())
    }

    /// Whether devices can read bytes where they are.
    pub(super) fn is_own(&self, bytes: &[u8]) -> bool {
        self.covers(bytes.as_ptr().addr(), bytes.len())
    }

    /// Whether devices can reach so many bytes from an address on.
    pub(super) fn covers(&self, address: usize, len: usize) -> bool {
        self.attached.get().is_some_and(|attached| attached.covers(address, len))
            || self.registered.iter().any(|one| one.memory.covers(address, len))
    }
}
