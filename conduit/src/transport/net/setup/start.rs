//! From a setup to a working network: addresses are exchanged, ranks are connected, segments are made known.

use std::sync::Arc;

use bootstrap::{Bootstrap, Rank};
use fabric::{Address, Channel};

use super::Setup;
use super::peer_addresses::PeerAddresses;
use crate::transport::net::connect::driver::{Identity, Setup as ConnectSetup, Socket};
use crate::transport::net::connect::fixed::{self, Chosen};
use crate::transport::net::connect::machine::Timing;
use crate::transport::net::connect::{
    self, Failure, Numbers, PeerAddress, Peers as Handshake, file,
};
use crate::transport::net::context::{NetContext, Segments};
use crate::transport::net::peer::Phase;
use crate::transport::net::settings::ConnectSettings;
use crate::transport::net::threads::Threads;
use crate::transport::net::{Error, SegmentMemory};

/// The context as connections see it.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    pub(crate) context: Arc<NetContext>,
    pub(crate) others: PeerAddresses,
}

impl Handshake for Links {
    fn prepare(&self, rank: Rank) -> Result<Numbers, Failure> {
        let numbers = self.context.prepare(rank)?.numbers();
        let count = numbers.len();
        Numbers::new(&numbers).ok_or_else(|| format!("{count} queue pairs are too many").into())
    }

    fn receive_ready(&self, rank: Rank, numbers: &Numbers) -> Result<(), Failure> {
        let peer = self.context.prepare(rank)?;
        let address = |rail| self.others.rail(rank, rail);
        Ok(self.context.receive_ready(peer, numbers.as_slice(), address)?)
    }

    fn send_ready(&self, rank: Rank) -> Result<(), Failure> {
        Ok(self.context.send_ready(self.context.prepare(rank)?)?)
    }

    fn open(&self, rank: Rank) {
        if let Some(peer) = self.context.peers.get(rank) {
            peer.set_phase(Phase::Open);
        }
    }

    fn is_open(&self, rank: Rank) -> bool {
        self.context.peers.get(rank).is_some_and(crate::transport::net::peer::Peer::is_open)
    }

    fn address(&self, rank: Rank) -> PeerAddress {
        let (address, ..) = self.others.rail(rank, 0);
        let own = self.context.rails.first().map_or(0, |rail| rail.address.sgid_index);
        let address = Address { sgid_index: own, ..address };
        PeerAddress { address, qpn: self.others.datagrams(rank) }
    }
}

impl Links {
    /// Numbers that the ranks of a pair tell each other: of queue pairs, and of receive queues.
    pub(crate) fn count(&self) -> usize {
        let send_qps = 1 + usize::from(self.context.setup.limits.shared.is_some());
        let numbers =
            if self.context.xrc.is_some() { crate::transport::net::xrc::NUMBERS } else { 1 };
        self.context.setup.lanes.len() * send_qps * numbers
    }
}

/// Registers the own segment with every rail and exchanges where the segments are. Collective.
pub(crate) fn attach(
    context: &NetContext,
    memory: SegmentMemory,
    services: &mut dyn Bootstrap,
) -> Result<(), Error> {
    let mut mine = [0; 8];
    if memory.len > 0 {
        mine.copy_from_slice(&memory.address().to_ne_bytes());
    }
    let mut mine = mine.to_vec();
    mine.extend((memory.len as u64).to_ne_bytes());
    for rail in &context.rails {
        let mut key = 0;
        if memory.len > 0 {
            let region = memory.register(&*rail.device)?;
            key = region.rkey();
            let _ = rail.segment.set(region);
        }
        mine.extend(key.to_ne_bytes());
    }
    debug_assert_eq!(mine.len(), Segments::record_len(context.rails.len()));
    let table = services.exchange(&mine)?;
    let _ = context.segments.set(Segments::new(memory, table, context.rails.len()));
    Ok(())
}

/// The queue pair for datagrams, with the channel of its completion queue.
pub(crate) type Datagrams = (Socket, Arc<dyn Channel>);

/// Makes the queue pair for datagrams. `None` for a rank that is connected to everybody at the start: it needs none.
pub(crate) fn datagrams(
    setup: &Setup,
    size: u32,
    settings: &ConnectSettings,
) -> Result<Option<Datagrams>, Error> {
    let dynamic = !settings.at_start || settings.dynamic && settings.file_in.is_some();
    let (true, Some(rail)) = (dynamic, setup.rails.first()) else { return Ok(None) };
    let channel = rail.device.channel()?;
    let setup = ConnectSetup {
        port: rail.port,
        pkey_index: rail.pkey_index,
        sends: settings.sends,
        receives: settings.receives(size),
        timing: timing(settings)?,
        drop: settings.drop,
    };
    Ok(Some((Socket::new(&rail.device, Some(&channel), &setup)?, channel)))
}

/// Prepares connections to the ranks that are connected at the start, and starts the threads. Collective. After a barrier
/// [`open`] opens the connections to the ranks that it returns.
pub(crate) fn connect(
    links: Links,
    datagrams: Option<Datagrams>,
    settings: &ConnectSettings,
    services: &mut dyn Bootstrap,
) -> Result<(Threads, Vec<Rank>), Error> {
    let members = &links.context.members;
    let (me, size) = (members.rank, members.size);
    let mut prepared = Vec::new();
    // All ranks have the same settings here, so either all take part or none does.
    if settings.at_start {
        let listed = match &settings.file_in {
            Some(name) => Some(file::read(name, me.0, size).map_err(connect::Error::from)?),
            None => None,
        };
        let chosen = listed.as_deref().map_or(Chosen::All, Chosen::Listed);
        let remote = |rank| members.is_remote(rank);
        prepared = fixed::prepare((me, size), chosen, &remote, links.count(), &links, services)?;
    }
    let connector = match datagrams {
        None => None,
        Some((socket, channel)) => {
            let key = links.others.queue_key(size);
            let identity = Identity {
                me,
                size,
                job: key.rotate_left(13),
                queue_key: key,
                count: links.count(),
            };
            Some((socket.start(&identity)?, channel))
        }
    };
    Ok((Threads::start(links, connector)?, prepared))
}

/// Opens connections that [`connect()`] prepared. After a barrier: everybody can receive.
pub(crate) fn open(links: &Links, prepared: &[Rank]) -> Result<(), Error> {
    Ok(fixed::open(links.context.members.rank, prepared, links)?)
}

fn timing(settings: &ConnectSettings) -> Result<Timing, Error> {
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let (least, most) = (micros(settings.retransmit_min), micros(settings.retransmit_max));
    Timing::new(least, most).ok_or_else(|| Error::Setting {
        name: "GASNET_CONNECT_RETRANS_MAX",
        problem: format!("{most} µs must be more than GASNET_CONNECT_RETRANS_MIN, {least} µs"),
    })
}
