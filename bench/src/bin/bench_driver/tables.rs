//! What the tables of a job occupy that grow with its ranks, up to 2^20 of them: built for one host
//! as it would be there, and measured.

use std::fs::File;

use bench::sys::CountingAllocator;
use bootstrap::collective::{Branch, Collective, Node};
use bootstrap::node_shm::{NodeShm, NodeShmSpec};
use bootstrap::{HostId, Rank};

use crate::Repetitions;
use crate::row::{Findings, Row, quantity};
use crate::run::{Failure, Result, Samples};
use crate::scale::of_tables;

#[global_allocator]
static HEAP: CountingAllocator = CountingAllocator::new();

pub(crate) const PER_HOST: u32 = 64;
/// Agents that the root, or an agent, starts.
const OUT_DEGREE: u32 = 32;
/// Numbers of ranks, as powers of two.
pub(crate) const POWERS: [u32; 8] = [6, 8, 10, 12, 14, 16, 18, 20];

pub(crate) const NAMES: [(&str, &str); 3] = [
    ("node-memory", "memory of a host that tells where ranks are"),
    ("leaf", "calls at an agent without others below"),
    ("root", "calls at the root"),
];

fn ranks(range: std::ops::Range<u32>) -> Vec<Rank> {
    range.map(Rank).collect()
}

/// Bytes of the heap that `make` leaves in use.
fn held<T>(make: impl FnOnce() -> Result<T>) -> Result<u64> {
    let before = HEAP.live();
    let made = make()?;
    let after = HEAP.live();
    drop(made);
    Ok(after.saturating_sub(before))
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn add(samples: &mut Samples, name: &str, size: u32, bytes: u64) {
    samples.add(&format!("{name}/{size}"), bytes as f64 / 1024.0);
}

/// The tables of a job of `size` ranks, [`PER_HOST`] on each host in blocks.
fn build(samples: &mut Samples, size: u32) -> Result<()> {
    let hosts = size / PER_HOST;
    let host_of: Vec<HostId> = (0..size).map(|rank| HostId(rank / PER_HOST)).collect();
    let own = ranks(0..PER_HOST);
    let spec = NodeShmSpec { host: HostId(0), hosts, local_ranks: &own, host_of: &host_of };
    let page = NodeShm::create_with_collectives(&spec)?;
    let file = File::from(page.fd().try_clone_to_owned()?);
    add(samples, "node-memory", size, file.metadata()?.len());
    let made = |node: Node| Collective::node(node).map_err(|error| Failure(error.to_string()));
    let host = HostId(0);
    let leaf =
        || made(Node { size, host, ranks: ranks(0..PER_HOST), branches: vec![], parent: true });
    add(samples, "leaf", size, held(leaf)?);
    let branches = |()| {
        let each = hosts.div_ceil(OUT_DEGREE);
        let firsts = (0..hosts).step_by(each as usize);
        let branch = |first: u32| Branch {
            host: HostId(first),
            ranks: ranks(first * PER_HOST..(first + each).min(hosts) * PER_HOST),
        };
        firsts.map(branch).collect()
    };
    let root = || made(Node { size, host, ranks: vec![], branches: branches(()), parent: false });
    add(samples, "root", size, held(root)?);
    Ok(())
}

pub(crate) fn tables(_: Repetitions) -> Result<Findings> {
    let mut samples = Samples::default();
    for power in POWERS {
        build(&mut samples, 1 << power)?;
    }
    let mut rows = Vec::new();
    for (name, figure) in NAMES {
        let size = 1 << POWERS[POWERS.len() - 1];
        let kib = samples.median(&format!("{name}/{size}"))?;
        rows.push(Row::single(
            &format!("{figure}, 2^20 ranks"),
            quantity(kib, "KiB"),
            String::new(),
        ));
    }
    let notes = vec![format!(
        "scale-tables: built as for one host of a job with {PER_HOST} ranks on each; the agent's are counted by the allocator."
    )];
    let curves = of_tables(&samples);
    Ok(Findings { rows, samples, notes, curves })
}
