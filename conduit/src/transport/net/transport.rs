//! The network as the rank drives it: entered by one thread at a time of those that a signal may
//! interrupt for good.
//!
//! A signal handler may interrupt the network and never return. Each thread remembers whether it is
//! inside the network; if it is, the handler finds it shut (sends fail, polls find nothing) and the
//! exit goes on without it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bootstrap::{Bootstrap, Rank};
use settings::Env;

use super::am::receive::Receiver;
use super::am::send::Sender;
use super::memory::buffers::RESERVED_BUFFERS;
use super::rma::OneSided;
use super::{
    Common, Error, Members, NetSettings, Network, Poll, RawSource, RawTarget, SegmentMemory,
    SendBuffer, Sent, SharedSink,
};
use crate::error::Error as CallError;
use crate::mode::Mode;
use crate::transport::message::{AmMessage, AmPayload, MessageClass, ReplyToken, Sink};
use crate::transport::neighbours::Neighbours;
use crate::transport::op_counter::OpCounter;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Marks that this thread is inside the network, or outside it again for a while.
pub(crate) struct Mark(bool);

impl Mark {
    fn set(inside: bool) -> Self {
        Self(INSIDE.replace(inside))
    }

    /// The thread leaves the network for a while: an exit may use it.
    pub(crate) fn outside() -> Self {
        Self::set(false)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// A segment of a remote rank, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteSegment {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// The network of a rank that has remote ranks.
pub(crate) struct NetTransport {
    network: Box<Network>,
    closed: AtomicBool,
    /// Smallest of the largest segments of all ranks.
    max_segment: u64,
    /// Threads of the network may run handlers.
    receives: bool,
}

impl NetTransport {
    /// Collective. `None` when all ranks are neighbours. `max_segment`: the largest of this rank.
    pub(crate) fn start(
        max_segment: u64,
        neighbourhood_max: u32,
        neighbours: &Neighbours,
        (table, env): (&settings::Values, &Env),
        services: &mut dyn Bootstrap,
    ) -> Result<Option<Self>, CallError> {
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
        let network = network.map_err(|error| CallError::Network(error.to_string()))?;
        let receives = network.receive_thread.on;
        let common = Common { max_segment, neighbourhood_max };
        let network = Network::start(&network, &members, common, services)?;
        let reason = || format!("the job has {} neighbourhoods", neighbours.count());
        let remedy = "start all ranks on one host, without GASNET_SUPERNODE_MAXSIZE";
        let (network, max_segment) =
            network.ok_or_else(|| CallError::NeedsNetwork { reason: reason(), remedy })?;
        let (network, closed) = (Box::new(network), AtomicBool::new(false));
        Ok(Some(Self { network, closed, max_segment, receives }))
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

    /// Whether a poll would certainly find something. A hint.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.network.has_work()
    }

    /// Before a sleep: arrivals ring the doorbell from now on. Poll once more after it.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        self.enter(Network::arm).unwrap_or(Ok(()))
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

    /// Whether a signal handler on this thread has interrupted the network, which then must be left
    /// alone.
    pub(crate) fn is_interrupted() -> bool {
        INSIDE.get()
    }

    /// After the barrier at the end of init: connections that are made at the start may be used.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.network.begin()
    }

    /// Starts the threads of the network that the settings ask for.
    pub(crate) fn start_threads(&self, sink: &SharedSink) -> Result<(), Error> {
        self.network.start_threads(sink)
    }

    /// Collective part of attach: tells all ranks where this rank's segment is.
    pub(crate) fn attach(
        &self,
        memory: SegmentMemory,
        services: &mut dyn Bootstrap,
    ) -> Result<(), Error> {
        self.network.attach(memory, services)
    }

    /// Segment of a remote rank; `None` before attach.
    pub(crate) fn segment(&self, rank: Rank) -> Option<RemoteSegment> {
        self.network.segment(rank).map(|(base, len)| RemoteSegment { base, len })
    }

    /// Whether one list of the used connections of all ranks is asked for.
    pub(crate) fn lists_together(&self) -> bool {
        self.network.lists_together()
    }

    /// Collective: writes that list.
    pub(crate) fn write_connections(&self, services: &mut dyn Bootstrap) -> Result<(), Error> {
        self.network.write_connections(services)
    }

    /// One attempt to send; `false`: not now.
    #[inline(never)]
    pub(crate) fn send<M: Mode>(&self, message: &AmMessage<'_>) -> Result<bool, Box<Error>> {
        sent(self.enter(|network| network.try_send::<M>(message)))
    }

    /// Replies to the message of a token. `false`: the network is closing, and nobody waits for the
    /// reply.
    pub(crate) fn reply<M: Mode>(
        &self,
        token: &ReplyToken,
        message: &AmMessage<'_>,
    ) -> Result<bool, Box<Error>> {
        sent(self.enter(|network| network.reply::<M>(token, message)))
    }

    /// Whether the payload of a message would be read where it is, after the call too, if the
    /// sender can wait for it. Without waiting for room (`waits`) a Long would not: part of it may
    /// be on its way when the call declines.
    pub(crate) fn is_zero_copy(&self, message: &AmMessage<'_>, waits: bool) -> bool {
        match message.payload {
            AmPayload::Medium(payload) => self.network.gathers(payload),
            AmPayload::Long { payload, .. } if waits => {
                let reply = message.class == MessageClass::Reply;
                self.network.keeps_long(payload, message.args.len(), reply)
            }
            _ => false,
        }
    }

    /// A buffer of the network for a negotiated payload.
    pub(crate) fn buffer<M: Mode>(&self, class: MessageClass) -> Option<SendBuffer> {
        self.enter(|network| network.buffer::<M>(class == MessageClass::Reply)).flatten()
    }

    /// Takes what the network has; how many things happened. `None`: it is closed or was
    /// interrupted.
    #[inline]
    pub(crate) fn poll<M: Mode, S: Sink>(
        &self,
        sink: &S,
        what: Poll,
    ) -> Option<Result<usize, Error>> {
        self.enter(|network| network.poll::<M, S>(sink, what))
    }

    /// As [`NetTransport::poll`] for arrived messages alone, where [`NetTransport::only_receives`].
    #[inline]
    pub(crate) fn poll_recv<M: Mode, S: Sink>(&self, sink: &S) -> Option<Result<usize, Error>> {
        self.enter(|network| network.poll_recv::<M, S>(sink))
    }

    /// Whether only receive completions are possible, and polling for them needs no system call.
    #[inline]
    pub(crate) fn only_receives(&self) -> bool {
        self.network.only_receives()
    }

    /// Posts as much of a put as there is room for.
    pub(crate) fn put<M: Mode>(
        &self,
        (to, offset): (Rank, u64),
        source: &mut RawSource<'_>,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let put = self.enter(|network| network.put::<M>(to, offset, source, counter));
        put.unwrap_or(Ok(Sent::Full))
    }

    /// Posts as much of a get as there is room for.
    pub(crate) fn get<M: Mode>(
        &self,
        (from, offset): (Rank, u64),
        into: &mut RawTarget,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let get = self.enter(|network| network.get::<M>(from, offset, into, counter));
        get.unwrap_or(Ok(Sent::Full))
    }
}

impl Drop for NetTransport {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether a call into the network has sent something.
#[inline]
fn sent(called: Option<Result<Sent, Error>>) -> Result<bool, Box<Error>> {
    match called {
        None => Ok(false),
        Some(Ok(sent)) => Ok(sent == Sent::Yes),
        Some(Err(error)) => Err(Box::new(error)),
    }
}

/// What the network carries; [`NetTransport`] says whether it may be entered.
#[expect(
    clippy::extra_unused_type_parameters,
    reason = "callers say their mode; no call takes a lock"
)]
impl Network {
    /// One attempt. Starts a connection when there is none. Runs no handlers. Waits only for an
    /// unpacked Long, and then for the device to have taken the payload.
    ///
    /// # Errors
    /// A message that cannot be sent at all, or a lost connection.
    #[inline]
    pub(crate) fn try_send<M: Mode>(&self, message: &AmMessage<'_>) -> Result<Sent, Error> {
        Sender(&self.context).try_message(message)
    }

    /// Whether the payload of a Medium that may be read after the call would be read where it is.
    pub(crate) fn gathers(&self, payload: &[u8]) -> bool {
        Sender(&self.context).gathers(payload)
    }

    /// As [`Network::gathers`] for a Long.
    pub(crate) fn keeps_long(&self, payload: &[u8], nargs: usize, reply: bool) -> bool {
        Sender(&self.context).keeps_long(payload, nargs, reply)
    }

    /// Replies inside the sink's call; waits for completions of sends, runs no handlers. `Full`
    /// only when the network is closing.
    ///
    /// # Errors
    /// As [`Network::try_send`].
    pub(crate) fn reply<M: Mode>(
        &self,
        token: &ReplyToken,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Error> {
        let sent = Sender(&self.context).reply(token, message)?;
        token.set_replied(sent == Sent::Yes);
        Ok(sent)
    }

    /// A buffer for a negotiated payload of at most 65528 bytes; `None`: none is free, poll and try
    /// again. `reply`: inside a handler, where the last buffers may be used.
    pub(crate) fn buffer<M: Mode>(&self, reply: bool) -> Option<SendBuffer> {
        SendBuffer::take(&self.context.buffers, if reply { 0 } else { RESERVED_BUFFERS })
    }

    /// Takes arrived messages and completions, a bounded number, and calls `sink` for each message.
    /// Returns how many things happened.
    ///
    /// # Errors
    /// A failed completion (not while closing), a malformed message.
    #[inline]
    pub(crate) fn poll<M: Mode, S: Sink + ?Sized>(
        &self,
        sink: &S,
        what: Poll,
    ) -> Result<usize, Error> {
        Receiver(&self.context).poll(sink, what, M::THREADED)
    }

    /// Takes messages alone, in a wait between two polls, where [`Network::only_receives`].
    ///
    /// # Errors
    /// As [`Network::poll`].
    #[inline]
    pub(crate) fn poll_recv<M: Mode, S: Sink + ?Sized>(&self, sink: &S) -> Result<usize, Error> {
        Receiver(&self.context).poll_recv(sink, M::THREADED)
    }

    /// Whether only receive completions are possible, and polling for them needs no system call.
    pub(crate) fn only_receives(&self) -> bool {
        Receiver(&self.context).only_receives()
    }

    /// Whether a poll would certainly find something. A hint: completions of the device do not
    /// count.
    pub(crate) fn has_work(&self) -> bool {
        !self.context.receive.deferred.is_empty() || self.context.failure.is_set()
    }

    /// Posts as much of a put as there is room for. `Yes`: all of it; `Full`: poll and call again
    /// with the same source.
    ///
    /// # Errors
    /// A range outside the target's segment, a lost connection.
    pub(crate) fn put<M: Mode>(
        &self,
        to: Rank,
        offset: u64,
        source: &mut RawSource<'_>,
        completion: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        OneSided(&self.context).put(to, offset, source, completion)
    }

    /// Posts as much of a get as there is room for, as [`Network::put`].
    ///
    /// # Errors
    /// As [`Network::put`].
    pub(crate) fn get<M: Mode>(
        &self,
        from: Rank,
        offset: u64,
        into: &mut RawTarget,
        completion: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        OneSided(&self.context).get(from, offset, into, completion)
    }
}
