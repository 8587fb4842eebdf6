//! Whole networks in one process: threads are ranks, each on a host of its own, over the software
//! adapter; or several on a host, over the fake libibverbs of the testkit.

mod atomics;
mod bad_input;
mod fake;
mod fence;
mod messages;
mod moving;
mod outside;
mod rma;
mod signal;
mod small;
mod storms;
mod threads;
mod volume;
mod xrc;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bootstrap::{Bootstrap, HostId, Rank};
use fabric::soft::{self, SoftConfig};
use fabric::{Mtu, Retry};

use super::am::send::Sender;
use super::memory::pool::testing::lasting;
use super::plan::{NetPlan, RailPlan};
use super::settings::Stripes;
use super::settings::sizes::{Sizes, SrqSizes};
use super::*;
use crate::mode::{Par, Seq};
use crate::transport::message::{
    AmMessage, AmPayload, Arrived, ArrivedPayload, MessageClass, Sink, ZeroCopy,
};
use crate::transport::neighbour_ranks::NeighbourRanks;
use crate::transport::neighbours;
use crate::transport::op_counter::OpCounter;

/// No test waits longer; far more than any needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The smallest queues that work.
const TINY: Sizes = Sizes {
    connections: 1,
    ops_per_connection: 2,
    ops: 2,
    credits_per_connection: 1,
    credits: 1,
    slack: 0,
    reserve: 4,
    waiting: 0,
    srq: None,
    flow: None,
    volume: None,
    bounce: 3,
    spares: 1,
    send_cq: 8,
    receive_cq: 64,
};

/// The documents' defaults, for few peers.
const USUAL: Sizes = Sizes {
    ops_per_connection: 24,
    credits_per_connection: 12,
    credits: 36,
    slack: 5,
    waiting: 1,
    send_cq: 255,
    receive_cq: 512,
    bounce: 64,
    spares: 2,
    ..TINY
};

const SHARED: SrqSizes = SrqSizes { requests: 2, replies: 3 };

/// A kind of network to run a test on.
#[derive(Clone, Copy, Debug)]
struct Kind {
    sizes: Sizes,
    /// `GASNET_INLINESEND_LIMIT`.
    inline: Option<u32>,
    /// `GASNET_AM_GATHER_MIN`.
    gather_min: Option<u32>,
    rails: usize,
    connections: usize,
    dynamic: bool,
    /// Remote ranks at the start, others on demand.
    both: bool,
    /// `GASNET_CONNECTFILE_OUT`.
    file_out: Option<&'static str>,
    /// Over the fake libibverbs instead of the software adapter.
    fake: bool,
    /// Ranks of a host, which share memory.
    per_host: u32,
    /// `GASNET_USE_XRC`.
    xrc: bool,
    /// `GASNET_USE_FIREHOSE`.
    registers: bool,
    /// `GASNET_PUT_STRIPE_SZ` and `GASNET_GET_STRIPE_SZ`, in bytes.
    stripe: u64,
    /// `GASNET_USE_FENCED_PUTS`.
    fenced: bool,
    /// `GASNET_IBV_SOFT_FAULTS`.
    faults: Option<&'static str>,
    /// `GASNET_NONBULKPUT_BOUNCE_LIMIT`.
    put_bounce: u64,
    /// No thread of the network.
    single: bool,
}

const PLAIN: Kind = Kind {
    sizes: USUAL,
    inline: Some(72),
    gather_min: Some(1500),
    rails: 1,
    connections: 1,
    dynamic: false,
    both: false,
    file_out: None,
    fake: false,
    per_host: 1,
    xrc: false,
    registers: true,
    stripe: 0,
    fenced: false,
    faults: None,
    put_bounce: 65_536,
    single: false,
};

/// With the smallest queues, and nothing inline.
const SMALL: Kind = Kind { sizes: TINY, inline: Some(0), ..PLAIN };

/// One rank of a test.
struct Member<'a> {
    rank: u32,
    size: u32,
    per_host: u32,
    net: &'a NetTransport,
    memory: SegmentMemory,
    /// Arrivals of others in [`Member::meet`], and how many there were to be.
    met: AtomicU32,
    meetings: AtomicU32,
    services: std::cell::RefCell<Box<dyn Bootstrap>>,
}

fn plan(fabric: &dyn fabric::Fabric, kind: &Kind) -> NetPlan {
    let rail = |index| {
        let device = fabric.open(index).expect("device");
        let port = device.port(1).expect("port");
        let gid = port.gids.first();
        let address = fabric::Address {
            lid: port.lid,
            service: port.service,
            gid: gid.map(|entry| entry.gid).unwrap_or_default(),
            sgid_index: gid.map_or(0, |entry| entry.index),
            global: !kind.fake,
        };
        let (mtu, max_message) = (port.active_mtu, port.max_message);
        RailPlan { device, port: 1, pkey_index: 0, address, mtu, rd_atom: 4, max_message }
    };
    let connections = u32::try_from(kind.connections).expect("few");
    NetPlan {
        rails: (0..kind.rails).map(rail).collect(),
        connections: (0..kind.connections).map(|index| index % kind.rails).collect(),
        sizes: Sizes { connections, ..kind.sizes },
    }
}

/// Runs `body` on every rank of a job of `size`, each with a segment of `segment` bytes.
fn run(size: u32, segment: usize, kind: &Kind, body: impl Fn(&Member<'_>) + Sync) {
    let per_host = kind.per_host;
    let hosts: Vec<HostId> = (0..size).map(|rank| HostId(rank / per_host)).collect();
    let fake = if kind.fake { fake::fabric() } else { None };
    if kind.fake && fake.is_none() {
        return;
    }
    let soft = || {
        soft::open(&SoftConfig {
            devices: u8::try_from(kind.rails).expect("few"),
            ports: 1,
            bind: Ipv4Addr::LOCALHOST.into(),
            key: [7; 16],
            secure: false,
            mtu: Mtu::B4096,
            faults: kind.faults.map(|text| soft::FaultScript::parse(text).expect("script")),
        })
        .expect("fabric")
    };
    let job = bootstrap::memory::job_on_hosts(&hosts).expect("job");
    std::thread::scope(|scope| {
        for mut services in job {
            let (body, fake, soft) = (&body, fake.clone(), &soft);
            scope.spawn(move || {
                let place = services.rank_info();
                let fabric = fake.unwrap_or_else(soft);
                let members = Members {
                    rank: place.rank,
                    size,
                    neighbours: NeighbourRanks::new(services.node_shm(), 0..per_host),
                    hosts: place.hosts,
                    page: Arc::clone(services.node_shm()),
                    slot: place.local,
                };
                let mut settings = NetSettings::default();
                settings.connect.at_start = !kind.dynamic;
                settings.connect.dynamic = kind.dynamic || kind.both;
                settings.xrc = kind.xrc;
                settings.registration.on = kind.registers;
                settings.inline = kind.inline;
                settings.put_bounce = kind.put_bounce;
                settings.single = kind.single;
                settings.gather_min = kind.gather_min;
                settings.stripes = Stripes { put: kind.stripe, get: kind.stripe };
                settings.fenced_puts = kind.fenced;
                settings.connect.file_out = kind.file_out.map(Into::into);
                let plan = plan(&*fabric, kind);
                let net = NetTransport::with_plan(settings, plan, 0, members, &mut *services);
                let net = net.expect("network");
                services.barrier().expect("everybody has prepared");
                net.begin().expect("connections are open");
                let memory = lasting(segment);
                net.attach(memory, true, &mut *services).expect("attach");
                let services = services.into();
                let (met, meetings) = (AtomicU32::new(0), AtomicU32::new(0));
                let rank = place.rank.0;
                let net = &net;
                let member = Member { rank, size, per_host, net, memory, met, meetings, services };
                body(&member);
                member.services.borrow_mut().barrier().expect("everybody is done");
                net.close();
                let fini = member.services.borrow_mut().fini(0);
                fini.expect("farewell");
            });
        }
    });
}

/// Counts those of [`Member::meet`], and calls a closure for each other message.
struct TestSink<'a>(&'a AtomicU32, &'a dyn Fn(Arrived<'_>));

impl Sink for TestSink<'_> {
    fn arrived(&self, message: Arrived<'_>) {
        // A handler may use the network.
        let _outside = Mark::outside();
        if message.handler == MEET {
            self.0.fetch_add(1, Ordering::Relaxed);
        } else {
            (self.1)(message);
        }
    }
}

impl Member<'_> {
    /// Polls until `done`; `handler` gets the messages.
    fn poll_until(&self, handler: &dyn Fn(Arrived<'_>), done: impl Fn() -> bool) {
        let begin = Instant::now();
        while !done() {
            let count = self
                .net
                .poll::<Par, _>(&TestSink(&self.met, handler), Poll::All)
                .expect("open")
                .expect("poll");
            if count == 0 {
                std::thread::yield_now();
            }
            assert!(begin.elapsed() < PATIENCE, "rank {} waits for ever", self.rank);
        }
    }

    /// Sends; polls while there is no room.
    fn send(&self, message: &AmMessage<'_>, handler: &dyn Fn(Arrived<'_>)) {
        let begin = Instant::now();
        while !self.net.send(message).expect("send").is_yes() {
            let count = self
                .net
                .poll::<Par, _>(&TestSink(&self.met, handler), Poll::All)
                .expect("open")
                .expect("poll");
            if count == 0 {
                std::thread::yield_now();
            }
            assert!(begin.elapsed() < PATIENCE, "rank {} has no room for ever", self.rank);
        }
    }

    /// Ranks of other hosts.
    fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let (host, per_host) = (self.rank / self.per_host, self.per_host);
        (0..self.size).filter(move |rank| *rank / per_host != host).map(Rank)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.others().count()).expect("few")
    }

    /// All ranks of other hosts have come here; messages are delivered meanwhile.
    fn meet(&self, handler: &dyn Fn(Arrived<'_>)) {
        for peer in self.others() {
            self.send(&internal(peer, MEET, &[]), handler);
        }
        let count = self.count();
        let all = self.meetings.fetch_add(count, Ordering::Relaxed) + count;
        self.poll_until(handler, || self.met.load(Ordering::Relaxed) >= all);
    }
}

/// Handler number of [`Member::meet`].
const MEET: u8 = 9;

fn message<'a>(
    class: MessageClass,
    (to, handler): (Rank, u8),
    args: &'a [i32],
    payload: AmPayload<'a>,
) -> AmMessage<'a> {
    AmMessage { class, target: neighbours::remote(to), handler, args, payload }
}

fn internal(to: Rank, handler: u8, args: &[i32]) -> AmMessage<'_> {
    message(MessageClass::Internal, (to, handler), args, AmPayload::None)
}

fn request<'a>(to: Rank, args: &'a [i32], payload: AmPayload<'a>) -> AmMessage<'a> {
    message(MessageClass::Request, (to, 200), args, payload)
}

fn reply<'a>(to: Rank, args: &'a [i32], payload: AmPayload<'a>) -> AmMessage<'a> {
    message(MessageClass::Reply, (to, 201), args, payload)
}

/// Who sent a message.
fn rank_of(message: &Arrived<'_>) -> Rank {
    neighbours::remote_rank(message.source).expect("a remote rank")
}

/// Bytes that differ from place to place.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31 + at / 251 + seed * 7) % 251).to_le_bytes()[0]).collect()
}
