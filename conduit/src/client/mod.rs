//! The client: a program's hold on the library.

mod barrier;
mod rma;
mod vectors;

use std::sync::Arc;

pub use barrier::BarrierFlags;
use bootstrap::{Bootstrap, Rank};
use settings::log::RANK;
use settings::say;
use spawner_mpi::client::PROVIDERS;

use crate::endpoint::{Endpoint, Team};
use crate::error::Error;
use crate::exit::exit;
use crate::mode::{Mode, Seq};
use crate::rank::RankContext;
use crate::segment::Segment;
use crate::segment_mode::SegmentMode;
use crate::settings::Settings;
use crate::trace::{self, Cause};
use crate::wait::Waiter;
use crate::wait_mode::WaitMode;
use crate::{coll, exit_link, identity, installed, notes};

/// Position of this rank among the sets of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Neighbourhoods in the job.
    pub neighbourhoods: u32,
    /// This rank's neighbourhood among them.
    pub neighbourhood: u32,
    /// Hosts in the job.
    pub hosts: u32,
    /// This rank's host among them.
    pub host: u32,
}

/// The library as one program sees it. `M` says how the program's threads use it.
pub struct Client<M: Mode = Seq> {
    pub(crate) context: Arc<RankContext>,
    /// Gives the client the auto traits of its mode.
    _marker: M::Marker,
}

impl<M: Mode> std::fmt::Debug for Client<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({:?}, {}, rank {} of {})", self.name(), M::NAME, self.rank(), self.size())
    }
}

impl<M: Mode> Client<M> {
    /// Joins the job that this process was started in (a job of one rank when no launcher started
    /// it). Collective over the job, once per process; contains a barrier. Reads the `GASNET_*`
    /// settings, installs the exit machinery.
    ///
    /// `name` is for diagnostics and the same on all ranks.
    ///
    /// # Errors
    /// No job, bad settings, no memory, a placement that needs a network, a second call.
    pub fn init(name: &str) -> Result<Self, Error> {
        Self::init_with(name, false, |_, settings| Ok(settings))
    }

    /// As [`Client::init`], in a segment mode that the program chooses. `GASNET_SEGMENT_MODE` may make
    /// `LARGE` of `FAST` or the other way. In [`SegmentMode::everything`] there is no segment, and
    /// offsets in the calls of a client are addresses in the process of the other rank.
    ///
    /// # Errors
    /// As [`Client::init`]; also `GASNET_SEGMENT_MODE` with a mode that this program cannot have.
    pub fn init_in(name: &str, mode: SegmentMode) -> Result<Self, Error> {
        Self::init_with(name, false, |table, settings| {
            Ok(Settings { segment_mode: mode.with(table)?, ..settings })
        })
    }

    /// As [`Client::init`]; `adjust` may change the settings that the table of variables gave.
    /// `c_face`: for a program of C.
    pub(crate) fn init_with(
        name: &str,
        c_face: bool,
        adjust: impl FnOnce(&settings::Values, Settings) -> Result<Settings, Error>,
    ) -> Result<Self, Error> {
        identity::keep();
        exit_link::first_init()?;
        let env = installed::environment()?;
        let table = settings::Values::from_env(&env)?;
        notes::level(&table);
        notes::provider(&env, &table);
        let settings = adjust(&table, Settings::of(&table))?;
        settings.check_mode(&table)?;
        let settings = Settings { single_threaded: !M::THREADED, ..settings };
        let services = bootstrap::connect_from(&env, &PROVIDERS)?;
        trace::open(&table, services.rank_info());
        let context = RankContext::join(name, services, settings, (&table, &env), c_face)?;
        notes::settings(&context, &env, &table);
        exit_link::install(&context, &table)?;
        let client = Self::meet_first(context)?;
        trace::init_ends();
        Ok(client)
    }

    /// As [`Client::init`] over given bootstrap services and settings, without anything
    /// process-wide: no exit hook, no signal handler. Several such clients may live in one process,
    /// each on a thread of its own (each a rank).
    ///
    /// # Errors
    /// As [`Client::init`].
    pub fn with_bootstrap(
        name: &str,
        bootstrap: Box<dyn Bootstrap>,
        settings: Settings,
    ) -> Result<Self, Error> {
        identity::keep();
        let env = settings.network.iter().cloned().collect();
        let table = settings::Values::from_env(&env)?;
        Self::meet_first(RankContext::join(name, bootstrap, settings, (&table, &env), false)?)
    }

    fn meet_first(context: Arc<RankContext>) -> Result<Self, Error> {
        context.handlers.register_library(coll::handler());
        context.handlers.register_library(coll::brief_handler());
        context.handlers.register_library(coll::order_handler());
        context.register_vis::<M>();
        context.register_carried_longs();
        context.register_loans::<M>();
        context.register_atomics::<M>();
        context.meet_at_start::<M>("init")?;
        context.start_threads::<M>()?;
        context.learn_cpus();
        Ok(Self { context, _marker: M::Marker::default() })
    }

    /// Name given at init.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.context.name
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.context.rank_info.rank
    }

    /// Ranks in the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.context.rank_info.size
    }

    /// The primordial endpoint.
    #[must_use]
    pub const fn endpoint(&self) -> Endpoint<'_, M> {
        Endpoint { client: self }
    }

    /// The team of all ranks.
    #[must_use]
    pub const fn team(&self) -> Team<'_, M> {
        Team { client: self, group: None }
    }

    /// Job ranks on this host, ascending, this one included.
    #[must_use]
    pub fn host_ranks(&self) -> Vec<Rank> {
        let page = self.context.node_shm();
        (0..page.locals()).map(|local| page.local_rank(local)).collect()
    }

    /// Job ranks that share memory with this one, ascending, this one included: those of its host,
    /// or the part of them that `GASNET_SUPERNODE_MAXSIZE` leaves together.
    #[must_use]
    pub fn neighbours(&self) -> Vec<Rank> {
        self.context.neighbours.ranks.iter().map(Rank).collect()
    }

    /// Where this rank stands among hosts and neighbourhoods.
    #[must_use]
    pub fn position(&self) -> Position {
        let place = self.context.rank_info;
        let (hosts, host) = (place.hosts, place.host.0);
        let of = &self.context.neighbours;
        Position { neighbourhoods: of.count, neighbourhood: of.number, hosts, host }
    }

    /// Bytes of memory that this rank has by now to receive messages over the network: buffers for
    /// requests and replies, and rings (`GASNET_AM_FLOW_CONTROL`). 0 without a network.
    #[must_use]
    pub fn receive_memory(&self) -> u64 {
        self.context.receive_memory()
    }

    /// Runs handlers of messages that have arrived; a bounded number per call.
    ///
    /// # Errors
    /// Inside a handler; the end of the job.
    #[inline]
    pub fn poll(&self) -> Result<(), Error> {
        self.context.poll::<M>("poll").map(|_| ())
    }

    /// Polls until `condition` holds; it is asked before the first poll and after each. Waits by
    /// the wait mode. What handlers wrote before they made it hold (through atomics or locks) is
    /// visible on return.
    ///
    /// # Errors
    /// As [`Client::poll`].
    #[inline]
    pub fn block_until(&self, mut condition: impl FnMut() -> bool) -> Result<(), Error> {
        let context = &self.context;
        let mut waiter = Waiter::for_cause(Cause::Condition);
        while !condition() {
            if waiter.poll::<M>(context, "block_until", &mut condition)? > 0 {
                waiter.progressed();
            } else {
                let condition = &mut condition;
                waiter.idle(context, || context.has_work() || condition());
            }
        }
        Ok(())
    }

    /// Says how blocking calls of this process wait from now on.
    pub fn set_wait_mode(&self, mode: WaitMode) {
        self.context.waits.set_mode(mode);
    }

    /// Largest segment of this rank, a multiple of the page size.
    #[must_use]
    pub fn max_local_segment(&self) -> u64 {
        self.context.max_segment()
    }

    /// Smallest of the [`Client::max_local_segment`] of all ranks. The limit is a setting of the
    /// job and the ranks of a host share its memory equally, so on one host it is the same.
    #[must_use]
    pub fn max_global_segment(&self) -> u64 {
        self.context.max_segment_of_all()
    }

    /// Attaches a segment of `len` bytes (a multiple of the page size; may differ between ranks).
    /// Collective over the job, once; contains a barrier.
    ///
    /// # Errors
    /// A second attach, an impossible size, a call inside a handler, no memory, the end of the job.
    pub fn attach_segment(&self, len: u64) -> Result<Segment, Error> {
        let call = "attach_segment";
        self.context.check_open(call)?;
        self.context.check_outside::<M>(call)?;
        self.context.attach(len, || self.context.meet::<M>(call))?;
        trace::attached(len);
        Ok(Segment::new(Arc::clone(&self.context)))
    }

    /// Ends the job with `code`. Collective by intent: the codes of the ranks are reduced by
    /// maximum; a rank that does not follow in time is ended. Never returns.
    #[expect(clippy::disallowed_methods, reason = "the end of the process is what was asked for")]
    pub fn exit(&self, code: i32) -> ! {
        if self.context.is_hooked() {
            exit(code);
        }
        if let Some(Err(error)) = self.context.try_services(|services| services.fini(code)) {
            say!(ERROR, RANK, "{error}");
        }
        std::process::exit(code)
    }
}
