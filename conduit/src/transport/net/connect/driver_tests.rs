//! Connectors of several ranks in one process, over the software adapter, with real queue pairs
//! behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bootstrap::Rank;
use fabric::soft::{self, FaultScript, SoftConfig};
use fabric::{
    Access, Address, Channel, Completion, CompletionQueue, Data, Device, Mtu, Operation, QpSpec,
    QpType, QueuePair, RcPeer, RecvWr, Retry, SendWr, Status, UdTarget,
};
use nix::poll::{PollFd, PollFlags, PollTimeout};

use super::driver::{Connector, Socket};
use super::wire::{Context, Kind, MAX_PAYLOAD, Packet, queue_key};
use super::{Error, Failure, Numbers, Peers, fixed};
use crate::transport::net::memory::pool::{Buffer, Pool};
use crate::transport::net::settings::{ConnectSettings, NetSettings, Timing};

const JOB: u32 = 0x7e57;

/// Queue pairs per peer.
const COUNT: usize = 2;

/// Nothing here takes longer unless it hangs.
const PATIENCE: Duration = Duration::from_secs(40);

fn setup() -> ConnectSettings {
    let timing = Timing { min: Duration::from_millis(1), max: Duration::from_micros(1 << 24) };
    ConnectSettings { sends: 4, receives: Some(8), timing, ..NetSettings::default().connect }
}

fn device() -> Arc<dyn Device> {
    faulty(None)
}

fn faulty(faults: Option<FaultScript>) -> Arc<dyn Device> {
    let config = SoftConfig {
        devices: 1,
        ports: 1,
        bind: "127.0.0.1".parse().unwrap(),
        key: *b"key of the tests",
        secure: false,
        mtu: Mtu::B4096,
        faults,
    };
    soft::open(&config).unwrap().open(0).unwrap()
}

fn address(device: &Arc<dyn Device>) -> Address {
    let port = device.port(1).unwrap();
    let gid = port.gids.first().unwrap();
    Address {
        lid: port.lid,
        service: port.service,
        gid: gid.gid,
        sgid_index: gid.index,
        global: true,
    }
}

struct Pair {
    qps: Vec<Arc<dyn QueuePair>>,
    open: bool,
}

/// The queue pairs of one rank.
struct Side {
    me: Rank,
    device: Arc<dyn Device>,
    cq: Arc<dyn CompletionQueue>,
    pairs: Mutex<BTreeMap<Rank, Pair>>,
    addresses: Mutex<Vec<(Address, u32)>>,
    pool: Pool,
    buffers: Mutex<Vec<Buffer>>,
    heard: Mutex<BTreeSet<(u32, u32)>>,
    refuse: AtomicBool,
}

impl Side {
    fn new(me: u32, device: Arc<dyn Device>) -> Self {
        let cq = device.completion_queue(256, None).unwrap();
        let pool = Pool::new();
        let buffers = Mutex::new(pool.grow(64, 64, &[Some(&*device)]).unwrap());
        Self {
            me: Rank(me),
            device,
            cq,
            pairs: Mutex::default(),
            addresses: Mutex::default(),
            pool,
            buffers,
            heard: Mutex::default(),
            refuse: AtomicBool::new(false),
        }
    }

    fn pair(&self) -> Arc<dyn QueuePair> {
        let spec = QpSpec {
            qp_type: QpType::Rc,
            send_cq: &self.cq,
            recv_cq: &self.cq,
            srq: None,
            max_send: 4,
            max_recv: 4,
            send_sge: 1,
            recv_sge: 1,
            inline: 16,
        };
        let qp = self.device.queue_pair(&spec).unwrap();
        qp.to_init(1, 0, 0, Access::NONE).unwrap();
        let buffer = self.buffers.lock().unwrap().pop().unwrap();
        let (id, buffer) = self.pool.lend_piece(buffer, 0, 64);
        qp.post_receive(&RecvWr { id: id.into(), buffer }).unwrap();
        qp
    }

    /// Messages that arrived over connections: (sender, queue pair).
    fn poll(&self, connector: &Connector) {
        let mut batch = [Completion::EMPTY; 8];
        let taken = self.cq.poll(&mut batch).unwrap();
        for completion in &batch[..taken] {
            assert_eq!(completion.status, Status::Success, "rank {}: {completion:?}", self.me);
            let Some(word) = completion.imm else { continue };
            let (from, index) = (word >> 8, word & 0xff);
            let pairs = self.pairs.lock().unwrap();
            let number = pairs[&Rank(from)].qps[index as usize].number();
            assert_eq!(number, completion.qpn, "rank {}: wrong queue pair of rank {from}", self.me);
            drop(pairs);
            assert!(self.heard.lock().unwrap().insert((from, index)), "twice");
            if !self.is_open(Rank(from)) {
                connector.heard(Rank(from), self).unwrap();
            }
        }
    }
}

impl Peers for Side {
    fn prepare(&self, rank: Rank) -> Result<Numbers, Failure> {
        if self.refuse.load(Ordering::Relaxed) {
            return Err("all queue pairs are in use".into());
        }
        let qps: Vec<_> = (0..COUNT).map(|_| self.pair()).collect();
        let numbers: Vec<u32> = qps.iter().map(|qp| qp.number()).collect();
        let before = self.pairs.lock().unwrap().insert(rank, Pair { qps, open: false });
        assert!(before.is_none(), "prepared twice");
        Ok(Numbers::new(&numbers).unwrap())
    }

    fn receive_ready(&self, rank: Rank, numbers: &Numbers) -> Result<(), Failure> {
        let address = self.address(rank).0;
        let pairs = self.pairs.lock().unwrap();
        for (qp, qpn) in pairs[&rank].qps.iter().zip(numbers.as_slice()) {
            let psn = rank.0;
            let peer = RcPeer { address, qpn: *qpn, psn, mtu: Mtu::B1024, rd_atom: 1 };
            qp.to_rtr(Some(&peer), &Retry::default())?;
        }
        Ok(())
    }

    fn send_ready(&self, rank: Rank) -> Result<(), Failure> {
        for qp in &self.pairs.lock().unwrap()[&rank].qps {
            qp.to_rts(self.me.0, 1, &Retry::default())?;
        }
        Ok(())
    }

    fn open(&self, rank: Rank) {
        let mut pairs = self.pairs.lock().unwrap();
        let pair = pairs.get_mut(&rank).unwrap();
        assert!(!pair.open, "opened twice");
        pair.open = true;
        // At once, so that it can overtake the acknowledgement.
        for (qp, index) in pair.qps.iter().zip(0..) {
            let imm = Some(self.me.0 << 8 | index);
            qp.post_send(&SendWr {
                id: 0,
                operation: Operation::Send { imm },
                data: Data::Inline(&[b"hello"]),
                signaled: false,
                to: None,
            })
            .unwrap();
        }
    }

    fn is_open(&self, rank: Rank) -> bool {
        self.pairs.lock().unwrap().get(&rank).is_some_and(|pair| pair.open)
    }

    fn address(&self, rank: Rank) -> (Address, u32) {
        self.addresses.lock().unwrap()[rank.0 as usize]
    }
}

struct World {
    sides: Vec<Arc<Side>>,
    connectors: Vec<Arc<Connector>>,
    channels: Vec<Arc<dyn Channel>>,
    key: u32,
}

impl World {
    fn new(size: u32, setup: &ConnectSettings, with_channel: bool) -> Self {
        Self::on((0..size).map(|_| device()), setup, with_channel)
    }

    /// A rank on each device.
    fn on(
        devices: impl IntoIterator<Item = Arc<dyn Device>>,
        setup: &ConnectSettings,
        with_channel: bool,
    ) -> Self {
        let sides: Vec<_> =
            (0..).zip(devices).map(|(me, device)| Arc::new(Side::new(me, device))).collect();
        let size = u32::try_from(sides.len()).unwrap();
        let channels: Vec<Arc<dyn Channel>> = sides
            .iter()
            .filter(|_| with_channel)
            .map(|side| side.device.channel().unwrap())
            .collect();
        let sockets: Vec<_> = sides
            .iter()
            .zip(0..)
            .map(|(side, me)| {
                Socket::new(&side.device, channels.get(me), (1, 0), setup, size).unwrap()
            })
            .collect();
        let addresses: Vec<_> = sides
            .iter()
            .zip(&sockets)
            .map(|(side, socket)| (address(&side.device), socket.number()))
            .collect();
        let key = queue_key(addresses.iter().map(|(_, qpn)| *qpn));
        let connectors = sockets
            .into_iter()
            .zip(&sides)
            .map(|(socket, side)| {
                (*side.addresses.lock().unwrap()).clone_from(&addresses);
                let context = Context { me: side.me.0, size, job: JOB, count: COUNT };
                Arc::new(socket.start(context, key).unwrap())
            })
            .collect();
        Self { sides, connectors, channels, key }
    }

    fn need(&self, me: u32, peer: u32) {
        let (connector, side) = self.rank(me);
        connector.need(Rank(peer), &**side).unwrap();
    }

    fn rank(&self, me: u32) -> (&Arc<Connector>, &Arc<Side>) {
        (&self.connectors[me as usize], &self.sides[me as usize])
    }

    /// Each has heard the other over every queue pair.
    fn is_connected(&self, me: u32, peer: u32) -> bool {
        let heard = |me: u32, peer: u32| {
            let heard = self.sides[me as usize].heard.lock().unwrap();
            (0..2).all(|index| heard.contains(&(peer, index)))
        };
        heard(me, peer) && heard(peer, me)
    }

    /// Polls all ranks until `done`.
    fn run(&self, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < end, "not done: {:?}", self.counters());
            self.poll();
        }
    }

    fn poll(&self) {
        for (connector, side) in self.connectors.iter().zip(&self.sides) {
            connector.poll(&**side).unwrap();
            side.poll(connector);
        }
    }

    fn counters(&self) -> Vec<super::table::Counters> {
        self.connectors.iter().map(|connector| connector.counters()).collect()
    }
}

#[test]
fn two_ranks_connect_when_one_needs_it_and_talk() {
    let world = World::new(2, &setup(), false);
    assert_eq!(world.connectors[0].deadline(), None);
    world.need(0, 1);
    assert!(world.connectors[0].deadline().is_some());
    world.run(|world| world.is_connected(0, 1));
    world.run(|world| world.connectors.iter().all(|connector| connector.under_way() == 0));
    let [a, b] = world.counters()[..] else { panic!() };
    assert_eq!((a.connected, b.connected), (1, 1));
    // Needing it again changes nothing.
    world.need(0, 1);
    assert_eq!(world.counters(), [a, b]);
}

#[test]
fn everybody_connects_with_everybody_through_few_buffers_while_a_quarter_is_lost() {
    let setup = ConnectSettings { sends: 1, receives: Some(2), drop: 3, ..setup() };
    let world = World::new(5, &setup, false);
    for me in 0..5 {
        (0..5).filter(|peer| *peer != me).for_each(|peer| world.need(me, peer));
    }
    let pairs = || (0..5).flat_map(|me| (me + 1..5).map(move |peer| (me, peer)));
    world.run(|world| pairs().all(|(me, peer)| world.is_connected(me, peer)));
    let counters = world.counters();
    assert!(counters.iter().all(|counters| counters.connected == 4), "{counters:?}");
    assert!(counters.iter().any(|counters| counters.lost > 0));
    assert!(counters.iter().any(|counters| counters.resent > 0));
    assert!(counters.iter().all(|counters| counters.refused + counters.strangers == 0));
}

#[test]
fn everybody_connects_over_a_network_that_loses_doubles_and_delays() {
    for seed in 1..=6 {
        // With one seed for all, they would lose the same packets.
        let script = |me: u64| {
            let seed = 100 * seed + me;
            FaultScript::parse(&format!("seed={seed} drop-ud=20% dup-ud=30% delay-ud=3ms@40%"))
                .unwrap()
        };
        let world = World::on((0..3).map(|me| faulty(Some(script(me)))), &setup(), false);
        let pairs = [(0, 1), (1, 0), (1, 2), (2, 0)];
        pairs.iter().for_each(|(me, peer)| world.need(*me, *peer));
        world.run(|world| pairs.iter().all(|(me, peer)| world.is_connected(*me, *peer)));
        world.run(|world| world.connectors.iter().all(|connector| connector.under_way() == 0));
        let counters = world.counters();
        assert!(counters.iter().all(|counters| counters.connected == 2), "{counters:?}");
    }
}

#[test]
fn memory_that_cannot_be_registered_is_named() {
    let device = faulty(Some(FaultScript::parse("seed=1 register-fail=1st").unwrap()));
    let error = Socket::new(&device, None, (1, 0), &setup(), 2).unwrap_err().to_string();
    let start = "network: cannot register buffers for connection requests: ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn ranks_connect_at_the_start_and_talk_without_a_datagram() {
    let world = World::new(3, &setup(), false);
    let services = bootstrap::memory::job(3).unwrap();
    thread::scope(|scope| {
        for (mut services, side) in services.into_iter().zip(&world.sides) {
            scope.spawn(move || {
                let me = side.me;
                // Each names the next; all pairs are connected.
                let chosen: Vec<bool> = (0..3).map(|rank| rank == (me.0 + 1) % 3).collect();
                let (chosen, services) = (Some(&chosen[..]), &mut *services);
                let list =
                    fixed::prepare((me, 3), chosen, &|_| true, COUNT, &**side, services).unwrap();
                services.barrier().unwrap();
                fixed::open(me, &list, &**side).unwrap();
                assert_eq!(list.len(), 2);
                services.fini(0).unwrap();
            });
        }
    });
    world.run(|world| [(0, 1), (1, 2), (2, 0)].iter().all(|(a, b)| world.is_connected(*a, *b)));
    assert!(world.counters().iter().all(|counters| counters.sent + counters.received == 0));
    // A late request of a connected peer changes nothing.
    world.need(0, 1);
    assert_eq!(world.counters()[0].sent, 0);
}

#[test]
fn a_rank_connects_to_itself() {
    let world = World::new(1, &setup(), false);
    world.need(0, 0);
    assert!(world.sides[0].is_open(Rank(0)));
    assert_eq!(world.counters()[0].sent, 0);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up_by_name() {
    let timing = Timing { min: Duration::from_millis(1), max: Duration::from_millis(8) };
    let world = World::new(2, &ConnectSettings { timing, ..setup() }, false);
    world.need(0, 1);
    let (connector, side) = world.rank(0);
    let end = Instant::now() + PATIENCE;
    let error = loop {
        assert!(Instant::now() < end, "never given up");
        if let Err(error) = connector.poll(&**side) {
            break error.to_string();
        }
    };
    let start = "network: rank 0 cannot connect to rank 1: request sent, no answer after 0.";
    assert!(
        error.starts_with(start) && error.contains(" s and 8 repetitions; look whether"),
        "{error}"
    );
    assert_eq!(connector.under_way(), 0);
}

#[test]
fn what_a_peer_cannot_do_is_an_error_with_both_names() {
    let world = World::new(2, &setup(), false);
    let (connector, side) = world.rank(0);
    side.refuse.store(true, Ordering::Relaxed);
    let error = connector.need(Rank(1), &**side).unwrap_err().to_string();
    let expected = "network: rank 0 cannot connect to rank 1: cannot make queue pairs: all queue pairs are in use";
    assert_eq!(error, expected);
    let world = World::new(2, &setup(), false);
    let (connector, side) = world.rank(1);
    side.addresses.lock().unwrap()[0].1 = 0;
    let error = connector.need(Rank(0), &**side).unwrap_err();
    assert!(matches!(error, Error::NoDatagrams { rank: Rank(1), peer: Rank(0) }), "{error}");
}

/// A datagram queue pair of somebody else who knows the key.
struct Stranger {
    qp: Arc<dyn QueuePair>,
    cq: Arc<dyn CompletionQueue>,
    device: Arc<dyn Device>,
    pool: Pool,
    /// Counts as lent between two datagrams.
    buffer: u32,
}

impl Stranger {
    fn new(key: u32) -> Self {
        let device = device();
        let cq = device.completion_queue(16, None).unwrap();
        let spec = QpSpec {
            qp_type: QpType::Ud,
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            max_send: 4,
            max_recv: 4,
            send_sge: 1,
            recv_sge: 1,
            inline: 0,
        };
        let qp = device.queue_pair(&spec).unwrap();
        qp.to_init(1, 0, key, Access::NONE).unwrap();
        qp.to_rtr(None, &Retry::default()).unwrap();
        qp.to_rts(0, 0, &Retry::default()).unwrap();
        let pool = Pool::new();
        let buffer = pool.lend(pool.grow(1, 4096, &[Some(&*device)]).unwrap().remove(0));
        Self { qp, cq, device, pool, buffer }
    }

    fn send(&mut self, (address, qpn): &(Address, u32), key: u32, imm: Option<u32>, bytes: &[u8]) {
        let handle = self.device.address_handle(1, address).unwrap();
        let mut buffer = self.pool.reclaim(self.buffer).unwrap();
        self.pool.bytes(&mut buffer)[..bytes.len()].copy_from_slice(bytes);
        let (_, data) = self.pool.lend_piece(buffer, 0, u32::try_from(bytes.len()).unwrap());
        self.qp
            .post_send(&SendWr {
                id: 0,
                operation: Operation::Send { imm },
                data: Data::Gather(&[data]),
                signaled: true,
                to: Some(UdTarget { handle: &*handle, qpn: *qpn, qkey: key }),
            })
            .unwrap();
        let end = Instant::now() + PATIENCE;
        let mut one = [Completion::EMPTY];
        while self.cq.poll(&mut one).unwrap() == 0 {
            assert!(Instant::now() < end, "the datagram was never sent");
        }
        assert_eq!(one[0].status, Status::Success);
    }
}

#[test]
fn garbage_and_strangers_change_nothing() {
    let world = World::new(2, &setup(), false);
    let (key, target) = (world.key, world.sides[0].address(Rank(1)));
    let mut stranger = Stranger::new(key);
    // Right in every detail, but not from the queue pair of rank 0.
    let numbers = Numbers::new(&[5, 6]).unwrap();
    let forged = Packet { kind: Kind::Req, original: true, from: 0, to: 1, numbers };
    let mut bytes = [0; MAX_PAYLOAD];
    let (imm, len) = forged.encode(JOB, &mut bytes);
    stranger.send(&target, key, Some(imm), &bytes[..len]);
    world.run(|world| world.counters()[1].strangers == 1);
    // Cut, without a kind, empty, too long for the buffer.
    stranger.send(&target, key, Some(imm), &bytes[..len - 1]);
    world.run(|world| world.counters()[1].refused == 1);
    stranger.send(&target, key, None, &bytes[..len]);
    world.run(|world| world.counters()[1].refused == 2);
    stranger.send(&target, key, Some(imm), &[]);
    world.run(|world| world.counters()[1].refused == 3);
    stranger.send(&target, key, Some(imm), &[0x55; 4000]);
    // That may have cost the queue pair, and what comes until it is set up again is lost.
    let end = Instant::now() + PATIENCE;
    while world.counters()[1].refused < 4 {
        assert!(Instant::now() < end, "deaf: {:?}", world.counters());
        stranger.send(&target, key, Some(imm), &[0x55; 20]);
        world.poll();
    }
    // Who does not have the key is not even heard.
    stranger.send(&target, key ^ 1, Some(imm), &bytes[..len]);
    world.need(0, 1);
    world.run(|world| world.is_connected(0, 1));
    let counters = world.counters()[1];
    assert_eq!((counters.strangers, counters.connected), (1, 1), "{counters:?}");
}

#[test]
fn threads_of_their_own_connect_while_the_program_computes() {
    let world = World::new(3, &ConnectSettings { drop: 2, ..setup() }, true);
    let end = Instant::now() + PATIENCE;
    let everybody = |me: u32| [(me + 1) % 3, (me + 2) % 3];
    let is_open =
        |me: u32| everybody(me).iter().all(|peer| world.sides[me as usize].is_open(Rank(*peer)));
    let serve = |me: u32| {
        let (connector, side) = world.rank(me);
        world.need(me, (me + 1) % 3);
        // Others may still need an answer of a rank that is done.
        while !(0..3).all(is_open) {
            assert!(Instant::now() < end, "not connected: {:?}", world.counters());
            connector.arm().unwrap();
            while connector.poll(&**side).unwrap() > 0 {}
            // Another rank's end rings nothing here: looks around at times.
            let most = connector.deadline().unwrap_or(PATIENCE).min(Duration::from_millis(100));
            let most = PollTimeout::try_from(most + Duration::from_millis(1)).unwrap();
            let channel = &world.channels[me as usize];
            let mut list = [PollFd::new(channel.fd(), PollFlags::POLLIN)];
            nix::poll::poll(&mut list, most).unwrap();
            channel.consume().unwrap();
        }
    };
    thread::scope(|scope| (0..3).for_each(|me| drop(scope.spawn(move || serve(me)))));
    world.run(|world| {
        (0..3).all(|me| everybody(me).iter().all(|peer| world.is_connected(me, *peer)))
    });
}
