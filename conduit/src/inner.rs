//! What the C interface (`conduit-c`) uses beside the public calls. Not for programs: it changes
//! with any version.
//!
//! * [`Inner`]: one rank without the rules of Rust's types: payloads and buffers are slices for the
//!   time of a call, what lives longer is the caller's to keep alive. What needs no translation is
//!   called on its [`RankContext`]. Errors are those of the public calls: what cannot be, inside a
//!   handler, the end of the job.
//! * [`Foreign`], [`Runner`], [`Arrival`], [`ShortBurst`], [`RawToken`], [`Registered`]: handlers
//!   that are C functions.
//! * [`Prepared`], [`Terms`], [`Commit`], [`Destination`]: negotiated payloads; the Rust types wrap
//!   the same.
//! * [`Op`], [`Part`], [`OpCounters`], [`RemoteOp`], [`Lender`]: operations in flight by number,
//!   which C programs have as events.
//! * [`BoundSegment`], [`Place`]: segments that C programs make and bind to endpoints by themselves,
//!   and where bytes of them are for the network.
//! * [`Group`]: a team. [`Task`], [`Reduction`], [`Combine`], [`Buffers`]: a collective on it, which
//!   completes as an operation.
//! * [`VisOp`], [`Shape`], [`Grid`], [`List`], [`Region`], [`PeerCompletion`]: vector, indexed and
//!   strided transfers, with memory named by address.
//! * [`Domain`], [`Offload`], [`AtomicCall`], [`AtomicWord`], [`RemoteAtomic`], [`ResultPlace`], [`Refusal`]:
//!   atomics, on memory of this host and by messages to the owner of a word.
//! * [`Waiter`]: spin, yield, sleep; C programs drive some waits themselves.
//! * [`AmMessage`]: what is sent; the limits of payloads, which C queries per number of arguments.

use std::sync::{Arc, OnceLock};

use bootstrap::Rank;

pub use crate::am::lend::Lender;
pub use crate::atomics::domain::Domain;
pub use crate::atomics::offload::Offload;
pub use crate::atomics::pending::{Memory, ResultPlace};
pub use crate::atomics::remote::RemoteAtomic;
pub use crate::atomics::wire::Refusal;
pub use crate::atomics::word::{AtomicCall, AtomicWord};
use crate::client::Client;
pub use crate::coll::{Buffers, Combine, DataType, Fences, Group, ReduceOp, Reduction, Task};
use crate::error::Error;
pub use crate::foreign::{ANY_ARGS, Arrival, Foreign, Runner, ShortBurst};
pub use crate::handler::Registered;
use crate::handler::{Function, Role};
use crate::mode::Mode;
pub use crate::negotiate::{Commit, Destination, Prepared, Terms};
pub use crate::rank::RankContext;
pub use crate::rma::operations::{Op, OpCounters, Part};
pub use crate::rma::publication::{BoundSegment, MAX_ENDPOINTS};
pub use crate::rma::remote::RemoteOp;
use crate::segment_mode::SegmentMode;
use crate::settings::{SegmentLimit, Settings};
pub use crate::token::RawToken;
use crate::trace::{self, Category};
/// Tracing, as C programs see it.
pub use crate::trace::{
    Span, TransferKind, dump_stats, lock_waited, mask_text, note, set_local, set_mask,
    stats_callback, stats_note, takes_note, traces_lines, traces_local, transfer, transfers,
};
pub use crate::transport::PeerSegment;
pub use crate::transport::limits::MAX_CARRIED;
pub use crate::transport::message::{
    AmMessage, AmPayload, MAX_LONG, MessageClass, max_long_alloc, max_medium,
};
use crate::transport::message::{Flags, Outcome};
pub use crate::transport::net::DeferredThread;
use crate::transport::net::NetTransport;
pub use crate::transport::place::Place;
use crate::transport::shm::{BarrierName, Which};
pub use crate::vis::describe::{Shape, unequal};
pub use crate::vis::grid::{Dim, Grid, Row};
pub use crate::vis::list::{Entries, List, Piece, Pieces};
pub use crate::vis::memory::{Region, copy};
pub use crate::vis::overlap;
pub use crate::vis::peer::{MAX_PEER_COMPLETION, PeerCompletion};
pub use crate::vis::send::VisOp;
pub use crate::wait::Waiter;

/// One rank, for as long as the process lives.
#[derive(Clone, Copy)]
pub struct Inner(&'static RankContext);

impl std::ops::Deref for Inner {
    type Target = RankContext;

    #[inline(always)]
    fn deref(&self) -> &RankContext {
        self.0
    }
}

impl Inner {
    /// The threads of the network that the program runs, where its [`Preset`] said so. Once.
    #[must_use]
    pub fn deferred_threads(&self) -> Vec<DeferredThread> {
        RANK.get().map_or_else(Vec::new, RankContext::deferred_threads)
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inner(rank {})", self.0.rank_info.rank)
    }
}

/// Where messages and one-sided operations go; made by [`RankContext::target`].
pub type Target = usize;

/// What a C program sets before init, besides the environment.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Most threads that this library allows.
    pub max_threads: u64,
    /// The program runs the progress threads of the network itself.
    pub defer_threads: bool,
    /// `GASNET_MAX_SEGSIZE` where the environment says nothing, and the name of the variable of the
    /// program that says it.
    pub max_segment: Option<(&'static str, String)>,
    /// The segment mode that it was compiled for.
    pub segment_mode: SegmentMode,
}

static RANK: OnceLock<Arc<RankContext>> = OnceLock::new();

/// Joins the job as [`Client::init`] does, for a C program. Also the most threads that
/// `GASNET_MAX_THREADS` allows.
///
/// # Errors
/// As [`Client::init`]; also a preset that is no size.
pub fn join<M: Mode>(name: &str, preset: Preset) -> Result<(Client<M>, Inner, u64), Error> {
    let mut threads = preset.max_threads;
    let client = Client::<M>::init_with(name, true, |table, settings| {
        let most = u64::try_from(table.int("GASNET_MAX_THREADS")).unwrap_or(threads);
        threads = most.clamp(1, threads);
        let segment_mode = preset.segment_mode.with(table)?;
        let defer_threads = preset.defer_threads;
        let settings = Settings { defer_threads, segment_mode, ..settings };
        with_limit(table, settings, preset.max_segment)
    })?;
    // The process is a rank until it ends.
    let rank = RANK.get_or_init(|| Arc::clone(&client.context));
    Ok((client, Inner(rank), threads))
}

/// The program's own default for the size of segments, where the environment says nothing.
fn with_limit(
    table: &settings::Values,
    settings: Settings,
    limit: Option<(&'static str, String)>,
) -> Result<Settings, Error> {
    let variable = "GASNET_MAX_SEGSIZE";
    let (Some((name, text)), Some(row)) = (limit, settings::find(variable)) else {
        return Ok(settings);
    };
    if table.is_set(variable) {
        return Ok(settings);
    }
    match settings::parse(row.kind, &text) {
        Ok(settings::Value::MemSpec(spec)) => {
            Ok(Settings { max_segment: SegmentLimit::of(spec), ..settings })
        }
        Ok(_) => Ok(settings),
        Err(problem) => Err(Error::Setting { name, problem }),
    }
}

/// Writes one line to the error stream, in one piece.
pub fn say(text: &str) {
    settings::say!(WARN, settings::log::RANK, "{text}");
}

/// The rank and its neighbours.
impl Inner {
    /// Whether [`Inner::check_running`] and [`Inner::check_outside`] would succeed.
    #[inline(always)]
    pub fn may_call<M: Mode>(self) -> bool {
        !self.0.is_closed() && !self.0.in_handler::<M>()
    }

    /// Collective: one row of every rank, all of the same length, in order. Does not poll.
    ///
    /// # Errors
    /// Of the bootstrap services.
    pub fn exchange(self, row: &[u8]) -> Result<Box<[u8]>, Error> {
        let rows = self.0.services(|services| services.exchange(row))?;
        Ok(rows.to_vec().into_boxed_slice())
    }

    /// Whether threads of the network run handlers.
    pub fn has_receivers(self) -> bool {
        self.0.transport.net().is_some_and(NetTransport::has_receivers)
    }

    /// Host and neighbourhood of every rank, in rank order.
    pub fn places(self) -> impl Iterator<Item = (u32, u32)> {
        let context = self.0;
        let host_of = |rank| context.node_shm().host_of(Rank(rank)).map_or(0, |host| host.0);
        let neighbourhoods = context.neighbours.of_all(context.rank_info, context.node_shm());
        (0..).map(host_of).zip(neighbourhoods)
    }

    /// First rank and number of the neighbours, where they have consecutive ranks; else no number.
    pub fn span(self) -> (u32, u32) {
        self.0.shm().span.contiguous()
    }

    /// How many ranks share memory with this one, itself included: so many are targets from 0 on.
    pub fn neighbour_count(self) -> u32 {
        self.0.shm().span.locals
    }

    /// The segment mode of the job.
    #[inline]
    pub fn segment_mode(self) -> SegmentMode {
        self.0.settings.segment_mode
    }

    /// Whether a target shares memory with this rank.
    #[inline(always)]
    pub fn is_local(self, target: Target) -> bool {
        !self.0.transport.is_remote(target)
    }

    /// Attached segment of a target; `None` before attach.
    pub fn segment(self, target: Target) -> Option<PeerSegment> {
        let attached = |found: &PeerSegment| found.len != 0 || found.here.is_some();
        self.0.transport.segment(target).filter(attached)
    }
}

/// Teams.
impl Inner {
    /// The team of all ranks.
    pub fn whole(self) -> Arc<Group> {
        Arc::clone(&self.0.collectives.whole)
    }

    /// A team that [`RankContext::split`] or [`RankContext::create`] made is no more.
    pub fn forget_team(self, group: &Group) {
        self.0.collectives.forget(group);
    }
}

/// A row of a table of C handlers: index 0 for any, [`ANY_ARGS`] for any number of arguments.
pub fn handler_row(
    index: u8,
    name: String,
    nargs: usize,
    role: Role,
    foreign: Foreign,
) -> Registered {
    Registered::new(index, name, nargs, role, Function::Foreign(foreign))
}

/// Whether messages are traced or counted.
#[inline(always)]
#[must_use]
pub fn traces_messages() -> bool {
    trace::on(Category::Messages)
}

/// Messages and their handlers.
impl Inner {
    /// Registers all of `rows` or none; their indices. `settle` is told each, by position, before a
    /// message can reach it.
    pub fn register(
        self,
        rows: Vec<Registered>,
        settle: impl Fn(usize, u8),
    ) -> Result<Vec<u8>, Error> {
        self.0.handlers.register_rows(rows, settle)
    }

    /// Registers a handler of the library's own messages, at an index below the client's.
    pub fn register_library(self, row: Registered) {
        self.0.handlers.register_library(row);
    }

    /// Sends a checked request; waits for room and polls unless told not to. With a `token`, which
    /// was claimed, the reply to it; gives the right back when nothing was sent. What `lender` has
    /// counters for it may lend. Inlined, as callers know whether they have a token.
    #[inline(always)]
    pub fn send<M: Mode>(
        self,
        call: &'static str,
        token: Option<&RawToken<'_>>,
        message: &AmMessage<'_>,
        flags: Flags,
        lender: &impl Lender,
    ) -> Result<Outcome, Error> {
        self.0.send_lent::<M>(call, message, flags, lender, |message| match token {
            None => self.0.request::<M>(call, message, flags),
            Some(token) => Ok(token.send::<M>(message, flags)),
        })
    }

    /// Where the reply of a token goes.
    #[inline]
    pub const fn reply_target(self, token: &RawToken<'_>) -> Target {
        token.source
    }

    /// Sends a Short request to a neighbour when there is nothing to refuse and nothing to wait
    /// for: one of a burst, or after a `CHECK` for arrivals. `TRACED`: while messages are traced, one
    /// that is like those before it. `false` when it needs [`Inner::send`]. Calls no function, so
    /// that a burst saves no registers.
    #[inline(always)]
    pub fn try_request_short<M: Mode, const CHECK: bool, const TRACED: bool>(
        self,
        rank: u32,
        handler: u8,
        args: &[i32],
    ) -> bool {
        if TRACED && !trace::may_extend(rank, handler) {
            return false;
        }
        // For a remote rank this is no neighbour's index, and is found out.
        let target = self.0.shm().span.offset(rank);
        let sent = if CHECK {
            self.0.send_short_checked::<M>(target, handler, args)
        } else {
            self.0.shm().send_unchecked::<M, TRACED>(target, handler, args)
        };
        if TRACED && sent {
            trace::extend();
        }
        sent
    }

    /// As [`Inner::try_request_short`] for the reply of a handler.
    #[inline(always)]
    pub fn try_reply_short<M: Mode>(self, token: &RawToken<'_>, handler: u8, args: &[i32]) -> bool {
        if !token.may_reply() {
            return false;
        }
        let to = (token.source, MessageClass::Reply);
        let sent = if trace::on(Category::Messages) {
            self.0.reply_short_traced::<M>(token.source, handler, args)
        } else {
            self.0.shm().send_short::<M>(to, handler, args, || true)
        };
        if sent {
            token.replied.set(true);
        }
        sent
    }
}

/// Operations in flight.
impl Inner {
    /// Whether a part of an operation is complete. A complete operation gives its row back when all
    /// is asked for. `None`: no such operation.
    pub fn finish(self, op: Op, part: Part) -> Option<bool> {
        match part {
            Part::ALL => self.0.operations.finish(op).ok(),
            _ => self.0.operations.is_complete(op, part).ok(),
        }
    }
}

/// The client's barrier by its steps, and waiting: events of C make several barriers of it, one
/// after the other.
impl Inner {
    /// Whether this rank has arrived at a barrier and not seen it complete.
    #[inline]
    pub fn barrier_under_way(self) -> bool {
        self.0.shm().progress_of(Which::Client).under_way()
    }

    /// Arrives without a name. No barrier may be under way.
    #[inline]
    pub fn arrive(self) {
        self.0.arrive(Which::Client, BarrierName::Anonymous);
        trace::notified();
    }

    /// Whether all ranks have arrived; changes nothing.
    #[inline]
    pub fn barrier_is_open(self) -> bool {
        self.0.shm().is_open(Which::Client)
    }

    /// Completes the barrier when all ranks have arrived.
    #[inline]
    pub fn try_pass(self) -> bool {
        self.0.shm().try_pass(Which::Client).is_some()
    }

    /// Waits (and polls) until the barrier is complete.
    #[inline]
    pub fn pass<M: Mode>(self, call: &'static str) -> Result<(), Error> {
        self.0.pass::<M>(Which::Client, call).map(|_| ())
    }

    /// Wakes threads of this rank that sleep.
    pub fn wake_own(self) {
        self.0.shm().wake_own();
    }
}
