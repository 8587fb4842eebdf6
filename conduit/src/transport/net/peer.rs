//! PeerTable: what this rank has for each rank that it is connected to, and how to find it.
//!
//! A rank that was never talked to costs four bytes: its place in the index.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bootstrap::Rank;
use fabric::{Data, Operation, PostError, QueuePair, SendWr};

use super::credits::{Account, Permits};
use super::flow::of_connection::Flow;
use super::flow::ring::Rings;
use super::lockfree::AppendTable;
use super::pending_ops::PutNumber;
use super::signal::Unsignaled;
use super::xrc::Link;
use crate::sys::tally::Sharing;
use crate::transport::shm::Sparse;

#[derive(Debug)]
pub(super) struct SendQp {
    pub(super) qp: Arc<dyn QueuePair>,
    pub(super) slots: Permits,
    pub(super) unsignaled: Unsignaled,
    /// Bytes that need no buffer.
    pub(super) inline: usize,
    /// Number of the queue pair that messages of the peer come through.
    pub(super) recv_qp: u32,
    /// The receive queue at the peer that requests name, where connections are shared; 0 where not.
    queue: AtomicU32,
    pub(super) link: Option<Box<Link>>,
}

impl SendQp {
    /// `recv_qp` is another one than `qp` where connections are shared; `room`: entries of the send
    /// queue beyond `sends` for unsignalled requests.
    pub(super) fn new(
        (qp, recv_qp): (Arc<dyn QueuePair>, u32),
        ((sends, room), sharing): ((u32, u32), Sharing),
        inline: usize,
        link: Option<Box<Link>>,
    ) -> Self {
        let slots = Permits::used_by(sharing, sends + room);
        let unsignaled = Unsignaled::new((sends, room), sharing);
        Self { qp, slots, unsignaled, inline, recv_qp, queue: AtomicU32::new(0), link }
    }

    /// Requests go to a receive queue of this number from now on.
    pub(super) fn send_to(&self, queue: u32) {
        self.queue.store(queue, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn post(&self, send: &SendWr<'_>) -> Result<(), PostError> {
        match self.queue.load(Ordering::Relaxed) {
            0 => self.qp.post_send(send),
            queue => self.qp.post_send_to(send, queue),
        }
    }

    /// As [`SendQp::post`], of a request that goes inline. Whether it was posted.
    #[inline(always)]
    pub(super) fn post_message(&self, id: u64, imm: u32, bytes: &[u8], signaled: bool) -> bool {
        if self.queue.load(Ordering::Relaxed) == 0 {
            return self.qp.post_message(id, imm, bytes, signaled);
        }
        self.post_named(id, Operation::Send { imm: Some(imm) }, bytes, signaled)
    }

    /// As [`SendQp::post_message`], of a write to an address with its key.
    #[inline(always)]
    pub(super) fn post_write(&self, id: u64, to: (u64, u32), bytes: &[u8], signaled: bool) -> bool {
        if self.queue.load(Ordering::Relaxed) == 0 {
            return self.qp.post_write(id, to, bytes, signaled);
        }
        self.post_named(id, Operation::Write { remote: to.0, rkey: to.1 }, bytes, signaled)
    }

    /// Inline, to a receive queue of the peer's domain.
    #[cold]
    fn post_named(&self, id: u64, operation: Operation, bytes: &[u8], signaled: bool) -> bool {
        let data = Data::Inline(&[bytes]);
        self.post(&SendWr { id, operation, data, signaled, to: None }).is_ok()
    }

    /// Posts requests in their order. Returns how many; fewer than all: [`SendQp::post`] says why.
    pub(super) fn post_list(&self, sends: &[SendWr<'_>]) -> usize {
        match self.queue.load(Ordering::Relaxed) {
            0 => self.qp.post_sends(sends),
            _ => sends.iter().take_while(|send| self.post(send).is_ok()).count(),
        }
    }

    fn numbers(&self, into: &mut Vec<u32>) {
        match &self.link {
            Some(link) => into.extend(link.numbers()),
            None => into.push(self.qp.number()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) rail: usize,
    /// Replies, acks, messages of the library, puts and gets; requests too, when there are no
    /// shared receive queues.
    pub(super) main: SendQp,
    /// Requests, where receive queues are shared: a receiver that is short of buffers holds up only
    /// these.
    pub(super) requests: Option<SendQp>,
    pub(super) account: Account,
    /// Messages of the library that may be on their way.
    pub(super) internal: Permits,
    /// An ack, or a message about credits, could not be sent when it was due.
    pub(super) ack_pending: AtomicBool,
    pub(super) flow: Flow,
    /// It has a receive queue of its own with room for buffers that wait, and credits that do not
    /// move.
    pub(super) is_plain: bool,
}

impl Connection {
    /// The queue pair that requests, or everything else, leaves on.
    #[inline]
    pub(super) fn send_qp(&self, requests: bool) -> &SendQp {
        if requests { self.requests.as_ref().unwrap_or(&self.main) } else { &self.main }
    }

    /// Whether messages of the peer come through a queue pair.
    #[inline]
    fn receives_on(&self, qpn: u32) -> bool {
        self.main.recv_qp == qpn || self.takes_requests_on(qpn)
    }

    /// Whether requests of the peer, where they have one of their own, come through a queue pair.
    #[inline]
    pub(super) fn takes_requests_on(&self, qpn: u32) -> bool {
        self.requests.as_ref().is_some_and(|send_qp| send_qp.recv_qp == qpn)
    }

    /// Both queue pairs, or the only one.
    pub(super) fn send_qps(&self) -> impl Iterator<Item = &SendQp> {
        std::iter::once(&self.main).chain(&self.requests)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Queue pairs exist; receives are posted.
    Prepared = 0,
    /// The peer may send.
    Receiving = 1,
    /// Queue pairs could send, but nobody may use them yet.
    Sending = 2,
    Open = 3,
}

/// The way of small operations to memory of a peer; nothing of it changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SmallPath {
    /// Added to a place it is an address there; places that end beyond `end` go another way.
    pub(super) base: u64,
    pub(super) end: u64,
    pub(super) rkey: u32,
    /// The first connection of the first rail.
    pub(super) connection: u16,
    /// Bytes of a put at most.
    pub(super) most_put: u16,
    pub(super) puts: PutNumber,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    phase: AtomicU8,
    pub(super) connections: Box<[Connection]>,
    /// Which connection the next message tries first.
    pub(super) turn: AtomicU32,
    /// Something was sent or has arrived.
    used: AtomicBool,
    /// The way of small operations to its attached segment, once one has gone there.
    pub(super) small: OnceLock<SmallPath>,
}

impl Peer {
    pub(super) fn new(rank: Rank, connections: Vec<Connection>) -> Self {
        let connections = connections.into_boxed_slice();
        Self {
            rank,
            phase: AtomicU8::new(0),
            connections,
            turn: AtomicU32::new(0),
            used: AtomicBool::new(false),
            small: OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Open as u8
    }

    #[inline]
    pub(super) fn use_it(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn was_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Prepared,
            1 => Phase::Receiving,
            2 => Phase::Sending,
            _ => Phase::Open,
        }
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// The connection whose messages come through a queue pair of a rail. Devices number their
    /// queue pairs independently.
    #[inline(always)]
    pub(super) fn connection_of(&self, rail: usize, qpn: u32) -> Option<usize> {
        let is_it =
            |connection: &Connection| connection.rail == rail && connection.receives_on(qpn);
        match &self.connections[..] {
            [only] => is_it(only).then_some(0),
            connections => connections.iter().position(is_it),
        }
    }

    /// All queue pairs, in the order that both ends keep, each with its connection.
    pub(super) fn send_qps(&self) -> impl Iterator<Item = (&Connection, &SendQp)> {
        let connections = self.connections.iter();
        connections.flat_map(|connection| connection.send_qps().map(move |qp| (connection, qp)))
    }

    /// Whether a queue pair of one of the rails that `is_rail` names belongs to the connections
    /// with this peer.
    pub(super) fn has(&self, qpn: u32, is_rail: impl Fn(usize) -> bool) -> bool {
        self.send_qps().any(|(connection, send_qp)| {
            is_rail(connection.rail) && (send_qp.qp.number() == qpn || send_qp.recv_qp == qpn)
        })
    }

    #[inline]
    pub(super) fn next_connection(&self) -> usize {
        match self.connections.len() {
            1 => 0,
            count => self.turn.fetch_add(1, Ordering::Relaxed) as usize % count,
        }
    }

    /// Queue pair numbers, in the order that both ends keep: for each connection the main one, then
    /// that of requests. Where connections are shared, three for each ([`super::xrc::NUMBERS`]).
    /// Behind all of them what is to be known of rings ([`super::flow::volume::NUMBERS`]).
    pub(super) fn numbers(&self) -> Vec<u32> {
        let mut numbers = Vec::new();
        self.connections
            .iter()
            .flat_map(Connection::send_qps)
            .for_each(|send_qp| send_qp.numbers(&mut numbers));
        let rings = self.connections.iter().filter_map(|connection| connection.flow.rings());
        numbers.extend(rings.flat_map(Rings::numbers));
        numbers
    }
}

#[derive(Debug)]
pub(super) struct PeerTable {
    /// 0, or one more than the position in `made`.
    index: Sparse<AtomicU32>,
    made: AppendTable<Peer>,
    making: Mutex<()>,
}

impl PeerTable {
    pub(super) fn new(size: u32) -> io::Result<Self> {
        let index = Sparse::new(size as usize)?;
        Ok(Self { index, made: AppendTable::new(), making: Mutex::new(()) })
    }

    /// A rank's entry, whatever its phase; `None` when it has no queue pairs or is no rank of the
    /// job.
    #[inline(always)]
    pub(super) fn get(&self, rank: Rank) -> Option<&Peer> {
        let at = self.index.get(rank.0 as usize)?.load(Ordering::Acquire).checked_sub(1)?;
        self.made.get(at)
    }

    /// A rank's entry; made by `make` when there is none.
    pub(super) fn get_or_make<E>(
        &self,
        rank: Rank,
        make: impl FnOnce() -> Result<Peer, E>,
    ) -> Result<&Peer, E> {
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = self.get(rank) {
            return Ok(peer);
        }
        let at = self.made.push(make()?);
        self.index[rank.0 as usize].store(at + 1, Ordering::Release);
        Ok(self.made.at(at))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.made.iter()
    }
}
