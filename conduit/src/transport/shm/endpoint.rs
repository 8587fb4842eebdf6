//! One rank's end of the memory that its neighbourhood shares.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bootstrap::Bootstrap;
use bootstrap::node_shm::{NodeShm, RankSlot};

use super::arena::Arena;
use super::consumer::Consumer;
use super::host::{HostMemory, HostWords};
use super::layout::Layout;
use super::map::SharedMemory;
use super::poll_budget::PollBudget;
use super::segments::Segments;
use super::shm_barrier::Progress;
use super::spsc_ring::LANES;
use crate::error::Error;
use crate::mode::Mode;
use crate::segment_mode::SegmentMode;
use crate::settings::Settings;
use crate::sys;
use crate::transport::message::{Block, MessageClass};
use crate::transport::neighbours::{Neighbours, Span};

/// Where the number of the segment mode is in the fingerprint.
const MODE: u64 = 0b11 << 4;

/// A payload arena of this rank and the lock that threaded modes take.
struct Payloads {
    arena: Arena,
    lock: Mutex<()>,
}

impl Payloads {
    fn new(bytes: usize) -> Self {
        Self { arena: Arena::new(bytes), lock: Mutex::new(()) }
    }

    #[inline]
    fn with<M: Mode, T>(&self, call: impl FnOnce(&Arena) -> T) -> T {
        let _alone = M::THREADED.then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        call(&self.arena)
    }
}

/// One rank in shared memory. What every call reads comes first, in this order: where ranks share a
/// processor, each line and page that a call touches was pushed out by the others, and a barrier
/// needs the first lines only.
#[repr(C, align(128))]
pub(crate) struct ShmTransport {
    /// Senders need no fence: who sleeps makes one for all (`doorbell.rs`).
    pub(super) asymmetric: AtomicBool,
    /// This rank takes part in the fences of sleepers.
    pub(super) registered: AtomicBool,
    /// Whether some rank is outside the neighbourhood.
    pub(crate) networked: bool,
    /// The program is one of C: handlers are foreign, Longs carry addresses instead of offsets.
    pub(crate) c_face: bool,
    /// The client's barrier is a central one whatever the number of ranks.
    pub(super) central: bool,
    /// Messages may be in the queues and lanes of this rank: it has neighbours, or has sent one to
    /// itself.
    pub(super) receives: AtomicBool,
    pub(crate) span: Span,
    pub(super) client_barrier: Progress,
    pub(crate) memory: HostMemory,
    /// Where doorbells are.
    pub(crate) page: Arc<NodeShm>,
    /// Where this rank's is.
    own_slot: u32,
    pub(crate) budget: PollBudget,
    pub(super) inner_barrier: Progress,
    /// There from attach on.
    pub(crate) segments: OnceLock<Segments>,
    payloads: [Payloads; 2],
    pub(super) consumers: [Consumer; 3],
    pub(super) lane_consumers: [Consumer; 2 * LANES],
    /// Words that the ranks of all neighbourhoods of the host share.
    host: HostWords,
}

impl ShmTransport {
    /// Collective: maps this neighbourhood's part of the memory that the host's ranks share.
    pub(crate) fn open(
        neighbours: &Neighbours,
        settings: &Settings,
        services: &mut dyn Bootstrap,
        c_face: bool,
    ) -> Result<Self, Error> {
        let (span, page) = (neighbours.span, Arc::clone(services.node_shm()));
        let (parts, part) = neighbours.on_host();
        let lengths = || parts.clone().map(|locals| Layout::new(locals, settings.depth).room());
        let (at, all) = (lengths().take(part).sum::<usize>(), lengths().sum());
        let layout = Layout::new(span.locals, settings.depth);
        let fd = services.host_memory(all)?;
        let (memory, host) = Self::map(&fd, at, layout, (&page, span))?;
        let shm = Self {
            asymmetric: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            networked: span.locals < services.rank_info().size,
            c_face,
            central: settings.central_barrier,
            receives: AtomicBool::new(span.locals > 1),
            span,
            client_barrier: Progress::new(),
            memory,
            page,
            own_slot: span.base.saturating_add(span.local),
            budget: PollBudget::none(),
            inner_barrier: Progress::new(),
            segments: OnceLock::new(),
            payloads: [Payloads::new(layout.arena), Payloads::new(layout.arena)],
            consumers: [const { Consumer::new() }; 3],
            lane_consumers: [const { Consumer::new() }; 2 * LANES],
            host,
        };
        shm.agree_on_layout(services.rank_info().rank, settings.segment_mode)?;
        shm.announce_cpus();
        Ok(shm)
    }

    fn map(
        fd: &OwnedFd,
        at: usize,
        layout: Layout,
        (page, span): (&Arc<NodeShm>, Span),
    ) -> Result<(HostMemory, HostWords), Error> {
        let os = |source| Error::Os { operation: "map the queues of the host's ranks", source };
        let memory = SharedMemory::map_at(fd, at, layout.len).map_err(os)?;
        let host = HostWords::map(fd).map_err(os)?;
        let memory = HostMemory::new(memory, layout, Arc::clone(page), span).map_err(os)?;
        Ok((memory, host))
    }

    fn agree_on_layout(&self, rank: bootstrap::Rank, mode: SegmentMode) -> Result<(), Error> {
        // Algorithms that differ between ranks would wait for each other for ever, and destinations
        // would be misread.
        let (central, c) = (u64::from(self.central), u64::from(self.c_face));
        let mine = self.memory.layout.fingerprint() ^ central << 1 ^ c << 2;
        let mine = mine & !MODE | u64::from(mode.number()) << MODE.trailing_zeros();
        let word = &self.memory.control().fingerprint;
        match word.compare_exchange(0, mine, Ordering::SeqCst, Ordering::SeqCst) {
            Err(seen) if (seen ^ mine) & !MODE == 0 && seen != mine => {
                let theirs = (seen & MODE) >> MODE.trailing_zeros();
                let theirs = SegmentMode::name_of(u8::try_from(theirs).unwrap_or(u8::MAX));
                let problem = format!(
                    "{theirs} on another rank of the host, {mode} on rank {rank}; set it to the same on all ranks, and start one program"
                );
                Err(Error::Setting { name: "GASNET_SEGMENT_MODE", problem })
            }
            Err(seen) if seen != mine => Err(Error::LayoutMismatch { rank, seen, mine }),
            _ => Ok(()),
        }
    }

    fn announce_cpus(&self) {
        for (word, bits) in self.host.cpus().iter().zip(sys::allowed_cpus()) {
            if bits != 0 {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    /// Processors that the ranks of the host may run on, once every rank has announced its own.
    pub(crate) fn cpus(&self) -> u32 {
        self.host.cpus().iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    #[inline]
    pub(crate) const fn local(&self) -> usize {
        self.span.local as usize
    }

    #[inline(always)]
    pub(crate) fn slot_of(&self, local: usize) -> &RankSlot {
        let at = u32::try_from(local).unwrap_or(u32::MAX);
        self.page.slot(self.span.base.saturating_add(at))
    }

    #[inline]
    pub(crate) fn slot(&self) -> &RankSlot {
        self.page.slot(self.own_slot)
    }

    /// Address in this process of a neighbour's segment; `None` before attach.
    pub(crate) fn segment_base(&self, local: usize) -> Option<*mut u8> {
        Some(self.segments.get()?.range(self.memory.row(local), 0, 0)?.as_ptr())
    }

    /// An aligned word of a neighbour's segment; `None` when outside or misaligned.
    #[inline]
    pub(crate) fn word64(&self, local: usize, offset: u64) -> Option<&AtomicU64> {
        self.segments.get()?.word64(self.memory.row(local), offset)
    }

    /// As [`ShmTransport::word64`] for 4 bytes.
    #[inline]
    pub(crate) fn word32(&self, local: usize, offset: u64) -> Option<&AtomicU32> {
        self.segments.get()?.word32(self.memory.row(local), offset)
    }

    /// Copies into a neighbour's segment; `false` when the range is outside.
    #[inline]
    pub(crate) fn write(&self, local: usize, offset: u64, from: &[u8]) -> bool {
        from.is_empty()
            || self
                .segments
                .get()
                .is_some_and(|all| all.write(self.memory.row(local), offset, from))
    }

    /// Copies out of a neighbour's segment; `false` when the range is outside.
    #[inline]
    pub(crate) fn read(&self, local: usize, offset: u64, into: &mut [u8]) -> bool {
        into.is_empty()
            || self.segments.get().is_some_and(|all| all.read(self.memory.row(local), offset, into))
    }

    /// Where bytes of this process are in its own segment, if they all are.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let base = self.segment_base(self.local())?.addr();
        let offset = bytes.as_ptr().addr().checked_sub(base)? as u64;
        let segments = self.segments.get()?;
        segments.range(self.memory.row(self.local()), offset, bytes.len()).map(|_| offset)
    }

    /// Copies to this rank's stage, where nobody reads meanwhile; `false` when it is too much.
    pub(crate) fn stage(&self, at: usize, bytes: &[u8]) -> bool {
        let Some(to) = self.memory.stage(self.local(), at, bytes.len()) else { return false };
        // SAFETY: inside the mapping (`stage`), which no slice of this process reaches into. Who
        // lends has this part to himself until he has told others of it.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }

    /// Copies what a neighbour has on its stage; `false` when it is outside.
    pub(crate) fn unstage(&self, local: usize, at: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.memory.stage(local, at, into.len()) else { return false };
        // SAFETY: as in `stage`; a neighbour that does not keep it as it is changes bytes that any
        // value is allowed for.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from.as_ptr(), into.len()) };
        true
    }

    #[inline]
    pub(crate) fn allocate<M: Mode>(&self, class: MessageClass, len: usize) -> Option<Block> {
        let freed = self.memory.freed(self.local(), class as usize);
        self.payloads.get(class as usize)?.with::<M, _>(|arena| arena.allocate(freed, len))
    }

    /// The arena of one class of messages, for what needs no lock.
    #[inline]
    pub(super) fn payloads(&self, class: MessageClass) -> Option<&Arena> {
        self.payloads.get(class as usize).map(|payloads| &payloads.arena)
    }

    /// Gives a block back that was not sent.
    pub(crate) fn forget<M: Mode>(&self, class: MessageClass, block: Block) {
        let freed = self.memory.freed(self.local(), class as usize);
        if let Some(payloads) = self.payloads.get(class as usize) {
            payloads.with::<M, _>(|arena| arena.forget(freed, block));
        }
    }

    /// The first `len` bytes of a block that this rank allocated.
    pub(crate) fn block_bytes(
        &self,
        class: MessageClass,
        block: Block,
        len: usize,
    ) -> Option<&mut [u8]> {
        self.memory.block_payload(self.local(), class as usize, block, len)
    }
}
