//! What one rank is: its transports, and what it knows of itself. Holds no process-wide state:
//! several ranks may live in one process. What ranks do stands in `am`, `rma`, `barrier` and
//! `exit_link`.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bootstrap::node_shm::{ExitDecision, NodeShm};
use bootstrap::{Bootstrap, ExitNotifier, Rank, RankInfo};
use settings::Env;

use crate::atomics::pending::Atomics;
use crate::barrier::dissemination::Leader;
use crate::barrier::flags::Flags;
use crate::call_state::CallState;
use crate::coll::{Collectives, Mailboxes, Members, Order, Places};
use crate::error::Error;
use crate::exit;
use crate::exit::inbox::ExitInbox;
use crate::handler::Table;
use crate::loans::Loans;
use crate::mode::Mode;
use crate::rma::operations::Operations;
use crate::settings::Settings;
use crate::transport::Transport;
use crate::transport::neighbours::{self, Neighbours};
use crate::transport::net::NetTransport;
use crate::transport::shm::ShmTransport;
use crate::vis::state::Vis;
use crate::wait_mode::WaitState;

/// One rank. What every call reads comes first, see `ShmTransport`.
#[repr(C, align(128))]
pub struct RankContext {
    pub(crate) calls: CallState,
    pub(crate) waits: WaitState,
    pub(crate) transport: Transport,
    pub(crate) rank_info: RankInfo,
    pub(crate) name: String,
    pub(crate) neighbours: Neighbours,
    /// Barriers between neighbourhoods, as their leader sees them.
    pub(crate) leaders: [Leader; 2],
    /// Where barriers write instead of sending messages.
    pub(crate) barrier_flags: Option<Box<Flags>>,
    pub(crate) exit_inbox: ExitInbox,
    pub(crate) operations: Operations,
    pub(crate) vis: Vis,
    pub(crate) loans: Loans,
    pub(crate) atomics: Atomics,
    pub(crate) handlers: Table,
    pub(crate) collectives: Collectives,
    pub(crate) order: Order,
    pub(crate) exit_notifier: ExitNotifier,
    services: Mutex<Box<dyn Bootstrap>>,
    pub(crate) settings: Settings,
    /// Exit machinery is installed in this process for this rank: a decided end of the job goes to
    /// it instead of being an error.
    pub(crate) hooked: AtomicBool,
    pub(crate) attaches: AtomicU32,
}

impl RankContext {
    /// Collective: builds the rank over its bootstrap services and meets the others. Nothing
    /// process-wide.
    pub(crate) fn join(
        name: &str,
        mut services: Box<dyn Bootstrap>,
        settings: Settings,
        variables: (&settings::Values, &Env),
        c_face: bool,
    ) -> Result<Arc<Self>, Error> {
        let place = services.rank_info();
        settings.check()?;
        let exit_notifier = services.exit_notifier();
        let neighbours = Neighbours::new(place, services.node_shm(), settings.neighbourhood_max);
        let places = places(&Members::all(place.size), place, &neighbours, services.node_shm());
        let transport =
            Transport::open(&neighbours, &settings, variables, services.as_mut(), c_face)?;
        let leads = neighbours.leads();
        let rank = (place.rank.0, place.size);
        let mailboxes = Mailboxes::open(rank, &places, (&transport, &settings));
        let barrier_flags = if leads { Flags::open(&transport, &settings)? } else { None };
        Ok(Arc::new(Self {
            calls: CallState::new(),
            waits: WaitState::new(),
            transport,
            rank_info: place,
            name: name.to_owned(),
            leaders: [Leader::new(neighbours.count), Leader::new(neighbours.count)],
            barrier_flags: barrier_flags.map(Box::new),
            neighbours,
            exit_inbox: ExitInbox::new(),
            operations: Operations::default(),
            vis: Vis::new(variables.0),
            loans: Loans::new(variables.0),
            atomics: Atomics::default(),
            handlers: Table::new(),
            collectives: Collectives::new(rank, places, mailboxes),
            order: Order::default(),
            exit_notifier,
            services: Mutex::new(services),
            settings,
            hooked: AtomicBool::new(false),
            attaches: AtomicU32::new(0),
        }))
    }

    /// Decides whether ranks may spin, and whether senders need fences; once every rank has
    /// announced itself.
    pub(crate) fn learn_cpus(&self) {
        let cpus = self.settings.cpus.unwrap_or_else(|| self.shm().cpus()).max(1);
        let polls_call = self.transport.net().is_some_and(|net| !net.is_adapter());
        self.waits.set_place(self.rank_info.locals > cpus, polls_call);
        self.shm().learn_fences();
    }

    #[inline(always)]
    pub(crate) const fn shm(&self) -> &ShmTransport {
        &self.transport.shm
    }

    /// The memory of the node, where doorbells are.
    #[inline]
    pub(crate) const fn node_shm(&self) -> &Arc<NodeShm> {
        &self.transport.shm.page
    }

    /// Whether some rank is outside the neighbourhood.
    #[inline(always)]
    pub const fn networked(&self) -> bool {
        self.transport.shm.networked
    }

    /// Bytes of receive buffers and rings for messages over the network.
    pub(crate) fn receive_memory(&self) -> u64 {
        self.transport.net().map_or(0, NetTransport::receive_bytes)
    }

    /// Where the members of a team of this rank are.
    pub(crate) fn places(&self, members: &Members) -> Places {
        places(members, self.rank_info, &self.neighbours, self.node_shm())
    }

    pub(crate) fn is_hooked(&self) -> bool {
        self.hooked.load(Ordering::Relaxed)
    }

    /// Index of a job rank among the ranks of this neighbourhood, `None` for remote ranks.
    #[inline]
    pub fn local_of(&self, rank: Rank) -> Option<usize> {
        self.neighbours.local_of(rank)
    }

    /// Where messages and one-sided operations for a rank go.
    #[inline]
    pub fn target(&self, call: &'static str, rank: Rank) -> Result<usize, Error> {
        let span = self.shm().span;
        let offset = span.offset(rank.0);
        if offset < span.locals as usize {
            return Ok(offset);
        }
        self.other_target(call, rank)
    }

    fn other_target(&self, call: &'static str, rank: Rank) -> Result<usize, Error> {
        if rank.0 >= self.rank_info.size {
            return Err(Error::RankOutOfRange { call, rank, size: self.rank_info.size });
        }
        Ok(self.neighbours.local_outside(rank).unwrap_or_else(|| neighbours::remote(rank)))
    }

    #[inline]
    pub(crate) fn rank_of(&self, target: usize) -> Rank {
        self.neighbours.rank_of(target)
    }

    /// Runs `call` with the bootstrap services, waiting for other threads that are in them.
    pub(crate) fn services<T>(&self, call: impl FnOnce(&mut dyn Bootstrap) -> T) -> T {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        call(services.as_mut())
    }

    /// Runs `call` with the bootstrap services. Not async-signal-safe. `None` when another thread
    /// is inside them.
    pub(crate) fn try_services<T>(&self, call: impl FnOnce(&mut dyn Bootstrap) -> T) -> Option<T> {
        self.services.try_lock().ok().map(|mut services| call(services.as_mut()))
    }
}

/// Where the members of a team are, for one of them.
fn places(members: &Members, place: RankInfo, neighbours: &Neighbours, page: &NodeShm) -> Places {
    let mut all = neighbours.of_all(place, page);
    if *members == Members::all(place.size) {
        return Places::new(neighbours.number, all).with_neighbours(&neighbours.ranks);
    }
    let near = neighbours.ranks.iter().filter_map(|job| members.rank_of(job));
    if near.count() == members.count() as usize {
        return Places::together(members.count());
    }
    let mut numbers = vec![0; members.count() as usize];
    for (job, number) in (0..place.size).zip(&mut all) {
        if let Some(to) = members.rank_of(job).and_then(|rank| numbers.get_mut(rank as usize)) {
            *to = number;
        }
    }
    Places::new(neighbours.number, numbers.into_iter())
}

/// What a call checks first.
impl RankContext {
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.calls.is_closed()
    }

    /// From now on every call of the client fails. Async-signal-safe.
    pub(crate) fn close(&self) {
        self.calls.close();
        self.shm().budget.end_burst();
    }

    /// Whether this thread is inside a handler of the client.
    #[inline]
    pub fn in_handler<M: Mode>(&self) -> bool {
        self.calls.in_handler::<M>()
    }

    /// Whether communication is open and this thread outside handlers.
    #[inline(always)]
    pub(crate) fn is_running<M: Mode>(&self) -> bool {
        let calm = !M::THREADED && self.calls.is_calm();
        (calm || !self.is_closed() && !self.in_handler::<M>())
            && self.node_shm().exit_decision().is_none()
    }

    /// Fails when communication is over: this process is exiting, or the end of the job is decided.
    #[inline]
    pub fn check_open(&self, call: &'static str) -> Result<(), Error> {
        self.check_running(call)?;
        match self.node_shm().exit_decision() {
            None => Ok(()),
            Some(decision) => Err(self.ending(decision)),
        }
    }

    /// Fails when this process is exiting.
    #[inline]
    pub fn check_running(&self, call: &'static str) -> Result<(), Error> {
        if self.is_closed() { Err(self.closed_to(call)) } else { Ok(()) }
    }

    /// A call of the client came after this process had begun to exit: only the thread that exits
    /// gets the error.
    #[cold]
    fn closed_to(&self, call: &'static str) -> Error {
        if let Some(driver) = self.exit_driver() {
            driver.meet();
        }
        Error::AfterExit { call }
    }

    #[cold]
    #[inline(never)]
    fn ending(&self, decision: ExitDecision) -> Error {
        if let Some(driver) = self.exit_driver() {
            driver.exit_decision(decision);
        }
        Error::JobEnding { code: decision.code }
    }

    /// Fails inside a handler.
    #[inline]
    pub fn check_outside<M: Mode>(&self, call: &'static str) -> Result<(), Error> {
        if self.in_handler::<M>() { Err(Error::InHandler { call }) } else { Ok(()) }
    }

    /// Ends the process after a broken promise of the program that cannot be an error of a call.
    /// Without exit machinery (ranks that are threads) it panics.
    #[cold]
    pub fn fatal(&self, text: &str) -> ! {
        assert!(self.is_hooked(), "{text}");
        exit::fatal_error(text)
    }
}
