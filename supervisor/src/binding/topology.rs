//! The cpus of this host that may be used, with the core, socket and NUMA node of each, as Linux
//! describes them below `/sys/devices/system`.
//!
//! hwloc tells the same, but its Rust binding links libhwloc, which the launcher cannot ask of every
//! host that it is copied to.

use std::collections::BTreeMap;
use std::path::Path;

use super::{BindingError, Part, ranges};
use crate::agent::processes::allowed_cpus;

/// A cpu that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// Its core: number of the die and of the core in it, which are unique in a socket only.
    pub core: (i64, i64),
    /// Its NUMA node.
    pub numa: i64,
    /// Its socket.
    pub socket: i64,
}

/// The cpus that may be used, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
}

impl Topology {
    /// Reads what this process may use here.
    ///
    /// # Errors
    /// The system does not tell which cpus those are.
    pub fn of_this_host() -> Result<Self, BindingError> {
        let allowed = allowed_cpus().map_err(|error| BindingError::Unknown(error.to_string()))?;
        Ok(Self::read(Path::new("/sys/devices/system"), &allowed))
    }

    /// Reads below `root`. What is not told there (as in some containers) counts as one thread for
    /// each core, and one socket and one NUMA node for all.
    #[must_use]
    pub fn read(root: &Path, allowed: &[usize]) -> Self {
        let nodes = nodes(root);
        let cpu = |&number: &usize| {
            let directory = root.join(format!("cpu/cpu{number}/topology"));
            let told = |name: &str| -> Option<i64> {
                std::fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
            };
            // Some machines have no numbers for sockets or dies and say -1.
            let or_one = |name: &str| told(name).unwrap_or(0).max(0);
            let own = i64::try_from(number).unwrap_or(i64::MAX);
            Cpu {
                number,
                core: (or_one("die_id"), told("core_id").filter(|id| *id >= 0).unwrap_or(own)),
                numa: nodes
                    .iter()
                    .find(|(_, cpus)| cpus.contains(&number))
                    .map_or(0, |node| node.0),
                socket: or_one("physical_package_id"),
            }
        };
        Self::of(allowed.iter().map(cpu).collect())
    }

    /// Of known cpus.
    #[must_use]
    pub fn of(mut cpus: Vec<Cpu>) -> Self {
        cpus.sort_unstable_by_key(|cpu| cpu.number);
        Self { cpus }
    }

    /// The cpus.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// Their numbers, as ranges.
    #[must_use]
    pub fn ranges(&self) -> String {
        ranges(&self.cpus.iter().map(|cpu| cpu.number).collect::<Vec<_>>())
    }

    /// The cpu sets of all parts of one kind, in the order of the machine: cpus by number, cores by
    /// socket and NUMA node, then by their first cpu.
    #[must_use]
    pub fn parts(&self, part: Part) -> Vec<Vec<usize>> {
        if part == Part::Cpu {
            return self.cpus.iter().map(|cpu| vec![cpu.number]).collect();
        }
        let key = |cpu: &Cpu| match part {
            Part::Cpu | Part::Core => (cpu.socket, cpu.core),
            Part::Numa => (0, (0, cpu.numa)),
            Part::Socket => (cpu.socket, (0, 0)),
        };
        let mut parts: BTreeMap<_, Vec<&Cpu>> = BTreeMap::new();
        for cpu in &self.cpus {
            parts.entry(key(cpu)).or_default().push(cpu);
        }
        let mut parts: Vec<_> = parts.into_values().collect();
        parts.sort_by_key(|cpus| cpus.first().map(|cpu| (cpu.socket, cpu.numa, cpu.number)));
        parts.into_iter().map(|cpus| cpus.iter().map(|cpu| cpu.number).collect()).collect()
    }
}

/// The NUMA nodes with their cpus.
fn nodes(root: &Path) -> Vec<(i64, Vec<usize>)> {
    let entries = std::fs::read_dir(root.join("node")).into_iter().flatten().flatten();
    let node = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        Some((number, cpu_list(&std::fs::read_to_string(entry.path().join("cpulist")).ok()?)))
    };
    entries.filter_map(node).collect()
}

/// `0-2,5` as the numbers. What is no such list has none; of a range too long to be true nothing
/// is taken.
fn cpu_list(text: &str) -> Vec<usize> {
    const MOST: usize = 1 << 16;
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (last < MOST).then_some(first..=last)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two cores with two threads, numbered as Linux does, and a node each.
    fn write(root: &Path) {
        for cpu in 0..8 {
            let topology = root.join(format!("cpu/cpu{cpu}/topology"));
            std::fs::create_dir_all(&topology).expect("directory");
            let put = |name: &str, value: usize| {
                std::fs::write(topology.join(name), format!("{value}\n")).expect("write");
            };
            put("core_id", cpu % 2);
            put("physical_package_id", cpu / 2 % 2);
        }
        for (node, cpus) in [(0, "0-1,4-5\n"), (1, "2-3,6-7\n")] {
            let directory = root.join(format!("node/node{node}"));
            std::fs::create_dir_all(&directory).expect("directory");
            std::fs::write(directory.join("cpulist"), cpus).expect("write");
        }
    }

    #[test]
    fn a_machine_is_read() {
        let root = tempfile::tempdir().expect("scratch");
        write(root.path());
        let all: Vec<usize> = (0..8).collect();
        let host = Topology::read(root.path(), &all);
        assert_eq!(host.parts(Part::Core), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(host.parts(Part::Socket), [[0, 1, 4, 5], [2, 3, 6, 7]]);
        assert_eq!(host.parts(Part::Numa), host.parts(Part::Socket));
        // Only what may be used is there.
        let some = Topology::read(root.path(), &[1, 4, 5, 6]);
        assert_eq!(some.parts(Part::Core), [vec![1, 5], vec![4], vec![6]].to_vec());
        assert_eq!(some.parts(Part::Socket), [vec![1, 4, 5], vec![6]].to_vec());
    }

    #[test]
    fn a_machine_that_tells_nothing_has_a_core_for_each_cpu() {
        let host = Topology::read(Path::new("/nonexistent"), &[2, 3]);
        assert_eq!(host.parts(Part::Core), [[2], [3]]);
        assert_eq!((host.parts(Part::Socket).len(), host.parts(Part::Numa).len()), (1, 1));
        assert!(Topology::of_this_host().is_ok_and(|host| !host.cpus().is_empty()));
    }

    #[test]
    fn lists_that_are_none() {
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        for bad in ["", "x", "3-1", "0-99999999999", "1-", "-1"] {
            assert!(cpu_list(bad).is_empty(), "{bad}");
        }
    }
}
