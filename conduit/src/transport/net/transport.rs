//! [`NetTransport`]: the network from start-up to close, entered by one thread at a time of those
//! that a signal may interrupt for good.
//!
//! A signal handler may interrupt the network and never return. Each thread remembers whether it is
//! inside the network; if it is, the handler finds it shut (sends fail, polls find nothing) and the
//! exit goes on without it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use bootstrap::{Bootstrap, Rank};
use fabric::Region;
use settings::log::RANK;
use settings::{Env, say};

use super::am::receive::Receiver;
use super::am::send::Sender;
use super::connect::{fixed, used};
use super::context::NetContext;
use super::fence::Fences;
use super::links::Links;
use super::memory::buffers::RESERVED_BUFFERS;
use super::memory::pool::{Inbox, RemoteInbox};
use super::peer::Peer;
use super::peer_addresses::{OwnAddress, PeerAddresses};
use super::plan::NetPlan;
use super::post::PostList;
use super::rail::Rail;
use super::rma::OneSided;
use super::segments::{Remote, Segments};
use super::settings::is_per_rank;
use super::setup::{open, start};
use super::single;
use super::threads::Threads;
use super::xrc::{self, Xrc};
use super::{
    Common, DeferredThread, Error, Members, NetSettings, Poll, RawSource, RawTarget, SegmentMemory,
    SendBuffer, Sent, SharedSink,
};
use crate::error::Error as CallError;
use crate::identity::Program;
use crate::mode::Mode;
use crate::segment_mode::SegmentMode;
use crate::trace;
use crate::transport::message::{AmMessage, AmPayload, MessageClass, ReplyToken, Sink};
use crate::transport::neighbours::Neighbours;
use crate::transport::op_counter::OpCounter;
use crate::transport::place::Place;

/// Polls for completions before closing sleeps between them.
const YIELDS: u32 = 20;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The thread is inside the network until this is dropped.
pub(super) struct Inside<'a> {
    pub(super) context: &'a NetContext,
}

impl Drop for Inside<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        INSIDE.replace(false);
    }
}

/// Marks that this thread is outside the network for a while.
pub(crate) struct Mark(bool);

impl Mark {
    /// The thread leaves the network for a while: an exit may use it.
    #[inline(always)]
    pub(crate) fn outside() -> Self {
        Self(INSIDE.with(|mark| mark.replace(false)))
    }
}

impl Drop for Mark {
    #[inline(always)]
    fn drop(&mut self) {
        INSIDE.with(|mark| mark.set(self.0));
    }
}

/// The network of a rank that has remote ranks.
pub(crate) struct NetTransport {
    pub(super) context: Arc<NetContext>,
    closed: AtomicBool,
    pub(super) threads: Threads,
    /// Ranks that are connected at the start, until [`NetTransport::begin`].
    prepared: Mutex<Vec<Rank>>,
    /// Smallest of the largest segments of all ranks.
    pub(crate) max_segment: u64,
}

impl NetTransport {
    /// Collective. `None` when all ranks are neighbours. `max_segment`: the largest of this rank;
    /// `single`: the program has one thread inside the library.
    /// After a barrier of all ranks [`NetTransport::begin`] has to follow.
    pub(crate) fn start(
        (max_segment, neighbourhood_max): (u64, u32),
        mode: SegmentMode,
        single: bool,
        neighbours: &Neighbours,
        (table, env): (&settings::Values, &Env),
        services: &mut dyn Bootstrap,
    ) -> Result<Option<Self>, CallError> {
        let place = services.rank_info();
        if neighbours.span.locals == place.size {
            return Ok(None);
        }
        let members = Members {
            rank: place.rank,
            size: place.size,
            neighbours: neighbours.ranks.clone(),
            hosts: place.hosts,
            page: Arc::clone(services.node_shm()),
            slot: place.local,
        };
        let mut settings = NetSettings::of(table, env).map_err(Error::from)?;
        settings.registration.locals = place.locals;
        settings.registration.lends = !mode.is_fast();
        settings.single = single && settings.needs_no_thread();
        single::tell_drivers(&settings, env);
        // On one host a place has one program.
        let told = place.hosts > 1 && table.bool("GASNET_IBV_SAME_PROGRAM");
        let program = if told { Program::own() } else { Program::default() };
        let common =
            Common { max_segment, neighbourhood_max, segment_mode: mode.number(), program };
        let (plan, max_segment) = open::plan(&settings, &members, (common, mode), services)?;
        Ok(Some(Self::with_plan(settings, plan, max_segment, members, services)?))
    }

    /// From opened ports on.
    pub(super) fn with_plan(
        settings: NetSettings,
        plan: NetPlan,
        max_segment: u64,
        members: Members,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        let datagrams = start::datagrams(&plan, members.remotes(), &settings.connect)?;
        let number = datagrams.as_ref().map_or(0, |(socket, _)| socket.number());
        let sharing = xrc::sharing(settings.xrc && plan.sizes.volume.is_none(), &plan, &members);
        let mine = OwnAddress::new(
            &plan,
            (settings.fenced_puts, settings.connect.ways()),
            sharing,
            number,
        );
        let others = PeerAddresses::exchange(members.rank, &mine, services)?;
        // All ranks share receive queues or none does.
        let xrc = match plan.sizes.srq {
            Some(_) if plan.sizes.volume.is_some() => {
                let reason = "requests are written into rings (see GASNET_AM_FLOW_CONTROL)";
                xrc::refused(&settings, &members, reason);
                None
            }
            Some(_) => Xrc::open(&settings, &plan, &members, &others, services)?,
            None => {
                let reason = "receive queues are not shared (see GASNET_USE_SRQ)";
                xrc::refused(&settings, &members, reason);
                None
            }
        };
        let fences = match settings.fenced_puts {
            true => Some(Fences::exchange(&plan, services)?),
            false => None,
        };
        let context = Arc::new(NetContext::new(settings, plan, members, (xrc, fences))?);
        context.add_initial_buffers()?;
        let links = Links { context: Arc::clone(&context), others };
        let (threads, prepared) =
            start::connect(links, datagrams, &context.settings.connect, services)?;
        let (prepared, closed) = (Mutex::new(prepared), AtomicBool::new(false));
        Ok(Self { context, closed, threads, prepared, max_segment })
    }

    /// After a barrier of all ranks, before anything is sent: connections that are made at the
    /// start may be used.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        let prepared =
            std::mem::take(&mut *self.prepared.lock().unwrap_or_else(PoisonError::into_inner));
        let links = &self.threads.links;
        Ok(fixed::open(self.context.members.rank, &prepared, links)?)
    }

    /// Starts the progress threads that the settings ask for. Those for receives call `sink`, also
    /// while the program is inside the library or a handler; the rank's doorbell rings when they
    /// have done something.
    pub(crate) fn start_threads(&self, sink: &SharedSink) -> Result<(), Error> {
        let settings = &self.context.settings;
        self.threads.progress(&settings.receive_thread, &settings.send_thread, sink)
    }

    /// Those threads for the program to run, instead.
    pub(crate) fn deferred_threads(&self, sink: &SharedSink) -> Vec<DeferredThread> {
        let settings = &self.context.settings;
        self.threads.deferred(&settings.receive_thread, &settings.send_thread, sink)
    }

    /// Collective, once, after each rank has its segment (which may be empty): registers it and
    /// exchanges addresses and keys.
    pub(crate) fn attach(
        &self,
        memory: SegmentMemory,
        must: bool,
        services: &mut dyn Bootstrap,
    ) -> Result<(), Error> {
        let mut mine = [0; 8];
        if memory.len > 0 {
            mine.copy_from_slice(&memory.address().to_ne_bytes());
        }
        let mut mine = mine.to_vec();
        mine.extend((memory.len as u64).to_ne_bytes());
        let regions = match self.register(memory) {
            Err(error) if must => return Err(error),
            regions => regions.unwrap_or_default(),
        };
        let keyed = regions.len() == self.context.rails.len();
        mine.extend(u32::from(keyed).to_ne_bytes());
        for (at, rail) in self.context.rails.iter().enumerate() {
            let region = regions.get(at);
            mine.extend(region.map_or(0, |region| region.rkey()).to_ne_bytes());
            if let Some(region) = region {
                let _ = rail.segment.set(Arc::clone(region));
            }
        }
        debug_assert_eq!(mine.len(), Segments::record_len(self.context.rails.len()));
        self.context.segments.attach((memory, keyed), services.exchange(&mine)?);
        Ok(())
    }

    /// Registers a segment that has bytes with all rails, or with none.
    fn register(&self, memory: SegmentMemory) -> Result<Vec<Arc<dyn Region>>, Error> {
        if memory.len == 0 {
            return Ok(Vec::new());
        }
        let register = |rail: &Rail| {
            let _span = trace::registers(memory.len);
            memory.register(&*rail.device)
        };
        self.context.rails.iter().map(register).collect()
    }

    /// Whether adapters cannot reach a place of a rank: its attached segment is registered with
    /// none.
    pub(crate) fn lacks_key(&self, rank: Rank, place: u64) -> bool {
        Place::of(place).endpoint == 0 && self.context.segments.is_keyless(rank)
    }

    /// Attached segment of a remote rank, in its owner's addresses; `None` before attach.
    pub(crate) fn segment(&self, rank: Rank) -> Option<Remote> {
        self.context.segments.attached(rank)
    }

    /// Whether `len` bytes from a place on (its word) are in a segment of a remote rank.
    pub(crate) fn reaches(&self, rank: Rank, place: u64, len: usize) -> bool {
        self.context.segments.check(rank, place, len as u64).is_ok()
    }

    /// The segment of an endpoint of this rank.
    pub(crate) fn own_segment(&self, endpoint: u16) -> Option<SegmentMemory> {
        self.context.segments.own(endpoint)
    }

    /// Registers memory that the program bound to an endpoint of this rank.
    pub(crate) fn bind(&self, endpoint: u16, memory: SegmentMemory) -> Result<(), Error> {
        let _span = trace::registers(memory.len);
        self.context.segments.bind(endpoint, memory, &self.context.rails)
    }

    /// Bytes that others need to reach the memory bound to an endpoint: as many for each.
    pub(crate) fn keys(&self, endpoint: u16) -> Vec<u8> {
        let mut keys = self.context.segments.keys(endpoint);
        keys.resize(self.keys_len(), 0);
        keys
    }

    /// Bytes of [`NetTransport::keys`], the same on all ranks.
    pub(crate) fn keys_len(&self) -> usize {
        size_of::<u32>() * self.context.rails.len()
    }

    /// Keeps what a rank published.
    pub(crate) fn learn(&self, rank: Rank, endpoint: u16, (base, len): (u64, u64), keys: &[u8]) {
        self.context.segments.learn(rank, endpoint, Remote { base, len }, keys);
    }

    /// Bytes of receive buffers and rings that this rank has by now.
    pub(crate) fn receive_bytes(&self) -> u64 {
        self.context.buffers.receive_bytes()
    }

    /// Whether threads of the network run handlers of the client.
    pub(crate) fn has_receivers(&self) -> bool {
        self.context.settings.receive_thread.on
    }

    /// Calls into the network; `None` when it is closed, or when a signal handler interrupted it.
    #[inline(always)]
    pub(super) fn enter<T>(&self, call: impl FnOnce(&NetContext) -> T) -> Option<T> {
        Some(call(self.inside()?.context))
    }

    /// As [`NetTransport::enter`], until what it returns is dropped.
    #[inline(always)]
    pub(super) fn inside(&self) -> Option<Inside<'_>> {
        if INSIDE.get() | self.closed.load(Ordering::Relaxed) {
            return None;
        }
        INSIDE.replace(true);
        Some(Inside { context: &self.context })
    }

    /// Whether a signal handler on this thread has interrupted the network, which then must be left
    /// alone.
    pub(crate) fn is_interrupted() -> bool {
        INSIDE.get()
    }

    /// Whether a poll would certainly find something. A hint: completions of the device do not
    /// count.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.context.receive.deferred.is_empty() | self.context.failure.is_set()
    }

    /// Before a sleep: completions from now on ring the rank's doorbell. Poll once more after it.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        let arm = |context: &NetContext| {
            context.await_silent();
            for rail in &context.rails {
                if !rail.has_receiver.load(Ordering::Relaxed) {
                    rail.recv_cq.arm()?;
                }
                let sends = rail.is_sending() || rail.has_unsignaled();
                if sends && !rail.has_reaper.load(Ordering::Relaxed) {
                    rail.send_cq.arm()?;
                    rail.look_soon();
                }
            }
            Ok(())
        };
        self.enter(arm).unwrap_or(Ok(()))
    }

    /// From now on failed completions are ignored: the job is ending. Async-signal-safe.
    pub(crate) fn quiet(&self) {
        self.context.failure.ignore();
    }

    /// Ends all calls into the network, takes what is still complete and stops the network's
    /// threads, bounded by named deadlines. Not for signal handlers.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.quiet();
        self.write_own_connections();
        let end = Instant::now() + deadlines::DRAIN.limit;
        let mut idle = 0_u32;
        // What is unsignalled is not waited for, but leaves.
        let _ = self.context.look_for_failures();
        while self.context.rails.iter().any(Rail::is_sending) && Instant::now() < end {
            if matches!(self.context.reap(), Ok(count) if count > 0) {
                idle = 0;
            } else if idle < YIELDS {
                idle += 1;
                std::thread::yield_now();
            } else {
                std::thread::sleep(deadlines::CLOSE_SLICE.limit);
            }
        }
        self.threads.stop();
        self.context.memory.close();
    }

    /// Peers that something was sent to or came from, ascending.
    fn used(&self) -> Vec<Rank> {
        let NetContext { peers, members, .. } = &*self.context;
        // Those with neighbours and with this rank itself are for atomics, and nobody is asked for
        // them at the start.
        let wanted = |peer: &&Peer| peer.was_used() && members.is_remote(peer.rank);
        let peers = peers.iter().filter(wanted);
        let mut used: Vec<Rank> = peers.map(|peer| peer.rank).collect();
        used.sort_unstable();
        used
    }

    /// A file of used connections that each rank has for itself needs nobody else.
    fn write_own_connections(&self) {
        let NetContext { members, settings, .. } = &*self.context;
        let pattern = settings.connect.file_out.as_deref().filter(|name| is_per_rank(name));
        let write = |pattern| {
            let base = settings.connect.file_base;
            used::write_own(pattern, base, members.rank, members.size, &self.used())
        };
        if let Some(Err(error)) = pattern.map(write) {
            say!(WARN, RANK, "rank {}: {error}", members.rank);
        }
    }

    /// Whether [`NetTransport::write_connections`] has something to do: one list of all ranks.
    pub(crate) fn lists_together(&self) -> bool {
        self.context.settings.connect.lists_together()
    }

    /// Writes the list of used connections that `GASNET_CONNECTFILE_OUT` asks for. Collective.
    /// (Files with a `%` in their name are written by [`NetTransport::close`].)
    pub(crate) fn write_connections(&self, services: &mut dyn Bootstrap) -> Result<(), Error> {
        let NetContext { members, settings, .. } = &*self.context;
        let pattern = settings.connect.file_out.as_deref().filter(|_| self.lists_together());
        let Some(pattern) = pattern else { return Ok(()) };
        let (base, used) = (settings.connect.file_base, self.used());
        Ok(used::write(pattern, base, members.rank, members.size, &used, services)?)
    }

    /// One attempt to send. Starts a connection when there is none. Runs no
    /// handlers. Waits only for an unpacked Long, and then for the device to have taken the
    /// payload.
    #[inline(never)]
    pub(crate) fn send(&self, message: &AmMessage<'_>) -> Result<Sent, Box<Error>> {
        let Some(inside) = self.inside() else { return Ok(Sent::Full) };
        Sender(inside.context).try_message(message)
    }

    /// Replies to the message of a token, inside the sink's call; waits for completions of sends,
    /// runs no handlers. `Full`: the network is closing, and nobody waits for the reply.
    #[inline(never)]
    pub(crate) fn reply(
        &self,
        token: &ReplyToken<'_>,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Box<Error>> {
        let Some(inside) = self.inside() else { return Ok(Sent::Full) };
        let sent = Sender(inside.context).reply(token, message)?;
        token.replied.set(sent.is_yes());
        Ok(sent)
    }

    /// Whether the payload of a message would be read where it is, after the call too, if the
    /// sender can wait for it. Without waiting for room (`waits`) a Long would not: part of it may
    /// be on its way when the call declines.
    pub(crate) fn is_zero_copy(&self, message: &AmMessage<'_>, waits: bool) -> bool {
        let sender = Sender(&self.context);
        match message.payload {
            AmPayload::Medium(payload) => sender.gathers(payload),
            AmPayload::Long { payload, .. } if waits => {
                let reply = message.class == MessageClass::Reply;
                sender.keeps_long(payload, message.args.len(), reply)
            }
            _ => false,
        }
    }

    /// A buffer for a negotiated payload of at most 65528 bytes; `None`: none is free, poll and try
    /// again. For replies the last buffers may be used.
    pub(crate) fn buffer(&self, class: MessageClass) -> Option<SendBuffer> {
        let reserve = if class == MessageClass::Reply { 0 } else { RESERVED_BUFFERS };
        self.enter(|context| SendBuffer::take(&context.buffers, reserve)).flatten()
    }

    /// Takes arrived messages and completions, a bounded number, and calls `sink` for each message;
    /// how many things happened. `None`: the network is closed or was interrupted.
    #[inline(always)]
    pub(crate) fn poll<M: Mode, S: Sink>(
        &self,
        sink: &S,
        what: Poll,
    ) -> Option<Result<usize, Box<Error>>> {
        let inside = self.inside()?;
        if what == Poll::All
            && self.threads.is_turn_to_serve()
            && let Err(error) = self.threads.serve()
        {
            return Some(Err(error.into()));
        }
        Some(Receiver(inside.context).poll(sink, what, M::THREADED))
    }

    /// As [`NetTransport::poll`] for arrived messages alone, in a wait between two polls, where
    /// [`NetTransport::only_receives`].
    #[inline(always)]
    pub(crate) fn poll_recv<M: Mode, S: Sink>(
        &self,
        sink: &S,
    ) -> Option<Result<usize, Box<Error>>> {
        let inside = self.inside()?;
        Some(Receiver(inside.context).poll_recv(sink, M::THREADED))
    }

    /// Takes completions of sends until `done`, at most `looks` times; how many are left of these.
    #[inline]
    pub(crate) fn take_ends(
        &self,
        looks: u32,
        done: impl Fn() -> bool,
    ) -> Option<Result<u32, Error>> {
        self.enter(|context| context.take_ends(looks, done))
    }

    /// Somebody is about to wait for ends of own requests.
    #[inline]
    pub(crate) fn await_ends(&self) {
        self.enter(NetContext::await_silent);
    }

    /// Whether only receive completions are possible.
    #[inline]
    pub(crate) fn only_receives(&self) -> bool {
        let context = &self.context;
        let quiet = context.receive.deferred.is_empty() && !context.has_pending_acks();
        quiet && !context.rails.iter().any(Rail::is_sending)
    }

    /// Posts as much of a put as there is room for. `Yes`: all of it; `Full`: poll and call again
    /// with the same source.
    pub(crate) fn put(
        &self,
        (to, offset): (Rank, u64),
        source: &mut RawSource<'_>,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let put = self.enter(|context| {
            let one_sided = OneSided(context);
            if context.fences.is_none() {
                return one_sided.put((to, offset), source, counter, None);
            }
            // A fence goes with each piece.
            PostList::with(context, |list| one_sided.put((to, offset), source, counter, Some(list)))
        });
        put.unwrap_or(Ok(Sent::Full))
    }

    /// Whether the devices are adapters, which write to a peer's memory without its help.
    pub(crate) fn is_adapter(&self) -> bool {
        self.context.rails.first().is_some_and(|rail| rail.cheap_poll)
    }

    /// How often something of a peer was found, if this process has to do that.
    pub(crate) fn arrivals(&self) -> u32 {
        let arrivals = self.context.rails.iter().map(|rail| rail.device.arrivals());
        arrivals.fold(0, u32::wrapping_add)
    }

    /// Memory for words that other ranks write by [`NetTransport::write_inbox`].
    pub(crate) fn inbox(&self, words: usize) -> Result<Inbox, Error> {
        let none = || Error::OutsideSegment {
            rank: self.context.members.rank,
            offset: 0,
            end: 0,
            segment: 0,
        };
        Inbox::new(&*self.context.rails.first().ok_or_else(none)?.device, words)
    }

    /// One attempt to write words of a rank's inbox, at most `INBOX_WORDS`, in one request that
    /// carries them. `false`: not now; `None`: it cannot be done so.
    pub(crate) fn write_inbox(
        &self,
        to: Rank,
        inbox: RemoteInbox,
        index: usize,
        words: &[u64],
    ) -> Option<bool> {
        self.enter(|context| OneSided(context).write_inbox(to, inbox, index, words))
            .unwrap_or(Some(false))
    }

    /// Posts as much of a get as there is room for, as [`NetTransport::put`].
    pub(crate) fn get(
        &self,
        (from, offset): (Rank, u64),
        into: &mut RawTarget,
        counter: &Arc<OpCounter>,
    ) -> Result<Sent, Error> {
        let get = self.enter(|context| OneSided(context).get((from, offset), into, counter, None));
        get.unwrap_or(Ok(Sent::Full))
    }
}

impl Drop for NetTransport {
    fn drop(&mut self) {
        self.close();
        self.threads.stop();
    }
}
