//! Dynamic connections over a datagram queue pair: packets in and out, timers, and the calls of
//! [`Peers`] that the machine asks for.
//!
//! Any thread may poll, one at a time does the work. A thread that sleeps on the channel and until
//! [`Connector::deadline`] makes connections while the program computes; then others need not poll.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bootstrap::Rank;
use fabric::{
    Access, AddressHandle, Channel, Completion, CompletionQueue, Data, Device, Operation,
    PostError, QpSpec, QpType, QueuePair, RecvWr, Retry, SendWr, Status, UdTarget,
};

use super::fixed::{check, check_count, failure};
use super::machine::{Action, Event};
use super::notes::Note;
#[cfg(test)]
use super::table::Counters;
use super::table::Table;
use super::wire::{Context, Kind, MAX_PAYLOAD, Numbers, Packet};
use super::{Error, Peers};
use crate::trace::{self, Cause, Counter};
use crate::transport::net::error::Error as NetError;
use crate::transport::net::memory::pool::Pool;
use crate::transport::net::settings::ConnectSettings;

/// A datagram begins with room for a global routing header.
const GRH: usize = 40;

/// Room for a datagram, and 4 bytes that some adapters write behind it.
const BUFFER: usize = GRH + MAX_PAYLOAD + 8;
/// The same in the width that devices count in.
#[expect(clippy::cast_possible_truncation, reason = "a few hundred bytes")]
const BUFFER_LEN: u32 = BUFFER as u32;

/// First packet sequence number; nobody compares it, because datagrams are not acknowledged.
const PSN: u32 = 0x00fe_f00d;

/// In the id of a work request: a receive. Below it the buffer, above it how often the queue pair
/// was set up.
const RECEIVE: u64 = 1 << 31;

/// Packets that wait for a send buffer at most. The timers send what is dropped beyond that.
const WAITING_MOST: usize = 1024;

const HANDLES_MOST: usize = 256;

/// How often a failed datagram queue pair is set up again.
const RECOVERIES_MOST: u64 = 16;

/// Completions that one poll takes at most.
const BATCH: usize = 16;

const NEVER: u64 = u64::MAX;

/// A datagram queue pair that has a number but takes nothing yet.
#[derive(Debug)]
pub(crate) struct Socket {
    /// First, so that it is gone before its buffers.
    qp: Arc<dyn QueuePair>,
    cq: Arc<dyn CompletionQueue>,
    channel: Option<Arc<dyn Channel>>,
    device: Arc<dyn Device>,
    port: u8,
    pkey_index: u16,
    settings: ConnectSettings,
    /// Send buffers, then receive buffers: so many in all. Those that are free, or have arrived,
    /// count as lent too.
    pool: Pool,
    buffers: u32,
}

impl Socket {
    /// Makes the queue pair, for a rank with so many remote ones, and its own completion queue,
    /// which can be armed when there is a `channel`.
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        channel: Option<&Arc<dyn Channel>>,
        (port, pkey_index): (u8, u16),
        settings: &ConnectSettings,
        remotes: u32,
    ) -> Result<Self, Error> {
        let (max_send, max_recv) = (settings.sends, settings.receives(remotes));
        let buffers = max_send.saturating_add(max_recv);
        let pool = Pool::new();
        let made = pool.grow(buffers, BUFFER, &[Some(&**device)]).map_err(|error| match error {
            NetError::Fabric(source) => Error::Fabric { what: "register buffers", source },
            _ => Error::Memory { count: buffers, size: BUFFER },
        })?;
        for buffer in made {
            pool.lend(buffer);
        }
        let cq = device.completion_queue(buffers, channel);
        let cq = cq.map_err(Error::fabric("make a completion queue"))?;
        let spec = QpSpec {
            qp_type: QpType::Ud,
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            max_send,
            max_recv,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
        };
        let qp = device.queue_pair(&spec).map_err(Error::fabric("make a datagram queue pair"))?;
        let (device, settings) = (Arc::clone(device), settings.clone());
        let channel = channel.cloned();
        Ok(Self { qp, cq, channel, device, port, pkey_index, settings, pool, buffers })
    }

    pub(crate) fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Begins to take packets. `queue_key` is from [`super::wire::queue_key`].
    pub(crate) fn start(self, context: Context, queue_key: u32) -> Result<Connector, Error> {
        check_count(context.count)?;
        let (cq, channel) = (Arc::clone(&self.cq), self.channel.clone());
        let mut inner = Inner {
            queue_key,
            context,
            table: Table::new(Rank(context.me), self.settings.timing),
            free: Vec::new(),
            users: Vec::new(),
            handles: BTreeMap::new(),
            waiting: VecDeque::new(),
            generation: 0,
            dice: u64::from(context.me).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            socket: self,
        };
        inner.bring_up()?;
        let (deadline, epoch) = (AtomicU64::new(NEVER), Instant::now());
        Ok(Connector { inner: Mutex::new(inner), cq, channel, deadline, epoch })
    }
}

#[derive(Debug)]
pub(crate) struct Connector {
    inner: Mutex<Inner>,
    cq: Arc<dyn CompletionQueue>,
    channel: Option<Arc<dyn Channel>>,
    /// Of the earliest timer, microseconds since `epoch`.
    deadline: AtomicU64,
    epoch: Instant,
}

impl Connector {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another thread left nothing half done that the timers would not repair.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a change: publishes the earliest timer.
    fn settle(&self, inner: &Inner) {
        let micros = |at: Duration| u64::try_from(at.as_micros()).unwrap_or(NEVER - 1);
        self.deadline.store(inner.table.next.map_or(NEVER, micros), Ordering::Relaxed);
    }

    /// This rank wants to send to a rank. Returns at once; the connection is made during polls and
    /// ends with [`Peers::open`]. May be called as often as wanted.
    pub(crate) fn need(&self, rank: Rank, peers: &dyn Peers) -> Result<(), Error> {
        self.event(rank, &Event::Need, peers)
    }

    /// A message of a rank came over a connection that is not open yet: it is proof that the peer
    /// is ready, and may have overtaken the packet that says so.
    pub(crate) fn heard(&self, rank: Rank, peers: &dyn Peers) -> Result<(), Error> {
        self.event(rank, &Event::Heard, peers)
    }

    fn event(&self, rank: Rank, event: &Event, peers: &dyn Peers) -> Result<(), Error> {
        let mut inner = self.lock();
        let result = inner.event(self.epoch.elapsed(), rank, event, peers);
        self.settle(&inner);
        result
    }

    /// Takes completions, a bounded number, and checks the timers. Returns how many things
    /// happened. Does nothing while another thread polls.
    pub(crate) fn poll(&self, peers: &dyn Peers) -> Result<usize, Error> {
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        let mut batch = [Completion::EMPTY; BATCH];
        let taken = self.cq.poll(&mut batch).map_err(Error::fabric("take completions"))?;
        if taken == 0 && self.deadline.load(Ordering::Relaxed) == NEVER {
            return Ok(0);
        }
        let now = self.epoch.elapsed();
        let result = inner
            .completed(now, batch.get(..taken).unwrap_or_default(), peers)
            .and_then(|()| inner.timers(now, peers));
        self.settle(&inner);
        Ok(taken + result?)
    }

    /// Time until the next timer, when connections are under way. A thread that sleeps must ask
    /// again after a call of [`Connector::need`] by another.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let at = self.deadline.load(Ordering::Relaxed);
        (at != NEVER).then(|| Duration::from_micros(at).saturating_sub(self.epoch.elapsed()))
    }

    /// The next completion makes an event on the channel. Poll once more after it. Does nothing
    /// without a channel.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        if self.channel.is_none() {
            return Ok(());
        }
        self.cq.arm().map_err(Error::fabric("arm a completion queue"))
    }

    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.lock().table.under_way()
    }

    #[cfg(test)]
    pub(crate) fn counters(&self) -> Counters {
        self.lock().table.counters
    }
}

#[derive(Debug)]
struct Inner {
    socket: Socket,
    queue_key: u32,
    context: Context,
    table: Table,
    /// Send buffers that are not in use.
    free: Vec<u32>,
    /// The handle that a send buffer's datagram uses; it must live until the send is complete.
    users: Vec<Option<Arc<dyn AddressHandle>>>,
    handles: BTreeMap<Rank, Arc<dyn AddressHandle>>,
    /// Packets and since when they wait for a buffer.
    waiting: VecDeque<(Packet, Instant)>,
    generation: u64,
    dice: u64,
}

/// Counts a packet of a handshake that goes out.
fn count_packet(kind: Kind, original: bool) {
    match kind {
        Kind::Req | Kind::Rtu if original => {}
        Kind::Req => trace::count(Counter::ConnectReq, 0),
        Kind::Rtu => trace::count(Counter::ConnectRtu, 0),
        Kind::Rep => trace::count(Counter::ConnectRep, 0),
        Kind::Ack => trace::count(Counter::ConnectAck, 0),
    }
}

fn count_note(note: Note) {
    match note {
        Note::Count(counter) => trace::count(counter, 0),
        Note::Took(cause, time) => trace::took(cause, time),
    }
}

impl Inner {
    /// From RESET to RTS, all receives posted.
    fn bring_up(&mut self) -> Result<(), Error> {
        let refused = Error::fabric("set up the datagram queue pair");
        let (retry, sends) = (Retry::default(), self.socket.settings.sends);
        self.free = (0..sends).rev().collect();
        self.users = vec![None; sends as usize];
        let Socket { port, pkey_index, .. } = self.socket;
        let qp = Arc::clone(&self.socket.qp);
        qp.to_init(port, pkey_index, self.queue_key, Access::NONE).map_err(&refused)?;
        for index in sends..self.socket.buffers {
            self.post_receive(index)?;
        }
        qp.to_rtr(None, &retry).map_err(&refused)?;
        qp.to_rts(PSN, 0, &retry).map_err(&refused)
    }

    fn id(&self, index: u32) -> u64 {
        self.generation << 32 | u64::from(index)
    }

    fn post_receive(&mut self, index: u32) -> Result<(), Error> {
        let id = self.id(index) | RECEIVE;
        let pool = &self.socket.pool;
        let Some(buffer) = pool.reclaim(index) else { return Ok(()) };
        let (_, buffer) = pool.lend_piece(buffer, 0, BUFFER_LEN);
        match self.socket.qp.post_receive(&RecvWr { id, buffer }) {
            Ok(()) => Ok(()),
            // It failed, and a completion that says so makes it work again.
            Err(PostError::State(_)) => Ok(()),
            Err(source) => Err(Error::Post { what: "receive", source }),
        }
    }

    fn completed(
        &mut self,
        now: Duration,
        batch: &[Completion],
        peers: &dyn Peers,
    ) -> Result<(), Error> {
        let mut failed = None;
        let generation = self.generation;
        for completion in batch.iter().filter(|completion| completion.id >> 32 == generation) {
            let index = u32::try_from(completion.id & (RECEIVE - 1)).unwrap_or(u32::MAX);
            if completion.status != Status::Success {
                // The first tells why, the others are flushed.
                failed = failed.or(Some((completion.status, completion.vendor)));
            } else if completion.id & RECEIVE != 0 {
                self.received(now, index, completion, peers)?;
            } else if let Some(user) = self.users.get_mut(index as usize) {
                *user = None;
                self.free.push(index);
            }
        }
        if let Some((status, vendor)) = failed {
            self.recover(status, vendor)?;
        }
        while !self.free.is_empty()
            && let Some((packet, since)) = self.waiting.pop_front()
        {
            trace::took(Cause::Packet, since.elapsed());
            self.transmit(packet, peers)?;
        }
        Ok(())
    }

    /// A datagram that a device could not take, say one longer than the buffer, may cost the queue
    /// pair. What was on its way is lost, as datagrams may be.
    fn recover(&mut self, status: Status, vendor: u32) -> Result<(), Error> {
        self.table.counters.recovered += 1;
        let times = self.table.counters.recovered;
        if times > RECOVERIES_MOST {
            return Err(Error::Broken { times, status, vendor });
        }
        self.socket.qp.to_reset().map_err(Error::fabric("reset the datagram queue pair"))?;
        self.generation = (self.generation + 1) & 0xffff_ffff;
        self.bring_up()
    }

    fn received(
        &mut self,
        now: Duration,
        index: u32,
        completion: &Completion,
        peers: &dyn Peers,
    ) -> Result<(), Error> {
        let pool = &self.socket.pool;
        let Some(mut buffer) = pool.reclaim(index) else { return Ok(()) };
        let payload = pool.bytes(&mut buffer).get(GRH..completion.len as usize);
        let packet = Packet::decode(completion.imm, payload.unwrap_or_default(), &self.context);
        pool.lend(buffer);
        self.post_receive(index)?;
        let Ok(packet) = packet else {
            self.table.counters.refused += 1;
            return Ok(());
        };
        let from = Rank(packet.from);
        if peers.address(from).1 != completion.source_qpn {
            self.table.counters.strangers += 1;
            return Ok(());
        }
        if self.is_lost() {
            self.table.counters.lost += 1;
            return Ok(());
        }
        let Packet { kind, original, numbers, .. } = packet;
        if kind.has_numbers() && check(from, from, &numbers, self.context.count).is_err() {
            self.table.counters.refused += 1;
            return Ok(());
        }
        self.event(now, from, &Event::Packet { kind, original, numbers }, peers)
    }

    /// `GASNET_CONNECT_DROP_DENOM`.
    fn is_lost(&mut self) -> bool {
        if self.socket.settings.drop == 0 {
            return false;
        }
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 20).is_multiple_of(u64::from(self.socket.settings.drop) + 1)
    }

    fn timers(&mut self, now: Duration, peers: &dyn Peers) -> Result<usize, Error> {
        let mut count = 0;
        while let Some((rank, actions)) = self.table.expired(now) {
            self.act(rank, &actions, peers)?;
            count += 1;
        }
        Ok(count)
    }

    fn event(
        &mut self,
        now: Duration,
        rank: Rank,
        event: &Event,
        peers: &dyn Peers,
    ) -> Result<(), Error> {
        let actions = self.table.handle(now, rank, event, peers.is_open(rank));
        self.act(rank, &actions, peers)
    }

    fn act(&mut self, peer: Rank, actions: &[Action], peers: &dyn Peers) -> Result<(), Error> {
        self.table.notes.drain(..).for_each(count_note);
        let me = Rank(self.context.me);
        let mut own = self.table.own(peer);
        let receive = |numbers: &Numbers| {
            let ready = peers.receive_ready(peer, numbers);
            ready.map_err(failure(me, peer, "make its queue pairs ready to receive"))
        };
        for action in actions {
            match action {
                Action::Prepare => {
                    own = peers.prepare(peer).map_err(failure(me, peer, "make queue pairs"))?;
                    check(peer, me, &own, self.context.count)?;
                    self.table.prepared(peer, own);
                }
                Action::Send { kind, original } => {
                    let (from, to) = (me.0, peer.0);
                    count_packet(*kind, *original);
                    let packet =
                        Packet { kind: *kind, original: *original, from, to, numbers: own };
                    self.transmit(packet, peers)?;
                }
                Action::ReceiveReady(numbers) => receive(numbers)?,
                Action::ReceiveReadyFromSelf => receive(&own)?,
                Action::SendReady => {
                    let ready = peers.send_ready(peer);
                    ready.map_err(failure(me, peer, "make its queue pairs ready to send"))?;
                }
                Action::Open => {
                    peers.open(peer);
                    trace::connected(peer, Counter::ConnectedDynamic);
                }
                Action::GiveUp { state, resends, waited } => {
                    let (state, seconds) = (state.words(), waited.as_secs_f64());
                    return Err(Error::GaveUp {
                        rank: me,
                        peer,
                        state,
                        resends: *resends,
                        seconds,
                    });
                }
            }
        }
        Ok(())
    }

    fn transmit(&mut self, packet: Packet, peers: &dyn Peers) -> Result<(), Error> {
        let Some(index) = self.free.pop() else {
            if self.waiting.len() < WAITING_MOST {
                self.waiting.push_back((packet, Instant::now()));
            } else {
                self.table.counters.unsent += 1;
            }
            return Ok(());
        };
        let (qpn, handle) = self.target(Rank(packet.to), peers)?;
        let mut bytes = [0; MAX_PAYLOAD];
        let (immediate, len) = packet.encode(self.context.job, &mut bytes);
        let pool = &self.socket.pool;
        let Some(mut buffer) = pool.reclaim(index) else { return Ok(()) };
        pool.bytes(&mut buffer)[..MAX_PAYLOAD].copy_from_slice(&bytes);
        let (_, data) = pool.lend_piece(buffer, 0, u32::try_from(len).unwrap_or(0));
        let send = SendWr {
            id: self.id(index),
            operation: Operation::Send { imm: Some(immediate) },
            data: Data::Gather(&[data]),
            signaled: true,
            to: Some(UdTarget { handle: &*handle, qpn, qkey: self.queue_key }),
        };
        match self.socket.qp.post_send(&send) {
            Ok(()) => {
                if let Some(user) = self.users.get_mut(index as usize) {
                    *user = Some(handle);
                }
                return Ok(());
            }
            // Failed, and a completion will say so; or the device is slow to free its queue: the
            // timers send it again.
            Err(PostError::State(_) | PostError::Full) => self.table.counters.unsent += 1,
            Err(source) => return Err(Error::Post { what: "datagram", source }),
        }
        self.free.push(index);
        Ok(())
    }

    fn target(
        &mut self,
        to: Rank,
        peers: &dyn Peers,
    ) -> Result<(u32, Arc<dyn AddressHandle>), Error> {
        let (address, qpn) = peers.address(to);
        if qpn == 0 {
            return Err(Error::NoDatagrams { rank: Rank(self.context.me), peer: to });
        }
        if let Some(handle) = self.handles.get(&to) {
            return Ok((qpn, Arc::clone(handle)));
        }
        let handle = self.socket.device.address_handle(self.socket.port, &address);
        let handle = handle.map_err(Error::fabric("make an address handle"))?;
        if self.handles.len() >= HANDLES_MOST {
            self.handles.pop_first();
        }
        self.handles.insert(to, Arc::clone(&handle));
        Ok((qpn, handle))
    }
}
