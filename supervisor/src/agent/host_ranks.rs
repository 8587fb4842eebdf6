//! The part of a job that runs on one host.

use bootstrap::{HostId, Rank};

use crate::plan::JobPlan;

/// One host's part of a job. Local numbers count the host's ranks from 0 in the order of ranks.
#[derive(Clone, Debug)]
pub(crate) struct HostRanks {
    pub(crate) host: HostId,
    pub(crate) hosts: u32,
    /// Its ranks, ascending.
    pub(crate) ranks: Vec<Rank>,
    /// Host of every rank of the job.
    pub(crate) host_of: Vec<HostId>,
    /// CPU set of each local rank; empty = leave the binding alone.
    pub(crate) cpus: Vec<Vec<usize>>,
}

impl HostRanks {
    /// All of a job on this host alone.
    pub(crate) fn whole(plan: &JobPlan) -> Self {
        Self::of_host(0, 1, vec![HostId(0); plan.size as usize], plan.cpus.clone())
    }

    /// One host of several. `host_of` is the whole map.
    pub(crate) fn of_host(
        host: u32,
        hosts: u32,
        host_of: Vec<HostId>,
        cpus: Vec<Vec<usize>>,
    ) -> Self {
        let host = HostId(host);
        let here = (0..).zip(&host_of).filter(|(_, at)| **at == host);
        let ranks = here.map(|(rank, _)| Rank(rank)).collect();
        Self { host, hosts, ranks, host_of, cpus }
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn size(&self) -> u32 {
        u32::try_from(self.host_of.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn rank(&self, local: u32) -> u32 {
        self.ranks.get(local as usize).map_or(u32::MAX, |rank| rank.0)
    }

    pub(crate) fn local(&self, rank: u32) -> Option<u32> {
        let found = self.ranks.binary_search(&Rank(rank)).ok()?;
        u32::try_from(found).ok()
    }
}
