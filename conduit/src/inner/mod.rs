//! What the C interface (`conduit-c`) uses beside the public calls. Not for programs: it changes
//! with any version.
//!
//! * [`Inner`]: one rank without the rules of Rust's types: payloads and buffers are slices for the
//!   time of a call, what lives longer is the caller's to keep alive. What needs no translation is
//!   called on its [`RankContext`].
//! * [`Foreign`], [`Runner`], [`Arrival`], [`ShortBurst`], [`RawToken`], [`HandlerRow`]: handlers
//!   that are C functions.
//! * [`Prepared`], [`Terms`], [`Commit`], [`Destination`]: negotiated payloads; the Rust types wrap
//!   the same.
//! * [`Op`], [`Part`], [`OpCounters`], [`Lender`]: operations in flight by number, which C programs
//!   have as events.
//! * [`Waiter`]: spin, yield, sleep; C programs drive some waits themselves.
//! * The limits of payloads, which C queries per number of arguments.

mod messages;
mod transfers;
mod waits;

use std::sync::{Arc, OnceLock};

use bootstrap::Rank;

pub use self::messages::{HandlerRow, Outgoing, Payload};
pub use crate::am::lend::Lender;
use crate::client::Client;
use crate::error::Error;
pub use crate::foreign::{ANY_ARGS, Arrival, Foreign, Runner, ShortBurst};
use crate::mode::Mode;
pub use crate::negotiate::{Commit, Destination, Prepared, Terms};
pub use crate::rank::RankContext;
pub use crate::rma::operations::{Op, OpCounters, Part};
use crate::settings::{SegmentLimit, Settings};
pub use crate::token::RawToken;
pub use crate::transport::PeerSegment;
pub use crate::transport::message::{MAX_LONG, max_long_alloc, max_medium};
use crate::transport::net::NetTransport;
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

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inner(rank {})", self.0.rank_info.rank)
    }
}

/// Where messages and one-sided operations go; made by [`Inner::target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(usize);

/// What a C program sets before init, besides the environment.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Most threads that this library allows.
    pub max_threads: u64,
    /// `GASNET_MAX_SEGSIZE` where the environment says nothing, and the name of the variable of the
    /// program that says it.
    pub max_segment: Option<(&'static str, String)>,
}

/// Joins the job as [`Client::init`] does, for a C program. Also the most threads that
/// `GASNET_MAX_THREADS` allows.
///
/// # Errors
/// As [`Client::init`]; also a preset that is no size.
pub fn join<M: Mode>(name: &str, preset: Preset) -> Result<(Client<M>, Inner, u64), Error> {
    static RANK: OnceLock<Arc<RankContext>> = OnceLock::new();
    let mut threads = preset.max_threads;
    let client = Client::<M>::init_with(name, true, |table, settings| {
        let most = u64::try_from(table.int("GASNET_MAX_THREADS")).unwrap_or(threads);
        threads = most.clamp(1, threads);
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

/// The state of the rank.
impl Inner {
    /// Collective: one row of every rank, all of the same length, in order. Does not poll.
    ///
    /// # Errors
    /// Of the bootstrap services.
    pub fn exchange(self, row: &[u8]) -> Result<Box<[u8]>, Error> {
        let rows = self.0.services(|services| services.exchange(row))?;
        Ok(rows.to_vec().into_boxed_slice())
    }

    /// Whether [`Inner::check_running`] and [`Inner::check_outside`] would succeed.
    #[inline(always)]
    #[must_use]
    pub fn may_call<M: Mode>(self) -> bool {
        !self.0.is_closed() && !self.0.in_handler::<M>()
    }

    /// Whether threads of the network run handlers.
    #[must_use]
    pub fn has_receivers(self) -> bool {
        self.0.transport.net().is_some_and(NetTransport::has_receivers)
    }

    /// Host and neighbourhood of every rank, in rank order.
    #[must_use]
    pub fn places(self) -> Vec<(u32, u32)> {
        let context = self.0;
        let host_of = |rank| context.node_shm().host_of(Rank(rank)).map_or(0, |host| host.0);
        let neighbourhoods = context.neighbours.of_all(context.rank_info, host_of);
        (0..).map(host_of).zip(neighbourhoods).collect()
    }

    /// First rank and number of the neighbours, where they have consecutive ranks; else no number.
    #[must_use]
    pub fn span(self) -> (u32, u32) {
        self.0.shm().span().contiguous()
    }
}

/// Targets and segments.
impl Inner {
    /// Where a call to a rank goes.
    ///
    /// # Errors
    /// No such rank.
    #[inline]
    pub fn target(self, call: &'static str, rank: u32) -> Result<Target, Error> {
        self.0.target(call, Rank(rank)).map(Target)
    }

    /// Whether a target shares memory with this rank.
    #[inline(always)]
    #[must_use]
    pub fn is_local(self, target: Target) -> bool {
        !self.0.transport.is_remote(target.0)
    }

    /// Index of a rank among the neighbours.
    #[inline]
    #[must_use]
    pub fn local_of(self, rank: u32) -> Option<usize> {
        self.0.local_of(Rank(rank))
    }

    /// Attached segment of a target; `None` before attach.
    #[must_use]
    pub fn segment(self, target: Target) -> Option<PeerSegment> {
        let found = self.0.transport.segment(target.0)?;
        (found.len != 0 || found.here.is_some()).then_some(found)
    }
}
