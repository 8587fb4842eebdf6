//! From a setup to a working network: addresses are exchanged, ranks are connected, segments are made known.

use std::sync::Arc;

use bootstrap::{Bootstrap, Rank, Shared};
use fabric::{Address, Gid, Mtu};

use super::connect::driver::{Identity, Setup as ConnectSetup, Socket};
use super::connect::machine::Timing;
use super::connect::wire::queue_key;
use super::connect::{self, Failure, Numbers, PeerAddress, Peers as Handshake, file, fixed};
use super::engine::{Engine, Segments};
use super::peer::Stage;
use super::rail::Rail;
use super::settings::{ConnectSettings, NetSettings};
use super::threads::Threads;
use super::{Error, LastingMemory};

/// Bytes of a rank's record before its rails: number of its datagram queue pair.
const RECORD: usize = 4;
/// Bytes for each rail.
const RAIL: usize = 24;

/// What every rank tells all others at the start. Read where a rank is first talked to.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    table: Shared,
    rails: usize,
}

fn encode_rail(rail: &Rail) -> [u8; RAIL] {
    let mut bytes = [0; RAIL];
    bytes[..2].copy_from_slice(&rail.address.lid.to_le_bytes());
    bytes[2..4].copy_from_slice(&rail.address.service.to_le_bytes());
    bytes[4..20].copy_from_slice(&rail.address.gid.0);
    bytes[20] = u8::from(rail.address.global);
    bytes[21] = u8::try_from(rail.mtu.bytes().ilog2()).unwrap_or(0);
    bytes[22] = rail.rd_atom;
    bytes
}

impl Addresses {
    /// Collective.
    pub(super) fn exchange(
        engine: &Engine,
        datagrams: u32,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        let mut mine = datagrams.to_le_bytes().to_vec();
        mine.extend(engine.rails.iter().flat_map(encode_rail));
        let table = services.exchange(&mine)?;
        Ok(Self { table, rails: engine.rails.len() })
    }

    /// Key of the job's datagrams, derived from all ranks' numbers.
    pub(super) fn queue_key(&self, size: u32) -> u32 {
        queue_key((0..size).map(|rank| self.datagrams(Rank(rank))))
    }

    fn record(&self, rank: Rank) -> &[u8] {
        let len = RECORD + RAIL * self.rails;
        let at = len * rank.0 as usize;
        self.table.get(at..at + len).unwrap_or_default()
    }

    /// Number of a rank's datagram queue pair, 0 when it has none.
    pub(super) fn datagrams(&self, rank: Rank) -> u32 {
        let bytes = self.record(rank).first_chunk::<4>();
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Where a rail of a rank is, its MTU, and the reads in flight that it can have.
    pub(super) fn rail(&self, rank: Rank, rail: usize) -> (Address, Mtu, u8) {
        let at = RECORD + RAIL * rail;
        let record = self.record(rank).get(at..).and_then(<[u8]>::first_chunk::<RAIL>);
        let record = record.copied().unwrap_or_default();
        let [a, b, c, d, ..] = record;
        let gid = record[4..20].try_into().map(Gid).unwrap_or_default();
        let address = Address {
            lid: u16::from_le_bytes([a, b]),
            service: u16::from_le_bytes([c, d]),
            gid,
            sgid_index: 0,
            global: record[20] != 0,
        };
        let mtu = 1u32.checked_shl(record[21].into()).and_then(Mtu::of_bytes);
        (address, mtu.unwrap_or(Mtu::B256), record[22])
    }
}

/// The engine as connections see it.
#[derive(Clone, Debug)]
pub(super) struct Links {
    pub(super) engine: Arc<Engine>,
    pub(super) addresses: Addresses,
}

impl Handshake for Links {
    fn prepare(&self, rank: Rank) -> Result<Numbers, Failure> {
        let numbers = self.engine.prepare(rank)?.numbers();
        let count = numbers.len();
        Numbers::new(&numbers).ok_or_else(|| format!("{count} queue pairs are too many").into())
    }

    fn receive_ready(&self, rank: Rank, numbers: &Numbers) -> Result<(), Failure> {
        let peer = self.engine.prepare(rank)?;
        let address = |rail| self.addresses.rail(rank, rail);
        Ok(self.engine.receive_ready(peer, numbers.as_slice(), address)?)
    }

    fn send_ready(&self, rank: Rank) -> Result<(), Failure> {
        Ok(self.engine.send_ready(self.engine.prepare(rank)?)?)
    }

    fn open(&self, rank: Rank) {
        if let Some(peer) = self.engine.peers.get(rank) {
            peer.set_stage(Stage::Open);
        }
    }

    fn is_open(&self, rank: Rank) -> bool {
        self.engine.peers.get(rank).is_some_and(super::peer::Peer::is_open)
    }

    fn address(&self, rank: Rank) -> PeerAddress {
        let (address, ..) = self.addresses.rail(rank, 0);
        let own = self.engine.rails.first().map_or(0, |rail| rail.address.sgid_index);
        let address = Address { sgid_index: own, ..address };
        PeerAddress { address, qpn: self.addresses.datagrams(rank) }
    }
}

impl Links {
    /// Numbers that the ranks of a pair tell each other: of queue pairs, and of receive queues.
    pub(super) fn count(&self) -> usize {
        let halves = 1 + usize::from(self.engine.setup.limits.shared.is_some());
        let numbers = if self.engine.xrc.is_some() { super::xrc::NUMBERS } else { 1 };
        self.engine.setup.lanes.len() * halves * numbers
    }
}

/// Registers the own segment with every rail and exchanges where the segments are. Collective.
pub(super) fn attach(
    engine: &Engine,
    memory: LastingMemory,
    services: &mut dyn Bootstrap,
) -> Result<(), Error> {
    let mut mine = [0; 8];
    mine.copy_from_slice(&memory.address().to_ne_bytes());
    let mut mine = mine.to_vec();
    mine.extend((memory.len as u64).to_ne_bytes());
    for rail in &engine.rails {
        let mut key = 0;
        if memory.len > 0 {
            let region = memory.register(&*rail.device)?;
            key = region.rkey();
            let _ = rail.segment.set(region);
        }
        mine.extend(key.to_ne_bytes());
    }
    debug_assert_eq!(mine.len(), Segments::record_len(engine.rails.len()));
    let table = services.exchange(&mine)?;
    let _ = engine.segments.set(Segments::new(memory, table, engine.rails.len()));
    Ok(())
}

/// Connects the ranks that are connected at the start, and starts the threads. Collective.
pub(super) fn connect(
    engine: &Arc<Engine>,
    settings: &NetSettings,
    services: &mut dyn Bootstrap,
) -> Result<Threads, Error> {
    let members = &engine.members;
    let settings = &settings.connect;
    // A rank that is connected to everybody at the start needs no datagrams.
    let dynamic = !settings.at_start || settings.dynamic && settings.file_in.is_some();
    let mut datagrams = None;
    if let (true, Some(rail)) = (dynamic, engine.rails.first()) {
        let channel = rail.device.channel()?;
        let setup = ConnectSetup {
            port: rail.port,
            pkey_index: rail.pkey_index,
            sends: settings.sends,
            receives: settings.receives(members.size),
            timing: timing(settings)?,
            drop: settings.drop,
        };
        datagrams = Some((Socket::new(&rail.device, Some(&channel), &setup)?, channel));
    }
    let number = datagrams.as_ref().map_or(0, |(socket, _)| socket.number());
    let addresses = Addresses::exchange(engine, number, services)?;
    let links = Links { engine: Arc::clone(engine), addresses };
    let me = members.rank;
    let remote = |rank: Rank| members.is_remote(rank);
    let chosen: Vec<bool> = match &settings.file_in {
        _ if !settings.at_start => vec![false; members.size as usize],
        Some(pattern) => file::read(pattern, me.0, members.size).map_err(connect::Error::from)?,
        None => vec![true; members.size as usize],
    };
    let ranks = || (0..members.size).map(Rank);
    let chosen: Vec<bool> = ranks().zip(chosen).map(|(rank, wish)| wish && remote(rank)).collect();
    // All ranks have the same settings here, so either all take part or none does.
    if settings.at_start {
        fixed::connect(me, &chosen, &remote, links.count(), &links, services)?;
    }
    let connector = match datagrams {
        None => None,
        Some((socket, channel)) => {
            let key = links.addresses.queue_key(members.size);
            let identity = Identity {
                me,
                size: members.size,
                job: key.rotate_left(13),
                queue_key: key,
                count: links.count(),
            };
            Some((socket.start(&identity)?, channel))
        }
    };
    // Nobody asks for a connection before everybody listens.
    services.barrier()?;
    Threads::start(links, connector)
}

fn timing(settings: &ConnectSettings) -> Result<Timing, Error> {
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (least, most) = (micros(settings.retransmit_min), micros(settings.retransmit_max));
    Timing::new(least, most).ok_or_else(|| Error::Setting {
        name: "GASNET_CONNECT_RETRANS_MAX",
        problem: format!("{most} µs must be more than GASNET_CONNECT_RETRANS_MIN, {least} µs"),
    })
}
