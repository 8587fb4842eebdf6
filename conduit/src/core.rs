//! The state of one rank. Holds no process-wide state: several ranks may live in one process.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bootstrap::node_shm::{NodeShm, Notice, RankSlot};
use bootstrap::{Bootstrap, ExitNotifier, Rank, RankInfo};
use settings::Env;

use crate::client::WaitMode;
use crate::consumer::{self, Consumer};
use crate::error::Error;
use crate::gate::{Progress, Which};
use crate::handler::Table;
use crate::lanes::Passes;
use crate::mode::Mode;
use crate::operations::Operations;
use crate::settings::Settings;
use crate::sys;
use crate::transport::message::MessageClass;
use crate::transport::neighbours::{self, Neighbours, Span};
use crate::transport::remote::Remote;
use crate::transport::shm::{
    Arena, Control, HostMemory, HostWords, LANES, Layout, Member, Ring, SegmentRow, Segments,
    SharedMemory, Tail,
};

/// A payload arena of this rank and the lock that threaded modes take.
pub(crate) struct Payloads {
    pub(crate) arena: Arena,
    lock: Mutex<()>,
}

impl Payloads {
    fn new(bytes: usize) -> Self {
        Self { arena: Arena::new(bytes), lock: Mutex::new(()) }
    }

    /// Runs `call` with the arena, alone in it.
    #[inline]
    pub(crate) fn with<M: Mode, T>(&self, call: impl FnOnce(&Arena) -> T) -> T {
        let _alone = M::THREADED.then(|| self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        call(&self.arena)
    }
}

/// What every call looks at, in this order: where ranks share a processor, each line and page that a call touches was
/// pushed out by the others, and a barrier needs the first line only.
#[repr(C, align(128))]
struct Hot {
    /// The client's handlers are off: this process is exiting.
    closed: AtomicBool,
    /// A handler is running; for modes with one thread at a time.
    in_handler: AtomicBool,
    /// More ranks than processors on this host.
    crowded: AtomicBool,
    /// Senders need no barrier: who sleeps makes one for all (`wait.rs`).
    light: AtomicBool,
    /// This rank takes part in the barriers of sleepers.
    registered: AtomicBool,
    wait_mode: AtomicU8,
    /// Some rank of the job is outside the neighbourhood.
    networked: bool,
    /// The program is one of C: handlers are foreign, Longs carry addresses instead of offsets.
    c_face: bool,
    span: Span,
    /// Barrier of the client.
    barrier: Progress,
    memory: HostMemory,
    page: Arc<NodeShm>,
    /// Requests since the last poll that was asked for, not counting those that were let pass.
    row: AtomicU32,
    passes: Passes,
    /// Messages taken since the last one sent.
    taken: AtomicU32,
    /// Barrier of the library.
    inner_barrier: Progress,
    place: RankInfo,
}

/// Marks that a handler runs, also when it panics.
struct Inside<'a>(&'a AtomicBool);

impl<'a> Inside<'a> {
    #[inline]
    fn enter(word: &'a AtomicBool) -> Self {
        word.store(true, Ordering::Relaxed);
        Self(word)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// One rank: its place, its queues, its segment, its handlers.
pub(crate) struct Core {
    hot: Hot,
    name: String,
    neighbours: Neighbours,
    /// The way to ranks outside the neighbourhood.
    remote: Option<Remote>,
    /// One-sided operations in flight.
    pub(crate) operations: Operations,
    /// Words that the ranks of all neighbourhoods of the host share.
    host: HostWords,
    exit_notifier: ExitNotifier,
    services: Mutex<Box<dyn Bootstrap>>,
    settings: Settings,
    pub(crate) handlers: Table,
    segments: OnceLock<Segments>,
    payloads: [Payloads; 2],
    /// Consumer side of the request, reply and internal queue.
    pub(crate) consumers: [Consumer; 3],
    /// Consumer side of the lanes to this rank.
    pub(crate) lane_consumers: [Consumer; 2 * LANES],
    /// Exit machinery is installed in this process for this rank.
    hooked: AtomicBool,
    /// Attach was called.
    pub(crate) attaches: AtomicU32,
}

impl Core {
    /// Collective: builds the rank over its bootstrap services and meets the others. Nothing process-wide.
    pub(crate) fn join(
        name: &str,
        mut services: Box<dyn Bootstrap>,
        settings: Settings,
        variables: (&settings::Values, &Env),
        c_face: bool,
    ) -> Result<Arc<Self>, Error> {
        let place = services.rank_info();
        settings.check()?;
        let page = Arc::clone(services.node_shm());
        let exit_notifier = services.exit_notifier();
        let neighbours = Neighbours::new(place, &page, settings.neighbourhood_max);
        let (memory, host) = Self::share(&neighbours, &settings, services.as_mut(), &page)?;
        let (span, layout) = (neighbours.span(), *memory.layout());
        // Before the network has threads: of a process with one thread the system needs no grace period (some milliseconds).
        let in_barriers = sys::join_barriers();
        let remote = Remote::start(&settings, &neighbours, variables, services.as_mut())?;
        let hot = Hot {
            closed: AtomicBool::new(false),
            in_handler: AtomicBool::new(false),
            crowded: AtomicBool::new(true),
            light: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            wait_mode: AtomicU8::new(WaitMode::SpinBlock as u8),
            networked: remote.is_some(),
            c_face,
            span,
            barrier: Progress::new(),
            inner_barrier: Progress::new(),
            row: AtomicU32::new(0),
            passes: Passes::none(),
            taken: AtomicU32::new(0),
            place,
            memory,
            page,
        };
        let core = Arc::new(Self {
            hot,
            name: name.to_owned(),
            neighbours,
            remote,
            operations: Operations::new(),
            host,
            exit_notifier,
            services: Mutex::new(services),
            settings,
            handlers: Table::new(),
            segments: OnceLock::new(),
            payloads: [Payloads::new(layout.arena), Payloads::new(layout.arena)],
            consumers: [const { Consumer::new() }; 3],
            lane_consumers: [const { Consumer::new() }; 2 * LANES],
            hooked: AtomicBool::new(false),
            attaches: AtomicU32::new(0),
        });
        core.agree_on_layout()?;
        core.announce_cpus();
        core.join_barriers(in_barriers);
        Ok(core)
    }

    /// Maps this neighbourhood's part of the memory that the host's ranks share.
    fn share(
        neighbours: &Neighbours,
        settings: &Settings,
        services: &mut dyn Bootstrap,
        page: &Arc<NodeShm>,
    ) -> Result<(HostMemory, HostWords), Error> {
        let (parts, part) = neighbours.on_host();
        let lengths = || parts.clone().map(|locals| Layout::new(locals, settings.depth).room());
        let (at, all) = (lengths().take(part).sum::<usize>(), lengths().sum());
        let layout = Layout::new(neighbours.span().locals, settings.depth);
        let fd = services.host_memory(all)?;
        let os = |source| Error::Os { operation: "map the queues of the host's ranks", source };
        let memory = SharedMemory::map_at(&fd, at, layout.len).map_err(os)?;
        let short = || os(std::io::Error::other("the mapping is too short"));
        let host = HostWords::map(&fd).map_err(os)?;
        let memory = HostMemory::new(memory, layout, Arc::clone(page), neighbours.span());
        Ok((memory.ok_or_else(short)?, host))
    }

    fn agree_on_layout(&self) -> Result<(), Error> {
        // Algorithms that differ between ranks would wait for each other for ever, and destinations would be misread.
        let (central, c) = (self.settings.central_barrier, self.hot.c_face);
        let mine = self.layout().fingerprint() ^ u64::from(central) << 1 ^ u64::from(c) << 2;
        let word = &self.control().fingerprint;
        match word.compare_exchange(0, mine, Ordering::SeqCst, Ordering::SeqCst) {
            Err(seen) if seen != mine => {
                Err(Error::LayoutMismatch { rank: self.hot.place.rank, seen, mine })
            }
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

    /// Takes part in the barriers that sleeping ranks make, if the system has them and this process is in them.
    fn join_barriers(&self, joined: bool) {
        if joined {
            self.hot.registered.store(true, Ordering::Relaxed);
            self.control().registered.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Whether senders can leave the barrier between a message and the look at the doorbell to who sleeps.
    #[inline(always)]
    pub(crate) fn light(&self) -> bool {
        self.hot.light.load(Ordering::Relaxed)
    }

    /// Whether this rank makes a barrier for its senders before it sleeps.
    pub(crate) fn registered(&self) -> bool {
        self.hot.registered.load(Ordering::Relaxed)
    }

    /// As on a system without such barriers. All ranks, then a barrier.
    #[cfg(test)]
    pub(crate) fn leave_barriers(&self) {
        self.hot.light.store(false, Ordering::SeqCst);
        self.hot.registered.store(false, Ordering::SeqCst);
    }

    /// Decides whether ranks may spin, and whether senders need barriers; once every rank has announced itself.
    pub(crate) fn learn_cpus(&self) {
        let seen =
            self.host.cpus().iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        let cpus = self.settings.cpus.unwrap_or(seen).max(1);
        self.hot.crowded.store(self.hot.place.locals > cpus, Ordering::Relaxed);
        let registered = self.control().registered.load(Ordering::SeqCst);
        self.hot.light.store(registered == self.hot.span.locals, Ordering::Relaxed);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }

    #[inline]
    pub(crate) fn crowded(&self) -> bool {
        self.hot.crowded.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn wait_mode(&self) -> WaitMode {
        WaitMode::from_word(self.hot.wait_mode.load(Ordering::Relaxed))
    }

    /// Whether a wait may keep the processor for a while.
    #[inline]
    pub(crate) fn may_spin(&self) -> bool {
        !self.crowded() && self.wait_mode() != WaitMode::Block
    }

    pub(crate) fn set_wait_mode(&self, mode: WaitMode) {
        self.hot.wait_mode.store(mode as u8, Ordering::Relaxed);
    }

    /// From now on a decided end of the job goes to the exit machinery instead of being an error.
    pub(crate) fn set_hooked(&self) {
        self.hooked.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_hooked(&self) -> bool {
        self.hooked.load(Ordering::Relaxed)
    }

    /// Index of a job rank among the ranks of this neighbourhood, `None` for remote ranks.
    #[inline]
    pub(crate) fn local_of(&self, rank: Rank) -> Option<usize> {
        let offset = self.hot.span.offset(rank.0);
        if offset < self.hot.span.locals as usize {
            return Some(offset);
        }
        self.neighbours.local_of(rank)
    }

    /// Where messages and one-sided operations for a rank go: its local index, or [`neighbours::remote`].
    #[inline]
    pub(crate) fn target(&self, call: &'static str, rank: Rank) -> Result<usize, Error> {
        let offset = self.hot.span.offset(rank.0);
        if offset < self.hot.span.locals as usize {
            return Ok(offset);
        }
        self.other_target(call, rank)
    }

    fn other_target(&self, call: &'static str, rank: Rank) -> Result<usize, Error> {
        if rank.0 >= self.hot.place.size {
            return Err(Error::RankOutOfRange { call, rank, size: self.hot.place.size });
        }
        Ok(self.local_of(rank).unwrap_or_else(|| neighbours::remote(rank)))
    }

    /// Job rank of a target.
    #[inline]
    pub(crate) fn rank_of(&self, target: usize) -> Rank {
        self.neighbours.rank_of(target)
    }

    /// The neighbourhoods of the job.
    pub(crate) const fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// This rank and its neighbourhood, by numbers.
    #[inline(always)]
    pub(crate) const fn span(&self) -> Span {
        self.hot.span
    }

    /// Whether a target is a neighbour.
    #[inline(always)]
    pub(crate) const fn is_near(&self, target: usize) -> bool {
        target < self.hot.span.locals as usize
    }

    /// Whether some rank is outside the neighbourhood.
    #[inline(always)]
    pub(crate) const fn networked(&self) -> bool {
        self.hot.networked
    }

    /// Whether the program is one of C.
    #[inline(always)]
    pub(crate) const fn c_face(&self) -> bool {
        self.hot.c_face
    }

    /// The way to ranks outside the neighbourhood.
    #[inline]
    pub(crate) const fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    /// Doorbell of a neighbour.
    #[inline(always)]
    pub(crate) fn slot_of(&self, local: usize) -> &RankSlot {
        let at = u32::try_from(local).unwrap_or(u32::MAX);
        self.hot.page.slot(self.hot.span.base.saturating_add(at))
    }

    /// This rank's index among the ranks of its neighbourhood.
    #[inline]
    pub(crate) const fn local(&self) -> usize {
        self.hot.span.local as usize
    }

    /// The memory shared with the ranks of the host.
    #[inline]
    pub(crate) const fn memory(&self) -> &HostMemory {
        &self.hot.memory
    }

    #[inline]
    pub(crate) const fn layout(&self) -> &Layout {
        self.hot.memory.layout()
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        self.hot.memory.control()
    }

    #[inline]
    pub(crate) fn row(&self, local: usize) -> &SegmentRow {
        self.hot.memory.row(local)
    }

    #[inline]
    pub(crate) fn member(&self, local: usize) -> &Member {
        self.hot.memory.member(local)
    }

    #[inline(always)]
    pub(crate) fn ring_of(&self, local: usize, class: MessageClass) -> Ring<'_> {
        self.hot.memory.ring(local, class)
    }

    #[inline(always)]
    pub(crate) fn internal_of(&self, local: usize) -> Ring<'_> {
        self.hot.memory.ring(local, MessageClass::Internal)
    }

    /// Messages taken since the last one sent.
    #[inline(always)]
    pub(crate) const fn taken(&self) -> &AtomicU32 {
        &self.hot.taken
    }

    /// Requests that may pass without a look for messages and for the end of communication.
    #[inline(always)]
    pub(crate) const fn passes(&self) -> &Passes {
        &self.hot.passes
    }

    /// Ends the row of requests.
    #[inline(always)]
    pub(crate) fn end_row(&self) {
        self.hot.row.store(0, Ordering::Relaxed);
        self.hot.passes.end();
    }

    /// Requests since the last poll that were looked at.
    #[inline(always)]
    pub(crate) const fn row_of_requests(&self) -> &AtomicU32 {
        &self.hot.row
    }

    /// Producer side of the lane to a rank.
    #[inline(always)]
    pub(crate) fn tail(&self, target: usize, class: MessageClass) -> Option<&Tail> {
        self.hot.memory.tail(target, class as usize)
    }

    pub(crate) const fn payloads(&self, class: MessageClass) -> &Payloads {
        &self.payloads[class as usize]
    }

    /// Release table of `owner`'s arena.
    #[inline]
    pub(crate) fn freed(&self, owner: usize, class: MessageClass) -> &[AtomicU32] {
        self.hot.memory.freed(owner, class as usize)
    }

    #[inline]
    pub(crate) fn segments(&self) -> Option<&Segments> {
        self.segments.get()
    }

    pub(crate) fn set_segments(&self, segments: Segments) {
        // A second attach was refused before.
        let _ = self.segments.set(segments);
    }

    /// Runs `call` with the bootstrap services, waiting for other threads that are in them.
    pub(crate) fn services<T>(&self, call: impl FnOnce(&mut dyn Bootstrap) -> T) -> T {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        call(services.as_mut())
    }

    /// Fails when communication is over: this process is exiting, or the end of the job is decided.
    #[inline]
    pub(crate) fn check_open(&self, call: &'static str) -> Result<(), Error> {
        self.check_running(call)?;
        match self.hot.page.notice() {
            None => Ok(()),
            Some(notice) => Err(self.ending(notice)),
        }
    }

    /// Fails when this process is exiting.
    #[inline]
    pub(crate) fn check_running(&self, call: &'static str) -> Result<(), Error> {
        if self.is_closed() { Err(self.closed_to(call)) } else { Ok(()) }
    }

    #[cold]
    fn closed_to(&self, call: &'static str) -> Error {
        if self.is_hooked() {
            crate::core_link::after_exit(self);
        }
        Error::AfterExit { call }
    }

    #[cold]
    #[inline(never)]
    fn ending(&self, notice: Notice) -> Error {
        if self.is_hooked() {
            crate::core_link::on_notice(self, notice);
        }
        Error::JobEnding { code: notice.code }
    }

    /// The progress of a barrier.
    #[inline]
    pub(crate) const fn progress_of(&self, which: Which) -> &Progress {
        match which {
            Which::Client => &self.hot.barrier,
            Which::Inner => &self.hot.inner_barrier,
        }
    }

    /// Whether this thread is inside a handler of the client.
    #[inline]
    pub(crate) fn in_handler<M: Mode>(&self) -> bool {
        if M::THREADED {
            consumer::in_handler()
        } else {
            self.hot.in_handler.load(Ordering::Relaxed)
        }
    }

    /// Fails inside a handler.
    #[inline]
    pub(crate) fn check_outside<M: Mode>(&self, call: &'static str) -> Result<(), Error> {
        if self.in_handler::<M>() { Err(Error::InHandler { call }) } else { Ok(()) }
    }

    /// Runs a handler of the client.
    #[inline]
    pub(crate) fn run_handler<M: Mode>(&self, handler: impl FnOnce()) {
        if M::THREADED {
            return consumer::run_handler(handler);
        }
        let _inside = Inside::enter(&self.hot.in_handler);
        handler();
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.hot.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.hot.closed.store(true, Ordering::SeqCst);
        self.end_row();
    }

    /// Rank, size, host.
    pub(crate) const fn rank_info(&self) -> RankInfo {
        self.hot.place
    }

    /// The node memory.
    pub(crate) const fn node_shm(&self) -> &Arc<NodeShm> {
        &self.hot.page
    }

    /// This rank's doorbell.
    #[inline]
    pub(crate) fn slot(&self) -> &RankSlot {
        self.hot.page.slot(self.hot.place.local)
    }

    /// The handle to the control tree.
    pub(crate) const fn exit_notifier(&self) -> ExitNotifier {
        self.exit_notifier
    }

    /// Runs `call` with the bootstrap services. Not async-signal-safe. `None` when another thread is inside them.
    pub(crate) fn try_services<T>(&self, call: impl FnOnce(&mut dyn Bootstrap) -> T) -> Option<T> {
        self.services.try_lock().ok().map(|mut services| call(services.as_mut()))
    }
}
