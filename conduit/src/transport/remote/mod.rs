//! Ranks outside the neighbourhood: what the core does through the network.
//!
//! * here: the way out for messages, and what arrived messages do. `barrier`: between neighbourhoods. `rma`: put and get.
//! * `exits`: messages of the exit. They are kept until the network's poll has returned, because an exit never returns.
//!
//! A signal handler may interrupt the network and never return. Each thread remembers whether it is inside the network; if
//! it is, the handler finds it shut (sends fail, polls find nothing) and the exit goes on without it.

mod barrier;
mod exits;
mod memory;
mod rma;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::Instant;

use bootstrap::{Bootstrap, Rank};
use settings::Env;
use settings::deadlines::wait as deadlines;

use self::barrier::Barriers;
use self::exits::Exits;
pub(crate) use self::rma::Start;
use crate::core::Core;
use crate::error::Error;
use crate::mode::{Mode, Par};
use crate::progress::{self, Delivery};
use crate::segment::{self, Landing};
use crate::settings::Settings;
use crate::token::RawToken;
use crate::transport::message::Flags;
use crate::transport::message::{
    AmMessage, AmPayload, Arrived, ArrivedPayload, MessageClass, ReplyToken, Sink,
};
use crate::transport::neighbours::{self, Neighbours};
use crate::transport::net::{
    Common, FIRST_CLIENT_HANDLER, Members, NetSettings, Network, Poll, SendBuffer, Sent, SharedSink,
};

/// Looks for messages that a wait takes between two polls.
pub(crate) const GLANCES: u32 = 16;
/// Internal messages below this number belong to the exit.
const EXITS: u8 = 8;
/// Internal message: a word of a barrier between neighbourhoods.
const BARRIER: u8 = 8;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks that this thread is inside the network, or outside it again for a while.
struct Mark(bool);

impl Mark {
    fn set(inside: bool) -> Self {
        Self(INSIDE.replace(inside))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// A segment of any rank, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FarSegment {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// The network and what the core keeps beside it.
pub(crate) struct Remote {
    network: Box<Network>,
    closed: AtomicBool,
    /// Smallest of the largest segments of all ranks.
    max_segment: u64,
    /// Threads of the network may run handlers.
    receives: bool,
    barriers: Barriers,
    exits: Exits,
}

impl Remote {
    /// Collective. `None` when all ranks are neighbours.
    pub(crate) fn start(
        settings: &Settings,
        neighbours: &Neighbours,
        (table, env): (&settings::Values, &Env),
        services: &mut dyn Bootstrap,
    ) -> Result<Option<Self>, Error> {
        let place = services.rank_info();
        if neighbours.span().locals == place.size {
            return Ok(None);
        }
        let members = Members {
            rank: place.rank,
            size: place.size,
            neighbours: neighbours.ranks().iter().map(|rank| Rank(*rank)).collect(),
            hosts: place.hosts,
            page: Arc::clone(services.node_shm()),
            slot: place.local,
        };
        let network = NetSettings::of(table, env);
        let network = network.map_err(|error| Error::Network(error.to_string()))?;
        let receives = network.receive_thread.on;
        let common = Common {
            max_segment: segment::limit(settings.max_segment, place.locals),
            neighbourhood_max: settings.neighbourhood_max,
        };
        let network = Network::start(&network, &members, common, services)?;
        let reason = || format!("the job has {} neighbourhoods", neighbours.count());
        let remedy = "start all ranks on one host, without GASNET_SUPERNODE_MAXSIZE";
        let (network, max_segment) =
            network.ok_or_else(|| Error::NeedsNetwork { reason: reason(), remedy })?;
        Ok(Some(Self {
            network: Box::new(network),
            closed: AtomicBool::new(false),
            max_segment,
            receives,
            barriers: Barriers::new(neighbours),
            exits: Exits::new(),
        }))
    }

    /// Whether threads of the network run handlers of the client.
    pub(crate) const fn has_receivers(&self) -> bool {
        self.receives
    }

    /// Smallest of the largest segments of all ranks.
    pub(crate) const fn max_segment(&self) -> u64 {
        self.max_segment
    }

    /// Calls into the network; `None` when it is closed, or when a signal handler interrupted it.
    #[inline]
    fn enter<T>(&self, call: impl FnOnce(&Network) -> T) -> Option<T> {
        if INSIDE.get() || self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let _inside = Mark::set(true);
        Some(call(&self.network))
    }

    /// Whether a poll would find something. A hint.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.network.has_work() || self.exits.any()
    }

    /// Before a sleep: arrivals ring the doorbell from now on. Poll once more after it.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        Ok(self.enter(Network::arm).unwrap_or(Ok(()))?)
    }

    /// The job is ending: what fails from now on is nobody's concern. Async-signal-safe.
    pub(crate) fn quiet(&self) {
        self.network.quiet();
    }

    /// Ends all calls into the network, then closes it. Not for signal handlers.
    pub(crate) fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            self.network.close();
        }
    }

    /// Whether a signal handler on this thread has interrupted the network, which then must be left alone.
    fn is_interrupted() -> bool {
        INSIDE.get() || barrier::is_driving()
    }

    /// A buffer of the network for a negotiated payload.
    pub(crate) fn buffer<M: Mode>(&self, reply: bool) -> Option<SendBuffer> {
        self.enter(|network| network.buffer::<M>(reply)).flatten()
    }

    /// Segment of a remote rank; `None` before attach.
    pub(crate) fn segment(&self, rank: Rank) -> Option<FarSegment> {
        self.network.segment(rank).map(|(base, len)| FarSegment { base, len })
    }

    /// After the barrier at the end of init: connections that are made at the start may be used.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        Ok(self.network.begin()?)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
    }
}

/// Gives arrived messages to the core.
struct Receiver<'a, M: Mode> {
    core: &'a Core,
    remote: &'a Remote,
    /// Why a message could not be taken.
    refused: Cell<Option<String>>,
    /// A message of the library has come.
    stirred: Cell<bool>,
    mode: PhantomData<M>,
}

/// Takes what threads of the network find, in the mode that lets any thread run handlers.
struct Behind(Weak<Core>);

impl Sink for Behind {
    fn arrived(&self, message: Arrived<'_>) {
        let Some(core) = self.0.upgrade() else { return };
        if let Some(remote) = core.remote() {
            let receiver = Receiver::<Par>::new(&core, remote);
            receiver.arrived(message);
            receiver.check();
        }
    }
}

impl<M: Mode> Sink for Receiver<'_, M> {
    fn arrived(&self, message: Arrived<'_>) {
        let _outside = Mark::set(false);
        if message.class == MessageClass::Internal {
            self.arrived_inside(&message);
        } else if !self.core.is_closed() {
            self.core.deliver_remote::<M>(message);
        }
    }
}

impl<'a, M: Mode> Receiver<'a, M> {
    const fn new(core: &'a Core, remote: &'a Remote) -> Self {
        let stirred = Cell::new(false);
        Self { core, remote, refused: Cell::new(None), stirred, mode: PhantomData }
    }

    /// Ends the job when a message was none.
    fn check(&self) {
        if let Some(text) = self.refused.take() {
            let rank = self.core.rank_info().rank;
            self.core.fatal(&format!("rank {rank} received a malformed {text}"));
        }
    }

    #[inline(never)]
    fn arrived_inside(&self, message: &Arrived<'_>) {
        self.stirred.set(true);
        if !self.internal(message) {
            let Arrived { source, handler, args, .. } = message;
            let source = self.core.rank_of(*source);
            let text = format!("internal message {handler} from rank {source} with words {args:?}");
            self.refused.set(Some(text));
        }
    }

    /// A message of the library; `false` for what is none.
    fn internal(&self, message: &Arrived<'_>) -> bool {
        let (core, remote) = (self.core, self.remote);
        let source = core.rank_of(message.source);
        match (message.handler, message.args) {
            (1..EXITS, args) => remote.exits.keep(source, message.handler, args),
            (BARRIER, &[which, head, low]) => {
                remote.barriers.receive(core, source, which, [head, low])
            }
            _ => false,
        }
    }
}

impl Core {
    /// One attempt to send to a remote rank; `false`: not now.
    #[inline(never)]
    pub(crate) fn post_remote<M: Mode>(&self, message: &AmMessage<'_>) -> bool {
        debug_assert!(
            message.handler >= FIRST_CLIENT_HANDLER,
            "internal messages have a way of their own"
        );
        let Some(remote) = self.remote() else { return false };
        let send = |network: &Network| self.is_sent(network.try_send::<M>(message));
        remote.enter(send).unwrap_or(false)
    }

    /// Replies to a message of a remote rank. `false`: the network is closing, and nobody waits for the reply.
    pub(crate) fn reply_remote<M: Mode>(
        &self,
        token: &ReplyToken,
        message: &AmMessage<'_>,
    ) -> bool {
        let Some(remote) = self.remote() else { return false };
        let reply = |network: &Network| self.is_sent(network.reply::<M>(token, message));
        remote.enter(reply).unwrap_or(false)
    }

    /// Whether the payload of a message to a remote rank would be read where it is, after the call too, if the sender can wait
    /// for it. Without waiting for room a Long would not: part of it may be on its way when the call declines.
    pub(crate) fn stays(&self, message: &AmMessage<'_>, flags: Flags) -> bool {
        let Some(remote) = self.remote().filter(|_| !self.is_near(message.target)) else {
            return false;
        };
        match message.payload {
            AmPayload::Medium(payload) => remote.network.gathers(payload),
            AmPayload::Long { payload, .. } if !flags.contains(Flags::IMMEDIATE) => remote
                .network
                .keeps_long(payload, message.args.len(), message.class == MessageClass::Reply),
            _ => false,
        }
    }

    /// Whether a call into the network has sent something. Inside it.
    #[inline]
    fn is_sent(&self, sent: Result<Sent, crate::transport::net::Error>) -> bool {
        match sent {
            Ok(sent) => sent == Sent::Yes,
            Err(error) => self.failed_send(&error),
        }
    }

    #[cold]
    fn failed_send(&self, error: &crate::transport::net::Error) -> bool {
        // The call is over: an exit may use the network.
        let _outside = Mark::set(false);
        if !self.is_closed() && !self.ends_soon() {
            self.fatal(&error.to_string());
        }
        false
    }

    /// A connection has failed: usually its peer has died, and those who know say so in a moment.
    #[cold]
    fn ends_soon(&self) -> bool {
        let end = Instant::now() + deadlines::LOST_PEER.limit;
        while self.node_shm().notice().is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // Who decides the end rings every doorbell.
            let slice = left.min(deadlines::SLEEP_MOST.limit);
            self.slot().sleep(slice, || self.node_shm().notice().is_some());
        }
        true
    }

    /// The end of the job for the network: lists of used connections are written, what was posted is complete or given up, its
    /// threads end. Bounded by named deadlines. `agreed`: all ranks end in good order, so that they can write one list.
    /// Does nothing in a handler that interrupted the network.
    pub(crate) fn close_network(self: Arc<Self>, agreed: bool) {
        if Remote::is_interrupted() {
            return;
        }
        if agreed {
            Arc::clone(&self).write_list();
        }
        if let Some(remote) = self.remote() {
            remote.close();
        }
    }

    /// One list of the used connections of all ranks. On a thread of its own, because a rank that hangs must not hold up the
    /// end of the others.
    fn write_list(self: Arc<Self>) {
        let lists = |remote: &Remote| remote.network.lists_together();
        if !self.remote().is_some_and(lists) {
            return;
        }
        let rank = self.rank_info().rank;
        let (done, written) = mpsc::channel();
        let its = Arc::clone(&self);
        let write = move || {
            let call = |services: &mut dyn Bootstrap| {
                its.remote().map_or(Ok(()), |remote| remote.network.write_connections(services))
            };
            let result = match its.try_services(call) {
                Some(result) => result.map_err(|error| error.to_string()),
                None => Err("another thread is in a collective call".to_owned()),
            };
            // Nobody listens any more when it has taken too long.
            let _ = done.send(result);
        };
        let problem = match thread::Builder::new().name("gasnet-list".into()).spawn(write) {
            Err(error) => Some(format!("cannot start a thread: {error}")),
            Ok(_) => match written.recv_timeout(deadlines::CONNECTION_LIST.limit) {
                Ok(result) => result.err(),
                Err(_) => Some(format!(
                    "other ranks gave no list within {} s",
                    deadlines::CONNECTION_LIST.limit.as_secs()
                )),
            },
        };
        // Where the end was decided meanwhile, others have said why.
        if let Some(problem) = problem.filter(|_| self.node_shm().notice().is_none()) {
            crate::sys::say(&format!(
                "rank {rank}: GASNET_CONNECTFILE_OUT is not written: {problem}"
            ));
        }
    }

    /// Takes what the network has; returns how many things happened.
    #[inline(never)]
    pub(crate) fn poll_remote<M: Mode>(&self, what: Poll) -> Result<usize, Error> {
        let Some(remote) = self.remote() else { return Ok(0) };
        if barrier::is_driving() {
            return Ok(0);
        }
        let receiver = Receiver::<M>::new(self, remote);
        let polled = remote.enter(|network| network.poll::<M, _>(&receiver, what));
        self.after_poll(&receiver, polled)
    }

    /// Whether nothing can come from outside but messages, so that a wait need not look for more ([`Core::glance_remote`]).
    #[inline]
    pub(crate) fn only_receives(&self) -> bool {
        self.remote().is_some_and(|remote| remote.network.only_receives())
    }

    /// What a wait does between two polls that find nothing: a few looks for messages alone. Ends when one has come, or `done`;
    /// returns how many.
    #[inline(never)]
    pub(crate) fn glance_remote<M: Mode>(
        &self,
        mut done: impl FnMut() -> bool,
    ) -> Result<usize, Error> {
        let Some(remote) = self.remote() else { return Ok(0) };
        if barrier::is_driving() {
            return Ok(0);
        }
        let alone = self.span().locals == 1;
        let receiver = Receiver::<M>::new(self, remote);
        for _ in 0..GLANCES {
            if done() || !alone && self.memory().arrived() {
                break;
            }
            match remote.enter(|network| network.poll_recv::<M, _>(&receiver)) {
                None | Some(Ok(0)) => {}
                // Only the library's own messages have consequences.
                Some(Ok(count)) if !receiver.stirred.get() => return Ok(count),
                looked => return self.after_poll(&receiver, looked),
            }
        }
        Ok(0)
    }

    /// What follows a call into the network that may have brought something.
    #[inline]
    fn after_poll<M: Mode>(
        &self,
        receiver: &Receiver<'_, M>,
        polled: Option<Result<usize, crate::transport::net::Error>>,
    ) -> Result<usize, Error> {
        receiver.check();
        let count = match polled {
            None => 0,
            Some(Ok(count)) => count,
            Some(Err(error)) => self.failed_poll(error)?,
        };
        Ok(count + receiver.remote.exits.deliver(self) + self.drive_barriers())
    }

    #[cold]
    fn failed_poll(&self, error: crate::transport::net::Error) -> Result<usize, Error> {
        if self.is_closed() {
            return Ok(0);
        }
        self.ends_soon();
        // Where the end of the job is decided, that is what the caller hears.
        self.check_open("poll")?;
        Err(error.into())
    }

    /// As [`Core::poll_remote`] for the library's own messages alone. Async-signal-safe in the sense of
    /// [`Core::poll_internal`].
    pub(crate) fn poll_remote_internal(&self) -> usize {
        // What fails on this way is found again by the client's own poll, or the job ends anyway.
        self.poll_remote::<Par>(Poll::Internal).unwrap_or(0)
    }

    /// Sends an internal message to a remote rank.
    pub(crate) fn send_remote_internal(&self, to: Rank, handler: u8, args: &[i32]) -> bool {
        let Some(remote) = self.remote() else { return false };
        let (class, target) = (MessageClass::Internal, neighbours::remote(to));
        let message = AmMessage { class, target, handler, args, payload: AmPayload::None };
        let sent = remote.enter(|network| network.try_send::<Par>(&message));
        matches!(sent, Some(Ok(Sent::Yes)))
    }

    /// Starts the threads of the network that the settings ask for. Those that run handlers need a mode that allows it.
    pub(crate) fn start_threads<M: Mode>(self: &Arc<Self>) -> Result<(), Error> {
        let Some(remote) = self.remote() else { return Ok(()) };
        if remote.receives && !M::THREADED {
            let problem = format!(
                "a thread for receives runs handlers beside the program, which mode {} does not allow; \
                 use the library of mode PAR, or unset it",
                M::NAME
            );
            return Err(Error::Setting { name: "GASNET_RCV_THREAD", problem });
        }
        let sink: SharedSink = Arc::new(Behind(Arc::downgrade(self)));
        Ok(remote.network.start_threads(&sink)?)
    }

    /// Collective part of attach: tells all ranks where this rank's segment is.
    pub(crate) fn attach_remote(&self) -> Result<(), Error> {
        let Some(remote) = self.remote() else { return Ok(()) };
        let (base, len) = self.segment_base(self.local()).map_or((0, 0), |base| {
            (base.expose_provenance() as u64, self.row(self.local()).len.load(Ordering::Relaxed))
        });
        let memory = memory::segment(base, len);
        Ok(self.services(|services| remote.network.attach(memory, services))?)
    }

    /// Runs the handler for a message of a remote rank.
    #[inline]
    fn deliver_remote<M: Mode>(&self, message: Arrived<'_>) {
        let Arrived { source, class, handler, args, payload, reply } = message;
        let rank = self.rank_of(source);
        let Some(entry) = self.handlers.get(handler) else { self.no_handler(rank, handler) };
        self.check_promise(entry, class, rank, args.len());
        let is_long = matches!(payload, ArrivedPayload::Long { .. });
        let token = RawToken::new(self, source, class, is_long, entry).with_reply(reply);
        match payload {
            ArrivedPayload::None => progress::run::<M>(&token, args, Delivery::None),
            ArrivedPayload::Medium(payload) => {
                progress::run::<M>(&token, args, Delivery::Medium(payload));
            }
            ArrivedPayload::Long { offset, len }
                if matches!(entry.function, crate::handler::Function::Foreign(_)) =>
            {
                let base = self.segment_base(self.local()).map_or(0, |base| base.addr() as u64);
                let address = base.wrapping_add(offset);
                progress::run::<M>(&token, args, Delivery::Address(address, len));
            }
            ArrivedPayload::Long { offset, len } => match Landing::new(self, offset, len) {
                Some(landing) => progress::run::<M>(&token, args, Delivery::Long(landing)),
                None => self.fatal(&format!(
                    "rank {} received a Long from rank {rank} for bytes that are not in its segment",
                    self.rank_info().rank,
                )),
            },
        }
        // A reply to a remote rank goes out at once, or the network is closing.
        drop(token.take_deferred());
    }
}
