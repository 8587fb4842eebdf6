//! The map of hosts as MPI programs read it (`PMI_process_mapping`): `(vector,(first,nodes,per),…)`.

use bootstrap::HostId;

/// One block: first host, number of hosts, ranks on each.
type Block = (u32, u32, u32);

/// The map of these ranks; `None` without ranks.
pub(super) fn text(host_of: &[HostId]) -> Option<String> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for host in host_of {
        match runs.last_mut() {
            Some((last, count)) if *last == host.0 => *count += 1,
            _ => runs.push((host.0, 1)),
        }
    }
    let mut blocks: Vec<Block> = Vec::new();
    for (host, count) in runs {
        match blocks.last_mut() {
            Some((first, nodes, per)) if *per == count && host == first.wrapping_add(*nodes) => {
                *nodes += 1;
            }
            _ => blocks.push((host, 1, count)),
        }
    }
    // Readers deal ranks out over all blocks again and again: a cyclic map is its first round.
    let first = *blocks.first()?;
    if blocks.iter().all(|block| *block == first) {
        blocks.truncate(1);
    }
    let words = blocks.iter().map(|(first, nodes, per)| format!("({first},{nodes},{per})"));
    Some(format!("(vector,{})", words.collect::<Vec<_>>().join(",")))
}
