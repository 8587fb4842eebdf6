//! What every rank tells all others once it has chosen its ports: what they must agree on, whether
//! it shares connections, how it is reached. One exchange, and a second one where ranks have
//! several rails. Read where a rank is first talked to.

use bootstrap::{Bootstrap, Rank, Shared};
use fabric::{Address, AtomicCap, Gid, Mtu};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::plan::NetPlan;
use super::records;
use super::settings::{Agreement, ConnectWays};

/// Bytes of a rank's record, and of that of a further rail: as many as any takes.
const RECORD: usize = 76;
const RAIL: usize = 26;

/// What a rank says of shared connections (`xrc.rs`). Those that say the same share theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sharing {
    /// It can and will.
    pub(super) can: bool,
    /// The first rank of its neighbourhood.
    pub(super) first: u32,
    /// Its ports as a number: equal for ranks that use the same.
    pub(super) ports: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct RailAddress {
    lid: u16,
    service: u16,
    gid: [u8; 16],
    global: bool,
    mtu: u32,
    rd_atom: u8,
}

impl RailAddress {
    /// The kind of network that a port is on, as far as its address tells.
    const fn link(&self) -> &'static str {
        match (self.service, self.lid) {
            (0, 0) => "an Ethernet port (RoCE)",
            (0, _) => "an InfiniBand port",
            _ => "the software adapter",
        }
    }

    /// Why a port and one of rank `me` cannot reach each other: they are of different kinds.
    fn other_link(&self, mine: &Self, me: Rank) -> Option<String> {
        let (their, own) = (self.link(), mine.link());
        (their != own).then(|| {
            format!(
                "uses {their}, rank {me} {own}: name adapters of one kind in GASNET_IBV_PORTS on all hosts (GASNET_IBV_LIST_PORTS=1 lists them)"
            )
        })
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Record {
    agreement: Agreement,
    sharing: Sharing,
    datagrams: u32,
    /// What its atomics are atomic to, as a number ([`cap`]).
    atomics: u8,
    rail: RailAddress,
}

/// From what a rank says; what is not known is none.
const fn cap(number: u8) -> AtomicCap {
    match number {
        1 => AtomicCap::Device,
        2 => AtomicCap::Global,
        _ => AtomicCap::None,
    }
}

/// What a rank says of its atomics. Those of an adapter alone take connections with neighbours and
/// with itself, which are not shared.
fn own_cap(plan: &NetPlan, sharing: Sharing) -> AtomicCap {
    match plan.atomics() {
        AtomicCap::Device if sharing.can => AtomicCap::None,
        own => own,
    }
}

#[derive(Clone, Debug)]
pub(super) struct OwnAddress {
    record: Record,
    further: Vec<RailAddress>,
}

/// What all ranks said.
#[derive(Clone, Debug)]
pub(super) struct PeerAddresses {
    table: Shared,
    /// Rails but the first of each rank, and how many each has.
    further: Option<(Shared, usize)>,
    /// What the atomics of all are atomic to.
    pub(super) atomics: AtomicCap,
}

impl OwnAddress {
    /// `datagrams` is the number of the datagram queue pair, 0 when there is none.
    pub(super) fn new(
        plan: &NetPlan,
        (fenced, ways): (bool, ConnectWays),
        sharing: Sharing,
        datagrams: u32,
    ) -> Self {
        let mut rails = plan.rails.iter().map(|rail| {
            let Address { lid, service, gid, global, .. } = rail.address;
            let (mtu, rd_atom) = (rail.mtu.bytes(), rail.rd_atom);
            RailAddress { lid, service, gid: gid.0, global, mtu, rd_atom }
        });
        let agreement = Agreement::of(&plan.sizes, plan.rails.len(), fenced, ways);
        let rail = rails.next().unwrap_or_default();
        let atomics = own_cap(plan, sharing) as u8;
        let record = Record { agreement, sharing, datagrams, atomics, rail };
        Self { record, further: rails.collect() }
    }
}

impl PeerAddresses {
    /// Collective.
    pub(super) fn exchange(
        me: Rank,
        mine: &OwnAddress,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        let table = services.exchange(&records::write(&mine.record, RECORD)?)?;
        let (mut atomics, mut on_demand) = (cap(mine.record.atomics), true);
        for (rank, bytes) in (0..).map(Rank).zip(table.chunks_exact(RECORD)) {
            let theirs: Record = records::read(bytes).ok_or_else(|| records::unknown(rank))?;
            if let Some(problem) = mine.record.agreement.differs(me, theirs.agreement) {
                return Err(Error::Mismatch { rank, problem });
            }
            if let Some(problem) = theirs.rail.other_link(&mine.record.rail, me) {
                return Err(Error::Mismatch { rank, problem });
            }
            atomics = atomics.min(cap(theirs.atomics));
            on_demand &= theirs.datagrams != 0;
        }
        if atomics == AtomicCap::Device && !on_demand {
            // Nobody could be connected with its neighbours.
            atomics = AtomicCap::None;
        }
        // From here on all have as many rails as this rank.
        let further = match mine.further.len() {
            0 => None,
            count => {
                let rails = mine.further.iter().map(|rail| records::write(rail, RAIL));
                let rails = rails.collect::<Result<Vec<_>, _>>()?;
                Some((services.exchange(&rails.concat())?, count))
            }
        };
        Ok(Self { table, further, atomics })
    }

    fn record(&self, rank: Rank) -> Option<Record> {
        records::read(self.table.get(RECORD * rank.0 as usize..)?.get(..RECORD)?)
    }

    pub(super) fn sharing(&self, rank: Rank) -> Sharing {
        self.record(rank).map_or_else(Sharing::default, |record| record.sharing)
    }

    /// Number of a rank's datagram queue pair, 0 when it has none.
    pub(super) fn datagrams(&self, rank: Rank) -> u32 {
        self.record(rank).map_or(0, |record| record.datagrams)
    }

    /// Where a rail of a rank is, its MTU, and the reads in flight that it can have.
    pub(super) fn rail(&self, rank: Rank, rail: usize) -> (Address, Mtu, u8) {
        let found = match (rail.checked_sub(1), &self.further) {
            (None, _) => self.record(rank).map(|record| record.rail),
            (Some(index), Some((table, count))) => {
                let rails = table.get(RAIL * (rank.0 as usize * count + index)..);
                rails.and_then(|rails| records::read(rails.get(..RAIL)?))
            }
            (Some(_), None) => None,
        };
        let RailAddress { lid, service, gid, global, mtu, rd_atom } = found.unwrap_or_default();
        let address = Address { lid, service, gid: Gid(gid), sgid_index: 0, global };
        (address, Mtu::of_bytes(mtu).unwrap_or(Mtu::B256), rd_atom)
    }
}

#[cfg(test)]
#[path = "peer_addresses_tests.rs"]
mod tests;
