//! Which rank runs where: hosts, their ranks, and the rules by which ranks are spread over hosts (pure).
//!
//! Blocked and balanced is the documented layout: consecutive ranks, shares that differ by at most one, the first hosts
//! take the remainder. Slots are limits: a host that is full takes no more, and the others share what is left by the
//! same rule. A cyclic layout gives each host the same number of ranks as the blocked one, dealt out in rounds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A host of a job, as the user wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Name or address; an IPv6 address without brackets.
    pub name: String,
    /// Who logs in there, if that is not left to the remote shell.
    pub user: Option<String>,
    /// Port of its ssh server, if that is not left to the remote shell.
    pub port: Option<u16>,
    /// Most ranks that it takes; none = no limit.
    pub slots: Option<u32>,
    /// Whether it is the launching host, reached by the launching user without a login.
    pub here: bool,
}

impl HostEntry {
    /// A host with nothing but a name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The launching host.
    #[must_use]
    pub fn here(name: impl Into<String>) -> Self {
        Self { here: true, ..Self::new(name) }
    }

    /// Whether both mean the same login: user, name and port as written. Slots do not matter.
    #[must_use]
    pub fn same_login(&self, other: &Self) -> bool {
        (&self.name, &self.user, self.port) == (&other.name, &other.user, other.port)
    }
}

/// As it may be written in a host list, without the slots.
impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.port {
            Some(port) if self.name.contains(':') => write!(f, "[{}]:{port}", self.name),
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

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

/// Why ranks cannot be spread.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No host.
    #[error("there is no host to put {ranks} ranks on")]
    NoHosts {
        /// Ranks.
        ranks: u32,
    },
    /// More ranks than slots.
    #[error(
        "{ranks} ranks need {ranks} slots, but the {hosts} {} of the job {} {slots}: {} too few", 
        if *.hosts == 1 { "host" } else { "hosts" },
        if *.hosts == 1 { "has" } else { "have" },
        u64::from(*.ranks) - .slots
    )]
    Slots {
        /// Ranks.
        ranks: u32,
        /// Slots of all hosts together.
        slots: u64,
        /// Hosts.
        hosts: usize,
    },
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

/// In which order ranks are dealt out to hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Consecutive ranks share a host.
    #[default]
    Block,
    /// Consecutive ranks are on consecutive hosts.
    Cyclic,
}

impl Map {
    /// All ranks on the launching host.
    #[must_use]
    pub fn here(name: impl Into<String>, ranks: u32) -> Self {
        Self { hosts: vec![HostEntry::here(name)], host_of: vec![0; ranks as usize] }
    }

    /// Spreads `ranks` ranks over `hosts`, within their slots. Hosts that get none are left out.
    ///
    /// # Errors
    /// No hosts, or more ranks than slots.
    pub fn spread(hosts: Vec<HostEntry>, ranks: u32, order: Order) -> Result<Self, LayoutError> {
        let slots: Vec<_> = hosts.iter().map(|host| host.slots).collect();
        let shares = shares(ranks, &slots)?;
        let indices = 0..u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        let host_of = match order {
            Order::Block => indices
                .zip(&shares)
                .flat_map(|(host, share)| std::iter::repeat_n(host, *share as usize))
                .collect(),
            Order::Cyclic => {
                let rounds = 0..shares.iter().copied().max().unwrap_or(0);
                let with = |round| indices.clone().zip(&shares).filter(move |(_, s)| **s > round);
                rounds.flat_map(|round| with(round).map(|(host, _)| host)).collect()
            }
        };
        Ok(Self { hosts, host_of }.without_idle_hosts())
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
    pub fn check(&self) -> Result<(), LayoutError> {
        let hosts = self.hosts.len();
        let wrong = self.host_of.iter().enumerate().find(|(_, host)| **host as usize >= hosts);
        if let Some((rank, &host)) = wrong {
            return Err(LayoutError::Host { rank, host, hosts });
        }
        match self.shares().iter().position(|share| *share == 0) {
            Some(host) => Err(LayoutError::Idle { host }),
            None => Ok(()),
        }
    }

    /// Ranks of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        u32::try_from(self.host_of.len()).unwrap_or(u32::MAX)
    }

    /// Whether all ranks are on the launching host, as one host: no other host and no second agent is needed.
    #[must_use]
    pub fn is_here_only(&self) -> bool {
        matches!(self.hosts.as_slice(), [host] if host.here)
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

/// How many ranks each of `hosts` hosts gets when `ranks` are spread evenly: consecutive ranks, the first hosts take the
/// remainder. Fewer ranks than hosts leave the last hosts empty; no hosts, no entries.
#[must_use]
pub fn layout(ranks: u32, hosts: u32) -> Vec<u32> {
    let Some(each) = ranks.checked_div(hosts) else { return Vec::new() };
    let rest = ranks % hosts;
    (0..hosts).map(|host| each + u32::from(host < rest)).collect()
}

/// As [`layout`], but a host takes at most its slots; what it cannot take is spread over the others.
///
/// # Errors
/// No hosts, or more ranks than slots.
pub fn shares(ranks: u32, slots: &[Option<u32>]) -> Result<Vec<u32>, LayoutError> {
    if slots.is_empty() {
        return Err(LayoutError::NoHosts { ranks });
    }
    let limit = |slots: &Option<u32>| slots.unwrap_or(u32::MAX);
    let sum = |level: u32| slots.iter().map(|s| u64::from(limit(s).min(level))).sum::<u64>();
    if sum(u32::MAX) < u64::from(ranks) {
        return Err(LayoutError::Slots { ranks, slots: sum(u32::MAX), hosts: slots.len() });
    }
    // The highest level to which every host can be filled; the first that are not full take one more.
    let (mut level, mut above) = (0, ranks.saturating_add(1));
    while level + 1 < above {
        let middle = level + (above - level) / 2;
        if sum(middle) <= u64::from(ranks) { level = middle } else { above = middle }
    }
    let mut rest = u64::from(ranks) - sum(level);
    let share = |slots: &Option<u32>| {
        let more = rest > 0 && limit(slots) > level;
        rest -= u64::from(more);
        limit(slots).min(level) + u32::from(more)
    };
    Ok(slots.iter().map(share).collect())
}

/// The cpu sets of the ranks of one host, by local number: `per_rank` cpus each, disjoint, in order, out of those that
/// the host's agent may use. None when there are too few.
#[must_use]
pub fn cpu_sets(allowed: &[usize], per_rank: u32, ranks: u32) -> Option<Vec<Vec<usize>>> {
    if per_rank == 0 {
        return Some(Vec::new());
    }
    let enough = u64::from(per_rank) * u64::from(ranks) <= allowed.len() as u64;
    let sets = allowed.chunks_exact(per_rank as usize).take(ranks as usize);
    enough.then(|| sets.map(<[_]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(slots: &[Option<u32>]) -> Vec<HostEntry> {
        let host = |(i, slots): (usize, &Option<u32>)| HostEntry {
            slots: *slots,
            ..HostEntry::new(format!("n{i}"))
        };
        slots.iter().enumerate().map(host).collect()
    }

    #[test]
    fn ten_ranks_on_four_hosts() {
        assert_eq!(layout(10, 4), [3, 3, 2, 2]);
        assert_eq!(layout(3, 5), [1, 1, 1, 0, 0]);
        assert_eq!(layout(5, 0), [0; 0]);
        let map = Map::spread(hosts(&[None; 4]), 10, Order::Block).expect("fits");
        assert_eq!(map.host_of, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]);
        let map = Map::spread(hosts(&[None; 4]), 10, Order::Cyclic).expect("fits");
        assert_eq!(map.host_of, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]);
        assert_eq!(map.ranks_of(1), [1, 5, 9]);
        assert_eq!(map.places()[9], Place { host: 1, local: 2 });
    }

    #[test]
    fn slots_are_limits() {
        assert_eq!(shares(8, &[Some(4), Some(2), Some(2)]), Ok(vec![4, 2, 2]));
        assert_eq!(shares(7, &[Some(1), None, None]), Ok(vec![1, 3, 3]));
        assert_eq!(shares(6, &[Some(9), Some(1), None]), Ok(vec![3, 1, 2]));
        let error = shares(9, &[Some(4), Some(2)]).expect_err("too many").to_string();
        assert_eq!(error, "9 ranks need 9 slots, but the 2 hosts of the job have 6: 3 too few");
        assert_eq!(shares(1, &[]), Err(LayoutError::NoHosts { ranks: 1 }));
        let map = Map::spread(hosts(&[Some(1), Some(3), None]), 7, Order::Cyclic).expect("fits");
        assert_eq!(map.host_of, [0, 1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn hosts_without_ranks_are_left_out() {
        let map = Map { hosts: hosts(&[None; 4]), host_of: vec![3, 1, 3] }.without_idle_hosts();
        assert_eq!(map.hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["n1", "n3"]);
        assert_eq!(map.host_of, [1, 0, 1]);
        assert_eq!(map.check(), Ok(()));
        let wrong = Map { hosts: hosts(&[None; 2]), host_of: vec![0, 2] };
        assert_eq!(wrong.check(), Err(LayoutError::Host { rank: 1, host: 2, hosts: 2 }));
        let idle = Map { hosts: hosts(&[None; 2]), host_of: vec![0, 0] };
        assert_eq!(idle.check(), Err(LayoutError::Idle { host: 1 }));
    }

    #[test]
    fn hosts_are_written_as_they_are_read() {
        let mut host = HostEntry::new("::1");
        assert_eq!(host.to_string(), "::1");
        host.port = Some(22);
        host.user = Some("me".into());
        assert_eq!(host.to_string(), "me@[::1]:22");
        host.name = "n1".into();
        assert_eq!(host.to_string(), "me@n1:22");
    }

    #[test]
    fn cpus_are_disjoint_and_in_order() {
        assert_eq!(cpu_sets(&[1, 2, 5, 7, 9], 2, 2), Some(vec![vec![1, 2], vec![5, 7]]));
        assert_eq!(cpu_sets(&[1, 2, 5], 2, 2), None);
        assert_eq!(cpu_sets(&[], 0, 1000), Some(Vec::new()));
        assert_eq!(cpu_sets(&[0], u32::MAX, u32::MAX), None);
    }

    proptest! {
        #[test]
        fn every_rank_has_a_place_and_shares_differ_by_one(ranks in 0u32..5000, hosts in 1u32..300) {
            let even = layout(ranks, hosts);
            prop_assert_eq!(even.len(), hosts as usize);
            prop_assert_eq!(even.iter().sum::<u32>(), ranks);
            prop_assert!(even.windows(2).all(|pair| pair[0] >= pair[1]));
            prop_assert!(even[0] - even[even.len() - 1] <= 1);
            prop_assert_eq!(shares(ranks, &vec![None; hosts as usize]), Ok(even));
        }

        #[test]
        fn maps_keep_their_promises(
            ranks in 1u32..500,
            slots in proptest::collection::vec(proptest::option::of(1u32..20), 1..40),
            cyclic: bool,
        ) {
            let order = if cyclic { Order::Cyclic } else { Order::Block };
            let total: u64 = slots.iter().map(|s| s.map_or(u64::MAX / 64, u64::from)).sum();
            let map = Map::spread(hosts(&slots), ranks, order);
            prop_assert_eq!(map.is_ok(), total >= u64::from(ranks));
            let Ok(map) = map else { return Ok(()) };
            prop_assert_eq!(map.check(), Ok(()));
            prop_assert_eq!(map.size(), ranks);
            let counts = map.shares();
            for (host, count) in map.hosts.iter().zip(&counts) {
                prop_assert!(host.slots.is_none_or(|slots| *count <= slots));
                // Nobody has two more than a host that has room.
                for (other, less) in map.hosts.iter().zip(&counts) {
                    prop_assert!(*count <= less + 1 || other.slots == Some(*less));
                }
            }
            if order == Order::Block {
                prop_assert!(map.host_of.is_sorted());
            }
            for (rank, place) in (0..).zip(map.places()) {
                prop_assert_eq!(map.ranks_of(place.host)[place.local as usize], rank);
            }
        }
    }
}
