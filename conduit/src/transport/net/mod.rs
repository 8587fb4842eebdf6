//! The network: messages, puts and gets between ranks that share no memory.
//!
//! [`Network`] is there only when some rank of the job is outside the neighbourhood. It never runs a handler itself: arrived
//! messages go to a [`Sink`]. It never waits for a peer's program, only (where a method says so) for the device to finish
//! what was posted. `docs/design/am.md` has the protocol.

mod am;
mod connect;
mod connect_queue;
mod context;
mod credits;
mod error;
mod lockfree;
mod memory;
mod peer;
mod ports;
mod rail;
mod recv_buffers;
mod rma;
mod settings;
mod setup;
mod threads;
mod xrc;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ::settings::deadlines::net as deadlines;
use bootstrap::node_shm::NodeShm;
use bootstrap::{Bootstrap, Rank};

use self::am::header::MAX_HEADER;
use self::connect::file;
use self::context::{NetContext, RESERVED_BUFFERS};
pub(crate) use self::error::Error;
use self::memory::pool::Buffer;
pub(crate) use self::memory::pool::{RawTarget, SegmentMemory};
pub(crate) use self::settings::NetSettings;
use self::setup::Setup;
use self::setup::peer_addresses::{OwnAddress, PeerAddresses};
use self::setup::start::Links;
pub(crate) use self::threads::SharedSink;
use self::threads::Threads;
use crate::mode::Mode;
use crate::transport::message::{AmMessage, ReplyToken, Sink};
pub(crate) use crate::transport::op_counter::OpCounter;

/// Looks for completions before closing sleeps between them.
const YIELDS: u32 = 20;

/// Handler numbers below this one are the library's own.
pub(crate) const FIRST_CLIENT_HANDLER: u8 = 64;

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Sent {
    /// Posted.
    Yes,
    /// No credit, buffer or slot, or not connected yet: poll and try again.
    Full,
}

/// What a poll looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    /// Everything.
    All,
    /// Completions of sends, and messages of the library; messages of the client are kept for a later poll. Takes no lock:
    /// for exit paths.
    Internal,
    /// Completions of sends only: what a rank inside a handler may look at.
    SendsOnly,
}

/// The ranks of the job as the network sees them.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    /// This rank.
    pub(crate) rank: Rank,
    /// Ranks of the job.
    pub(crate) size: u32,
    /// Ranks of this rank's neighbourhood with itself, ascending.
    pub(crate) neighbours: Vec<Rank>,
    /// Hosts of the job.
    pub(crate) hosts: u32,
    /// This host's page.
    pub(crate) page: Arc<NodeShm>,
    /// This rank's slot in it: its index among the ranks of the host.
    pub(crate) slot: u32,
}

impl Members {
    /// Whether a rank is reached over the network.
    pub(crate) fn is_remote(&self, rank: Rank) -> bool {
        rank.0 < self.size && self.neighbours.binary_search(&rank).is_err()
    }
}

/// What the core has to agree on with all ranks, which travels with the network's first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// Largest segment that this rank can have.
    pub(crate) max_segment: u64,
    /// Most ranks of a neighbourhood: all hosts must be cut alike.
    pub(crate) neighbourhood_max: u32,
}

/// A buffer of the library that the client fills for a negotiated payload. Goes back when dropped.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    context: Arc<NetContext>,
    buffer: Option<Buffer>,
}

impl SendBuffer {
    /// Room for the payload, aligned to 8.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => &mut self.context.pool.bytes(buffer)[MAX_HEADER..],
            None => &mut [],
        }
    }

    /// Gives the buffer to `send`, which gives it back when it could not be sent.
    fn send(
        mut self,
        send: impl FnOnce(Buffer) -> (Result<Sent, Error>, Option<Buffer>),
    ) -> (Result<Sent, Error>, Option<Self>) {
        let Some(buffer) = self.buffer.take() else { return (Ok(Sent::Full), None) };
        let (sent, back) = send(buffer);
        self.buffer = back;
        let back = self.buffer.is_some().then_some(self);
        (sent, back)
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.context.bounce.put(&self.context.pool, buffer);
        }
    }
}

/// The local end of a put, and how much of it was posted. Memory outside attached segments is copied while the put is
/// posted; memory inside is read by the device until the operation is locally complete.
#[derive(Debug)]
pub(crate) struct RawSource<'a> {
    /// What is left.
    bytes: &'a [u8],
    /// Bytes posted so far.
    done: u64,
    /// The source should be free when all is posted.
    at_once: bool,
}

impl<'a> RawSource<'a> {
    /// All of `bytes` is to be put.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, done: 0, at_once: false }
    }

    /// As [`RawSource::new`], for a caller that wants its memory back when all is posted: up to
    /// `GASNET_NONBULKPUT_BOUNCE_LIMIT` memory inside segments is copied too. Beyond that look at the counter.
    pub(crate) const fn at_once(bytes: &'a [u8]) -> Self {
        Self { bytes, done: 0, at_once: true }
    }
}

/// The network of one rank.
#[derive(Debug)]
pub(crate) struct Network {
    context: Arc<NetContext>,
    threads: Threads,
    settings: NetSettings,
    /// Ranks that are connected at the start, until [`Network::begin`].
    prepared: Mutex<Vec<Rank>>,
}

#[expect(
    clippy::extra_unused_type_parameters,
    reason = "callers say their mode; no call takes a lock"
)]
impl Network {
    /// Collective. `None` when every rank is in this neighbourhood; otherwise the network, and the smallest of the largest
    /// segments of all ranks. After a barrier of all ranks [`Network::begin`] has to follow.
    ///
    /// # Errors
    /// No usable device, settings that cannot be met, ranks that do not fit together.
    pub(crate) fn start(
        settings: &NetSettings,
        members: &Members,
        common: Common,
        services: &mut dyn Bootstrap,
    ) -> Result<Option<(Self, u64)>, Error> {
        if members.neighbours.len() == members.size as usize {
            return Ok(None);
        }
        let (setup, max_segment) = setup::open::setup(settings, members, common, services)?;
        let network = Self::with_setup(settings, setup, members, services)?;
        Ok(Some((network, max_segment)))
    }

    /// From opened ports on.
    fn with_setup(
        settings: &NetSettings,
        setup: Setup,
        members: &Members,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        let datagrams = setup::start::datagrams(&setup, members.size, &settings.connect)?;
        let number = datagrams.as_ref().map_or(0, |(socket, _)| socket.number());
        let sharing = xrc::sharing(settings.xrc, &setup, members)?;
        let mine = OwnAddress::new(&setup, sharing, number)?;
        let others = PeerAddresses::exchange(members.rank, &mine, services)?;
        // All ranks share receive queues or none does.
        let xrc = match setup.limits.shared {
            Some(_) => xrc::Xrc::open(settings.xrc, &setup, members, &others, services)?,
            None => {
                settings.xrc.refused(members, "receive queues are not shared (see GASNET_USE_SRQ)");
                None
            }
        };
        let context = Arc::new(NetContext::new(setup, members.clone(), xrc)?);
        let links = Links { context: Arc::clone(&context), others };
        let (threads, prepared) =
            setup::start::connect(links, datagrams, &settings.connect, services)?;
        let prepared = Mutex::new(prepared);
        Ok(Self { context, threads, settings: settings.clone(), prepared })
    }

    /// After a barrier of all ranks, before anything is sent: connections that are made at the start may be used.
    ///
    /// # Errors
    /// The device refuses.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        let prepared =
            std::mem::take(&mut *self.prepared.lock().unwrap_or_else(PoisonError::into_inner));
        setup::start::open(self.threads.links(), &prepared)
    }

    /// Address, in its owner, and length of a remote rank's segment; `None` before attach.
    pub(crate) fn segment(&self, rank: Rank) -> Option<(u64, u64)> {
        let far = self.context.segments.get()?.remote(rank);
        Some((far.base, far.len))
    }

    /// Starts the progress threads that the settings ask for. Those for receives call `sink`, also while the program is
    /// inside the library or a handler; the rank's doorbell rings when they have done something.
    ///
    /// # Errors
    /// No threads.
    pub(crate) fn start_threads(&self, sink: &SharedSink) -> Result<(), Error> {
        self.threads.progress(&self.settings.receive_thread, &self.settings.send_thread, sink)
    }

    /// Before a sleep: completions from now on ring the rank's doorbell. Poll once more after it.
    ///
    /// # Errors
    /// The device refuses.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        for rail in &self.context.rails {
            if !rail.has_receiver.load(Ordering::Relaxed) {
                rail.recv_cq.arm()?;
            }
            if rail.is_sending() && !rail.has_reaper.load(Ordering::Relaxed) {
                rail.send_cq.arm()?;
            }
        }
        Ok(())
    }

    /// Collective, once, after each rank has its segment (which may be empty): registers it and exchanges addresses and keys.
    ///
    /// # Errors
    /// The device cannot register the memory; the exchange fails.
    pub(crate) fn attach(
        &self,
        memory: SegmentMemory,
        services: &mut dyn Bootstrap,
    ) -> Result<(), Error> {
        setup::start::attach(&self.context, memory, services)
    }

    /// Peers that something was sent to or came from, ascending.
    fn used(&self) -> Vec<Rank> {
        let peers = self.context.peers.iter().filter(|peer| peer.was_used());
        let mut used: Vec<Rank> = peers.map(|peer| peer.rank).collect();
        used.sort_unstable();
        used
    }

    /// A file of used connections that each rank has for itself needs nobody else.
    fn write_own_connections(&self) {
        let members = &self.context.members;
        let settings = &self.settings.connect;
        let pattern = settings.file_out.as_deref().filter(|name| file::is_per_rank(name));
        let Some(pattern) = pattern else { return };
        let (base, rank) = (settings.file_base, members.rank.0);
        let used = self.used().into_iter().map(|peer| peer.0);
        let text = file::header(members.size, base) + &file::lines(rank, used, base);
        if let Err(error) = file::write(&file::expand(pattern, rank), &text) {
            say(&format!("gasnet_ibv: rank {rank}: {error}\n"));
        }
    }

    /// Whether [`Network::write_connections`] has something to do: one list of all ranks.
    pub(crate) fn lists_together(&self) -> bool {
        self.settings.connect.lists_together()
    }

    /// Writes the list of used connections that `GASNET_CONNECTFILE_OUT` asks for. Collective. (Files with a `%`
    /// in their name are written by [`Network::close`].)
    ///
    /// # Errors
    /// The file cannot be written; a service fails.
    pub(crate) fn write_connections(&self, services: &mut dyn Bootstrap) -> Result<(), Error> {
        let settings = &self.settings.connect;
        let Some(pattern) = settings.file_out.as_deref().filter(|_| self.lists_together()) else {
            return Ok(());
        };
        let members = &self.context.members;
        let (base, used) = (settings.file_base, self.used());
        Ok(connect::used::write(pattern, base, members.rank, members.size, &used, services)?)
    }

    /// Takes what is still complete and stops the network's threads, bounded by named deadlines. Failures do not count any
    /// more. Not for signal handlers.
    pub(crate) fn close(&self) {
        self.quiet();
        self.write_own_connections();
        let end = Instant::now() + deadlines::DRAIN.limit;
        let mut idle = 0_u32;
        while self.context.rails.iter().any(rail::Rail::is_sending) && Instant::now() < end {
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
    }

    /// One attempt. Starts a connection when there is none. Runs no handlers. Waits only for an unpacked Long, and then for
    /// the device to have taken the payload.
    ///
    /// # Errors
    /// A message that cannot be sent at all, or a lost connection.
    #[inline]
    pub(crate) fn try_send<M: Mode>(&self, message: &AmMessage<'_>) -> Result<Sent, Error> {
        self.context.try_message(message)
    }

    /// Whether the payload of a Medium that may be read after the call would be read where it is.
    pub(crate) fn gathers(&self, payload: &[u8]) -> bool {
        self.context.gathers(payload)
    }

    /// As [`Network::gathers`] for a Long.
    pub(crate) fn keeps_long(&self, payload: &[u8], nargs: usize, reply: bool) -> bool {
        self.context.keeps_long(payload, nargs, reply)
    }

    /// Replies inside the sink's call; waits for completions of sends, runs no handlers. `Full` only when the network is
    /// closing.
    ///
    /// # Errors
    /// As [`Network::try_send`].
    pub(crate) fn reply<M: Mode>(
        &self,
        token: &ReplyToken,
        message: &AmMessage<'_>,
    ) -> Result<Sent, Error> {
        let sent = self.context.answer(token, message)?;
        token.set_replied(sent == Sent::Yes);
        Ok(sent)
    }

    /// A buffer for a negotiated payload of at most 65528 bytes; `None`: none is free, poll and try again. `reply`: inside a
    /// handler, where the last buffers may be used.
    pub(crate) fn buffer<M: Mode>(&self, reply: bool) -> Option<SendBuffer> {
        let kept = if reply { 0 } else { RESERVED_BUFFERS };
        let buffer = self.context.bounce.take(&self.context.pool, kept)?;
        Some(SendBuffer { context: Arc::clone(&self.context), buffer: Some(buffer) })
    }

    /// Takes arrived messages and completions, a bounded number, and calls `sink` for each message. Returns how many things
    /// happened.
    ///
    /// # Errors
    /// A failed completion (not while closing), a malformed message.
    #[inline]
    pub(crate) fn poll<M: Mode>(&self, sink: &dyn Sink, what: Poll) -> Result<usize, Error> {
        self.context.poll(sink, what, M::THREADED)
    }

    /// One look for messages in a wait, between polls, where [`Network::only_receives`].
    ///
    /// # Errors
    /// As [`Network::poll`].
    #[inline]
    pub(crate) fn poll_recv<M: Mode>(&self, sink: &dyn Sink) -> Result<usize, Error> {
        self.context.poll_recv(sink, M::THREADED)
    }

    /// Whether nothing can happen by itself but that messages arrive, and looks for them are quick: a wait need not ask for more.
    pub(crate) fn only_receives(&self) -> bool {
        self.context.only_receives()
    }

    /// Whether a poll would certainly find something. A hint: completions of the device do not count.
    pub(crate) fn has_work(&self) -> bool {
        !self.context.waiting.is_empty() || self.context.has_failed()
    }

    /// Bytes of a rank's attached segment; 0 before attach.
    #[cfg(test)]
    pub(crate) fn segment_len(&self, rank: Rank) -> u64 {
        self.context.segments.get().map_or(0, |segments| segments.remote(rank).len)
    }

    /// Posts as much of a put as there is room for. `Yes`: all of it; `Full`: poll and call again with the same source.
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
        self.context.put(to, offset, source, completion)
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
        self.context.get(from, offset, into, completion)
    }

    /// From now on failed completions are ignored: the job is ending. Safe in signal handlers.
    pub(crate) fn quiet(&self) {
        self.context.quiet.store(true, Ordering::Relaxed);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.quiet();
        self.threads.stop();
    }
}

/// One write, so that lines of several ranks do not mix. A closed standard error is the user's choice.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod fuzz_seeds;
#[cfg(test)]
mod tests;
