//! Which ranks are bound to which cores, as lines for people.

use std::collections::BTreeMap;

use super::{Cpu, Topology, ranges};

/// One line for each socket, with what is bound to each core:
///
/// ```text
/// socket 0: [0] [0] [1] [1]   socket 1: [2,3] [2,3] [.] [.]
/// ```
///
/// `ranks` are the ranks with their cpu sets. NUMA nodes of a socket have a `|` between them.
#[must_use]
pub fn picture(host: &Topology, ranks: &[(u32, &[usize])]) -> Vec<String> {
    if ranks.is_empty() {
        return vec!["ranks are not bound".to_owned()];
    }
    let mut sockets: BTreeMap<i64, Vec<Vec<Cpu>>> = BTreeMap::new();
    for core in host.parts(super::Part::Core) {
        let of = |number: &usize| host.cpus().iter().find(|cpu| cpu.number == *number).copied();
        let cpus: Vec<Cpu> = core.iter().filter_map(of).collect();
        if let Some(first) = cpus.first() {
            sockets.entry(first.socket).or_default().push(cpus);
        }
    }
    let line = |(socket, cores): (i64, Vec<Vec<Cpu>>)| {
        let mut text = format!("socket {socket}:");
        let mut node = None;
        for core in &cores {
            let own = core.first().map(|cpu| cpu.numa);
            if node.is_some() && node != own {
                text.push_str(" |");
            }
            node = own;
            text.push_str(&format!(" [{}]", cell(core, ranks)));
        }
        text
    };
    sockets.into_iter().map(line).collect()
}

/// The ranks of a core; threads that have different ones are told apart by a slash.
fn cell(core: &[Cpu], ranks: &[(u32, &[usize])]) -> String {
    let of = |cpu: &Cpu| {
        let bound = ranks.iter().filter(|(_, set)| set.contains(&cpu.number));
        let bound: Vec<usize> = bound.map(|(rank, _)| *rank as usize).collect();
        if bound.is_empty() { ".".to_owned() } else { ranges(&bound) }
    };
    let threads: Vec<String> = core.iter().map(of).collect();
    match threads.split_first() {
        Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
        _ => threads.join("/"),
    }
}
