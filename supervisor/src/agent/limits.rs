//! Limits of a host on descriptors and processes, against what its ranks need: raised where we may,
//! else told before the first rank starts. What cannot be read here counts as no limit: the start
//! of a rank tells in time.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::getuid;

/// Descriptors that are opened now and then while ranks run: memory that ranks share, files of
/// `/proc`.
const SPARE: u64 = 12;
/// Process ids below this are given only once.
const RESERVED_PIDS: u64 = 300;

/// A limit that is too low.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ranks} ranks need {need}; the limit is {limit} ({name}), and {enough} would do")]
pub(crate) struct Short {
    ranks: u32,
    /// What is needed, in words.
    need: String,
    /// The limit that was seen, and its name.
    limit: u64,
    name: String,
    /// The limit that would do.
    enough: u64,
}

fn number<T: FromStr>(path: impl AsRef<Path>) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Makes room for the `more` descriptors that `ranks` ranks need in this process; returns the limit
/// that was there before, soft and hard, when it changed.
pub(crate) fn make_room(ranks: u32, more: u64) -> Result<Option<(rlim_t, rlim_t)>, Short> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(None) };
    // The listing has one open itself.
    let open = fs::read_dir("/proc/self/fd").map_or(0, |list| list.count() as u64 - 1);
    let needed = open + more + SPARE;
    if soft >= needed {
        return Ok(None);
    }
    if hard < needed {
        let need = format!("{needed} open files in one process of this host");
        let name = "hard limit of open files, `ulimit -Hn`".to_owned();
        return Err(Short { ranks, need, limit: hard, name, enough: needed });
    }
    let raised = setrlimit(Resource::RLIMIT_NOFILE, needed, hard).is_ok();
    Ok(raised.then_some((soft, hard)))
}

/// What the stack of launcher and agents takes at most, with room to spare.
const STACK: rlim_t = 1 << 20;

/// The limit of the stack before it was raised, soft and hard.
static STACK_BEFORE: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// The stack of this process cannot be made large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "gasnetrun_ibv needs {need} KiB of stack; the limit is {} KiB (hard limit of the stack, `ulimit -Hs`), and {need} would do",
    .0 / 1024,
    need = STACK / 1024
)]
pub struct LowStack(rlim_t);

/// Fits this process to its limits, and ranks get back what was there: raises a limit of the stack
/// that is too low, and lets a file that has reached its limit (`ulimit -f`) be an error of the write,
/// as a full disk is. To be called first of all, by a function that needs little stack itself.
///
/// # Errors
/// [`LowStack`]: the hard limit is too low, and we may not raise it.
pub fn fit_limits() -> Result<(), LowStack> {
    let mut file_size = SigSet::empty();
    file_size.add(Signal::SIGXFSZ);
    // Where it cannot be blocked, such a file ends us as it did.
    let _ = file_size.thread_block();
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK) else { return Ok(()) };
    if soft < STACK {
        let raised = setrlimit(Resource::RLIMIT_STACK, STACK, hard.max(STACK));
        raised.map_err(|_| LowStack(hard))?;
        STACK_BEFORE.get_or_init(|| (soft, hard));
    }
    Ok(())
}

/// What ranks get back. Async-signal-safe.
pub(super) fn stack_before() -> Option<(rlim_t, rlim_t)> {
    STACK_BEFORE.get().copied()
}

/// Tasks (processes and threads) that are there: of our user, and together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tasks {
    own: u64,
    all: u64,
}

impl Tasks {
    /// Those that this process sees.
    fn seen() -> Self {
        let user = getuid().as_raw();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = entries
            .filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit));
        let mut tasks = Self::default();
        for process in processes {
            let status = fs::read_to_string(process.path().join("status"));
            let Some((of, threads)) = status.ok().as_deref().and_then(user_and_threads) else {
                continue;
            };
            tasks.all += threads;
            tasks.own += if of == user { threads } else { 0 };
        }
        tasks
    }
}

/// A field of `/proc/PID/status`, its first word.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()
}

fn user_and_threads(status: &str) -> Option<(u32, u64)> {
    Some((field(status, "Uid")?.parse().ok()?, field(status, "Threads")?.parse().ok()?))
}

/// Whether the system lets this process have more processes than its user may.
fn is_privileged() -> bool {
    const ADMIN: u64 = 1 << 21;
    const RESOURCE: u64 = 1 << 24;
    if getuid().is_root() {
        return true;
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = field(&status, "CapEff").and_then(|set| u64::from_str_radix(set, 16).ok());
    set.is_some_and(|set| set & (ADMIN | RESOURCE) != 0)
}

/// Whether `ranks` more processes are allowed here.
pub(crate) fn processes(ranks: u32) -> Result<(), Short> {
    let number = |path| number::<u64>(path).unwrap_or(u64::MAX);
    let user = match getrlimit(Resource::RLIMIT_NPROC) {
        Ok((soft, _)) if !is_privileged() => soft,
        _ => libc::RLIM_INFINITY,
    };
    let ids = number("/proc/sys/kernel/pid_max").saturating_sub(RESERVED_PIDS);
    let threads = number("/proc/sys/kernel/threads-max");
    // Of the whole machine, so no fewer than what any limit counts.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let whole = tasks_of_load(&load).unwrap_or(0);
    beside(ranks, whole, threads, "threads of the system", "kernel.threads-max", 0)?;
    if whole + u64::from(ranks) > user.min(ids) {
        let tasks = Tasks::seen();
        let whose = format!("threads of user {}", getuid());
        beside(ranks, tasks.own, user, &whose, "limit of processes, `ulimit -u`", 0)?;
        beside(ranks, tasks.all, ids, "threads of the system", "kernel.pid_max", RESERVED_PIDS)?;
    }
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut groups = groups_of(&groups);
    groups.try_for_each(|group| in_group(ranks, &group))
}

/// Whether `ranks` processes fit under `limit` beside `used`, which are `whose`. `hidden` is what
/// the setting called `name` has more than `limit`.
fn beside(
    ranks: u32,
    used: u64,
    limit: u64,
    whose: &str,
    name: &str,
    hidden: u64,
) -> Result<(), Short> {
    let enough = used.saturating_add(u64::from(ranks));
    if enough <= limit {
        return Ok(());
    }
    let need = format!("as many processes on this host, beside {used} {whose}");
    let (limit, enough) = (limit + hidden, enough + hidden);
    Err(Short { ranks, need, limit, name: name.to_owned(), enough })
}

/// The fourth word is `running/all`.
fn tasks_of_load(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// The directories of our control groups that may limit processes, innermost first, by
/// `/proc/self/cgroup`. Where only a part of the tree is mounted, as in containers, those that are
/// not there are passed over.
fn groups_of(text: &str) -> impl Iterator<Item = PathBuf> {
    let places = text.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let mounts: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            _ if controllers.split(',').any(|one| one == "pids") => &["/sys/fs/cgroup/pids"],
            _ => &[],
        };
        mounts.iter().map(move |mount| (Path::new(mount), path.trim_start_matches('/')))
    });
    places.flat_map(|(mount, path)| {
        let whole = mount.join(path);
        let inside = |group: &&Path| group.starts_with(mount);
        whole.ancestors().take_while(inside).map(Path::to_path_buf).collect::<Vec<_>>()
    })
}

fn in_group(ranks: u32, group: &Path) -> Result<(), Short> {
    let file = group.join("pids.max");
    // "max" is no number.
    let Some(limit) = number(&file) else { return Ok(()) };
    let used = number(group.join("pids.current")).unwrap_or(0);
    beside(ranks, used, limit, "threads of its control group", &file.display().to_string(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_told_with_what_would_do() {
        assert_eq!(beside(64, 36, 100, "threads of user 7", "`ulimit -u`", 0), Ok(()));
        let short = beside(64, 37, 100, "threads of user 7", "`ulimit -u`", 0).unwrap_err();
        assert_eq!(
            short.to_string(),
            "64 ranks need as many processes on this host, beside 37 threads of user 7; the limit \
             is 100 (`ulimit -u`), and 101 would do"
        );
        let short = beside(100, 32_400, 32_468, "threads", "pid_max", 300).unwrap_err();
        assert_eq!((short.limit, short.enough), (32_768, 32_800));
        assert!(beside(u32::MAX, u64::MAX, u64::MAX, "", "", 0).is_ok());
    }

    #[test]
    fn control_groups_are_looked_at_from_the_inside_out() {
        let of = |text: &str| groups_of(text).collect::<Vec<_>>();
        let mount = Path::new("/sys/fs/cgroup");
        let expected =
            ["a/b", "a", "", "unified/a/b", "unified/a", "unified"].map(|path| mount.join(path));
        assert_eq!(of("0::/a/b\n"), expected);
        let expected = ["pids/x", "pids"].map(|path| mount.join(path));
        assert_eq!(of("9:name=systemd:/\n8:cpu,pids:/x\n7:memory:/y\n"), expected);
        for odd in ["", "\n", "8", "8:pids", "::", "pids:/x"] {
            let all = of(odd);
            assert!(all.iter().all(|path| path.starts_with(mount)), "{odd:?}: {all:?}");
        }
    }

    #[test]
    fn what_the_system_tells_is_read() {
        assert_eq!(tasks_of_load("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(tasks_of_load("0.20 0.18"), None);
        let status = "Name:\tx\nUid:\t7\t8\t9\t9\nThreads:\t3\nCapEff:\t0000000001000000\n";
        assert_eq!(user_and_threads(status), Some((7, 3)));
        assert_eq!(user_and_threads("Uid:\t7\n"), None);
        let tasks = Tasks::seen();
        assert!(tasks.own >= 1 && tasks.all >= tasks.own, "{tasks:?}");
        assert_eq!(processes(1), Ok(()));
        assert_eq!(make_room(1, 1), Ok(None));
        let short = make_room(7, u64::from(u32::MAX) << 20).unwrap_err();
        assert!(short.to_string().starts_with("7 ranks need 45035"), "{short}");
    }

    #[test]
    fn a_group_without_a_limit_has_none() {
        let group = tempfile::tempdir().unwrap();
        assert_eq!(in_group(9, group.path()), Ok(()));
        let write = |name: &str, text: &str| fs::write(group.path().join(name), text).unwrap();
        write("pids.current", "5\n");
        write("pids.max", "max\n");
        assert_eq!(in_group(9, group.path()), Ok(()));
        write("pids.max", "14\n");
        assert_eq!(in_group(9, group.path()), Ok(()));
        write("pids.max", "13\n");
        let short = in_group(9, group.path()).unwrap_err();
        assert_eq!((short.limit, short.enough), (13, 14));
        assert!(short.to_string().contains("pids.max"), "{short}");
    }
}
