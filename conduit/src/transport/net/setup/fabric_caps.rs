//! What every rank tells all others before a fabric is chosen: one exchange, from which each rank
//! reads all that this choice takes. Under a batch system an exchange is what start-up costs most.

use std::net::IpAddr;

use bootstrap::{Bootstrap, Rank, Shared};
use serde::{Deserialize, Serialize};

use crate::identity::own_path;
use crate::segment_mode::SegmentMode;
use crate::transport::net::error::Error;
use crate::transport::net::members::Common;
use crate::transport::net::records;
use crate::transport::net::settings::sizes::DeviceLimits;
use crate::transport::net::settings::{FabricChoice, SOFT_SECURE};

/// Bytes of a rank's record: more than any record takes.
const RECORD: usize = 108;

/// Random bytes of rank 0: only who has them may talk to this job.
pub(crate) type Key = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FabricCaps {
    pub(crate) common: Common,
    /// Of rank 0 it counts.
    pub(crate) key: Key,
    pub(crate) fabric: FabricChoice,
    /// It encrypts what its software adapter sends.
    pub(crate) secure: bool,
    pub(crate) adapter: bool,
    pub(crate) limits: DeviceLimits,
    /// Largest segment that adapters let the ranks of its host register, if it has asked.
    pub(crate) pinnable: Option<u64>,
    /// Its adapters page memory in on demand.
    pub(crate) pages: bool,
    /// Its host, as far as it knows.
    pub(crate) address: Option<IpAddr>,
}

impl FabricCaps {
    /// Where another rank differs in what must be alike: the variable, that rank's value and the
    /// own one.
    fn differs(&self, other: &Self) -> Option<(&'static str, String, String)> {
        let (mine, theirs) = (self.common.neighbourhood_max, other.common.neighbourhood_max);
        if mine != theirs {
            return Some(("GASNET_SUPERNODE_MAXSIZE", theirs.to_string(), mine.to_string()));
        }
        let mode = |one: &Self| SegmentMode::name_of(one.common.segment_mode).to_owned();
        if self.common.segment_mode != other.common.segment_mode {
            return Some(("GASNET_SEGMENT_MODE", mode(other), mode(self)));
        }
        if self.secure != other.secure {
            let number = |one: &Self| u8::from(one.secure).to_string();
            return Some((SOFT_SECURE, number(other), number(self)));
        }
        let name = |one: &Self| one.fabric.name().to_owned();
        (self.fabric != other.fabric).then(|| ("GASNET_IBV_FABRIC", name(other), name(self)))
    }
}

/// Two ranks have different programs at the same place.
fn another_program(me: Rank, rank: Rank) -> Error {
    let path = own_path().unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let problem = format!(
        "has another program at {} on its host than rank {me} on {}; put the same one there on all hosts, or let --stage auto \
         send it (GASNET_IBV_SAME_PROGRAM=0 allows different builds)",
        path.display(),
        host.trim()
    );
    Error::Mismatch { rank, problem }
}

#[derive(Debug)]
pub(crate) struct JobFabricCaps {
    table: Shared,
    pub(crate) max_segment: u64,
    /// Largest segment that all can register with adapters.
    pub(crate) pinnable: u64,
    pub(crate) key: Key,
    pub(crate) without_adapter: Option<Rank>,
    /// What the adapters of all ranks can do.
    pub(crate) limits: DeviceLimits,
}

impl JobFabricCaps {
    /// Collective.
    pub(crate) fn exchange(
        me: Rank,
        mine: &FabricCaps,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        Self::of(me, mine, services.exchange(&records::write(mine, RECORD)?)?)
    }

    fn of(me: Rank, mine: &FabricCaps, table: Shared) -> Result<Self, Error> {
        let mut all = Self {
            table: Shared::Owned(Vec::new()),
            max_segment: mine.common.max_segment,
            pinnable: u64::MAX,
            key: mine.key,
            without_adapter: None,
            limits: mine.limits,
        };
        for (rank, bytes) in (0..).map(Rank).zip(table.chunks_exact(RECORD)) {
            let theirs: FabricCaps = records::read(bytes).ok_or_else(|| records::unknown(rank))?;
            if let Some((name, theirs, mine)) = mine.differs(&theirs) {
                let problem = format!(
                    "{theirs} on rank {rank}, {mine} on rank {me}; set it to the same on all ranks"
                );
                return Err(Error::Setting { name, problem });
            }
            if mine.common.program.differs(theirs.common.program) {
                return Err(another_program(me, rank));
            }
            all.max_segment = all.max_segment.min(theirs.common.max_segment);
            all.limits = all.limits.least(theirs.limits);
            all.pinnable = all.pinnable.min(theirs.pinnable.unwrap_or(u64::MAX));
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

    /// Ranks whose adapters do not page memory in on demand.
    pub(crate) fn without_paging(&self) -> impl Iterator<Item = Rank> + Clone + '_ {
        let records = self.table.chunks_exact(RECORD);
        let pages = |record| records::read::<FabricCaps>(record).is_some_and(|one| one.pages);
        (0..).map(Rank).zip(records).filter(move |(_, record)| !pages(record)).map(|(rank, _)| rank)
    }

    /// Addresses of the ranks' hosts, as far as those know them.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let records = self.table.chunks_exact(RECORD);
        records.filter_map(|record| records::read::<FabricCaps>(record)?.address)
    }
}

#[cfg(test)]
#[path = "fabric_caps_tests.rs"]
mod tests;
