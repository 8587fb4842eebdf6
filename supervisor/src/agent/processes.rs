//! Children of ours: who supervises them, and what ranks leave behind, found by parentage.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::prctl;
use nix::sys::signal::{SigEvent, SigSet, SigevNotify, SigmaskHow, Signal, sigprocmask};
use nix::sys::stat::makedev;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::{Pid, getppid, setsid};
use settings::deadlines::agent::ORPHANED;

use super::sys;
use crate::event_loop::{OsError, Poller, Signals, cannot};

/// Becomes a supervisor: sub-reaper, ends after its parent, and hears of its children's ends. The
/// parent's death is announced by CONT, which even a supervisor that is stopped wakes up from: it
/// has to clean up.
pub(crate) fn supervise(poller: &Poller) -> Result<Signals, OsError> {
    prctl::set_child_subreaper(true).map_err(cannot("become a sub-reaper"))?;
    prctl::set_pdeathsig(Signal::SIGCONT).map_err(cannot("arm the parent-death signal"))?;
    // Terminal signals reach the agent, too; the launcher passes them on, so here they stay blocked
    // and unread.
    let blocked: SigSet = [Signal::SIGTTIN, Signal::SIGTTOU].into_iter().collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None).map_err(cannot("block signals"))?;
    sys::ask_for_short_slices();
    let watched = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGCONT];
    Signals::take(poller, &watched).map_err(cannot("watch signals"))
}

/// What a supervisor's own signals say: whether children may have ended, and whether `parent` is
/// gone.
pub(crate) fn read_signals(signals: &mut Signals, parent: i32) -> (bool, bool) {
    signals.pending().iter().fold((false, false), |(child, orphan), (signal, _)| {
        let news = [libc::SIGTERM, libc::SIGCONT].contains(signal);
        let gone = news && getppid().as_raw() != parent;
        (child | (*signal == libc::SIGCHLD), orphan | gone)
    })
}

/// A supervisor without parent has so long to end what is left; then the kernel kills it, whatever
/// it does, and with it its ranks. A limit that cannot be set is no reason not to clean up.
#[derive(Debug)]
pub(crate) struct LastDelay {
    _armed: Option<Timer>,
}

impl LastDelay {
    pub(crate) fn begin() -> Self {
        Self { _armed: Self::arm(ORPHANED.limit).ok() }
    }

    fn arm(limit: Duration) -> nix::Result<Timer> {
        let notify = SigevNotify::SigevSignal { signal: Signal::SIGKILL, si_value: 0 };
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?;
        timer.set(Expiration::OneShot(limit.into()), TimerSetTimeFlags::empty())?;
        Ok(timer)
    }
}

/// Whether something has come within `limit`, or the other end has closed.
pub(crate) fn is_readable(fd: impl AsFd, limit: Duration) -> nix::Result<bool> {
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    Ok(poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], limit)? > 0)
}

/// What is written to a pipe until it is closed, the first `most` bytes of it; an error after
/// `until`.
pub(crate) fn read_all(
    mut pipe: impl Read + AsFd,
    until: Instant,
    most: usize,
) -> io::Result<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match is_readable(&pipe, until.saturating_duration_since(Instant::now())) {
            Ok(false) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(true) => {}
            Err(nix::Error::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(all),
            Ok(count) => all.extend_from_slice(&buffer[..count.min(most - all.len())]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

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

/// What `/proc/PID/stat` says.
fn stat(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

fn parent(pid: i32) -> Option<i32> {
    sys::stat_fields(&stat(pid)?)?.nth(1)?.parse().ok()
}

/// Leaves the session of the launcher, and takes the ranks along. Where the system schedules by
/// sessions (autogroup, sched(7)) all ranks are one group then: beside other processes of the
/// launcher's session they have a fair part of the processors together, and take turns by yields among
/// themselves. A job with a nice value stays: that counts inside a session alone.
pub(crate) fn leave_session() {
    if sys::nice() == Some(0) {
        // Fails for the leader of a group only, which no fork is.
        let _ = setsid();
    }
}

/// The controlling terminal of a process: the process's group and the one in the foreground, and
/// the number of the device. `None`: the process has none, or is gone.
pub(super) fn terminal(pid: i32) -> Option<((i32, i32), u64)> {
    /// The state and the parent.
    const TO_GROUP: usize = 2;
    let stat = stat(pid)?;
    let mut numbers =
        sys::stat_fields(&stat)?.skip(TO_GROUP).map(|field| field.parse::<i32>().ok());
    let (group, _session) = (numbers.next()??, numbers.next()??);
    let (device, foreground) = (numbers.next()??, numbers.next()??);
    let device = u64::from(device.cast_unsigned());
    // As the kernel writes it (new_encode_dev).
    let whole = makedev(device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00);
    (device != 0).then_some(((group, foreground), whole))
}

/// What a process is doing: whether any of its threads is ready to run, and the CPU time that they
/// have had together, nanoseconds. `None` when it is gone or this kernel does not tell.
pub(crate) fn activity(pid: i32) -> Option<(bool, u64)> {
    const THREADS: usize = 17;
    let one = |path: &Path| {
        let stat = fs::read_to_string(path.join("stat")).ok()?;
        let mut fields = sys::stat_fields(&stat)?;
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

/// The cpus that this process may use, in order.
///
/// # Errors
/// The system does not tell.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

pub(crate) fn has_children() -> bool {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, look) != Err(nix::Error::ECHILD)
}

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
        let limit = Instant::now() + Duration::from_secs(30);
        let holds = |what: &str, condition: &dyn Fn() -> bool| {
            while !condition() {
                assert!(Instant::now() < limit, "not within 30 s: {what}");
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
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line)
            .unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let me = nix::unistd::getpid().as_raw();
        let found = descendants(me, |_| false);
        assert!(found.contains(&pid) && found.contains(&grandchild), "{found:?}");
        assert!(!descendants(me, |p| p == pid).contains(&grandchild));
        assert!(scan().get(&pid).is_some_and(|below| below.contains(&grandchild)));
        sys::kill(grandchild, libc::SIGKILL).unwrap();
        child.wait().unwrap();
    }
}
