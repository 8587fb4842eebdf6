//! What a job reaches beside processes of others that compute.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::Repetitions;
use crate::network::SOFT;
use crate::row::{Findings, Row, Target};
use crate::run::{Failure, Result, Samples, job, run, sibling};

/// What `bench_beside` does, on how many ranks, and in words.
const KINDS: [(&str, u32, &str); 5] = [
    ("short", 2, "round trips of a Short"),
    ("put", 2, "puts of 8 B"),
    ("barrier", 2, "barriers"),
    ("barrier", 4, "barriers of 4 ranks"),
    ("queue", 2, "floods of 200 Shorts"),
];
/// So many times the pairs for ranks that share processors: beside others their rates vary by two
/// (107,000 to 228,000 barriers a second in 20 runs), and medians of 20 pairs were 0.35x to 0.51x.
const CROWD_TIMES: usize = 3;
/// Length of a run.
const SECONDS: &str = "0.5";

/// Who computes beside the ranks: processes of the launcher's session; as many of another session, as
/// another job has them; as many of a session each. Where the system schedules by sessions (autogroup)
/// the last have a part of the processors each, and the ranks one together: that is more than an equal
/// load.
const OTHERS: [(&str, &str, Target); 3] = [
    ("beside", "", Target::AtLeast(0.4)),
    ("foreign", " of another session", Target::AtLeast(0.4)),
    ("apart", " of a session each", Target::None),
];

/// Processes that compute, for as long as this lives: groups of them.
struct Others(Vec<Child>);

impl Others {
    /// `count` of them, in a `state`; none when it is "alone".
    fn start(count: usize, state: &str) -> Result<Self> {
        let (groups, each) = match state {
            "alone" => (0, 0),
            "apart" => (count, 1),
            _ => (1, count),
        };
        let mut others = Self(Vec::new());
        for _ in 0..groups {
            let loops = "(while :; do :; done) & ".repeat(each) + "wait";
            // Each is a group, by which it is ended. A child leads none, so `setsid` becomes the shell.
            let mut shell = Command::new(if state == "beside" { "env" } else { "setsid" });
            if state == "beside" {
                shell.process_group(0);
            }
            shell.args(["sh", "-c", &loops]).stdin(Stdio::null());
            others.0.push(shell.spawn()?);
        }
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for other in &mut self.0 {
            // The shell and its loops; the shell itself, should it lead no group yet.
            let group = Pid::from_raw(other.id().cast_signed());
            let _ = killpg(group, Signal::SIGKILL);
            let _ = other.kill();
            let _ = other.wait();
        }
    }
}

/// Calls in a second of a few ranks, beside as many others as processors and alone, in turn.
pub(crate) fn beside(repetitions: Repetitions) -> Result<Findings> {
    let count = std::thread::available_parallelism()?.get();
    let (mut samples, mut rows) = (Samples::default(), Vec::new());
    for (place, variables) in [("shared memory", &[][..]), ("soft", &SOFT[..])] {
        for (kind, ranks, what) in KINDS {
            let key = |state: &str| format!("{kind}{ranks}_{state}_{place}");
            let times = if ranks as usize > count { CROWD_TIMES } else { 1 };
            for _ in 0..times * repetitions.pairs {
                for state in OTHERS.map(|(state, ..)| state).into_iter().chain(["alone"]) {
                    let _others = Others::start(count, state)?;
                    let mut command = job(ranks, &[], &sibling("bench_beside")?, &[kind, SECONDS])?;
                    command.envs(variables.iter().copied());
                    let found = run(command, true)?.samples();
                    let rate = found.of(&format!("{kind}_per_s"))?.first();
                    let none = || Failure(format!("bench_beside {kind} says no rate"));
                    samples.add(&key(state), *rate.ok_or_else(none)?);
                }
            }
            for (state, whose, target) in OTHERS {
                let figure = format!("{what} over {place} beside {count} others{whose}, alone");
                let keys = [key(state), key("alone")];
                let keys = keys.each_ref().map(String::as_str);
                rows.push(Row::paired(&figure, &samples, keys, "/s", target)?);
            }
        }
    }
    let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    let by_sessions = autogroup.is_ok_and(|text| text.trim() == "1");
    let notes = vec![format!(
        "net-beside: ranks for {SECONDS} s, beside as many shell loops as there are processors and alone, in turn; {CROWD_TIMES} times as many runs of ranks that share processors, whose rates vary most. Ranks of a job without a \
         nice value have a session of their own. Where the system schedules by sessions (kernel.sched_autogroup_enabled: {}) they \
         have half of each processor beside others of one session, and less beside others of a session each.",
        if by_sessions { "yes" } else { "no" }
    )];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
