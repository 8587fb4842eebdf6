//! Jobs whose ranks do not all share memory: every rank, or every few, as if on a host of their
//! own, over the software adapter.

use std::time::{Duration, Instant};

use crate::process::{Process, variable};
use crate::{Running, Tree};

/// How long [`ranks`] waits for them to appear.
const APPEAR: Duration = Duration::from_secs(30);

/// The job in neighbourhoods of at most `most` ranks, over the software adapter.
#[must_use]
pub fn neighbourhoods(tree: Tree, most: u32) -> Tree {
    tree.env("GASNET_SUPERNODE_MAXSIZE", most.to_string()).env("GASNET_IBV_FABRIC", "soft")
}

/// The rank that a process is; `None` for a process of no job.
#[must_use]
pub fn rank_of(pid: i32) -> Option<u32> {
    variable(pid, "GASNETRUN_RANK")?.parse().ok()
}

/// The processes of the ranks that run `program`, in rank order, as soon as all `count` are there.
///
/// # Panics
/// When they do not appear.
#[must_use]
pub fn ranks(running: &Running, program: &str, count: usize) -> Vec<Process> {
    let limit = Instant::now() + APPEAR;
    loop {
        let mut found = running.descendants();
        found.retain(|process| process.command.contains(program));
        // The front and its forks carry the program's name among their own arguments.
        found.retain(|process| !process.command.contains("gasnetrun_ibv"));
        if found.len() == count {
            found.sort_by_key(|process| rank_of(process.pid));
            return found;
        }
        assert!(Instant::now() < limit, "never {count} ranks, but {found:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
