//! The segment: memory of this rank that every rank of the job can put to and get from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bootstrap::Rank;

use crate::core::Core;
use crate::error::Error;
use crate::settings::SegmentLimit;
use crate::sys;
use crate::transport::shm::{Landed, Segments, SharedMemory};

/// Distance in bytes from the start of a rank's segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentOffset(pub u64);

/// This rank's attached segment. Zero filled at first, page aligned. Other ranks change it at any time: safe access copies,
/// or goes word by word through atomics.
#[derive(Clone)]
pub struct Segment {
    core: Arc<Core>,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({} bytes)", self.len())
    }
}

impl Segment {
    pub(crate) const fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.core.row(self.core.local()).len.load(Ordering::Relaxed)
    }

    /// Whether the segment has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte in this process.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.core.segment_base(self.core.local()).unwrap_or(std::ptr::null_mut())
    }

    /// Address in this process of the first byte of `rank`'s segment, and its bytes; `None` for a rank that shares no memory
    /// with this one.
    #[must_use]
    pub fn of(&self, rank: Rank) -> Option<(*mut u8, u64)> {
        let local = self.core.local_of(rank)?;
        Some((self.core.segment_base(local)?, self.core.row(local).len.load(Ordering::Relaxed)))
    }

    /// Copies bytes out of the own segment.
    ///
    /// # Errors
    /// A range outside the segment.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.core.get("Segment::read", self.core.local(), offset, into)
    }

    /// Copies bytes into the own segment.
    ///
    /// # Errors
    /// A range outside the segment.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.core.put("Segment::write", self.core.local(), offset, from)
    }

    /// An atomic word of the segment; `offset` is a multiple of 8.
    ///
    /// # Errors
    /// A range outside the segment, or a misaligned one.
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, Error> {
        let call = "Segment::atomic_u64";
        let local = self.core.local();
        let word = self.core.segments().and_then(|all| all.word64(self.core.row(local), offset));
        word.ok_or_else(|| self.bad_word(call, offset, 8))
    }

    /// An atomic word of the segment; `offset` is a multiple of 4.
    ///
    /// # Errors
    /// A range outside the segment, or a misaligned one.
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, Error> {
        let call = "Segment::atomic_u32";
        let local = self.core.local();
        let word = self.core.segments().and_then(|all| all.word32(self.core.row(local), offset));
        word.ok_or_else(|| self.bad_word(call, offset, 4))
    }

    fn bad_word(&self, call: &'static str, offset: u64, bytes: u64) -> Error {
        if !offset.is_multiple_of(bytes) {
            return Error::Misaligned { call, offset, align: bytes };
        }
        self.core.outside(call, self.core.local(), offset, usize::try_from(bytes).unwrap_or(8))
    }
}

/// Where the payload of a Long landed in this rank's segment.
#[derive(Clone, Copy)]
pub struct Landing<'a> {
    core: &'a Core,
    offset: u64,
    len: usize,
    landed: Option<Landed>,
}

impl std::fmt::Debug for Landing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Landing({} bytes at {})", self.len, self.offset)
    }
}

impl<'a> Landing<'a> {
    /// Checks the range; `None` when it is not inside the own segment.
    pub(crate) fn new(core: &'a Core, offset: u64, len: usize) -> Option<Self> {
        if len == 0 {
            return Some(Self { core, offset, len, landed: None });
        }
        let at = core.segments()?.range(core.row(core.local()), offset, len)?;
        Some(Self { core, offset, len, landed: Some(Landed { at, len }) })
    }

    /// Destination that the sender gave; unchanged also when there is no payload.
    #[must_use]
    pub const fn offset(&self) -> SegmentOffset {
        SegmentOffset(self.offset)
    }

    /// Bytes of payload.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no payload.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first bytes of the payload, as many as `into` takes.
    pub fn read(&self, into: &mut [u8]) {
        if let Some(landed) = &self.landed {
            landed.copy_to(into);
        }
    }

    /// A copy of the payload.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(&mut bytes);
        bytes
    }

    /// Address of the payload in this process; without payload the address that the destination would have.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        let base = || self.core.segment_base(self.core.local()).unwrap_or(std::ptr::null_mut());
        let far = || base().wrapping_add(usize::try_from(self.offset).unwrap_or(usize::MAX));
        self.landed.map_or_else(far, |landed| landed.at.as_ptr())
    }
}

impl Core {
    /// Address in this process of a rank's segment; `None` before attach.
    pub(crate) fn segment_base(&self, local: usize) -> Option<*mut u8> {
        Some(self.segments()?.range(self.row(local), 0, 0)?.as_ptr())
    }

    /// Largest segment of this rank, a multiple of the page size.
    pub(crate) fn max_segment(&self) -> u64 {
        limit(self.settings().max_segment, self.rank_info().locals)
    }

    /// Smallest of the largest segments of all ranks.
    pub(crate) fn max_segment_of_all(&self) -> u64 {
        self.remote()
            .map_or_else(|| self.max_segment(), crate::transport::remote::Remote::max_segment)
    }

    /// Where this neighbourhood's segments begin in the memory of the host, and what all segments of the host take.
    fn segments_on_host(&self, len: u64, near: u64) -> Result<Option<(u64, u64)>, Error> {
        if self.neighbours().on_host().0.len() == 1 {
            return Ok(Some((0, near)));
        }
        let all = self.services(|services| services.exchange(&len.to_le_bytes()))?;
        let len_of = |rank: Rank| {
            let at = rank.0 as usize * 8;
            let word = all.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let (page, base) = (self.node_shm(), self.span().base);
        let sum = |locals: std::ops::Range<u32>| {
            let mut lens = locals.map(|local| len_of(page.local_rank(local)));
            lens.try_fold(0_u64, u64::checked_add)
        };
        Ok(sum(0..base).zip(sum(0..page.locals())))
    }

    /// Collective: makes one mapping of the segments of the neighbourhood, which is a part of that of the host, and tells all
    /// others where this rank's is.
    pub(crate) fn attach(
        &self,
        len: u64,
        barrier: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (page, max) = (sys::page_size(), self.max_segment());
        if self.attaches.swap(1, Ordering::SeqCst) != 0 {
            return Err(Error::SegmentAttached);
        }
        if len == 0 || !len.is_multiple_of(page) || len > max {
            self.attaches.store(0, Ordering::SeqCst);
            return Err(Error::SegmentSize { len, page, max });
        }
        let me = self.local();
        self.row(me).len.store(len, Ordering::Release);
        barrier()?;
        let too_much = || Error::SegmentSize { len, page, max };
        let mut total = 0_u64;
        for local in 0..self.layout().locals {
            if local == me {
                self.row(me).offset.store(total, Ordering::Release);
            }
            let theirs = self.row(local).len.load(Ordering::Acquire);
            total = total.checked_add(theirs).ok_or_else(too_much)?;
        }
        let (first, all) = self.segments_on_host(len, total)?.ok_or_else(too_much)?;
        let bytes = |count: u64| usize::try_from(count).map_err(|_| too_much());
        let (first, total, all) = (bytes(first)?, bytes(total)?, bytes(all)?);
        let memory = self.services(|services| services.host_memory(all))?;
        let os = |source| Error::Os { operation: "map the segments of the host's ranks", source };
        self.set_segments(Segments::new(SharedMemory::map_at(&memory, first, total).map_err(os)?));
        let base = self.segment_base(me).map_or(0, |base| base.addr() as u64);
        self.row(me).base.store(base, Ordering::Release);
        self.attach_remote()?;
        barrier()
    }
}

/// Largest segment that a setting leaves to each of `locals` ranks of a host.
pub(crate) fn limit(limit: SegmentLimit, locals: u32) -> u64 {
    let ranks = u64::from(locals);
    let memory = sys::physical_memory().unwrap_or(1 << 30);
    let bytes = match limit {
        SegmentLimit::PerRank(bytes) => bytes,
        SegmentLimit::PerHost(bytes) => bytes / ranks,
        SegmentLimit::FractionPerRank(share) => fraction(memory, share),
        SegmentLimit::FractionPerHost(share) => fraction(memory, share) / ranks,
    };
    let page = sys::page_size();
    (bytes / page * page).max(page)
}

#[expect(clippy::cast_possible_truncation, reason = "saturates")]
#[expect(clippy::cast_sign_loss, reason = "shares are not negative")]
fn fraction(memory: u64, share: f64) -> u64 {
    (memory as f64 * share) as u64
}
