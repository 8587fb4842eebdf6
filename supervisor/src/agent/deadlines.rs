//! Every time limit of the supervisor, with its name.
//!
//! Two waits have no limit on purpose: a job without `--timeout` runs as long as it runs, and output of a job that
//! ended well is written however slowly its reader reads (a signal to the launcher ends that wait).

pub use spawner_ssh::deadlines::Deadline;

/// No further rank has begun to exit for so long: the exit is not collective.
pub const QUIET_WINDOW: Deadline =
    Deadline::new("exit.quiet-window", 20, "after the last Exiting, until an exit counts as lone");
/// When the CPU times of the ranks that are not exiting are noted, for the look at the end of the window.
pub const QUIET_BASE: Deadline =
    Deadline::new("exit.quiet-base", 10, "after the last Exiting, until CPU times are noted");
/// How often a rank that had no CPU since is given another moment before the exit counts as lone.
pub const QUIET_RETRY: Deadline = Deadline::new(
    "exit.quiet-retry",
    5,
    "between looks at ranks that are ready to run but were not given a CPU",
);
/// Starved or not, then the exit counts as lone.
pub const QUIET_LIMIT: Deadline =
    Deadline::new("exit.quiet-limit", 1000, "after the last Exiting, for starved ranks");
/// A rank that has not seen the notice by then gets SIGQUIT.
pub const NOTICE_ACK: Deadline = Deadline::new(
    "exit.notice-ack",
    20,
    "after the notice, until ranks that did not look get SIGQUIT",
);
/// From TERM to KILL.
pub const KILL_GRACE: Deadline =
    Deadline::new("end.kill-grace", 2000, "between TERM and KILL of the ranks");
/// From KILL until a process counts as unkillable.
pub const REAP: Deadline = Deadline::new(
    "end.reap",
    5000,
    "after KILL, until the job is given up with its processes named",
);
/// Grace of what the ranks left behind when the job ended well.
pub const STRAY_GRACE: Deadline = Deadline::new(
    "end.stray-grace",
    200,
    "between TERM and KILL of processes left behind by a good job",
);
/// The same when it did not.
pub const STRAY_GRACE_FAILED: Deadline = Deadline::new(
    "end.stray-grace-failed",
    40,
    "between TERM and KILL of processes left behind by a failed job",
);
/// How long output pipes are read after every process that we know is gone.
pub const DRAIN: Deadline =
    Deadline::new("output.drain", 1000, "until pipes kept open by unknown processes are given up");
/// A prompt without newline of the rank that reads a terminal appears after this.
pub const PROMPT: Deadline = Deadline::new(
    "output.prompt",
    100,
    "until an unfinished line of the reading rank is shown on a terminal",
);
/// How long a forwarded signal explains the ends of ranks.
pub const SIGNAL_EFFECT: Deadline = Deadline::new(
    "signal.effect",
    10_000,
    "after a signal to the launcher, until a death counts as its own cause",
);
/// A repetition within this time is the same signal (shells and `timeout` send twice).
pub const SIGNAL_REPEAT: Deadline =
    Deadline::new("signal.repeat", 50, "until a further ending signal means: kill now");
/// A host that was silent for so long before a rank failed, and is lost in the end, explains the failure: two heartbeats.
pub const HOST_MISSED: Deadline =
    Deadline::new("host.missed", 4000, "of a host's silence, until it explains failures of ranks");
/// How often a terminal that belongs to another job is looked at again.
pub const TERMINAL_RETRY: Deadline = Deadline::new(
    "stdin.terminal-retry",
    500,
    "between looks at a terminal that another job is using",
);
/// From the agent's report until it must have ended.
pub const AGENT_EXIT: Deadline =
    Deadline::new("agent.exit", 2000, "after the report, until the agent is killed");
/// Bound on ending what a lost agent left.
pub const AFTER_LOSS: Deadline =
    Deadline::new("agent.after-loss", 5000, "to kill every descendant of a lost agent");

/// The table.
pub const ALL: [Deadline; 17] = [
    HOST_MISSED,
    QUIET_WINDOW,
    QUIET_BASE,
    QUIET_RETRY,
    QUIET_LIMIT,
    NOTICE_ACK,
    KILL_GRACE,
    REAP,
    STRAY_GRACE,
    STRAY_GRACE_FAILED,
    DRAIN,
    PROMPT,
    SIGNAL_EFFECT,
    SIGNAL_REPEAT,
    TERMINAL_RETRY,
    AGENT_EXIT,
    AFTER_LOSS,
];

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn every_limit_has_a_name_of_its_own_a_value_and_a_text() {
        let names: std::collections::HashSet<_> = ALL.iter().map(|d| d.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|d| d.ms() > 0 && !d.doc.is_empty()));
    }
}
