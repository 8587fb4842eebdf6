//! What `/proc` says about processes.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// One process at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Parent.
    pub parent: i32,
    /// Process group.
    pub group: i32,
    /// State letter of `/proc/PID/stat`.
    pub state: char,
    /// Name, then the command line as far as it is readable.
    pub command: String,
}

/// The value of a variable that a process was started with; `None` when it has none of that name, or
/// is gone.
#[must_use]
pub fn variable(pid: i32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let text = String::from_utf8_lossy(&environment);
    let named = |word: &str| Some(word.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    text.split('\0').find_map(named)
}

impl Process {
    /// Whether the process is over and only its entry is left.
    #[must_use]
    pub const fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Reads one process; `None` when it is gone.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may itself contain any character.
        let (name, rest) = (stat.find('(')?, stat.rfind(')')?);
        let mut fields = stat.get(rest + 1..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let command = format!("{} {}", stat.get(name..=rest)?, line.trim_end());
        Some(Self { pid, parent, group, state, command })
    }

    /// All processes that can be seen.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Self::read)
            .collect()
    }

    /// Every process below `root`, parents before children; `root` itself is not among them.
    #[must_use]
    pub fn descendants(root: i32) -> Vec<Self> {
        let all = Self::all();
        let mut found: Vec<Self> = Vec::new();
        let mut parents = vec![root];
        while let Some(parent) = parents.pop() {
            for process in all.iter().filter(|process| process.parent == parent) {
                parents.push(process.pid);
                found.push(process.clone());
            }
        }
        found
    }
}

/// Sends `signal` to the process `pid`; `false` when it is gone.
#[must_use]
pub fn send(pid: i32, signal: Signal) -> bool {
    kill(Pid::from_raw(pid), signal).is_ok()
}

/// Waits until `condition` gives something, which it is asked for again and again, for `limit` at most.
///
/// # Panics
/// It gives nothing in that time: `what` never happened.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begin.elapsed() < limit, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
