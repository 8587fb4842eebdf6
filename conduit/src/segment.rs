//! The segment: memory of this rank that every rank of the job can put to and get from.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bootstrap::Rank;
use settings::log::RANK;
use settings::say;

use crate::error::Error;
use crate::rank::RankContext;
use crate::rma::memory;
use crate::sys;
use crate::transport::OutsideSegment;
use crate::transport::shm::{SegmentRow, Segments, SharedMemory};

/// This rank's attached segment. Zero filled at first, page aligned. Other ranks change it at any
/// time: safe access copies, or goes word by word through atomics.
#[derive(Clone)]
pub struct Segment {
    context: Arc<RankContext>,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({} bytes)", self.len())
    }
}

impl Segment {
    pub(crate) const fn new(context: Arc<RankContext>) -> Self {
        Self { context }
    }

    fn row(&self) -> &SegmentRow {
        self.context.shm().memory.row(self.context.shm().local())
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.row().len.load(Ordering::Relaxed)
    }

    /// Whether the segment has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte in this process.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.context.shm().segment_base(self.context.shm().local()).unwrap_or(std::ptr::null_mut())
    }

    /// Address in this process of the first byte of `rank`'s segment, and its bytes; `None` for a
    /// rank that shares no memory with this one.
    #[must_use]
    pub fn of(&self, rank: Rank) -> Option<(*mut u8, u64)> {
        let (shm, local) = (self.context.shm(), self.context.local_of(rank)?);
        Some((shm.segment_base(local)?, shm.memory.row(local).len.load(Ordering::Relaxed)))
    }

    /// Copies bytes out of the own segment.
    ///
    /// # Errors
    /// A range outside the segment.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let (shm, len) = (self.context.shm(), into.len());
        let read = shm.read(shm.local(), offset, into);
        if read { Ok(()) } else { Err(self.outside("Segment::read", offset, len)) }
    }

    /// Copies bytes into the own segment.
    ///
    /// # Errors
    /// A range outside the segment.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let shm = self.context.shm();
        let written = shm.write(shm.local(), offset, from);
        if written { Ok(()) } else { Err(self.outside("Segment::write", offset, from.len())) }
    }

    /// An atomic word of the segment; `offset` is a multiple of 8.
    ///
    /// # Errors
    /// A range outside the segment, or a misaligned one.
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, Error> {
        let call = "Segment::atomic_u64";
        let word = self.context.shm().segments.get().and_then(|all| all.word64(self.row(), offset));
        word.ok_or_else(|| self.bad_word(call, offset, 8))
    }

    /// An atomic word of the segment; `offset` is a multiple of 4.
    ///
    /// # Errors
    /// A range outside the segment, or a misaligned one.
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, Error> {
        let call = "Segment::atomic_u32";
        let word = self.context.shm().segments.get().and_then(|all| all.word32(self.row(), offset));
        word.ok_or_else(|| self.bad_word(call, offset, 4))
    }

    fn bad_word(&self, call: &'static str, offset: u64, bytes: u64) -> Error {
        if !offset.is_multiple_of(bytes) {
            return Error::Misaligned { call, offset, align: bytes };
        }
        self.outside(call, offset, usize::try_from(bytes).unwrap_or(8))
    }

    #[cold]
    fn outside(&self, call: &'static str, offset: u64, len: usize) -> Error {
        let target = self.context.shm().local();
        self.context.outside(call, OutsideSegment { target, offset, len })
    }
}

impl RankContext {
    pub(crate) fn max_segment(&self) -> u64 {
        if self.settings.segment_mode.is_everything() {
            return u64::MAX;
        }
        self.settings.max_segment.for_each(self.rank_info.locals)
    }

    pub(crate) fn max_segment_of_all(&self) -> u64 {
        if self.settings.segment_mode.is_everything() {
            return u64::MAX;
        }
        self.transport.net().map_or_else(|| self.max_segment(), |net| net.max_segment)
    }

    /// Where this neighbourhood's segments begin in the memory of the host, and what all segments
    /// of the host take.
    fn segments_on_host(&self, len: u64, local: u64) -> Result<Option<(u64, u64)>, Error> {
        if self.neighbours.on_host().0.len() == 1 {
            return Ok(Some((0, local)));
        }
        let all = self.services(|services| services.exchange(&len.to_le_bytes()))?;
        let len_of = |rank: Rank| {
            let at = rank.0 as usize * 8;
            let word = all.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let (page, base) = (self.node_shm(), self.shm().span.base);
        let sum = |locals: std::ops::Range<u32>| {
            let mut lens = locals.map(|local| len_of(page.local_rank(local)));
            lens.try_fold(0_u64, u64::checked_add)
        };
        Ok(sum(0..base).zip(sum(0..page.locals())))
    }

    /// Collective: makes one mapping of the segments of the neighbourhood, which is a part of that
    /// of the host, and tells all others where this rank's is.
    pub(crate) fn attach(
        &self,
        len: u64,
        barrier: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (page, max) = (sys::page_size(), self.max_segment());
        if self.attaches.swap(1, Ordering::SeqCst) != 0 {
            return Err(Error::SegmentAttached);
        }
        if self.settings.segment_mode.is_everything() {
            // All memory is reached already.
            return barrier();
        }
        if len == 0 || !len.is_multiple_of(page) || len > max {
            self.attaches.store(0, Ordering::SeqCst);
            return Err(Error::SegmentSize { len, page, max });
        }
        let (shm, me) = (self.shm(), self.shm().local());
        shm.memory.row(me).len.store(len, Ordering::Release);
        barrier()?;
        let too_much = || Error::SegmentSize { len, page, max };
        let mut total = 0_u64;
        for local in 0..shm.memory.layout.locals {
            if local == me {
                shm.memory.row(me).offset.store(total, Ordering::Release);
            }
            let theirs = shm.memory.row(local).len.load(Ordering::Acquire);
            total = total.checked_add(theirs).ok_or_else(too_much)?;
        }
        let (first, all) = self.segments_on_host(len, total)?.ok_or_else(too_much)?;
        let bytes = |count: u64| usize::try_from(count).map_err(|_| too_much());
        let (first, total, all) = (bytes(first)?, bytes(total)?, bytes(all)?);
        let memory = self.services(|services| services.host_memory(all))?;
        let os = |source| Error::Os { operation: "map the segments of the host's ranks", source };
        let mapped = SharedMemory::map_at(&memory, first, total).map_err(os)?;
        // A second attach was refused before.
        let _ = shm.segments.set(Segments::new(mapped));
        self.use_huge_pages(len);
        let base = shm.segment_base(me).map_or(0, |base| base.addr() as u64);
        shm.memory.row(me).base.store(base, Ordering::Release);
        self.attach_net(len)?;
        barrier()
    }

    /// `GASNET_USE_HUGEPAGES` for this rank's segment. Rank 0 says why there are none.
    fn use_huge_pages(&self, len: u64) {
        let base = self.shm().segment_base(self.shm().local()).and_then(NonNull::new);
        let (Some(base), true) = (base, self.settings.huge_pages) else { return };
        let asked = usize::try_from(len).map(|len| sys::ask_for_huge_pages(base, len));
        let policy = sys::huge_page_policy("shmem_enabled");
        let reason = match (asked, policy.as_deref()) {
            (_, None) => "it has none (no transparent huge pages)".to_owned(),
            (_, Some(word @ ("never" | "deny"))) => format!(
                "it gives none to shared memory: /sys/kernel/mm/transparent_hugepage/shmem_enabled says {word}; \
                 have it say advise"
            ),
            (Ok(Err(errno)), _) => format!("it refuses them: {errno}"),
            _ => return,
        };
        if self.rank_info.rank == Rank(0) && !self.settings.quiet {
            say!(WARN, RANK, "GASNET_USE_HUGEPAGES: asked for huge pages for segments, {reason}");
        }
    }

    fn attach_net(&self, len: u64) -> Result<(), Error> {
        let Some(net) = self.transport.net() else { return Ok(()) };
        let base = self.shm().segment_base(self.shm().local());
        let (base, len) = base.map_or((0, 0), |base| (base.expose_provenance() as u64, len));
        let segment = memory::segment(base, len);
        let must = self.settings.segment_mode.is_fast();
        Ok(self.services(|services| net.attach(segment, must, services))?)
    }
}
