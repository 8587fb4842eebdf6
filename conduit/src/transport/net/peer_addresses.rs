//! What every rank tells all others once it has chosen its ports: what they must agree on, whether
//! it shares connections, how it is reached. One exchange, and a second one where ranks have
//! several rails. Read where a rank is first talked to.

use bootstrap::{Bootstrap, Rank, Shared};
use fabric::{Address, Gid, Mtu};

use super::error::Error;
use super::plan::{NetPlan, RailPlan};
use super::settings::{Agreement, ConnectWays};

/// Bytes of what a rank says of shared connections (`xrc.rs`).
pub(super) const XRC_RECORD: usize = 13;
/// Bytes for each rail.
const RAIL: usize = 24;
/// Where the parts of a record begin: agreement, sharing, number of the datagram queue pair, first
/// rail.
const SHARING: usize = Agreement::BYTES;
const DATAGRAMS: usize = SHARING + XRC_RECORD;
const FIRST_RAIL: usize = DATAGRAMS + 4;
/// Bytes of a rank's record.
const RECORD: usize = FIRST_RAIL + RAIL;

/// What a rank says.
#[derive(Clone, Debug)]
pub(super) struct OwnAddress {
    agreement: Agreement,
    sharing: [u8; XRC_RECORD],
    datagrams: u32,
    rails: Vec<[u8; RAIL]>,
}

/// What all ranks said.
#[derive(Clone, Debug)]
pub(super) struct PeerAddresses {
    table: Shared,
    /// Rails but the first of each rank.
    further: Option<Shared>,
    rails: usize,
}

fn encode_rail(rail: &RailPlan) -> Result<[u8; RAIL], Error> {
    let address = rail.address(&rail.device.port(rail.port)?);
    let mut bytes = [0; RAIL];
    bytes[..2].copy_from_slice(&address.lid.to_le_bytes());
    bytes[2..4].copy_from_slice(&address.service.to_le_bytes());
    bytes[4..20].copy_from_slice(&address.gid.0);
    bytes[20] = u8::from(address.global);
    bytes[21] = u8::try_from(rail.mtu.bytes().ilog2()).unwrap_or(0);
    bytes[22] = rail.rd_atom;
    Ok(bytes)
}

fn decode_rail(bytes: &[u8; RAIL]) -> (Address, Mtu, u8) {
    let [a, b, c, d, ..] = *bytes;
    let address = Address {
        lid: u16::from_le_bytes([a, b]),
        service: u16::from_le_bytes([c, d]),
        gid: bytes[4..20].try_into().map(Gid).unwrap_or_default(),
        sgid_index: 0,
        global: bytes[20] != 0,
    };
    let mtu = 1u32.checked_shl(bytes[21].into()).and_then(Mtu::of_bytes);
    (address, mtu.unwrap_or(Mtu::B256), bytes[22])
}

impl OwnAddress {
    /// Of this rank; `datagrams` is the number of its datagram queue pair, 0 when it has none.
    pub(super) fn new(
        plan: &NetPlan,
        ways: ConnectWays,
        sharing: [u8; XRC_RECORD],
        datagrams: u32,
    ) -> Result<Self, Error> {
        let rails = plan.rails.iter().map(encode_rail).collect::<Result<Vec<_>, _>>()?;
        let count = u32::try_from(rails.len()).unwrap_or(u32::MAX);
        let agreement = Agreement::of(&plan.sizes, count, ways);
        Ok(Self { agreement, sharing, datagrams, rails })
    }

    fn record(&self) -> Vec<u8> {
        let mut bytes = self.agreement.to_bytes().to_vec();
        bytes.extend(self.sharing);
        bytes.extend(self.datagrams.to_le_bytes());
        bytes.extend(self.rails.first().copied().unwrap_or_default());
        bytes
    }
}

impl PeerAddresses {
    /// Collective.
    pub(super) fn exchange(
        me: Rank,
        mine: &OwnAddress,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        let table = services.exchange(&mine.record())?;
        for (rank, record) in (0..).map(Rank).zip(table.chunks_exact(RECORD)) {
            let theirs = record.first_chunk().copied().map(Agreement::from_bytes);
            if let Some(problem) = theirs.and_then(|theirs| mine.agreement.differs(me, theirs)) {
                return Err(Error::Mismatch { rank, problem });
            }
        }
        // From here on all have as many rails as this rank.
        let further = match mine.rails.get(1..) {
            Some(further) if !further.is_empty() => Some(services.exchange(&further.concat())?),
            _ => None,
        };
        Ok(Self { table, further, rails: mine.rails.len() })
    }

    fn record(&self, rank: Rank) -> Option<&[u8; RECORD]> {
        self.table.get(RECORD * rank.0 as usize..)?.first_chunk()
    }

    /// What a rank says of shared connections.
    pub(super) fn sharing(&self, rank: Rank) -> Option<&[u8; XRC_RECORD]> {
        self.record(rank)?[SHARING..].first_chunk()
    }

    /// Number of a rank's datagram queue pair, 0 when it has none.
    pub(super) fn datagrams(&self, rank: Rank) -> u32 {
        let bytes = self.record(rank).and_then(|record| record[DATAGRAMS..].first_chunk::<4>());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Where a rail of a rank is, its MTU, and the reads in flight that it can have.
    pub(super) fn rail(&self, rank: Rank, rail: usize) -> (Address, Mtu, u8) {
        let bytes = match rail.checked_sub(1) {
            None => self.record(rank).and_then(|record| record[FIRST_RAIL..].first_chunk()),
            Some(index) => self.further.as_ref().and_then(|further| {
                let at = RAIL * (rank.0 as usize * (self.rails - 1) + index);
                further.get(at..)?.first_chunk()
            }),
        };
        decode_rail(bytes.unwrap_or(&[0; RAIL]))
    }

    /// Ranks that say only this of shared connections.
    #[cfg(test)]
    pub(super) fn of_sharing(records: &[[u8; XRC_RECORD]]) -> Self {
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend([0; SHARING]);
            bytes.extend(record);
            bytes.extend([0; RECORD - DATAGRAMS]);
        }
        Self { table: Shared::Owned(bytes), further: None, rails: 1 }
    }
}

#[cfg(test)]
#[path = "peer_addresses_tests.rs"]
mod tests;
