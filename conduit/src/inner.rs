//! What the C interface (`conduit-c`) uses beside the public calls. Not for programs: it changes with any version.
//!
//! * [`Inner`]: one rank without the rules of Rust's types: payloads and buffers are slices for the time of a call, what lives
//!   longer is the caller's to keep alive.
//! * [`Foreign`], [`Runner`], [`Arrival`], [`ShortRow`], [`RawToken`], [`HandlerRow`]: handlers that are C functions.
//! * [`Prepared`], [`Terms`], [`Commit`], [`Destination`]: negotiated payloads; the Rust types wrap the same.
//! * [`Op`], [`Part`], [`OpRow`], [`Lender`]: operations in flight by number, which C programs have as events.
//! * [`Waiter`]: spin, yield, sleep; C programs drive some waits themselves.
//! * The limits of payloads, which C queries per number of arguments.

use std::sync::Arc;

use bootstrap::Rank;

use crate::client::Client;
use crate::core::Core;
use crate::error::Error;
pub use crate::foreign::{ANY_ARGS, Arrival, Foreign, Runner, ShortRow};
use crate::gate::{Name, Which};
use crate::handler::{Registered, Role};
use crate::mode::Mode;
pub use crate::negotiate::{Commit, Destination, Prepared, Terms};
use crate::operations::RemoteOp;
pub use crate::operations::{Lender, Op, Part, Row as OpRow};
use crate::settings::{SegmentLimit, Settings};
use crate::sys;
pub use crate::token::RawToken;
use crate::transport::message::{AmMessage, AmPayload, Flags, MessageClass, Outcome};
pub use crate::transport::message::{MAX_LONG, max_long_alloc, max_medium};
use crate::transport::remote::Remote;
pub use crate::wait::Waiter;

/// One rank, for as long as the process lives.
#[derive(Clone, Copy)]
pub struct Inner(&'static Core);

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inner(rank {})", self.0.rank_info().rank)
    }
}

/// Where messages and one-sided operations go; made by [`Inner::target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(usize);

/// What a message carries besides its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Nothing: a Short.
    None,
    /// Bytes of a Medium.
    Medium(&'a [u8]),
    /// Bytes of a Long and the offset of their destination; for ranks that share no memory with this one.
    Long(&'a [u8], u64),
    /// A Long whose bytes are at their destination already: how many, and the address that the handler is told.
    Placed(usize, u64),
}

/// A message, its counts and sizes checked.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// What the program called.
    pub call: &'static str,
    /// Handler.
    pub handler: u8,
    /// Arguments.
    pub args: &'a [i32],
    /// Payload.
    pub payload: Payload<'a>,
}

impl<'a> Outgoing<'a> {
    #[inline(always)]
    fn message(&self, class: MessageClass, target: usize) -> AmMessage<'a> {
        let Self { handler, args, payload, .. } = *self;
        let payload = match payload {
            Payload::None => AmPayload::None,
            Payload::Medium(bytes) => AmPayload::Medium(bytes),
            Payload::Long(payload, dest) => AmPayload::Long { payload, dest },
            Payload::Placed(len, dest) => {
                AmPayload::Placed { len: u32::try_from(len).unwrap_or(u32::MAX), dest }
            }
        };
        AmMessage { class, target, handler, args, payload }
    }
}

/// One row of a table of C handlers.
pub struct HandlerRow {
    /// Index asked for, 0 for any.
    pub index: u8,
    /// Name for diagnostics.
    pub name: String,
    /// Number of arguments, or [`ANY_ARGS`].
    pub nargs: usize,
    /// Requests, replies or both.
    pub role: Role,
    /// How it is run.
    pub foreign: Foreign,
}

impl HandlerRow {
    fn registered(self) -> Registered {
        let Self { index, name, nargs, role, foreign } = self;
        Registered::new(index, name, nargs, role, foreign)
    }
}

/// The attached segment of some rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSegment {
    /// First byte in the owner's process.
    pub owner_base: u64,
    /// Bytes; 0 before attach.
    pub len: u64,
    /// First byte in this process, for ranks that share memory with this one.
    pub here: Option<*mut u8>,
}

/// What a C program sets before init, besides the environment.
#[derive(Clone, Debug)]
pub struct Preset {
    /// Most threads that this library allows.
    pub max_threads: u64,
    /// `GASNET_MAX_SEGSIZE` where the environment says nothing, and the name of the variable of the program that says it.
    pub max_segment: Option<(&'static str, String)>,
}

/// Joins the job as [`Client::init`] does, for a C program. Also the most threads that `GASNET_MAX_THREADS` allows.
///
/// # Errors
/// As [`Client::init`]; also a preset that is no size.
pub fn join<M: Mode>(name: &str, preset: Preset) -> Result<(Client<M>, Inner, u64), Error> {
    let mut threads = preset.max_threads;
    let client = Client::<M>::init_with(name, true, |table, settings| {
        let most = u64::try_from(table.int("GASNET_MAX_THREADS")).unwrap_or(threads);
        threads = most.clamp(1, threads);
        with_limit(table, settings, preset.max_segment)
    })?;
    // The process is a rank until it ends.
    let core: &'static Arc<Core> = Box::leak(Box::new(Arc::clone(&client.core)));
    Ok((client, Inner(core), threads))
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
    sys::say(text);
}

/// The state of the rank.
impl Inner {
    /// As [`Client::init`] does before it returns: meets all ranks, who may send messages from then on.
    ///
    /// # Errors
    /// The end of the job.
    pub fn meet_at_start<M: Mode>(self, call: &'static str) -> Result<(), Error> {
        self.0.meet_at_start::<M>(call)
    }

    /// A barrier of the library's own; serves messages while it waits.
    ///
    /// # Errors
    /// The end of the job.
    pub fn meet<M: Mode>(self, call: &'static str) -> Result<(), Error> {
        self.0.meet::<M>(call)
    }

    /// Collective: one row of every rank, all of the same length, in order. Does not poll.
    ///
    /// # Errors
    /// Of the bootstrap services.
    pub fn exchange(self, row: &[u8]) -> Result<Box<[u8]>, Error> {
        let rows = self.0.services(|services| services.exchange(row))?;
        Ok(rows.to_vec().into_boxed_slice())
    }

    /// Fails when communication is over.
    ///
    /// # Errors
    /// The end of the job.
    #[inline]
    pub fn check_open(self, call: &'static str) -> Result<(), Error> {
        self.0.check_open(call)
    }

    /// Fails when this process is exiting.
    ///
    /// # Errors
    /// The end of this process.
    #[inline]
    pub fn check_running(self, call: &'static str) -> Result<(), Error> {
        self.0.check_running(call)
    }

    /// Fails inside a handler.
    ///
    /// # Errors
    /// Inside a handler.
    #[inline]
    pub fn check_outside<M: Mode>(self, call: &'static str) -> Result<(), Error> {
        self.0.check_outside::<M>(call)
    }

    /// Whether this thread is inside a handler.
    #[inline]
    #[must_use]
    pub fn in_handler<M: Mode>(self) -> bool {
        self.0.in_handler::<M>()
    }

    /// Whether [`Inner::check_running`] and [`Inner::check_outside`] would succeed.
    #[inline(always)]
    #[must_use]
    pub fn may_call<M: Mode>(self) -> bool {
        !self.0.is_closed() && !self.0.in_handler::<M>()
    }

    /// Whether some rank shares no memory with this one.
    #[inline]
    #[must_use]
    pub fn networked(self) -> bool {
        self.0.networked()
    }

    /// Ends the process after a broken promise of the program that cannot be an error of a call.
    #[cold]
    pub fn fatal(self, text: &str) -> ! {
        self.0.fatal(text)
    }

    /// Whether threads of the network run handlers.
    #[must_use]
    pub fn has_receivers(self) -> bool {
        self.0.remote().is_some_and(Remote::has_receivers)
    }

    /// Host and neighbourhood of every rank, in rank order.
    #[must_use]
    pub fn places(self) -> Vec<(u32, u32)> {
        let core = self.0;
        let host_of = |rank| core.node_shm().host_of(Rank(rank)).map_or(0, |host| host.0);
        let neighbourhoods = core.neighbours().of_all(core.rank_info(), host_of);
        (0..).map(host_of).zip(neighbourhoods).collect()
    }

    /// First rank and number of the neighbours, where they have consecutive ranks; else no number.
    #[must_use]
    pub fn span(self) -> (u32, u32) {
        self.0.span().contiguous()
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
        self.0.is_near(target.0)
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
        if let Some(remote) = self.0.far_segment(target.0) {
            let found = PeerSegment { owner_base: remote.base, len: remote.len, here: None };
            return (remote.len != 0).then_some(found);
        }
        if !self.is_local(target) {
            return None;
        }
        let here = Some(self.0.segment_base(target.0)?);
        let row = self.0.row(target.0);
        let word =
            |word: &std::sync::atomic::AtomicU64| word.load(std::sync::atomic::Ordering::Acquire);
        Some(PeerSegment { owner_base: word(&row.base), len: word(&row.len), here })
    }
}

/// Messages.
impl Inner {
    /// Registers all of `rows` or none; their indices. `settle` is told each, by position, before a message can reach it.
    ///
    /// # Errors
    /// Indices out of range or taken, no index free.
    pub fn register(
        self,
        rows: Vec<HandlerRow>,
        settle: impl Fn(usize, u8),
    ) -> Result<Vec<u8>, Error> {
        let rows = rows.into_iter().map(HandlerRow::registered).collect();
        self.0.handlers.register_rows(rows, settle)
    }

    /// Registers the handler of the library's own messages.
    pub fn register_library(self, row: HandlerRow) {
        self.0.handlers.register_library(row.registered());
    }

    /// Sends a request; waits for room and polls unless told not to. What `lender` has counters for it may lend.
    ///
    /// # Errors
    /// Inside a handler; the end of the job.
    #[inline]
    pub fn request<M: Mode>(
        self,
        target: Target,
        outgoing: &Outgoing<'_>,
        flags: Flags,
        lender: &impl Lender,
    ) -> Result<Outcome, Error> {
        let message = outgoing.message(MessageClass::Request, target.0);
        let send = |message: &AmMessage<'_>| self.0.request::<M>(outgoing.call, message, flags);
        self.0.send_lent(&message, flags, lender, send)
    }

    /// Sends the reply of a token that was claimed; gives the right back when nothing was sent.
    ///
    /// # Errors
    /// Of the lender.
    #[inline]
    pub fn reply<M: Mode>(
        self,
        token: &RawToken<'_>,
        outgoing: &Outgoing<'_>,
        flags: Flags,
        lender: &impl Lender,
    ) -> Result<Outcome, Error> {
        let message = outgoing.message(MessageClass::Reply, token.source_target());
        let send = |message: &AmMessage<'_>| Ok(token.send::<M>(message, flags));
        self.0.send_lent(&message, flags, lender, send)
    }

    /// Whether a message to a target would find room now. A hint.
    #[inline]
    #[must_use]
    pub fn has_room<M: Mode>(self, target: Target, reply: bool, nargs: usize) -> bool {
        let class = if reply { MessageClass::Reply } else { MessageClass::Request };
        self.0.has_room::<M>(target.0, class, nargs)
    }

    /// Where the reply of a token goes.
    #[inline]
    #[must_use]
    pub const fn reply_target(self, token: &RawToken<'_>) -> Target {
        Target(token.source_target())
    }

    /// Sends a Short request to a neighbour when there is nothing to refuse and nothing to wait for: one of a row, or after
    /// a `LOOK` for messages. `false` when it needs [`Inner::request`]. Calls no function, so that a row saves no registers.
    #[inline(always)]
    #[must_use]
    pub fn pass_short<M: Mode, const LOOK: bool>(
        self,
        rank: u32,
        handler: u8,
        args: &[i32],
    ) -> bool {
        // For a remote rank this is no neighbour's index, and is found out.
        let target = self.0.span().offset(rank);
        if LOOK {
            self.0.look_and_pass::<M>(target, handler, args)
        } else {
            self.0.pass_short::<M>(target, handler, args)
        }
    }

    /// As [`Inner::pass_short`] for the reply of a handler.
    #[inline(always)]
    #[must_use]
    pub fn pass_reply<M: Mode>(self, token: &RawToken<'_>, handler: u8, args: &[i32]) -> bool {
        if !token.may_reply() {
            return false;
        }
        let sent = self.0.pass_reply::<M>(token.source_target(), handler, args);
        if sent {
            token.count_reply();
        }
        sent
    }

    /// Delivers some messages; how many.
    ///
    /// # Errors
    /// Inside a handler; the end of the job.
    #[inline]
    pub fn poll<M: Mode>(self, call: &'static str) -> Result<usize, Error> {
        self.0.poll::<M>(call)
    }

    /// As [`Inner::poll`] where there is nothing but memory to poll; `None` elsewhere, and where it would fail.
    #[inline(always)]
    #[must_use]
    pub fn poll_plainly<M: Mode>(self) -> Option<usize> {
        self.0.poll_plainly::<M>()
    }

    /// Prepares a message; with a `token` a reply. `None` only with [`Flags::IMMEDIATE`].
    ///
    /// # Errors
    /// Sizes and counts that cannot be; the end of the job.
    pub fn prepare<M: Mode>(
        self,
        target: Target,
        token: Option<&RawToken<'_>>,
        terms: &Terms,
        flags: Flags,
    ) -> Result<Option<Prepared>, Error> {
        Prepared::new::<M>(self.0, target.0, token, terms, flags)
    }

    /// The library's buffer of a prepared message; empty when the program gave its own.
    #[must_use]
    pub fn buffer(self, prepared: &mut Prepared) -> &mut [u8] {
        prepared.buffer_mut(self.0)
    }

    /// Where a prepared message goes.
    #[must_use]
    pub const fn prepared_target(self, prepared: &Prepared) -> Target {
        Target(prepared.target())
    }

    /// Sends a prepared message that was checked ([`Prepared::check`]). `client`: the program's buffer, if it gave one.
    ///
    /// # Errors
    /// A destination outside the target's segment; the end of the job.
    pub fn commit<M: Mode>(
        self,
        prepared: &mut Prepared,
        token: Option<&RawToken<'_>>,
        commit: &Commit<'_>,
        (client, lender): (&[u8], &impl Lender),
        flags: Flags,
    ) -> Result<Outcome, Error> {
        prepared.commit::<M>(self.0, token, commit, client, flags, lender)
    }

    /// Gives buffer and right to reply of a prepared message back.
    pub fn cancel<M: Mode>(self, prepared: &mut Prepared, token: Option<&RawToken<'_>>) {
        prepared.cancel::<M>(self.0, token);
    }
}

/// Puts and gets at ranks that share no memory with this one. Ranges have at least one byte.
impl Inner {
    /// A row for an operation, or for a group of them.
    ///
    /// # Errors
    /// Too many operations.
    pub fn begin(self, call: &'static str) -> Result<(Op, Arc<OpRow>), Error> {
        self.0.operations.begin().ok_or(Error::TooManyOperations { call })
    }

    /// Whether a part of an operation is complete. A complete operation gives its row back when all is asked for.
    /// `None`: no such operation.
    #[must_use]
    pub fn finish(self, op: Op, part: Part) -> Option<bool> {
        match part {
            Part::All => self.0.operations.finish(op).ok(),
            _ => self.0.operations.is_complete(op, part).ok(),
        }
    }

    /// A put that is complete on return.
    ///
    /// # Errors
    /// A range outside the segment; the end of the job.
    pub fn put<M: Mode>(
        self,
        (call, target): (&'static str, Target),
        offset: u64,
        source: &[u8],
    ) -> Result<(), Error> {
        self.0.put_far::<M>(call, target.0, offset, source)
    }

    /// A get that is complete on return.
    ///
    /// # Errors
    /// As [`Inner::put`].
    pub fn get<M: Mode>(
        self,
        (call, target): (&'static str, Target),
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.0.get_far::<M>(call, target.0, offset, into)
    }

    /// Starts a put that `row` counts; its source is left alone until then. `now`: it is the caller's again on return.
    ///
    /// # Errors
    /// As [`Inner::put`].
    pub fn start_put<M: Mode>(
        self,
        (call, target, flags): (&'static str, Target, Flags),
        offset: u64,
        source: &[u8],
        (row, now): (&OpRow, bool),
    ) -> Result<Outcome, Error> {
        let (target, immediate) = (target.0, flags.contains(Flags::IMMEDIATE));
        let op = RemoteOp { call, target, offset, immediate };
        self.0.put_counted::<M>(op, row, source, now)
    }

    /// Starts a get that `row` counts; its target is left alone until then.
    ///
    /// # Errors
    /// As [`Inner::put`].
    pub fn start_get<M: Mode>(
        self,
        (call, target, flags): (&'static str, Target, Flags),
        offset: u64,
        into: &mut [u8],
        row: &OpRow,
    ) -> Result<Outcome, Error> {
        let (target, immediate) = (target.0, flags.contains(Flags::IMMEDIATE));
        let op = RemoteOp { call, target, offset, immediate };
        self.0.get_counted::<M>(op, row, into)
    }
}

/// The client's barrier by its steps, and waiting: events of C make several barriers of it, one after the other.
impl Inner {
    /// Whether this rank has arrived at a barrier and not seen it complete.
    #[inline]
    #[must_use]
    pub fn barrier_under_way(self) -> bool {
        self.0.progress_of(Which::Client).under_way()
    }

    /// Arrives without a name. No barrier may be under way.
    #[inline]
    pub fn arrive(self) {
        self.0.arrive(Which::Client, Name::Anonymous);
    }

    /// Whether all ranks have arrived; changes nothing.
    #[inline]
    #[must_use]
    pub fn barrier_is_open(self) -> bool {
        self.0.is_open(Which::Client)
    }

    /// Completes the barrier when all ranks have arrived.
    #[inline]
    #[must_use]
    pub fn try_pass(self) -> bool {
        self.0.try_pass(Which::Client).is_some()
    }

    /// Waits (and polls) until the barrier is complete.
    ///
    /// # Errors
    /// The end of the job.
    #[inline]
    pub fn pass<M: Mode>(self, call: &'static str) -> Result<(), Error> {
        self.0.pass::<M>(Which::Client, call).map(|_| ())
    }

    /// Where ranks share processors: gives this one away a few times, until `done`. The others need it to arrive.
    ///
    /// # Errors
    /// Of `done`.
    #[inline]
    pub fn yield_until<E>(self, done: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        self.0.yield_until(done)
    }

    /// Wakes threads of this rank that sleep.
    pub fn wake_own(self) {
        self.0.wake_own();
    }

    /// Whether a poll would find something. Loads only.
    #[inline]
    #[must_use]
    pub fn has_work(self) -> bool {
        self.0.has_work()
    }

    /// Spends a while after a poll that found nothing. `ready` is asked just before a sleep.
    #[inline]
    pub fn idle(self, waiter: &mut Waiter, ready: impl FnOnce() -> bool) {
        waiter.idle(self.0, ready);
    }
}
