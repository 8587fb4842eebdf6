//! Processors, caches and memory nodes of this host, and how far devices are from them. Read from
//! `/sys/devices/system` alone: no library is needed. Objects are numbered as they follow each
//! other when processors are ordered by package, memory node, cache, core and thread, which is the
//! order of hwloc's logical indexes on hosts with regular numbering.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

pub(crate) type Cpus = BTreeSet<u32>;

/// Where the kernel shows the host.
pub(crate) const SYSTEM: &str = "/sys/devices/system";
/// Greatest processor number that a list may name; far above what kernels are built for.
const MOST_CPUS: u32 = 1 << 16;
/// Distance of a memory node to itself, in the kernel's table.
const LOCAL: u32 = 10;
/// Distance to another node where the kernel has no table.
const REMOTE: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Machine,
    Package,
    Die,
    NumaNode,
    /// A cache of a level; the largest of the level when data and instructions have caches of their
    /// own.
    Cache(u8),
    Core,
    Pu,
}

impl Object {
    /// What [`Object::parse`] knows, for messages.
    pub(crate) const NAMES: &str =
        "Socket, Package, Die, NUMANode, Node, L3, L2, L1, Core, PU, Machine";

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "machine" | "system" => Self::Machine,
            "socket" | "package" => Self::Package,
            "die" => Self::Die,
            "numanode" | "node" | "numa" => Self::NumaNode,
            "l3" | "l3cache" => Self::Cache(3),
            "l2" | "l2cache" => Self::Cache(2),
            "l1" | "l1d" | "l1cache" | "l1dcache" => Self::Cache(1),
            "core" => Self::Core,
            "pu" => Self::Pu,
            _ => return None,
        })
    }
}

/// A processor and, for each kind of object, the least processor of the one that it belongs to; a
/// memory node by its own number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cpu {
    number: u32,
    objects: BTreeMap<Object, u32>,
}

impl Cpu {
    fn of(&self, object: Object) -> Option<u32> {
        self.objects.get(&object).copied()
    }

    /// Order of hwloc's tree: from the largest object to the smallest.
    fn order(&self) -> [u32; 7] {
        use Object::{Cache, Core, Die, NumaNode, Package, Pu};
        let order = [Package, NumaNode, Die, Cache(3), Cache(2), Core, Pu];
        order.map(|object| self.of(object).unwrap_or(0))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    cpus: Vec<Cpu>,
    /// Distances from a memory node to all, in the order of their numbers.
    distances: BTreeMap<u32, BTreeMap<u32, u32>>,
}

/// The numbers in a list such as `0-3,8`.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for item in text.trim().split(',').filter(|item| !item.is_empty()) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MOST_CPUS {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

fn read(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

fn read_list(path: &Path) -> io::Result<Vec<u32>> {
    let text = read(path)?;
    let wrong = || io::Error::other(format!("{}: no list of numbers: {text:?}", path.display()));
    list(&text).ok_or_else(wrong)
}

/// Least processor of the first of these lists that there is, else `cpu` itself.
fn least(directory: &Path, names: &[&str], cpu: u32) -> u32 {
    let lists = names.iter().filter_map(|name| read_list(&directory.join(name)).ok());
    lists.filter_map(|numbers| numbers.into_iter().min()).next().unwrap_or(cpu)
}

/// The caches of `cpu`, each with its least processor.
fn caches(directory: &Path, cpu: u32) -> Vec<(Object, u32)> {
    let mut found = Vec::new();
    for index in 0..16 {
        let cache = directory.join(format!("cache/index{index}"));
        let Ok(level) = read(&cache.join("level")) else { break };
        let kind = read(&cache.join("type")).unwrap_or_default();
        if let (Ok(level), false) = (level.trim().parse(), kind.trim() == "Instruction") {
            found.push((Object::Cache(level), least(&cache, &["shared_cpu_list"], cpu)));
        }
    }
    found
}

fn objects(number: u32, package: u32, die: u32, core: u32) -> BTreeMap<Object, u32> {
    use Object::{Core, Die, Machine, Package, Pu};
    BTreeMap::from([(Machine, 0), (Package, package), (Die, die), (Core, core), (Pu, number)])
}

impl Topology {
    /// Reads the host below `root`, [`SYSTEM`] but in tests.
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        let mut nodes = BTreeMap::new();
        let mut distances = BTreeMap::new();
        let online = read_list(&root.join("node/online")).unwrap_or_default();
        for &node in &online {
            let directory = root.join(format!("node/node{node}"));
            for cpu in read_list(&directory.join("cpulist")).unwrap_or_default() {
                nodes.insert(cpu, node);
            }
            let row = read(&directory.join("distance")).unwrap_or_default();
            let row = row.split_whitespace().map_while(|word| word.parse::<u32>().ok());
            distances.insert(node, online.iter().copied().zip(row).collect());
        }
        let mut cpus = Vec::new();
        for number in read_list(&root.join("cpu/online"))? {
            let directory: PathBuf = root.join(format!("cpu/cpu{number}"));
            let topology = directory.join("topology");
            let package = least(&topology, &["package_cpus_list", "core_siblings_list"], number);
            let die = least(&topology, &["die_cpus_list", "package_cpus_list"], package);
            let core = least(&topology, &["core_cpus_list", "thread_siblings_list"], number);
            let mut objects = objects(number, package, die, core);
            objects.extend(caches(&directory, number));
            objects.extend(nodes.get(&number).map(|node| (Object::NumaNode, *node)));
            cpus.push(Cpu { number, objects });
        }
        cpus.sort_by_key(Cpu::order);
        Ok(Self { cpus, distances })
    }

    /// Numbers, ascending, of the objects of a kind that have a processor of `binding`. Empty when
    /// the host shows none.
    pub(crate) fn indexes(&self, object: Object, binding: &Cpus) -> Vec<u32> {
        let mut number: BTreeMap<u32, u32> = BTreeMap::new();
        let mut found = BTreeSet::new();
        for cpu in &self.cpus {
            let Some(key) = cpu.of(object) else { continue };
            let next = u32::try_from(number.len()).unwrap_or(u32::MAX);
            let index = *number.entry(key).or_insert(next);
            if binding.contains(&cpu.number) {
                found.insert(index);
            }
        }
        found.into_iter().collect()
    }

    /// Least distance from the memory nodes of `binding` to node `to`. `None`: not known, or no
    /// node.
    pub(crate) fn distance(&self, binding: &Cpus, to: Option<u32>) -> Option<u32> {
        let to = to?;
        let bound = self.cpus.iter().filter(|cpu| binding.contains(&cpu.number));
        let nodes: BTreeSet<u32> = bound.filter_map(|cpu| cpu.of(Object::NumaNode)).collect();
        let distance = |from: u32| {
            let table = self.distances.get(&from).and_then(|row| row.get(&to)).copied();
            table.unwrap_or(if from == to { LOCAL } else { REMOTE })
        };
        nodes.into_iter().map(distance).min()
    }
}

fn bits(set: &CpuSet) -> Cpus {
    let inside = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false));
    inside.filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// Processors that this thread, or any thread of this process, may run on.
pub(crate) fn binding(whole_process: bool) -> io::Result<Cpus> {
    if !whole_process {
        return Ok(bits(&sched_getaffinity(Pid::from_raw(0))?));
    }
    let mut cpus = Cpus::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let thread = entry?.file_name().to_string_lossy().parse().unwrap_or(0);
        // A thread that has ended meanwhile is bound to nothing.
        cpus.extend(sched_getaffinity(Pid::from_raw(thread)).iter().flat_map(bits));
    }
    Ok(cpus)
}

/// An invented host, for tests: packages with one memory node each, cores, and threads that the
/// system numbers after all cores, as most firmware does. Core `c` of package `p` has threads `p *
/// cores + c` and that plus all cores.
#[cfg(test)]
pub(crate) fn invented(packages: u32, cores: u32, threads: u32) -> Topology {
    let all = packages * cores;
    let mut cpus = Vec::new();
    for number in 0..all * threads {
        let core = number % all;
        let package = core / cores * cores;
        let mut objects = objects(number, package, package, core);
        let caches = [(1, core), (2, core), (3, package)];
        objects.extend(caches.map(|(level, least)| (Object::Cache(level), least)));
        objects.insert(Object::NumaNode, core / cores);
        cpus.push(Cpu { number, objects });
    }
    cpus.sort_by_key(Cpu::order);
    let row =
        |from: u32| (0..packages).map(move |to| (to, LOCAL + 11 * from.abs_diff(to))).collect();
    Topology { cpus, distances: (0..packages).map(|from| (from, row(from))).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpus(list: &[u32]) -> Cpus {
        list.iter().copied().collect()
    }

    #[test]
    fn objects_of_a_binding() {
        let host = invented(2, 2, 2);
        let of = |object, list: &[u32]| host.indexes(object, &cpus(list));
        assert_eq!(of(Object::Package, &[0]), [0]);
        assert_eq!(of(Object::Package, &[3, 7]), [1]);
        assert_eq!(of(Object::NumaNode, &[0, 2]), [0, 1]);
        assert_eq!(of(Object::Cache(3), &[2]), [1]);
        assert_eq!(of(Object::Core, &[1, 5]), [1]);
        // Threads of a core follow each other: 0 4 1 5 2 6 3 7.
        assert_eq!(of(Object::Pu, &[4, 1]), [1, 2]);
        assert_eq!(of(Object::Machine, &[6]), [0]);
        assert_eq!(of(Object::Cache(4), &[6]), [0; 0]);
        assert_eq!(of(Object::Package, &[]), [0; 0]);
    }

    #[test]
    fn distances_are_those_of_the_nearest_node() {
        let host = invented(3, 2, 1);
        assert_eq!(host.distance(&cpus(&[0]), Some(0)), Some(10));
        assert_eq!(host.distance(&cpus(&[0]), Some(2)), Some(32));
        assert_eq!(host.distance(&cpus(&[0, 2]), Some(2)), Some(21));
        assert_eq!(host.distance(&cpus(&[0]), None), None);
        assert_eq!(host.distance(&cpus(&[]), Some(0)), None);
        assert_eq!(host.distance(&cpus(&[0]), Some(9)), Some(20));
    }

    #[test]
    fn this_host_is_understood() {
        let host = Topology::read(Path::new(SYSTEM)).unwrap();
        let own = binding(false).unwrap();
        assert!(!own.is_empty() && own.is_subset(&binding(true).unwrap()));
        assert!(!host.indexes(Object::Package, &own).is_empty(), "{host:?}");
        assert_eq!(host.indexes(Object::Pu, &own).len(), own.len(), "{host:?}");
        assert!(Topology::read(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(list("\n"), Some(vec![]));
        for wrong in ["x", "1-", "0-99999999", "-1"] {
            assert_eq!(list(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn the_whole_host_has_every_object_once(packages in 1u32..4, cores in 1u32..5, threads in 1u32..3) {
            let host = invented(packages, cores, threads);
            let all: Cpus = (0..packages * cores * threads).collect();
            let count = |object| u32::try_from(host.indexes(object, &all).len()).unwrap();
            prop_assert_eq!(count(Object::Package), packages);
            prop_assert_eq!(count(Object::Core), packages * cores);
            prop_assert_eq!(count(Object::Pu), packages * cores * threads);
        }
    }
}
