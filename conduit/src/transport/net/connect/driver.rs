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

use super::buffers::Buffers;
use super::fixed::{check, failure};
use super::machine::{Action, Event, Micros, Timing};
#[cfg(test)]
use super::table::Counters;
use super::table::Table;
use super::wire::{Context, Kind, MAX_NUMBERS, MAX_PAYLOAD, Numbers, Packet};
use super::{Error, Peers};

/// A datagram begins with room for a global routing header.
const GRH: usize = 40;

/// Room for a datagram, and 4 bytes that some adapters write behind it.
const BUFFER: usize = GRH + MAX_PAYLOAD + 8;

/// First packet sequence number; nobody compares it, because datagrams are not acknowledged.
const PSN: u32 = 0x00fe_f00d;

/// In the id of a work request: a receive. Below it the buffer, above it how often the queue pair
/// was set up.
const RECEIVE: u64 = 1 << 31;

/// Packets that wait for a send buffer at most. The timers send what is dropped beyond that.
const WAITING_MOST: usize = 1024;

/// Address handles that are kept.
const HANDLES_MOST: usize = 256;

/// How often a failed datagram queue pair is set up again.
const RECOVERIES_MOST: u64 = 16;

/// Completions that one poll takes at most.
const BATCH: usize = 16;

/// No deadline.
const NEVER: u64 = u64::MAX;

/// What the datagram queue pair is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Port of the device, from 1.
    pub(crate) port: u8,
    /// Position of the partition key in the port's table.
    pub(crate) pkey_index: u16,
    /// `GASNET_CONNECT_SNDS`: send buffers.
    pub(crate) sends: u32,
    /// `GASNET_CONNECT_RCVS`: receive buffers.
    pub(crate) receives: u32,
    /// `GASNET_CONNECT_RETRANS_MIN`, `_MAX`.
    pub(crate) timing: Timing,
    /// `GASNET_CONNECT_DROP_DENOM`: lose about one in so many (and one) packets; 0: none.
    pub(crate) drop: u32,
}

/// What is known when all ranks have exchanged their addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// This rank.
    pub(crate) me: Rank,
    /// Ranks of the job.
    pub(crate) size: u32,
    /// The same on all ranks of a job, different in other jobs.
    pub(crate) job: u32,
    /// Key of the datagram queue pairs, from [`super::wire::queue_key`].
    pub(crate) queue_key: u32,
    /// Queue pairs per peer, the same on all ranks.
    pub(crate) count: usize,
}

/// A datagram queue pair that has a number but takes nothing yet.
#[derive(Debug)]
pub(crate) struct Socket {
    qp: Arc<dyn QueuePair>,
    cq: Arc<dyn CompletionQueue>,
    channel: Option<Arc<dyn Channel>>,
    device: Arc<dyn Device>,
    buffers: Buffers,
    setup: Setup,
}

impl Socket {
    /// Makes the queue pair and its own completion queue, which can be armed when there is a
    /// `channel`.
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        channel: Option<&Arc<dyn Channel>>,
        setup: &Setup,
    ) -> Result<Self, Error> {
        let refused = |what| move |source| Error::Fabric { what, source };
        let setup = Setup { sends: setup.sends.max(1), receives: setup.receives.max(1), ..*setup };
        let depth = setup.sends.saturating_add(setup.receives);
        let count = usize::try_from(depth).unwrap_or(usize::MAX);
        let buffers = Buffers::new(&**device, BUFFER, count)?;
        let cq = device.completion_queue(depth, channel);
        let cq = cq.map_err(refused("make a completion queue"))?;
        let spec = QpSpec {
            qp_type: QpType::Ud,
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            max_send: setup.sends,
            max_recv: setup.receives,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
        };
        let qp = device.queue_pair(&spec).map_err(refused("make a datagram queue pair"))?;
        let device = Arc::clone(device);
        Ok(Self { qp, cq, channel: channel.cloned(), device, buffers, setup })
    }

    /// To be told to all ranks.
    pub(crate) fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Begins to take packets.
    pub(crate) fn start(self, identity: &Identity) -> Result<Connector, Error> {
        let Self { qp, cq, channel, device, buffers, setup } = self;
        let Identity { me, size, job, queue_key, count } = *identity;
        if count > MAX_NUMBERS || count == 0 {
            return Err(Error::Count { count, most: MAX_NUMBERS });
        }
        let mut inner = Inner {
            qp,
            device,
            setup,
            queue_key,
            context: Context { me: me.0, size, job, count },
            table: Table::new(me, setup.timing),
            free: Vec::new(),
            users: Vec::new(),
            handles: BTreeMap::new(),
            waiting: VecDeque::new(),
            generation: 0,
            dice: u64::from(me.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            buffers,
        };
        inner.bring_up()?;
        Ok(Connector {
            cq,
            channel,
            deadline: AtomicU64::new(NEVER),
            epoch: Instant::now(),
            inner: Mutex::new(inner),
        })
    }
}

/// Makes connections on demand.
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
    fn now(&self) -> Micros {
        Micros(u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(NEVER - 1))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another thread left nothing half done that the timers would not repair.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a change: publishes the earliest timer.
    fn settle(&self, inner: &Inner) {
        let deadline = inner.table.deadline().map_or(NEVER, |at| at.0);
        self.deadline.store(deadline, Ordering::Relaxed);
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
        let result = inner.event(self.now(), rank, event, peers);
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
        let taken = self.cq.poll(&mut batch);
        let taken = taken.map_err(|source| Error::Fabric { what: "take completions", source })?;
        if taken == 0 && self.deadline.load(Ordering::Relaxed) == NEVER {
            return Ok(0);
        }
        let now = self.now();
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
        (at != NEVER).then(|| Micros(at).since(self.now()).duration())
    }

    /// The next completion makes an event on the channel. Poll once more after it. Does nothing
    /// without a channel.
    pub(crate) fn arm(&self) -> Result<(), Error> {
        if self.channel.is_none() {
            return Ok(());
        }
        self.cq.arm().map_err(|source| Error::Fabric { what: "arm a completion queue", source })
    }

    /// Connections under way.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.lock().table.under_way()
    }

    /// What happened so far.
    #[cfg(test)]
    pub(crate) fn counters(&self) -> Counters {
        self.lock().table.counters
    }
}

/// A packet that waits for a send buffer.
#[derive(Debug)]
struct Waiting {
    to: Rank,
    kind: Kind,
    original: bool,
    numbers: Numbers,
}

#[derive(Debug)]
struct Inner {
    /// First, so that it is gone before its buffers.
    qp: Arc<dyn QueuePair>,
    device: Arc<dyn Device>,
    setup: Setup,
    queue_key: u32,
    context: Context,
    table: Table,
    /// Send buffers that are not in use.
    free: Vec<usize>,
    /// The handle that a send buffer's datagram uses; it must live until the send is complete.
    users: Vec<Option<Arc<dyn AddressHandle>>>,
    handles: BTreeMap<Rank, Arc<dyn AddressHandle>>,
    waiting: VecDeque<Waiting>,
    generation: u64,
    dice: u64,
    /// Send buffers, then receive buffers.
    buffers: Buffers,
}

impl Inner {
    fn sends(&self) -> usize {
        usize::try_from(self.setup.sends).unwrap_or(usize::MAX).min(self.buffers.count())
    }

    /// From RESET to RTS, all receives posted.
    fn bring_up(&mut self) -> Result<(), Error> {
        let refused = |source| Error::Fabric { what: "set up the datagram queue pair", source };
        let retry = Retry::default();
        self.buffers.take_back_all();
        self.free = (0..self.sends()).rev().collect();
        self.users = vec![None; self.sends()];
        let Setup { port, pkey_index, .. } = self.setup;
        self.qp.to_init(port, pkey_index, self.queue_key, Access::NONE).map_err(refused)?;
        for index in self.sends()..self.buffers.count() {
            self.post_receive(index)?;
        }
        self.qp.to_rtr(None, &retry).map_err(refused)?;
        self.qp.to_rts(PSN, 0, &retry).map_err(refused)
    }

    fn id(&self, index: usize) -> u64 {
        self.generation << 32 | index as u64
    }

    fn post_receive(&mut self, index: usize) -> Result<(), Error> {
        let id = self.id(index) | RECEIVE;
        let Some(buffer) = self.buffers.lend(index, BUFFER) else { return Ok(()) };
        match self.qp.post_receive(&RecvWr { id, buffer }) {
            Ok(()) => Ok(()),
            // It failed, and a completion that says so makes it work again.
            Err(PostError::State(_)) => Ok(()),
            Err(source) => {
                self.buffers.take_back(index);
                Err(Error::Post { what: "receive", source })
            }
        }
    }

    fn completed(
        &mut self,
        now: Micros,
        batch: &[Completion],
        peers: &dyn Peers,
    ) -> Result<(), Error> {
        let mut failed = None;
        let generation = self.generation;
        for completion in batch.iter().filter(|completion| completion.id >> 32 == generation) {
            let index = usize::try_from(completion.id & (RECEIVE - 1)).unwrap_or(usize::MAX);
            self.buffers.take_back(index);
            if completion.status != Status::Success {
                // The first tells why, the others are flushed.
                failed = failed.or(Some((completion.status, completion.vendor)));
            } else if completion.id & RECEIVE != 0 {
                self.received(now, index, completion, peers)?;
            } else if let Some(user) = self.users.get_mut(index) {
                *user = None;
                self.free.push(index);
            }
        }
        if let Some((status, vendor)) = failed {
            self.recover(status, vendor)?;
        }
        while !self.free.is_empty()
            && let Some(packet) = self.waiting.pop_front()
        {
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
        let refused = |source| Error::Fabric { what: "reset the datagram queue pair", source };
        self.qp.to_reset().map_err(refused)?;
        self.generation = (self.generation + 1) & 0xffff_ffff;
        self.bring_up()
    }

    fn received(
        &mut self,
        now: Micros,
        index: usize,
        completion: &Completion,
        peers: &dyn Peers,
    ) -> Result<(), Error> {
        let mut bytes = [0; BUFFER];
        let len = usize::try_from(completion.len).unwrap_or(usize::MAX);
        let there = self.buffers.read(index, &mut bytes);
        self.post_receive(index)?;
        let payload = bytes.get(GRH..len).filter(|_| there).unwrap_or_default();
        let Ok(packet) = Packet::decode(completion.imm, payload, &self.context) else {
            self.table.counters.refused += 1;
            return Ok(());
        };
        let from = Rank(packet.from);
        if peers.address(from).qpn != completion.source_qpn {
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
        if self.setup.drop == 0 {
            return false;
        }
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 20).is_multiple_of(u64::from(self.setup.drop) + 1)
    }

    fn timers(&mut self, now: Micros, peers: &dyn Peers) -> Result<usize, Error> {
        let mut count = 0;
        while let Some((rank, actions)) = self.table.expired(now) {
            self.act(rank, &actions, peers)?;
            count += 1;
        }
        Ok(count)
    }

    fn event(
        &mut self,
        now: Micros,
        rank: Rank,
        event: &Event,
        peers: &dyn Peers,
    ) -> Result<(), Error> {
        let actions = self.table.handle(now, rank, event, peers.is_open(rank));
        self.act(rank, &actions, peers)
    }

    fn act(&mut self, peer: Rank, actions: &[Action], peers: &dyn Peers) -> Result<(), Error> {
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
                    let numbers = own;
                    let packet = Waiting { to: peer, kind: *kind, original: *original, numbers };
                    self.transmit(packet, peers)?;
                }
                Action::ReceiveReady(numbers) => receive(numbers)?,
                Action::ReceiveReadyFromSelf => receive(&own)?,
                Action::SendReady => {
                    let ready = peers.send_ready(peer);
                    ready.map_err(failure(me, peer, "make its queue pairs ready to send"))?;
                }
                Action::Open => peers.open(peer),
                Action::GiveUp(gave_up) => {
                    return Err(Error::GaveUp {
                        rank: me,
                        peer,
                        state: gave_up.state.words(),
                        resends: gave_up.resends,
                        seconds: gave_up.waited.duration().as_secs_f64(),
                    });
                }
            }
        }
        Ok(())
    }

    fn transmit(&mut self, packet: Waiting, peers: &dyn Peers) -> Result<(), Error> {
        let Some(index) = self.free.pop() else {
            self.wait(packet);
            return Ok(());
        };
        let (qpn, handle) = self.target(packet.to, peers)?;
        let Waiting { to, kind, original, numbers } = packet;
        let content = Packet { kind, original, from: self.context.me, to: to.0, numbers };
        let mut bytes = [0; MAX_PAYLOAD];
        let (immediate, len) = content.encode(self.context.job, &mut bytes);
        self.buffers.write(index, bytes.get(..len).unwrap_or_default());
        let Some(data) = self.buffers.lend(index, len) else { return Ok(()) };
        let send = SendWr {
            id: self.id(index),
            operation: Operation::Send { imm: Some(immediate) },
            data: Data::Gather(&[data]),
            signaled: true,
            to: Some(UdTarget { handle: &*handle, qpn, qkey: self.queue_key }),
        };
        let posted = self.qp.post_send(&send);
        if posted.is_ok() {
            if let Some(user) = self.users.get_mut(index) {
                *user = Some(handle);
            }
            return Ok(());
        }
        self.buffers.take_back(index);
        self.free.push(index);
        match posted {
            // Failed, and a completion will say so; or the device is slow to free its queue: the
            // timers send it again.
            Ok(()) | Err(PostError::State(_) | PostError::Full) => {
                self.table.counters.unsent += 1;
                Ok(())
            }
            Err(source) => Err(Error::Post { what: "datagram", source }),
        }
    }

    fn wait(&mut self, packet: Waiting) {
        if self.waiting.len() < WAITING_MOST {
            self.waiting.push_back(packet);
        } else {
            self.table.counters.unsent += 1;
        }
    }

    /// A rank's datagram queue pair.
    fn target(
        &mut self,
        to: Rank,
        peers: &dyn Peers,
    ) -> Result<(u32, Arc<dyn AddressHandle>), Error> {
        let place = peers.address(to);
        if place.qpn == 0 {
            return Err(Error::NoDatagrams { rank: Rank(self.context.me), peer: to });
        }
        if let Some(handle) = self.handles.get(&to) {
            return Ok((place.qpn, Arc::clone(handle)));
        }
        let handle = self.device.address_handle(self.setup.port, &place.address);
        let what = "make an address handle";
        let handle = handle.map_err(|source| Error::Fabric { what, source })?;
        if self.handles.len() >= HANDLES_MOST {
            self.handles.pop_first();
        }
        self.handles.insert(to, Arc::clone(&handle));
        Ok((place.qpn, handle))
    }
}
