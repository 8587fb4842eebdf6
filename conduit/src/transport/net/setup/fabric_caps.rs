//! What every rank tells all others before a fabric is chosen: one exchange, from which each rank reads all that this choice
//! takes. Under a batch system an exchange is what start-up costs most.

use std::net::IpAddr;

use bootstrap::{Bootstrap, Rank, Shared};

use crate::transport::net::settings::FabricChoice;
use crate::transport::net::settings::sizes::Limits;
use crate::transport::net::{Common, Error};

/// Bytes of an address: its length, 0 for none, and 16 bytes.
const ADDRESS: usize = 17;
/// Bytes of a rank's record.
const RECORD: usize = 8 + 4 + 16 + 1 + 1 + Limits::BYTES + ADDRESS;

/// Random bytes of rank 0: only who has them may talk to this job.
pub(crate) type Key = [u8; 16];

/// What a rank says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FabricCaps {
    pub(crate) common: Common,
    /// Of rank 0 it counts.
    pub(crate) key: Key,
    pub(crate) fabric: FabricChoice,
    /// It has an adapter that it can use.
    pub(crate) adapter: bool,
    /// Of its adapters.
    pub(crate) limits: Limits,
    /// Its host, as far as it knows.
    pub(crate) address: Option<IpAddr>,
}

/// An address as ranks tell it each other.
fn told(address: Option<IpAddr>) -> [u8; ADDRESS] {
    let mut bytes = [0; ADDRESS];
    match address {
        None => {}
        Some(IpAddr::V4(ip)) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            bytes[0] = 16;
            bytes[1..].copy_from_slice(&ip.octets());
        }
    }
    bytes
}

/// The other way.
fn heard(bytes: &[u8]) -> Option<IpAddr> {
    let (length, ip) = bytes.split_first()?;
    match length {
        4 => Some(<[u8; 4]>::try_from(ip.get(..4)?).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(ip.get(..16)?).ok()?.into()),
        _ => None,
    }
}

/// Takes the next `N` bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

impl FabricCaps {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.common.max_segment.to_le_bytes().to_vec();
        bytes.extend(self.common.neighbourhood_max.to_le_bytes());
        bytes.extend(self.key);
        bytes.extend([self.fabric.to_byte(), u8::from(self.adapter)]);
        bytes.extend(self.limits.to_bytes());
        bytes.extend(told(self.address));
        bytes
    }

    fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let bytes = &mut bytes;
        let common = Common {
            max_segment: u64::from_le_bytes(take(bytes)?),
            neighbourhood_max: u32::from_le_bytes(take(bytes)?),
        };
        let key = take(bytes)?;
        let [fabric, adapter] = take(bytes)?;
        let limits = Limits::from_bytes(take(bytes)?);
        let address = heard(bytes);
        let fabric = FabricChoice::from_byte(fabric)?;
        Some(Self { common, key, fabric, adapter: adapter != 0, limits, address })
    }

    /// Where another rank differs in what must be alike: the variable, that rank's value and the own one.
    fn differs(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let (mine, theirs) = (self.common.neighbourhood_max, other.common.neighbourhood_max);
        if mine != theirs {
            return Some(("GASNET_SUPERNODE_MAXSIZE", theirs.to_string(), mine.to_string()));
        }
        let name = |one: &Self| one.fabric.name().to_owned();
        (self.fabric != other.fabric).then(|| ("GASNET_IBV_FABRIC", name(other), name(self)))
    }
}

/// What all ranks said.
#[derive(Debug)]
pub(crate) struct JobFabricCaps {
    table: Shared,
    /// Smallest of the largest segments.
    pub(crate) max_segment: u64,
    pub(crate) key: Key,
    /// The first rank without an adapter.
    pub(crate) without_adapter: Option<Rank>,
    /// What the adapters of all ranks can do.
    pub(crate) limits: Limits,
}

impl JobFabricCaps {
    /// Collective.
    ///
    /// # Errors
    /// The exchange fails; what must be the same on all ranks is not.
    pub(crate) fn exchange(
        me: Rank,
        mine: &FabricCaps,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        Self::of(me, mine, services.exchange(&mine.to_bytes())?)
    }

    fn of(me: Rank, mine: &FabricCaps, table: Shared) -> Result<Self, Error> {
        let mut all = Self {
            table: Shared::Owned(Vec::new()),
            max_segment: mine.common.max_segment,
            key: mine.key,
            without_adapter: None,
            limits: mine.limits,
        };
        for (rank, bytes) in (0..).map(Rank).zip(table.chunks_exact(RECORD)) {
            let theirs = FabricCaps::from_bytes(bytes).ok_or_else(|| {
                let problem = "greets in words that this rank does not know; use one build of the library on all hosts";
                Error::Mismatch { rank, problem: problem.to_owned() }
            })?;
            if let Some((name, theirs, mine)) = mine.differs(&theirs) {
                let problem = format!(
                    "{theirs} on rank {rank}, {mine} on rank {me}; set it to the same on all ranks"
                );
                return Err(Error::Setting { name, problem });
            }
            all.max_segment = all.max_segment.min(theirs.common.max_segment);
            all.limits = all.limits.least(theirs.limits);
            if rank == Rank(0) {
                all.key = theirs.key;
            }
            if !theirs.adapter && all.without_adapter.is_none() {
                all.without_adapter = Some(rank);
            }
        }
        all.table = table;
        Ok(all)
    }

    /// Addresses of the ranks' hosts, as far as those know them.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let records = self.table.chunks_exact(RECORD);
        records.filter_map(|record| heard(&record[RECORD - ADDRESS..]))
    }
}

#[cfg(test)]
#[path = "fabric_caps_tests.rs"]
mod tests;
