//! How jobs end: codes, causes, clean-up.

use std::time::Duration;

use nix::sys::signal::Signal;
use supervisor::report::{CauseKind, End};
use testkit::process;

use super::kit::{Checked, Job, Test, ensure, rank, sh};

pub(crate) const TESTS: &[Test] = &[
    ("code_zero", code_zero),
    ("first_code_wins", first_code_wins),
    ("death_by_signal", death_by_signal),
    ("what_is_left_behind_is_ended", left_behind),
    ("stray_that_ignores_term_in_a_failed_job", stubborn_stray),
    ("rank_that_ignores_term_is_killed", ignores_term),
    ("stopped_rank_is_ended", stopped_rank),
    ("time_limit", time_limit),
    ("start_failures", start_failures),
    ("stderr_tail", stderr_tail),
    ("kill_of_the_front", kill_front),
    ("kill_of_the_agent", kill_agent),
    ("bootstrap_conforms", conforms),
    ("mismatched_calls_are_refused", mismatch),
    ("collective_exit", collective),
    ("non_collective_exit", non_collective),
    ("non_collective_exit_among_spinning_ranks", non_collective_spin),
    ("end_without_farewell", no_fini),
    ("end_before_hello", before_hello),
    ("abort", abort),
    ("crash_with_bootstrap", crash),
    ("protocol_errors", protocol),
    ("second_hello", hello_twice),
    ("plan_errors", plan_errors),
    ("descriptors_run_out", descriptors),
    ("descriptor_limit_is_raised_and_restored", limit_restored),
    ("many_ranks", many),
];

fn code_zero() -> Checked {
    let done =
        Job::new(4, &[], &sh("echo $GASNETRUN_RANK/$GASNETRUN_SIZE/$GASNETRUN_LOCAL_RANK")).run();
    let done = done.expect(0)?.no_cause()?;
    let out = done.outcome.out();
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    ensure(lines == ["0/4/0", "1/4/1", "2/4/2", "3/4/3"], out.clone())
}

fn first_code_wins() -> Checked {
    let done = Job::new(3, &[], &sh("[ $GASNETRUN_RANK = 1 ] && exit 3; exec sleep 1000")).run();
    let done = done.expect(3)?.cause(CauseKind::ExitCode, Some(1), "rank 1 exited with code 3")?;
    let report = done.report.as_ref().ok_or("no report")?;
    let killed = report.ranks.iter().filter(|r| r.killed_by_launcher).count();
    ensure(killed == 2 && report.ranks[1].end == Some(End::Code(3)), format!("{report:?}"))
}

fn death_by_signal() -> Checked {
    let job = Job::new(3, &[], &sh("[ $GASNETRUN_RANK = 2 ] && kill -9 $$; exec sleep 1000"));
    job.run().expect(137)?.cause(CauseKind::Signal, Some(2), "SIGKILL")?.ok()
}

fn left_behind() -> Checked {
    let job = Job::new(2, &[], &sh("setsid sleep 1000 & sleep 1000 & exit 0"));
    let done = job.run().expect(0)?.no_cause()?;
    let orphans = done.report.as_ref().map_or(0, |r| r.orphans_killed);
    ensure(orphans == 4, format!("{orphans} processes left behind, not 4"))
}

fn stubborn_stray() -> Checked {
    let text = "if [ $GASNETRUN_RANK = 0 ]; then setsid sh -c 'trap \"\" TERM; echo up; while :; do sleep 1; done' & \
                while :; do sleep 1; done; fi; read line < fifo; exit 4";
    let job = Job::new(2, &[], &sh(text));
    nix::unistd::mkfifo(&job.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU)?;
    let path = job.path();
    let live = job.with(|tree| tree.dir(&path)).start();
    live.running.wait_stdout("up", 1);
    std::fs::write(path.join("fifo"), "now\n")?;
    live.wait().expect(4)?.cause(CauseKind::ExitCode, Some(1), "code 4")?.ok()
}

fn ignores_term() -> Checked {
    let text = "if [ $GASNETRUN_RANK = 0 ]; then trap '' TERM; echo up; while :; do sleep 1; done; fi; read l < fifo; exit 5";
    let job = Job::new(2, &[], &sh(text));
    nix::unistd::mkfifo(&job.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU)?;
    let path = job.path();
    let live = job.with(|tree| tree.dir(&path)).start();
    live.running.wait_stdout("up", 1);
    std::fs::write(path.join("fifo"), "now\n")?;
    let done = live.wait().expect(5)?;
    let report = done.report.as_ref().ok_or("no report")?;
    ensure(report.ranks[0].end == Some(End::Signal(9)), format!("{:?}", report.ranks[0]))
}

fn stopped_rank() -> Checked {
    let job = Job::new(2, &[], &sh("[ $GASNETRUN_RANK = 0 ] && kill -STOP $$; sleep 0.2; exit 6"));
    let done = job.run().expect(6)?;
    let report = done.report.as_ref().ok_or("no report")?;
    let spent = report.phases.done - report.phases.end_begins.ok_or("no end")?;
    ensure(spent < 1.9, format!("{spent} s: the stopped rank was not ended by TERM"))
}

fn time_limit() -> Checked {
    let job = Job::new(2, &["--timeout-ms", "300"], &sh("exec sleep 1000"));
    job.run().expect(124)?.cause(CauseKind::Timeout, None, "0.3 s")?.ok()
}

fn start_failures() -> Checked {
    let words = |word: &str| vec![word.to_owned()];
    let missing = Job::new(3, &[], &words("/no/such/program")).run().expect(127)?;
    missing.cause(CauseKind::Start, Some(0), "cannot execute /no/such/program: No such file")?;
    Job::new(1, &[], &words("/etc/passwd")).run().expect(126)?.cause(
        CauseKind::Start,
        Some(0),
        "Permission",
    )?;
    let job = Job::new(1, &["--dir", "/no/such/directory"], &words("/bin/true"));
    job.run().expect(125)?.cause(CauseKind::Start, None, "/no/such/directory")?;
    let job = Job::new(1, &["--cpus", "900"], &words("/bin/true"));
    job.run().expect(125)?.cause(CauseKind::Start, Some(0), "bind to CPUs [900]")?;
    let job = Job::new(1, &["--output-dir", "/proc/none"], &words("/bin/true"));
    job.run().expect(125)?.cause(CauseKind::Start, None, "/proc/none")?.ok()
}

fn stderr_tail() -> Checked {
    let text = "for i in $(seq 50); do echo \"line $i\" >&2; done; [ $GASNETRUN_RANK = 1 ] && exit 9; sleep 1000";
    let done = Job::new(2, &[], &sh(text)).run().expect(9)?;
    let cause = done.report.as_ref().and_then(|r| r.cause.as_ref()).ok_or("no cause")?;
    let tail = &cause.stderr_tail;
    ensure(tail.len() == 20 && tail[19] == "line 50" && tail[0] == "line 31", format!("{tail:?}"))?;
    let lines = done.outcome.err().lines().filter(|line| *line == "line 50").count();
    ensure((1..=2).contains(&lines), done.outcome.err())
}

/// Kills one of the two control processes once everything runs; nothing may be left a moment later.
fn kill_control(front: bool) -> Checked {
    let text = "setsid sleep 1000 & echo up; sleep 1000";
    let job = Job::new(3, &[], &sh(text)).with(|tree| tree.grace(Duration::from_secs(5)));
    let live = job.start();
    live.running.wait_stdout("up", 3);
    let launcher_pid = live.running.pid();
    let below = live.running.descendants();
    let agent = below.iter().find(|p| p.parent == launcher_pid).ok_or("no agent")?.pid;
    let victim = if front { launcher_pid } else { agent };
    ensure(process::send(victim, Signal::SIGKILL), "already gone")?;
    let done = live.wait();
    if front {
        return done.outcome.fault(137).map_or(Ok(()), |fault| Err(fault.into()));
    }
    done.expect(125)?.cause(CauseKind::AgentLost, None, "SIGKILL")?.ok()
}

fn kill_front() -> Checked {
    kill_control(true)
}

fn kill_agent() -> Checked {
    kill_control(false)
}

fn conforms() -> Checked {
    for size in [1, 2, 3, 8] {
        let done = Job::new(size, &[], &rank(&["services"])).run().expect(0)?.no_cause()?;
        let count = done.outcome.out().matches("conforms").count();
        ensure(
            count == size as usize,
            format!("{count} of {size} conform: {}", done.outcome.err()),
        )?;
    }
    Ok(())
}

fn mismatch() -> Checked {
    let done = Job::new(2, &[], &rank(&["mismatch"])).run();
    // The rank that hears it first ends without farewell, which may end the other before it can say
    // the same.
    let out = done.outcome.out();
    let heard = out
        .lines()
        .filter(|line| line.starts_with("refused: ") && line.contains("rank 1 call"))
        .count();
    ensure(heard >= 1, format!("{out} {}", done.outcome.err()))?;
    done.expect(1)?.ok()
}

fn collective() -> Checked {
    let good = Job::new(1, &[], &rank(&["collective", "0"])).run().expect(0)?;
    good.no_cause()?;
    let done = Job::new(5, &[], &rank(&["collective", "10"])).run().expect(14)?;
    done.cause(CauseKind::CollectiveExit, Some(4), "code 14")?.ok()
}

fn non_collective() -> Checked {
    let done = Job::new(4, &[], &rank(&["non-collective", "3"])).run().expect(3)?;
    let done =
        done.cause(CauseKind::NonCollectiveExit, Some(0), "rank 0 exited alone with code 3")?;
    let report = done.report.as_ref().ok_or("no report")?;
    // A rank that got no CPU in time gets SIGQUIT, for which these programs have no handler.
    let left = |end| end == Some(End::Code(3)) || end == Some(End::Signal(libc::SIGQUIT));
    let ranks = &report.ranks;
    ensure(
        ranks[0].end == Some(End::Code(3)) && ranks.iter().all(|r| left(r.end)),
        format!("{report:?}"),
    )
}

fn non_collective_spin() -> Checked {
    let done = Job::new(4, &[], &rank(&["non-collective-spin", "7"])).run().expect(7)?;
    let done = done.cause(CauseKind::NonCollectiveExit, Some(0), "end of main")?;
    let report = done.report.as_ref().ok_or("no report")?;
    let quit = |r: &supervisor::report::RankRecord| r.end == Some(End::Signal(libc::SIGQUIT));
    ensure(report.ranks[1..].iter().all(quit), format!("{report:?}"))
}

fn no_fini() -> Checked {
    let done = Job::new(3, &[], &rank(&["no-fini"])).run().expect(1)?;
    done.cause(CauseKind::NoFini, Some(0), "without finishing")?.ok()
}

fn before_hello() -> Checked {
    let done = Job::new(3, &[], &rank(&["before-hello"])).run().expect(1)?;
    done.cause(CauseKind::NoFini, Some(0), "before it opened")?.ok()
}

fn abort() -> Checked {
    let done = Job::new(3, &[], &rank(&["abort", "42"])).run().expect(42)?;
    done.cause(CauseKind::Abort, Some(0), "aborted")?.ok()
}

fn crash() -> Checked {
    let done = Job::new(4, &[], &rank(&["crash"])).run().expect(137)?;
    done.cause(CauseKind::Signal, Some(0), "SIGKILL")?.ok()
}

fn protocol() -> Checked {
    for (name, text) in [
        ("garbage", "does not speak this protocol"),
        ("version", "version 77"),
        ("foreign-rank", "rank 99"),
        ("other-name", "in the name of rank 1"),
    ] {
        let done = Job::new(3, &[], &rank(&[name])).run().expect(125)?;
        done.cause(CauseKind::Protocol, Some(0), text)?;
    }
    Ok(())
}

fn hello_twice() -> Checked {
    let done = Job::new(1, &[], &rank(&["hello-twice"])).run().expect(0)?;
    let out = done.outcome.out();
    ensure(out.contains("again: "), out.clone())
}

fn plan_errors() -> Checked {
    let done = Job::new(2, &["--stdin", "5"], &sh("true")).run();
    ensure(done.outcome.code() == 125 && done.outcome.err().contains("rank 5"), done.outcome.err())
}

/// A job of `size` ranks under a descriptor limit: (soft, hard).
fn limited(
    limits: (u32, u32),
    size: u32,
    program: &[&str],
) -> Result<testkit::Outcome, libtest_mimic::Failed> {
    let exe = std::env::current_exe()?;
    let text = format!("ulimit -Sn {}; ulimit -Hn {}; exec \"$@\"", limits.0, limits.1);
    let size = size.to_string();
    let words = ["-c", &text, "sh", exe.to_str().ok_or("odd path")?, "front", "-n", &size, "--"];
    Ok(testkit::Tree::new("/bin/sh").args(words).args(program).run())
}

fn descriptors() -> Checked {
    let outcome = limited((60, 60), 64, &["/bin/echo", "ran"])?;
    if let Some(fault) = outcome.fault(125) {
        return Err(fault.into());
    }
    ensure(outcome.stdout.is_empty(), format!("ranks ran: {}", outcome.out()))
}

fn limit_restored() -> Checked {
    let outcome = limited((60, 4000), 40, &["/bin/sh", "-c", "ulimit -Sn"])?;
    if let Some(fault) = outcome.fault(0) {
        return Err(fault.into());
    }
    ensure(outcome.out().lines().filter(|line| *line == "60").count() == 40, outcome.out())
}

fn many() -> Checked {
    let done = Job::new(300, &["--tag"], &sh("echo up")).run().expect(0)?.no_cause()?;
    ensure(done.outcome.out().lines().count() == 300, done.outcome.out())
}
