//! Which cpus each rank of a host may use (pure, but for [`Topology::of_this_host`]).
//!
//! A rank is bound to some number of cpus or cores of its own, or to a socket or NUMA node that it may
//! share. Where consecutive ranks go is the [`Spread`]: without one they are packed in order.

mod picture;
mod topology;

pub use self::picture::picture;
pub use self::topology::{Cpu, Topology};

use std::fmt::Display;
use std::ops::Sub;

use serde::{Deserialize, Serialize};

settings::named! {
    /// A part of a machine, the small ones first.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
    )]
    pub enum Part {
        /// What the system calls a cpu: a hardware thread.
        #[default]
        Cpu = "cpu",
        /// A core, with all its hardware threads.
        Core = "core",
        /// A NUMA node.
        Numa = "NUMA node",
        /// A socket (package).
        Socket = "socket",
    }
}

impl Part {
    /// Its name, for so many.
    #[must_use]
    pub fn names(self, count: u64) -> String {
        format!("{count} {}{}", self.name(), if count == 1 { "" } else { "s" })
    }
}

/// Where consecutive ranks of a host go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spread {
    /// Over these parts of the host.
    pub over: Part,
    /// So many consecutive ranks to each; none: dealt out one by one, in rounds.
    pub each: Option<u32>,
}

/// How the ranks of a host use its cpus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// What a rank is bound to.
    pub part: Part,
    /// Cpus or cores of each rank, 1 for sockets and NUMA nodes; 0 = the binding is left alone.
    pub each: u32,
    /// Where consecutive ranks go.
    pub spread: Option<Spread>,
    /// A host takes at most as many ranks as it has cores.
    pub no_oversubscribe: bool,
    /// The host says which rank is bound to which cores.
    pub report: bool,
}

/// Why the ranks of a host cannot be bound as wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// Not enough parts for disjoint sets: ranks, what they need, of which there are so many.
    #[error(
        "{ranks} {} {} of their own, but {} may be used ({cpus})",
        if *.ranks == 1 { "rank needs" } else { "ranks need" },
        .part.names(*needed),
        .part.names(*have)
    )]
    TooFew {
        /// Ranks.
        ranks: u32,
        /// What they are bound to.
        part: Part,
        /// So many are needed.
        needed: u64,
        /// So many there are.
        have: u64,
        /// Cpus that may be used, as ranges.
        cpus: String,
    },
    /// More ranks than the spread has places for.
    #[error(
        "{ranks} ranks do not fit: {each} to each {}, with {} that may be used, are {}",
        .over.name(), .over.names(*have), u64::from(*.each) * .have
    )]
    Full {
        /// Ranks.
        ranks: u32,
        /// So many to each part.
        each: u32,
        /// Which parts.
        over: Part,
        /// So many there are.
        have: u64,
    },
    /// A part has not enough cpus or cores for the ranks that go to it.
    #[error(
        "the {} of local rank {rank} has no {} left for it ({cpus} may be used)",
        .over.name(), .part.names(u64::from(*.each))
    )]
    Crowded {
        /// Local number of the first rank without.
        rank: u32,
        /// Parts that ranks are spread over.
        over: Part,
        /// What a rank is bound to.
        part: Part,
        /// So many.
        each: u32,
        /// Cpus that may be used, as ranges.
        cpus: String,
    },
    /// Fewer cores than ranks.
    #[error("{ranks} ranks, but {} may be used ({cpus})", Part::Core.names(*.have))]
    Oversubscribed {
        /// Ranks.
        ranks: u32,
        /// Cores.
        have: u64,
        /// Cpus that may be used, as ranges.
        cpus: String,
    },
    /// The system does not tell which cpus there are.
    #[error("cannot read which cpus may be used: {0}")]
    Unknown(String),
}

impl Binding {
    /// So many cpus for each rank, in order.
    #[must_use]
    pub const fn cpus(each: u32) -> Self {
        Self { part: Part::Cpu, each, spread: None, no_oversubscribe: false, report: false }
    }

    /// Whether nothing is asked of the host's cpus.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.each == 0 && !self.no_oversubscribe && !self.report
    }

    /// The cpu set of each of `ranks` ranks, by local number; nothing when the binding is left
    /// alone.
    ///
    /// # Errors
    /// The host has not what the ranks need.
    pub fn sets(&self, host: &Topology, ranks: u32) -> Result<Vec<Vec<usize>>, BindingError> {
        let cores = host.parts(Part::Core).len() as u64;
        if self.no_oversubscribe && u64::from(ranks) > cores {
            return Err(BindingError::Oversubscribed { ranks, have: cores, cpus: host.ranges() });
        }
        match (self.each, self.spread) {
            (0, _) => Ok(Vec::new()),
            (_, Some(spread)) => self.spread(host, ranks, spread),
            (each, None) if self.part <= Part::Core => self.packed(host, ranks, each),
            _ => Ok(in_blocks(&host.parts(self.part), ranks)),
        }
    }

    /// Disjoint sets in the order of the machine.
    fn packed(
        &self,
        host: &Topology,
        ranks: u32,
        each: u32,
    ) -> Result<Vec<Vec<usize>>, BindingError> {
        let parts = host.parts(self.part);
        let needed = u64::from(each) * u64::from(ranks);
        if needed > parts.len() as u64 {
            let (part, have, cpus) = (self.part, parts.len() as u64, host.ranges());
            return Err(BindingError::TooFew { ranks, part, needed, have, cpus });
        }
        Ok(parts.chunks_exact(each as usize).take(ranks as usize).map(<[_]>::concat).collect())
    }

    fn spread(
        &self,
        host: &Topology,
        ranks: u32,
        spread: Spread,
    ) -> Result<Vec<Vec<usize>>, BindingError> {
        let groups = self.groups(host, spread.over);
        let full = |each| {
            let have = groups.len() as u64;
            BindingError::Full { ranks, each, over: spread.over, have }
        };
        // Ranks that are dealt over cores get one each; N to a core are meant to share it.
        let apart = self.part < spread.over || (self.part == spread.over && spread.each.is_none());
        let exclusive = apart && self.part <= Part::Core;
        let mut next = vec![0; groups.len()];
        let mut turn = 0;
        let mut sets = Vec::new();
        for rank in 0..ranks {
            let at = match spread.each {
                Some(each) => (rank / each.max(1)) as usize,
                None => with_room(&groups, &next, exclusive, &mut turn),
            };
            let Some((group, taken)) = groups.get(at).zip(next.get_mut(at)) else {
                return Err(spread.each.map_or_else(|| self.crowded(host, rank, spread), full));
            };
            let place = if exclusive { *taken } else { *taken % group.len().max(1) };
            let Some(set) = group.get(place) else {
                return Err(self.crowded(host, rank, spread));
            };
            *taken += 1;
            sets.push(set.clone());
        }
        Ok(sets)
    }

    fn crowded(&self, host: &Topology, rank: u32, spread: Spread) -> BindingError {
        let (part, each, over) = (self.part, self.each, spread.over);
        BindingError::Crowded { rank, over, part, each, cpus: host.ranges() }
    }

    /// For each part that ranks are spread over: the sets that ranks there can be bound to.
    fn groups(&self, host: &Topology, over: Part) -> Vec<Vec<Vec<usize>>> {
        let parts = host.parts(self.part);
        let inside = |group: &Vec<usize>| {
            // A core may belong to a NUMA node, or the other way round: what they share counts.
            let mine = parts.iter().filter(|part| part.iter().any(|cpu| group.contains(cpu)));
            let mine: Vec<_> = mine.cloned().collect();
            mine.chunks_exact(self.each.max(1) as usize).map(<[_]>::concat).collect()
        };
        host.parts(over).iter().map(inside).collect()
    }
}

/// The next group in turn that has a set left; the number of groups when none has.
fn with_room(
    groups: &[Vec<Vec<usize>>],
    next: &[usize],
    exclusive: bool,
    turn: &mut usize,
) -> usize {
    let count = groups.len();
    let room = |at: usize| !groups[at].is_empty() && (!exclusive || next[at] < groups[at].len());
    let found = (0..count).map(|step| (*turn + step) % count).find(|at| room(*at));
    if let Some(at) = found {
        *turn = at + 1;
    }
    found.unwrap_or(count)
}

/// Consecutive ranks share a part, in shares that differ by at most one.
fn in_blocks(parts: &[Vec<usize>], ranks: u32) -> Vec<Vec<usize>> {
    let of = |rank: u32| {
        let at = u64::from(rank) * parts.len() as u64 / u64::from(ranks.max(1));
        parts.get(usize::try_from(at).unwrap_or(usize::MAX)).cloned().unwrap_or_default()
    };
    (0..ranks).map(of).collect()
}

/// Ascending numbers with `-` between the first and the last of those that follow each other:
/// `[0, 1, 2, 5]` as `0-2,5`.
#[must_use]
pub fn ranges<T>(numbers: &[T]) -> String
where
    T: Copy + PartialOrd + Display + From<u8> + Sub<Output = T>,
{
    let mut parts: Vec<(T, T)> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some((_, last)) if number > *last && number - T::from(1) == *last => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let text = |(a, b): (T, T)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
