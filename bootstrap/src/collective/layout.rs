//! Where ranks are in the tree of agents.
//!
//! *Tree order* of the ranks of a subtree: the ranks of its own host ascending, then branch after
//! branch. With [`groups`] that is the order of the host list, each host's ranks ascending.

use std::ops::Range;

use super::error::ProtocolError;
use crate::rank::{HostId, Rank};

/// Splits places in the host list among the children of a node: at most `degree` contiguous groups
/// whose sizes differ by at most one, larger ones first; 0 makes every place a group (a star). The
/// first of a group is the child, the rest is split by it in the same way.
pub fn groups(hosts: Range<usize>, degree: usize) -> impl Iterator<Item = Range<usize>> {
    let count = hosts.len();
    let parts = if degree == 0 { count } else { degree.min(count) };
    let (small, larger) =
        (count.checked_div(parts).unwrap_or(0), count.checked_rem(parts).unwrap_or(0));
    (0..parts).scan(hosts.start, move |at, part| {
        let start = *at;
        *at += small + usize::from(part < larger);
        Some(start..*at)
    })
}

/// Levels of the tree that [`groups`] makes of so many hosts.
#[must_use]
pub fn depth(mut hosts: usize, degree: usize) -> u32 {
    let mut depth = 0;
    // The first group is the largest; its first host is a level, the rest is below.
    while let Some(group) = groups(0..hosts, degree).next() {
        depth += 1;
        hosts = group.len() - 1;
    }
    depth
}

/// The ranks of each host, ascending, where element `r` is the host of rank `r`.
#[must_use]
pub fn ranks_by_host(host_of: &[HostId]) -> Vec<Vec<Rank>> {
    let hosts = host_of.iter().map(|host| host.0 as usize + 1).max().unwrap_or(0);
    let mut ranks = vec![Vec::new(); hosts];
    for (rank, host) in (0u32..).map(Rank).zip(host_of) {
        ranks[host.0 as usize].push(rank);
    }
    ranks
}

/// A link to an agent below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Host of that agent.
    pub host: HostId,
    /// All ranks of its subtree, in tree order.
    pub ranks: Vec<Rank>,
}

/// The place of one agent in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Ranks of the whole job.
    pub size: u32,
    /// Its host. A root without ranks is on none, then any number will do.
    pub host: HostId,
    /// Ranks of its host, ascending.
    pub ranks: Vec<Rank>,
    /// The agents below.
    pub branches: Vec<Branch>,
    /// Whether there is an agent above.
    pub parent: bool,
}

impl Node {
    /// What is impossible about this node.
    pub(super) fn check(&self) -> Result<(), ProtocolError> {
        let below = self.branches.iter().flat_map(|branch| &branch.ranks);
        let mut all: Vec<Rank> = self.ranks.iter().chain(below).copied().collect();
        all.sort_unstable();
        let wrong = |problem: String| Err(ProtocolError::Layout { problem });
        if let Some(rank) = all.last().filter(|rank| rank.0 >= self.size) {
            return wrong(format!("rank {rank} in a job of {} ranks", self.size));
        }
        if let Some(pair) = all.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong(format!("rank {} is there twice", pair[0]));
        }
        if !self.ranks.is_sorted() {
            return wrong(format!("the ranks of host {} are not ascending", self.host.0));
        }
        if let Some(branch) = self.branches.iter().find(|branch| branch.ranks.is_empty()) {
            return wrong(format!("no ranks below the agent of host {}", branch.host.0));
        }
        if all.is_empty() || (!self.parent && all.len() != self.size as usize) {
            return wrong(format!("{} of {} ranks in it", all.len(), self.size));
        }
        Ok(())
    }
}

/// Ranks of a subtree.
#[derive(Debug)]
pub(super) struct Ranks {
    /// Tree order.
    pub(super) order: Vec<Rank>,
    /// Ascending, when `order` is not.
    sorted: Option<Vec<Rank>>,
}

impl Ranks {
    pub(super) fn new(order: Vec<Rank>) -> Self {
        let sorted = (!order.is_sorted()).then(|| {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted
        });
        Self { order, sorted }
    }

    pub(super) fn contains(&self, rank: Rank) -> bool {
        self.ascending().binary_search(&rank).is_ok()
    }

    /// How many of them are below `rank`.
    pub(super) fn below(&self, rank: Rank) -> usize {
        self.ascending().partition_point(|one| *one < rank)
    }

    pub(super) fn ascending(&self) -> &[Rank] {
        self.sorted.as_deref().unwrap_or(&self.order)
    }
}
