//! Finds processes by parentage, for what ranks leave behind.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Direct children of a process, of all its threads. `None` when this kernel does not list them.
fn listed_children(pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let text = fs::read_to_string(task.path().join("children"));
        match text {
            Ok(text) => found
                .extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok())),
            // The thread has just ended, or the kernel has no such file.
            Err(_) if task.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(found)
}

/// Parent of a process, from the field after the parenthesised name.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What a process is doing: whether any of its threads is ready to run, and the CPU time that they
/// have had together, nanoseconds. `None` when it is gone or this kernel does not tell.
pub(crate) fn activity(pid: i32) -> Option<(bool, u64)> {
    const THREADS: usize = 17;
    let one = |path: &Path| {
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let ready = fields.next()? == "R";
        let threads: u32 = fields.nth(THREADS - 1)?.parse().ok()?;
        let times = fs::read_to_string(path.join("schedstat")).ok()?;
        let time: u64 = times.split_ascii_whitespace().next()?.parse().ok()?;
        Some((ready, time, threads))
    };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let (ready, time, threads) = one(&process)?;
    if threads == 1 {
        return Some((ready, time));
    }
    let tasks = fs::read_dir(process.join("task")).ok()?.flatten();
    let all = tasks.filter_map(|task| one(&task.path()));
    Some(all.fold((false, 0), |(ready, sum), (now, time, _)| (ready | now, sum + time)))
}

/// Children of every process, by a walk over all of them: for kernels that do not list children.
fn scan() -> HashMap<i32, Vec<i32>> {
    let mut by_parent: HashMap<i32, Vec<i32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some(parent) = parent(pid) {
            by_parent.entry(parent).or_default().push(pid);
        }
    }
    by_parent
}

/// Whether this process has any child.
pub(crate) fn has_children() -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, look) != Err(nix::Error::ECHILD)
}

/// Direct children of `pid`.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    listed_children(pid).unwrap_or_else(|| scan().remove(&pid).unwrap_or_default())
}

/// Every descendant of `root` except those under a process for which `skip` says yes; parents
/// before children.
///
/// A process that forks while we look may be missed: callers look again until nothing is left.
pub(crate) fn descendants(root: i32, skip: impl Fn(i32) -> bool) -> Vec<i32> {
    let mut scanned = None;
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        let below = listed_children(pid)
            .or_else(|| scanned.get_or_insert_with(scan).get(&pid).cloned())
            .unwrap_or_default();
        let below: Vec<i32> = below.into_iter().filter(|child| !skip(*child)).collect();
        found.extend(&below);
        open.extend(below);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_ready_and_a_sleeping_one_is_not() {
        let start = |program: &str, word: &str| {
            let mut command = std::process::Command::new(program);
            command.arg(word).stdout(std::process::Stdio::null()).spawn().unwrap()
        };
        let (mut busy, mut idle) = (start("yes", "x"), start("sleep", "60"));
        let pid = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let holds = |what: &str, condition: &dyn Fn() -> bool| {
            while !condition() {
                assert!(std::time::Instant::now() < limit, "not within 30 s: {what}");
                std::thread::yield_now();
            }
        };
        holds("the idle one sleeps", &|| activity(pid(&idle)).is_some_and(|(ready, _)| !ready));
        holds("the busy one is ready", &|| activity(pid(&busy)).is_some_and(|(ready, _)| ready));
        let (_, before) = activity(pid(&busy)).unwrap();
        holds("it uses CPU", &|| activity(pid(&busy)).is_some_and(|(_, time)| time > before));
        // This process has several threads and is at work.
        assert!(activity(nix::unistd::getpid().as_raw()).is_some_and(|(_, time)| time > 0));
        for child in [&mut busy, &mut idle] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(activity(pid(&idle)), None);
    }

    #[test]
    fn a_child_and_its_child_are_found() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.take().unwrap()),
            &mut line,
        )
        .unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let me = nix::unistd::getpid().as_raw();
        let found = descendants(me, |_| false);
        assert!(found.contains(&pid) && found.contains(&grandchild), "{found:?}");
        assert!(!descendants(me, |p| p == pid).contains(&grandchild));
        assert!(scan().get(&pid).is_some_and(|below| below.contains(&grandchild)));
        super::super::sys::kill(grandchild, libc::SIGKILL).unwrap();
        child.wait().unwrap();
    }
}
