//! Which process names the ranks of a host to the system as those that may copy to and from a
//! published segment.
//!
//! Where the system lets only parents attach (`kernel.yama.ptrace_scope` 1), cross-memory calls
//! between ranks need leave. The narrowest there is for more than one process is "this one and its
//! descendants": the nearest ancestor that all ranks of the host have, which is the agent or
//! launcher that started them.

use std::fs;

/// Far above the depth of any process tree: data of a directory that others write ends somewhere.
const DEPTH: usize = 256;

/// Parent of a process, `None` when the system does not say.
fn parent(process: u32) -> Option<u32> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    parent_in(&line)
}

/// Fourth word of a line of `/proc/PID/stat`. The second is a name in brackets, which may contain
/// anything.
fn parent_in(line: &str) -> Option<u32> {
    let rest = line.get(line.rfind(')')? + 1..)?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A process and its ancestors, the nearest first.
fn chain(process: u32, parent: &impl Fn(u32) -> Option<u32>) -> Vec<u32> {
    let next = |at: &u32| parent(*at).filter(|above| *above != 0);
    std::iter::successors(Some(process), next).take(DEPTH).collect()
}

/// The nearest process that all of these are or descend from.
fn common(processes: &[u32], parent: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let (first, others) = processes.split_first()?;
    let mut left = chain(*first, &parent);
    for other in others {
        let seen = chain(*other, &parent);
        left.retain(|process| seen.contains(process));
    }
    left.first().copied()
}

/// Whether the system asks for leave, and takes it.
fn restricted() -> bool {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.trim() == "1")
}

/// Gives these processes leave to copy to and from the memory of this one, where that is needed.
pub fn allow(processes: &[u32]) {
    if !restricted() || processes.len() < 2 {
        return;
    }
    // A parent that the system hides from this user: then there is nothing narrower than all
    // processes of the user.
    let who = common(processes, parent).map_or(libc::PR_SET_PTRACER_ANY, libc::c_ulong::from);
    // SAFETY: no memory is involved. A refused call changes nothing; the transfer then says what is
    // wrong.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, who, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 → 5 → 10 (agent) → 20, 21; 21 → 30 → 31 (rank behind a wrapper); 40 and 41 hang on each
    /// other.
    fn tree(process: u32) -> Option<u32> {
        match process {
            1 => Some(0),
            5 => Some(1),
            10 | 50 => Some(5),
            20 | 21 => Some(10),
            30 => Some(21),
            31 => Some(30),
            40 => Some(41),
            41 => Some(40),
            _ => None,
        }
    }

    #[test]
    fn the_nearest_process_above_all_is_found() {
        assert_eq!(common(&[20, 21], tree), Some(10));
        assert_eq!(common(&[20, 31], tree), Some(10));
        assert_eq!(common(&[31, 21], tree), Some(21));
        assert_eq!(common(&[20, 31, 50], tree), Some(5));
        assert_eq!(common(&[20], tree), Some(20));
        assert_eq!(common(&[], tree), None);
        // Hidden from this user, and a circle.
        assert_eq!(common(&[20, 99], tree), None);
        assert_eq!(common(&[40, 20], tree), None);
    }

    #[test]
    fn the_parent_is_read_behind_any_name() {
        assert_eq!(parent_in("12 (cat) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("12 (a ) 9 (b) R 7 12"), Some(7));
        for line in ["", "12", "12 (cat", "12 (cat)", "12 (cat) S", "12 (cat) S x"] {
            assert_eq!(parent_in(line), None, "{line:?}");
        }
    }

    #[test]
    fn the_system_names_a_parent_of_this_process() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
    }
}
