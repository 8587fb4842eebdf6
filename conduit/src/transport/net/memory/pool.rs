//! Registered memory: all of it that is named by address.

#![allow(unsafe_code, reason = "memory that devices and peers read and write")]

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use fabric::{Access, Device, Region, Sge};

use super::regions::Span;
use crate::sys::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::trace;
use crate::transport::net::error::Error;
use crate::transport::net::lockfree::AppendTable;

/// Memory that lasts as long as the network and that devices and peers may read and write at any
/// time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentMemory {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
}

// SAFETY: the promise of `SegmentMemory::new` holds for every thread.
unsafe impl Send for SegmentMemory {}
// SAFETY: as above.
unsafe impl Sync for SegmentMemory {}

impl SegmentMemory {
    /// `len` bytes from `base`; `len` may be 0, then `base` may dangle.
    ///
    /// # Safety
    /// The memory stays mapped and writable until the network is dropped (or the process ends), and
    /// no Rust reference to any of it is made while peers may access it.
    pub(crate) const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len }
    }

    pub(crate) fn register(&self, device: &dyn Device) -> Result<Arc<dyn Region>, Error> {
        // SAFETY: the promise of `new`: mapped and writable until the network, which holds the
        // region, is dropped; peers and devices are expected to change it.
        Ok(unsafe { device.register(self.base, self.len, Access::ALL) }?)
    }

    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    #[inline]
    pub(crate) fn covers(&self, address: usize, len: usize) -> bool {
        let from = address.wrapping_sub(self.base.as_ptr().addr());
        from < self.len && len <= self.len - from
    }

    /// Copies into it; `false` when the range is outside.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        if offset > self.len || bytes.len() > self.len - offset {
            return false;
        }
        // SAFETY: `offset` is at most the length of the memory (checked above), so the result is in
        // it or one past its end.
        let at = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: `bytes.len()` bytes from `at` are inside (checked above); `bytes` is a receive
        // buffer or ordinary memory and no Rust reference covers this memory (promise of `new`), so
        // the two do not overlap.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }
}

/// Most words of an inbox that are written at once.
pub(crate) const INBOX_WORDS: usize = 8;

/// Words that peers write and this rank polls for.
#[derive(Debug)]
pub(crate) struct Inbox {
    // Dropped before the memory that it is of.
    region: Arc<dyn Region>,
    memory: Mapping,
    lkey: u32,
}

/// Where the inbox of another rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteInbox {
    pub(crate) base: u64,
    pub(crate) rkey: u32,
}

impl Inbox {
    pub(crate) fn new(device: &dyn Device, words: usize) -> Result<Self, Error> {
        let memory = Mapping::new(words * size_of::<u64>())?;
        // SAFETY: mapped and writable until it is dropped, after the region; it is read as atomic
        // words alone, which may change at any time.
        let region = unsafe { device.register(memory.base, memory.len, Access::ALL) }?;
        Ok(Self { lkey: region.lkey(), region, memory })
    }

    pub(crate) fn remote(&self) -> RemoteInbox {
        let base = self.memory.base.as_ptr().addr() as u64;
        RemoteInbox { base, rkey: self.region.rkey() }
    }

    /// `len` bytes from a word on, as the device of this rank sees them, for own requests.
    #[inline]
    pub(crate) fn own(&self, index: usize, len: u32) -> Sge {
        let at = self.memory.base.as_ptr().addr() + index * size_of::<u64>();
        Sge { addr: at as u64, len, lkey: self.lkey }
    }

    /// A word; 0 beyond the end.
    #[inline]
    pub(crate) fn load(&self, index: usize) -> u64 {
        if index >= self.memory.len / size_of::<u64>() {
            return 0;
        }
        // SAFETY: inside the mapping (checked above).
        let word = unsafe { self.memory.base.cast::<AtomicU64>().add(index) };
        // SAFETY: mapped and aligned (whole pages), initialised (anonymous memory).
        unsafe { word.as_ref() }.load(Ordering::Acquire)
    }
}

/// The local end of a get, and how much of it was posted.
#[derive(Debug)]
pub(crate) struct RawTarget {
    pub(crate) at: NonNull<u8>,
    pub(crate) left: usize,
    pub(crate) done: u64,
}

impl RawTarget {
    /// `len` bytes at `at` are to be read into.
    ///
    /// # Safety
    /// The memory is writable and used by nobody else until the operation that the target is given
    /// to is complete, or the network is dropped.
    pub(crate) const unsafe fn new(at: NonNull<u8>, len: usize) -> Self {
        Self { at, left: len, done: 0 }
    }
}

/// Where the bytes of a get belong when they have arrived in a buffer.
#[derive(Debug)]
pub(crate) struct CopyOut {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory may be used by any thread (promise of `RawTarget::new`: by nobody else until
// the operation is complete).
unsafe impl Send for CopyOut {}

impl RawTarget {
    /// Where the next `len` bytes, at most what is left, belong.
    pub(crate) fn peek(&self, len: usize) -> CopyOut {
        CopyOut { at: self.at, len: len.min(self.left) }
    }

    pub(crate) fn skip(&mut self, len: usize) {
        let len = len.min(self.left);
        // SAFETY: `len` is at most what is left of the memory that `new` was promised, so the
        // result is in it or at its end.
        self.at = unsafe { self.at.add(len) };
        self.left -= len;
        self.done += len as u64;
    }

    pub(crate) fn address(&self) -> usize {
        self.at.as_ptr().addr()
    }
}

impl CopyOut {
    /// Puts arrived bytes where they belong; bytes beyond the end are dropped.
    pub(crate) fn fill(self, bytes: &[u8]) {
        let len = self.len.min(bytes.len());
        // SAFETY: `at` and `len` come from `RawTarget::peek`: writable, and used by nobody else
        // until the operation, of which this is a part, is complete; `bytes` is a buffer of the
        // pool.
        unsafe { self.at.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
    }
}

/// Registers pages of the program for transfers that it asks for: the device reads them, or writes
/// to them if `write`, for those alone.
pub(crate) fn register_for_transfers(
    device: &dyn Device,
    span: Span,
    write: bool,
) -> Result<Arc<dyn Region>, fabric::Error> {
    let access = if write { Access::LOCAL_WRITE } else { Access::NONE };
    let (base, len) = memory_of(span);
    // SAFETY: no peer has a right to the region. A request of this rank that names it is part of a
    // put or get, whose memory the program keeps mapped (a target also writable and alone) until
    // it is complete: the lifetime of the source, and the promise of `RawTarget::new`.
    unsafe { device.register(base, len, access) }
}

/// Registers pages for transfers of other ranks, to which they are lent (`lend.rs`): they read them,
/// or also write to them if `write`.
pub(crate) fn register_for_peers(
    device: &dyn Device,
    span: Span,
    write: bool,
) -> Result<Arc<dyn Region>, fabric::Error> {
    let writes = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
    let access = if write { Access::REMOTE_READ.and(writes) } else { Access::REMOTE_READ };
    let (base, len) = memory_of(span);
    // SAFETY: only a transfer of another rank that was lent the pages names the region, and the program
    // keeps what ranks transfer mapped until it is complete: the promise of
    // `SegmentMode::everything`. Pages of a segment stay mapped (`SegmentMemory::new`).
    unsafe { device.register(base, len, access) }
}

fn memory_of(span: Span) -> (NonNull<u8>, usize) {
    let address = |at| NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(at));
    let base = usize::try_from(span.from).ok().and_then(address).unwrap_or(NonNull::dangling());
    (base, usize::try_from(span.len()).unwrap_or(usize::MAX))
}

/// As [`register_for_transfers`], all memory of the process at once.
pub(crate) fn register_all_for_transfers(
    device: &dyn Device,
    write: bool,
) -> Result<Arc<dyn Region>, fabric::Error> {
    // SAFETY: as for `register_for_transfers`.
    unsafe { device.register_all_memory(write) }
}

/// Memory that is registered to see whether that is possible, and used by nobody.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Dropped before the mapping.
    _regions: Vec<Arc<dyn Region>>,
    _memory: Mapping,
}

impl Trial {
    /// `None`: the system or a device refuses.
    pub(crate) fn pin(devices: &[Arc<dyn Device>], len: u64) -> Option<Self> {
        let memory = Mapping::new(usize::try_from(len).ok()?).ok()?;
        // SAFETY: mapped until after the region; nobody else knows it.
        let pin = |one: &Arc<dyn Device>| unsafe {
            one.register(memory.base, memory.len, Access::NONE).ok()
        };
        let regions = devices.iter().map(pin).collect::<Option<_>>()?;
        Some(Self { _regions: regions, _memory: memory })
    }
}

/// The first `len` bytes of words, for messages that are handled outside a buffer.
pub(crate) fn bytes_of(words: &mut [u64], len: usize) -> &mut [u8] {
    assert!(len <= size_of_val(words), "{len} bytes of {} words", words.len());
    // SAFETY: at most the bytes of `words` (checked above), borrowed exclusively through it; any
    // byte is a valid `u8`, any eight are a valid `u64`.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), len) }
}

/// A mapping registered with the devices that use its buffers.
#[derive(Debug)]
struct Slab {
    /// Keys by rail; 0 for one whose device does not use it.
    keys: Box<[u32]>,
    /// Dropped before the mapping.
    _regions: Vec<Option<Arc<dyn Region>>>,
    memory: Mapping,
}

#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: plain memory; who may use which part of it is decided by the pool.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(super) fn new(len: usize) -> Result<Self, Error> {
        use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
        let size = NonZeroUsize::new(len).unwrap_or(NonZeroUsize::MIN);
        let (protection, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let base = unsafe { mmap_anonymous(None, size, protection, flags) };
        let base = base.map_err(|error| Error::Os {
            operation: "allocate message buffers",
            source: error.into(),
        })?;
        Ok(Self { base: base.cast(), len: size.get() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; the slab, its only user, is being dropped. A
        // failure leaves it mapped.
        let _ = unsafe { nix::sys::mman::munmap(self.base.cast(), self.len) };
    }
}

/// A buffer belongs to a holder of [`Buffer`], or to a device, or to a list.
const OWNED: u8 = 0;
const LENT: u8 = 1;
/// Rows of the first chunk: the buffers of a small job.
const FIRST_ROWS: u32 = 256;

#[derive(Debug)]
pub(super) struct Row {
    slab: Arc<Slab>,
    offset: usize,
    len: usize,
    state: AtomicU8,
    /// Link of a list (`lists.rs`).
    pub(super) next: AtomicU32,
    /// What a list says of the buffer.
    pub(super) note: [AtomicU32; 4],
}

impl Row {
    #[inline]
    fn piece(&self, rail: usize, from: usize, len: u32) -> Sge {
        assert!(from + len as usize <= self.len, "piece outside the buffer");
        let base = self.slab.memory.base.as_ptr().addr() as u64;
        Sge { addr: base + (self.offset + from) as u64, len, lkey: self.slab.keys[rail] }
    }
}

/// A buffer, by its only owner. It must be lent or put into a list; dropping it wastes it.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Buffer {
    pool: u32,
    index: u32,
    row: NonNull<Row>,
}

// SAFETY: rows are shared by all threads (`Pool` is `Sync`).
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

#[derive(Debug)]
pub(crate) struct Pool {
    id: u32,
    pub(super) rows: AppendTable<Row, FIRST_ROWS>,
    growing: Mutex<()>,
    /// `GASNET_USE_HUGEPAGES`.
    huge: bool,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Self::with_pages(false)
    }

    /// As [`Pool::new`]; `huge`: the system is asked for huge pages.
    pub(crate) fn with_pages(huge: bool) -> Self {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let id = POOLS.fetch_add(1, Ordering::Relaxed);
        Self { id, rows: AppendTable::new(), growing: Mutex::new(()), huge }
    }

    /// Buffers that were made.
    #[cfg(test)]
    pub(crate) fn made(&self) -> usize {
        self.rows.iter().count()
    }

    /// Makes `count` buffers of `len` bytes for the rails whose device is given.
    pub(crate) fn grow(
        &self,
        count: u32,
        len: usize,
        devices: &[Option<&dyn Device>],
    ) -> Result<Vec<Buffer>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let _alone = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = Mapping::new(len * count as usize)?;
        if self.huge {
            // Without them pages are as usual; attach says so.
            let _ = crate::sys::ask_for_huge_pages(memory.base, memory.len);
        }
        let _span = trace::registers(memory.len);
        let register = |device: &Option<&dyn Device>| {
            let access = Access::LOCAL_WRITE;
            // SAFETY: the memory is mapped until the slab is dropped, which drops the region first;
            // only buffers in state LENT are named in requests, and of those no Rust reference
            // exists.
            device
                .map(|device| unsafe { device.register(memory.base, memory.len, access) })
                .transpose()
        };
        let regions = devices.iter().map(register).collect::<Result<Vec<_>, _>>()?;
        let key = |region: &Option<Arc<dyn Region>>| region.as_ref().map_or(0, |one| one.lkey());
        let keys = regions.iter().map(key).collect();
        let slab = Arc::new(Slab { keys, _regions: regions, memory });
        let row = |at: u32| {
            let index = self.rows.push(Row {
                slab: Arc::clone(&slab),
                offset: at as usize * len,
                len,
                state: AtomicU8::new(OWNED),
                next: AtomicU32::new(0),
                note: Default::default(),
            });
            self.buffer(index, self.rows.at(index))
        };
        Ok((0..count).map(row).collect())
    }

    /// The only [`Buffer`] of a row: for one that was just made, or that the device has given back.
    #[inline]
    fn buffer(&self, index: u32, row: &Row) -> Buffer {
        Buffer { pool: self.id, index, row: NonNull::from(row) }
    }

    #[inline]
    pub(super) fn row(&self, buffer: &Buffer) -> &Row {
        assert!(buffer.pool == self.id, "a buffer of another pool");
        // SAFETY: a row of this pool (checked above); rows neither move nor go before the pool
        // does.
        unsafe { buffer.row.as_ref() }
    }

    #[inline]
    pub(crate) fn bytes<'a>(&'a self, buffer: &'a mut Buffer) -> &'a mut [u8] {
        let row = self.row(buffer);
        // SAFETY: rows divide the slab without overlap (`grow`), so the offset is inside.
        let at = unsafe { row.slab.memory.base.as_ptr().add(row.offset) };
        // SAFETY: `len` bytes from there are mapped as long as the pool lives, and initialised
        // (anonymous memory). A `Buffer` is unique per index (`grow` makes one, `lend` takes it,
        // only `reclaim` makes it again after the device gave it back), is of this pool (`row`),
        // and is borrowed exclusively for the result's lifetime.
        unsafe { std::slice::from_raw_parts_mut(at, row.len) }
    }

    /// A part of a buffer as a device of rail `rail` sees it.
    #[inline]
    pub(crate) fn piece(&self, buffer: &Buffer, rail: usize, from: usize, len: u32) -> Sge {
        self.row(buffer).piece(rail, from, len)
    }

    /// Gives a buffer to a device; its number comes back in a completion.
    #[inline]
    pub(crate) fn lend(&self, buffer: Buffer) -> u32 {
        self.row(&buffer).state.store(LENT, Ordering::Release);
        buffer.index
    }

    /// As [`Pool::lend`], with what a device of rail `rail` sees: at most `len` bytes.
    #[inline]
    pub(crate) fn lend_piece(&self, buffer: Buffer, rail: usize, len: u32) -> (u32, Sge) {
        let row = self.row(&buffer);
        let piece = row.piece(rail, 0, if row.len == 0 { 0 } else { len });
        row.state.store(LENT, Ordering::Release);
        (buffer.index, piece)
    }

    /// The device has given a buffer back. `None` when it did not have it.
    #[inline(always)]
    pub(crate) fn reclaim(&self, index: u32) -> Option<Buffer> {
        let row = self.rows.get(index)?;
        let taken = row.state.compare_exchange(LENT, OWNED, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| self.buffer(index, row))
    }
}

/// Memory for tests, which outlives every network.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Zeroed memory that is never unmapped.
    pub(crate) fn lasting(len: usize) -> SegmentMemory {
        let memory = Mapping::new(len.max(1)).expect("memory");
        let base = memory.base;
        std::mem::forget(memory);
        // SAFETY: never unmapped (forgotten above), and only this module's functions access it.
        unsafe { SegmentMemory::new(base, len) }
    }

    impl SegmentMemory {
        /// A part, as memory of its own.
        pub(crate) fn within(&self, offset: usize, len: usize) -> Self {
            assert!(offset + len <= self.len);
            // SAFETY: the offset is inside (checked above).
            let base = unsafe { self.base.add(offset) };
            // SAFETY: a part of what `new` was promised about.
            unsafe { Self::new(base, len) }
        }

        /// A copy of some bytes.
        pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
            assert!(offset + len <= self.len);
            let mut bytes = vec![0; len];
            // SAFETY: the offset is inside (checked above).
            let at = unsafe { self.base.as_ptr().add(offset) };
            // SAFETY: `len` bytes from there are inside; `bytes` is other memory.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(at, len) };
            bytes
        }

        /// A part as the source of a put that the device reads.
        pub(crate) fn part(&self, offset: usize, len: usize) -> &'static [u8] {
            assert!(offset + len <= self.len);
            // SAFETY: the offset is inside (checked above).
            let at = unsafe { self.base.as_ptr().add(offset) };
            // SAFETY: inside, never unmapped; tests do not write to a part while it is a source.
            unsafe { std::slice::from_raw_parts(at, len) }
        }

        /// A part as the target of a get.
        pub(crate) fn target(&self, offset: usize, len: usize) -> RawTarget {
            assert!(offset + len <= self.len);
            // SAFETY: the offset is inside (checked above).
            let at = unsafe { self.base.add(offset) };
            // SAFETY: inside, never unmapped.
            unsafe { RawTarget::new(at, len) }
        }
    }
}
