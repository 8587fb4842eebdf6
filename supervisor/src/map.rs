//! Where each rank of a job runs (pure).

use serde::{Deserialize, Serialize};
use spawner_ssh::HostEntry;

/// Where each rank of a job runs. Every host has a rank, and every rank has a host.
///
/// A name that was kept twice is two hosts: each has ranks, and local numbers, of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// The hosts, in the order of their list. A rank's `GASNETRUN_HOST` is an index into this.
    pub hosts: Vec<HostEntry>,
    /// Host of each rank, by rank: an index into `hosts`.
    pub host_of: Vec<u32>,
}

/// A rank's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of its host.
    pub host: u32,
    /// Its number among the ranks of that host, from 0, in the order of ranks.
    pub local: u32,
}

/// Why a map cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A map that contradicts itself.
    #[error("rank {rank} is on host {host}, but there are {hosts} hosts")]
    Host {
        /// Rank.
        rank: usize,
        /// Its host.
        host: u32,
        /// Hosts there are.
        hosts: usize,
    },
    /// A host of a map has no rank.
    #[error("host {host} has no rank")]
    Idle {
        /// Its index.
        host: usize,
    },
}

impl Map {
    /// All ranks on the launching host.
    #[must_use]
    pub fn here(name: impl Into<String>, ranks: u32) -> Self {
        Self { hosts: vec![HostEntry::here(name)], host_of: vec![0; ranks as usize] }
    }

    /// The same map without hosts that have no rank.
    #[must_use]
    pub fn without_idle_hosts(self) -> Self {
        let mut used = vec![false; self.hosts.len()];
        for host in &self.host_of {
            if let Some(used) = used.get_mut(*host as usize) {
                *used = true;
            }
        }
        let mut next = 0;
        let new: Vec<u32> = used
            .iter()
            .map(|used| {
                next += u32::from(*used);
                next.saturating_sub(1)
            })
            .collect();
        let host_of = self.host_of.iter().map(|h| new.get(*h as usize).copied().unwrap_or(*h));
        Self {
            host_of: host_of.collect(),
            hosts: self
                .hosts
                .into_iter()
                .zip(used)
                .filter(|(_, used)| *used)
                .map(|p| p.0)
                .collect(),
        }
    }

    /// Checks what [`Map`] promises, for a map that came from elsewhere.
    ///
    /// # Errors
    /// A rank without host, or a host without rank.
    pub fn check(&self) -> Result<(), MapError> {
        let hosts = self.hosts.len();
        let wrong = self.host_of.iter().enumerate().find(|(_, host)| **host as usize >= hosts);
        if let Some((rank, &host)) = wrong {
            return Err(MapError::Host { rank, host, hosts });
        }
        match self.shares().iter().position(|share| *share == 0) {
            Some(host) => Err(MapError::Idle { host }),
            None => Ok(()),
        }
    }

    /// Ranks of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.host_of.len()).unwrap_or(u32::MAX)
    }

    /// Whether all ranks are on the launching host, as one host: no other host and no second agent
    /// is needed.
    #[must_use]
    pub fn is_here_only(&self) -> bool {
        matches!(self.hosts.as_slice(), [host] if host.here)
    }

    /// Whether a rank is on the launching host.
    #[must_use]
    pub fn is_here(&self, rank: u32) -> bool {
        let host = self.host_of.get(rank as usize).and_then(|host| self.hosts.get(*host as usize));
        host.is_some_and(|host| host.here)
    }

    /// Number of ranks of each host, by host.
    #[must_use]
    pub fn shares(&self) -> Vec<u32> {
        let mut shares = vec![0; self.hosts.len()];
        for host in &self.host_of {
            if let Some(share) = shares.get_mut(*host as usize) {
                *share += 1;
            }
        }
        shares
    }

    /// The ranks of one host, ascending: the rank at index `i` has the local number `i`.
    #[must_use]
    pub fn ranks_of(&self, host: u32) -> Vec<u32> {
        (0..).zip(&self.host_of).filter(|(_, h)| **h == host).map(|(rank, _)| rank).collect()
    }

    /// The place of every rank, by rank.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        let mut next = vec![0; self.hosts.len()];
        let mut place = |host: u32| {
            let local = next.get_mut(host as usize).map_or(0, |next| {
                *next += 1;
                *next - 1
            });
            Place { host, local }
        };
        self.host_of.iter().map(|host| place(*host)).collect()
    }
}
