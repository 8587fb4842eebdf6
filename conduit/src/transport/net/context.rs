//! The state of the network of one rank, and the table of operations in flight.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use bootstrap::{Rank, Shared};
use fabric::{Access, Address, Mtu, PostError, QpSpec, QpType, RcPeer, RecvWr, SharedReceiveQueue};
use settings::deadlines::net as deadlines;

use super::connect_queue::ConnectQueue;
use super::credits::{Account, Permits};
use super::lockfree::IndexStack;
use super::memory::pool::{Buffer, CopyOut, DeferredMessages, FreeList, Pool, SegmentMemory};
use super::peer::{Connection, Peer, Peers, Phase, SendQp};
use super::rail::Rail;
use super::setup::{INTERNAL, Setup};
use super::xrc::{self, Xrc};
use super::{Error, Members, OpCounter};

/// Bounce buffers that only replies and the library's messages may take.
pub(super) const RESERVED_BUFFERS: u32 = 2;

/// Inline bytes that are tried when the user wants all.
const MOST_INLINE: u32 = 1024;

/// What an operation in flight is, for its completion and for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Message = 1,
    Internal,
    Ack,
    Put,
    Get,
    LongPayload,
}

impl Kind {
    #[inline]
    const fn of(number: u64) -> Option<Self> {
        Some(match number & 0xff {
            1 => Self::Message,
            2 => Self::Internal,
            3 => Self::Ack,
            4 => Self::Put,
            5 => Self::Get,
            6 => Self::LongPayload,
            _ => return None,
        })
    }

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Message => "an active message",
            Self::Internal => "a message of the library",
            Self::Ack => "a return of credits",
            Self::Put => "a put",
            Self::Get => "a get",
            Self::LongPayload => "the payload of a Long",
        }
    }
}

/// What happens when an operation is complete, beyond giving back what it used.
#[derive(Debug)]
pub(super) enum OnComplete {
    Count { counter: Arc<OpCounter>, local: bool },
    CopyOut { counter: Arc<OpCounter>, landing: CopyOut, len: usize },
}

/// An operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingOp {
    pub(super) kind: Kind,
    pub(super) peer: Rank,
    pub(super) lane: usize,
    /// On the half of requests.
    pub(super) upper: bool,
    pub(super) buffer: Option<u32>,
    pub(super) has_end: bool,
}

impl PendingOp {
    /// All but the buffer and the end, as a number: kind (8 bits), lane (8), half, whether there is an end, rank (upper half).
    #[inline]
    const fn packed(&self) -> u64 {
        self.kind as u64
            | (self.lane as u64 & 0xff) << 8
            | (self.upper as u64) << 16
            | (self.has_end as u64) << 17
            | (self.peer.0 as u64) << 32
    }

    /// What [`PendingOp::packed`] made; `None` for 0.
    #[inline]
    fn unpacked(info: u64, buffer: Option<u32>) -> Option<Self> {
        Some(Self {
            kind: Kind::of(info)?,
            peer: Rank((info >> 32) as u32),
            lane: (info >> 8 & 0xff) as usize,
            upper: info >> 16 & 1 == 1,
            buffer,
            has_end: info >> 17 & 1 == 1,
        })
    }
}

/// Marks the number of an operation that has neither buffer nor end: the number itself says all. No index is so great.
const SELF_CONTAINED: u64 = 1 << 31;

#[derive(Debug, Default)]
struct Row {
    /// 0, or [`PendingOp::packed`].
    info: AtomicU64,
    /// 0, or one more than the buffer.
    buffer: AtomicU32,
    next: AtomicU32,
    end: Mutex<Option<OnComplete>>,
}

/// Operations in flight; their numbers are what completions carry.
#[derive(Debug)]
pub(super) struct PendingOps {
    rows: Box<[Row]>,
    free: IndexStack,
}

impl PendingOps {
    pub(super) fn new(count: u32) -> Self {
        let pending =
            Self { rows: (0..count).map(|_| Row::default()).collect(), free: IndexStack::new() };
        (0..count).rev().for_each(|index| pending.release(index));
        pending
    }

    #[inline]
    fn release(&self, index: u32) {
        self.free.push(index, |index| &self.rows[index as usize].next);
    }

    /// Books an operation. `None` cannot be when the caller holds a completion queue slot.
    #[inline(always)]
    pub(super) fn begin(&self, op: &PendingOp, end: Option<OnComplete>) -> Option<u64> {
        if op.buffer.is_none() && end.is_none() {
            return Some(op.packed() | SELF_CONTAINED);
        }
        self.begin_in_row(op, end)
    }

    #[inline(never)]
    fn begin_in_row(&self, op: &PendingOp, end: Option<OnComplete>) -> Option<u64> {
        let index = self.free.pop(|index| &self.rows[index as usize].next)?;
        let row = &self.rows[index as usize];
        if let Some(end) = end {
            *row.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        }
        row.buffer.store(op.buffer.map_or(0, |buffer| buffer + 1), Ordering::Relaxed);
        row.info.store(op.packed(), Ordering::Release);
        Some(u64::from(index))
    }

    /// Takes an operation out. `None` when the number is of none.
    #[inline]
    pub(super) fn end(&self, id: u64) -> Option<(PendingOp, Option<OnComplete>)> {
        if id & SELF_CONTAINED != 0 {
            return Some((PendingOp::unpacked(id, None)?, None));
        }
        self.end_in_row(id)
    }

    fn end_in_row(&self, id: u64) -> Option<(PendingOp, Option<OnComplete>)> {
        let index = u32::try_from(id).ok()?;
        let row = self.rows.get(index as usize)?;
        let info = row.info.swap(0, Ordering::AcqRel);
        let buffer = row.buffer.load(Ordering::Relaxed).checked_sub(1);
        let op = PendingOp::unpacked(info, buffer)?;
        let end = if op.has_end {
            row.end.lock().unwrap_or_else(PoisonError::into_inner).take()
        } else {
            None
        };
        self.release(index);
        Some((op, end))
    }
}

/// Where the segments are: the table that attach exchanged.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) own: SegmentMemory,
    table: Shared,
    rails: usize,
}

/// A remote segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) base: u64,
    pub(super) len: u64,
}

impl Segments {
    pub(super) const fn record_len(rails: usize) -> usize {
        16 + 4 * rails
    }

    pub(super) const fn new(own: SegmentMemory, table: Shared, rails: usize) -> Self {
        Self { own, table, rails }
    }

    fn record(&self, rank: Rank) -> &[u8] {
        let len = Self::record_len(self.rails);
        let at = rank.0 as usize * len;
        self.table.get(at..at + len).unwrap_or_default()
    }

    pub(super) fn remote(&self, rank: Rank) -> Remote {
        let word = |at: usize| {
            let bytes = self.record(rank).get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_ne_bytes(bytes.unwrap_or_default())
        };
        Remote { base: word(0), len: word(8) }
    }

    pub(super) fn key(&self, rank: Rank, rail: usize) -> u32 {
        let at = 16 + 4 * rail;
        let bytes = self.record(rank).get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    }
}

/// One rank's network.
#[derive(Debug)]
pub(super) struct NetContext {
    pub(super) members: Members,
    pub(super) setup: Setup,
    pub(super) rails: Vec<Rail>,
    pub(super) peers: Peers,
    pub(super) pool: Pool,
    /// Send buffers.
    pub(super) bounce: FreeList,
    /// Send buffers that were made so far.
    pub(super) bounced: AtomicU32,
    pub(super) pending: PendingOps,
    /// Requests of this rank that may still be sent.
    pub(super) total: Permits,
    /// Arrived messages of the client that a poll for something else took.
    pub(super) waiting: DeferredMessages,
    /// Lanes on which an ack is due.
    pub(super) ack_pending: AtomicU32,
    /// The rail that the next poll looks at first.
    pub(super) turn: AtomicU32,
    /// In threaded modes one poller at a time takes completions of receives.
    pub(super) receiving: AtomicBool,
    pub(super) segments: OnceLock<Segments>,
    /// What the service thread is asked for.
    pub(super) connect_queue: ConnectQueue,
    /// Why a thread of the network gave up; the next poll says it.
    failure: Mutex<Option<Error>>,
    has_failed: AtomicBool,
    /// Held while events of the devices are heard.
    pub(super) events: Mutex<()>,
    said_inline: AtomicBool,
    /// The job is ending: failures are expected.
    pub(super) quiet: AtomicBool,
    /// Where connections are shared by the ranks of a neighbourhood.
    pub(super) xrc: Option<Xrc>,
}

impl NetContext {
    /// Opens the rails and makes the buffers that all peers share.
    pub(super) fn new(setup: Setup, members: Members, xrc: Option<Xrc>) -> Result<Self, Error> {
        let limits = &setup.limits;
        let rails: Vec<Rail> = setup
            .rails
            .iter()
            .enumerate()
            .map(|(at, choice)| {
                let domain = xrc.as_ref().and_then(|xrc| xrc.domain(at));
                Rail::open(choice, limits, domain)
            })
            .collect::<Result<_, _>>()?;
        let pool = Pool::new();
        let bounce = FreeList::new();
        let connect_queue = ConnectQueue::new(members.size)?;
        let pending = PendingOps::new(rails.iter().map(|rail| rail.send_depth).sum());
        let context = Self {
            peers: Peers::new(members.size),
            total: Permits::new(limits.credits_total),
            members,
            rails,
            pool,
            bounce,
            bounced: AtomicU32::new(0),
            pending,
            waiting: DeferredMessages::new(),
            ack_pending: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            receiving: AtomicBool::new(false),
            segments: OnceLock::new(),
            connect_queue,
            failure: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            events: Mutex::new(()),
            said_inline: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            setup,
            xrc,
        };
        context.add_initial()?;
        Ok(context)
    }

    /// Posts a receive buffer with `post`. There is always room for it, so a full queue only means that the device was busy (the
    /// software adapter says so when a thread that holds it has lost its processor): tried again for [`deadlines::REPOST`].
    #[inline]
    pub(super) fn post(
        &self,
        buffer: Buffer,
        rail: usize,
        post: impl Fn(&RecvWr) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let (index, piece) = self.pool.lend_piece(buffer, rail, self.setup.limits.buffer());
        let receive = RecvWr { id: u64::from(index), buffer: piece };
        match post(&receive) {
            Ok(()) => Ok(()),
            Err(first) => self.post_again(first, &receive, (index, rail), post),
        }
    }

    #[cold]
    fn post_again(
        &self,
        first: PostError,
        receive: &RecvWr,
        (index, rail): (u32, usize),
        post: impl Fn(&RecvWr) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let mut posted = Err(first);
        let end = Instant::now() + deadlines::REPOST.limit;
        while posted == Err(PostError::Full) && Instant::now() < end {
            std::thread::yield_now();
            posted = post(receive);
        }
        if posted.is_err()
            && let Some(buffer) = self.pool.reclaim(index)
        {
            self.rails[rail].spares.put(&self.pool, buffer);
        }
        posted
    }

    pub(super) fn post_error(
        &self,
        operation: &'static str,
        peer: Rank,
        rail: usize,
        source: PostError,
    ) -> Error {
        Error::Post { operation, peer, device: self.rails[rail].name(), source }
    }

    /// Makes the queue pairs for a rank and posts their receives. Nothing happens when they are there.
    pub(super) fn prepare(&self, rank: Rank) -> Result<&Peer, Error> {
        self.peers.get_or_make(rank, || {
            let lane = |(at, rail): (usize, &usize)| self.lane(rank, at, *rail);
            let lanes = self.setup.lanes.iter().enumerate().map(lane);
            let lanes = lanes.collect::<Result<_, _>>()?;
            Ok(Peer::new(rank, lanes))
        })
    }

    fn lane(&self, rank: Rank, lane: usize, at: usize) -> Result<Connection, Error> {
        let (rail, limits) = (&self.rails[at], &self.setup.limits);
        let shared = rail.shared.as_ref();
        let send_qp =
            |upper: usize, srq: Option<&Arc<dyn SharedReceiveQueue>>, sends| match (&self.xrc, srq)
            {
                (Some(xrc), Some(srq)) => {
                    self.shared_send_qp(xrc, rail, (rank, 2 * lane + upper), srq, sends)
                }
                _ => self.send_qp(rail, srq, sends),
            };
        let main = send_qp(0, shared.map(|shared| &shared.replies), limits.sends())?;
        let requests = shared
            .map(|shared| send_qp(1, Some(&shared.requests), limits.request_sends()))
            .transpose()?;
        self.add_for_connection(rank, at, &main)?;
        Ok(Connection {
            rail: at,
            main,
            requests,
            account: Account::new(limits.credits, limits.slack),
            internal: Permits::new(INTERNAL),
            ack_pending: AtomicBool::new(false),
        })
    }

    fn send_qp(
        &self,
        rail: &Rail,
        srq: Option<&Arc<dyn SharedReceiveQueue>>,
        sends: u32,
    ) -> Result<SendQp, Error> {
        let limits = &self.setup.limits;
        let wanted = self.inline_wanted(rail);
        let spec = QpSpec {
            qp_type: QpType::Rc,
            send_cq: &rail.send_cq,
            recv_cq: &rail.recv_cq,
            srq,
            max_send: sends,
            max_recv: limits.receives(),
            send_sge: 2,
            recv_sge: 1,
            inline: wanted,
        };
        let qp = rail.device.queue_pair(&spec)?;
        qp.to_init(rail.port, rail.pkey_index, 0, Self::peer_access())?;
        let inline = qp.max_inline().min(wanted) as usize;
        self.check_inline(rail, qp.max_inline());
        Ok(SendQp::new(qp, Permits::new(sends), inline, None))
    }

    /// What peers may do through a queue pair.
    pub(super) const fn peer_access() -> Access {
        let access = Access::REMOTE_WRITE.and(Access::REMOTE_READ).and(Access::REMOTE_ATOMIC);
        access.and(Access::LOCAL_WRITE)
    }

    /// Inline bytes that queue pairs of a rail are asked for.
    pub(super) fn inline_wanted(&self, rail: &Rail) -> u32 {
        let wanted = self.setup.limits.inline.unwrap_or(MOST_INLINE);
        wanted.max(rail.device.caps().cheap_inline)
    }

    /// Tells the user of a device that sends less inline than was set.
    pub(super) fn check_inline(&self, rail: &Rail, most: u32) {
        let limits = &self.setup.limits;
        if limits.inline_is_set && most < limits.inline.unwrap_or(0) {
            self.say_inline(rail, most);
        }
    }

    /// Once, on rank 0.
    #[cold]
    fn say_inline(&self, rail: &Rail, most: u32) {
        if self.members.rank == Rank(0) && !self.said_inline.swap(true, Ordering::Relaxed) {
            super::say(&format!(
                "gasnet_ibv: GASNET_INLINESEND_LIMIT is above what {} can do: {most} bytes are used\n",
                rail.name()
            ));
        }
    }

    /// First packet sequence number of a rank's queue pair.
    fn first_psn(&self, rank: Rank, qpi: usize) -> u32 {
        let send_qps = 1 + usize::from(self.setup.limits.shared.is_some());
        let number = rank.0 as usize * self.setup.lanes.len() * send_qps + qpi;
        u32::try_from(number & 0xff_ffff).unwrap_or(0)
    }

    /// Queue pairs can receive from the peer's, whose numbers are given in the order of [`Peer::numbers`].
    pub(super) fn receive_ready(
        &self,
        peer: &Peer,
        numbers: &[u32],
        address: impl Fn(usize) -> (Address, Mtu, u8),
    ) -> Result<(), Error> {
        if peer.phase() != Phase::Prepared {
            return Ok(());
        }
        let send_qps =
            peer.lanes.iter().flat_map(|lane| lane.send_qps().map(move |send_qp| (lane, send_qp)));
        for (qpi, (lane, send_qp)) in send_qps.enumerate() {
            let rail = &self.rails[lane.rail];
            let (address, mtu, rd_atom) = address(lane.rail);
            let each = if send_qp.link.is_some() { xrc::NUMBERS } else { 1 };
            let theirs = numbers.get(qpi * each..(qpi + 1) * each).unwrap_or_default();
            let Some(qpn) = theirs.first().copied() else {
                let problem = format!("offers {} queue pairs, this rank has more", numbers.len());
                return Err(Error::Mismatch { rank: peer.rank, problem });
            };
            let far = RcPeer {
                address: Address { sgid_index: rail.address.sgid_index, ..address },
                qpn,
                psn: self.first_psn(peer.rank, qpi),
                mtu: rail.mtu.min(mtu),
                rd_atom: rail.rd_atom.min(rd_atom).max(1),
            };
            let retry = &self.setup.limits.retry;
            match &self.xrc {
                Some(xrc) => xrc.receive_ready(send_qp, peer.rank, theirs, &far, retry)?,
                None => send_qp.qp.to_rtr(Some(&far), retry)?,
            }
        }
        peer.set_phase(Phase::Receiving);
        Ok(())
    }

    /// Queue pairs could send.
    pub(super) fn send_ready(&self, peer: &Peer) -> Result<(), Error> {
        if peer.phase() >= Phase::Sending {
            return Ok(());
        }
        let send_qps =
            peer.lanes.iter().flat_map(|lane| lane.send_qps().map(move |send_qp| (lane, send_qp)));
        for (qpi, (lane, send_qp)) in send_qps.enumerate() {
            let psn = self.first_psn(self.members.rank, qpi);
            let rd_atom = self.rails[lane.rail].rd_atom.max(1);
            let retry = &self.setup.limits.retry;
            match &send_qp.link {
                Some(link) => link.send_ready(psn, rd_atom, retry)?,
                None => send_qp.qp.to_rts(psn, rd_atom, retry)?,
            }
        }
        peer.set_phase(Phase::Sending);
        Ok(())
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.load(Ordering::Relaxed)
    }

    /// The queue pair of a half, for messages.
    pub(super) fn send_qp_of(lane: &Connection, upper: bool) -> &SendQp {
        if upper { lane.for_requests() } else { &lane.main }
    }

    /// A message of a peer came before the last packet of the handshake: it is connected.
    #[cold]
    pub(super) fn heard(&self, peer: &Peer) {
        if peer.phase() == Phase::Sending {
            peer.set_phase(Phase::Open);
        }
        self.connect_queue.heard(peer.rank);
    }

    /// A thread of the network cannot go on: the next poll of the program says why.
    #[cold]
    pub(super) fn fail(&self, error: Error) {
        if self.is_quiet() {
            return;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the next poll says that a thread failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// What a thread failed with, once.
    #[inline]
    pub(super) fn check_failure(&self) -> Result<(), Error> {
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.failure.try_lock().ok().and_then(|mut failure| failure.take()) {
            Some(error) if !self.is_quiet() => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether the job's bytes `offset..offset + len` of a rank's segment exist.
    pub(super) fn check_range(&self, rank: Rank, offset: u64, len: u64) -> Result<Remote, Error> {
        let remote = self.segments.get().map(|segments| segments.remote(rank));
        let remote = remote.unwrap_or(Remote { base: 0, len: 0 });
        let end = offset.saturating_add(len);
        if end > remote.len {
            return Err(Error::OutsideSegment { rank, offset, end, segment: remote.len });
        }
        Ok(remote)
    }
}
