//! Signals sent to the launcher.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use supervisor::report::CauseKind;
use testkit::Running;
use testkit::process::Process;

use super::kit::{Checked, Job, Live, Test, ensure, sh};

pub(crate) const TESTS: &[Test] = &[
    ("interrupt_ends_default_ranks", default_ranks),
    ("interrupt_that_ranks_handle_well", handled),
    ("interrupt_that_ranks_answer_with_a_code", own_code),
    ("second_interrupt_kills", second),
    ("user_signals_arrive", user_signals),
    ("stop_and_continue", stop),
    ("ending_signal_reaches_stopped_ranks", end_stopped),
    ("hangup_ignored_at_the_start", nohup),
    ("keys_of_a_terminal", terminal_keys),
    ("in_the_background_of_a_terminal", background),
    ("session_of_the_ranks", session),
];

fn up(size: u32, text: &str) -> Live {
    let live = Job::new(size, &[], &sh(text)).start();
    live.running.wait_stdout("up", size as usize);
    live
}

fn default_ranks() -> Checked {
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
    ] {
        let live = up(3, "echo up; exec sleep 1000");
        ensure(live.running.signal(signal), "the front is gone")?;
        let done = live.wait().expect(code)?;
        let cause = done.report.as_ref().and_then(|r| r.cause.as_ref()).ok_or("no cause")?;
        // This process sent it.
        let sender = format!("{} from pid {} (", signal.as_str(), std::process::id());
        ensure(
            cause.kind == CauseKind::LauncherSignal && cause.text.contains(&sender),
            format!("{cause:?}"),
        )?;
    }
    Ok(())
}

fn handled() -> Checked {
    let live = up(2, "trap 'exit 0' INT; echo up; while :; do sleep 0.05; done");
    live.running.signal(Signal::SIGINT);
    live.wait().expect(0)?.no_cause()?.ok()
}

fn own_code() -> Checked {
    let live = up(2, "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done");
    live.running.signal(Signal::SIGTERM);
    let done = live.wait().expect(7)?;
    let kind = done.report.as_ref().and_then(|r| r.cause.as_ref()).map(|c| c.kind);
    ensure(kind == Some(CauseKind::LauncherSignal), format!("{kind:?}"))
}

fn second() -> Checked {
    let live = up(2, "trap 'echo heard' INT; echo up; while :; do sleep 0.05; done");
    live.running.signal(Signal::SIGINT);
    live.running.wait_stdout("heard", 2);
    // Longer than the deadline signal.repeat, within which a repetition is the same signal.
    std::thread::sleep(Duration::from_millis(200));
    live.running.signal(Signal::SIGINT);
    live.wait().expect(130)?.cause(CauseKind::LauncherSignal, None, "SIGINT")?.ok()
}

fn user_signals() -> Checked {
    let text =
        "trap 'echo one' USR1; trap 'echo two; exit 0' USR2; echo up; while :; do sleep 0.05; done";
    let live = up(3, text);
    live.running.signal(Signal::SIGUSR1);
    live.running.wait_stdout("one", 3);
    live.running.signal(Signal::SIGUSR2);
    live.wait().expect(0)?.ok()
}

/// Waits until `holds`, at most 30 s.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> Checked {
    let limit = Instant::now() + Duration::from_secs(30);
    while !holds() {
        ensure(Instant::now() < limit, format!("not within 30 s: {what}"))?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn is_stopped(pid: i32) -> bool {
    Process::read(pid).is_some_and(|process| process.state == 'T')
}

/// Processes of the job that are `sleep`.
fn sleepers(live: &Live) -> Vec<i32> {
    let all = live.running.descendants();
    all.iter().filter(|p| p.command.starts_with("(sleep)")).map(|p| p.pid).collect()
}

fn stop() -> Checked {
    // `sleep` itself, not a shell around it: a shell that is starting a program when it is stopped
    // does not show as stopped.
    let live = up(2, "echo up; exec sleep 1000");
    let front = live.running.pid();
    let ranks = || sleepers(&live);
    eventually("the ranks run", || ranks().len() == 2)?;
    live.running.signal(Signal::SIGTSTP);
    eventually("the front stops", || is_stopped(front))?;
    eventually("the ranks stop", || ranks().len() == 2 && ranks().into_iter().all(is_stopped))?;
    live.running.signal(Signal::SIGCONT);
    eventually("all go on", || !is_stopped(front) && !ranks().into_iter().any(is_stopped))?;
    live.running.signal(Signal::SIGTERM);
    live.wait().expect(143)?.ok()
}

/// Stopped by somebody else, so the launcher does not know it.
fn end_stopped() -> Checked {
    let live = up(2, "echo up; exec sleep 1000");
    let ranks = || sleepers(&live);
    eventually("the ranks run", || ranks().len() == 2)?;
    for rank in ranks() {
        ensure(testkit::process::send(rank, Signal::SIGSTOP), "a rank is gone")?;
    }
    eventually("the ranks stop", || ranks().into_iter().all(is_stopped))?;
    live.running.signal(Signal::SIGTERM);
    live.wait().expect(143)?.ok()
}

fn nohup() -> Checked {
    let exe = std::env::current_exe()?;
    let inner = "echo up; while [ ! -e stop ]; do sleep 0.05; done";
    let command = format!("trap '' HUP; exec {} front -n 1 -- /bin/sh -c '{inner}'", exe.display());
    let directory = tempfile::tempdir()?;
    let live = testkit::Tree::new("/bin/sh").args(["-c", &command]).dir(directory.path()).start();
    live.wait_stdout("up", 1);
    live.signal(Signal::SIGHUP);
    std::fs::write(directory.path().join("stop"), "")?;
    live.wait().fault(0).map_or(Ok(()), |fault| Err(fault.into()))
}

/// A program in the foreground of a terminal of its own, and what types into that, once the program has
/// said `up` so many times.
fn in_terminal(words: &[&str], up: usize) -> Result<(Running, File), libtest_mimic::Failed> {
    let pty = nix::pty::openpty(None, None)?;
    let live = testkit::Tree::new("/usr/bin/setsid")
        .args(["--ctty", "--wait"])
        .args(words)
        .stdin(testkit::Input::Stream(Stdio::from(pty.slave)))
        .start();
    live.wait_stdout("up", up);
    Ok((live, File::from(pty.master)))
}

/// The job in the foreground of a terminal of its own: typed text arrives, Ctrl-C interrupts.
fn terminal_keys() -> Checked {
    let exe = std::env::current_exe()?;
    let text = "echo up; [ $GASNETRUN_RANK = 0 ] && exec cat; exec sleep 1000";
    let front = [exe.to_str().ok_or("odd path")?, "front", "-n", "2", "--", "/bin/sh", "-c", text];
    let (live, mut master) = in_terminal(&front, 2)?;
    master.write_all(b"typed\n")?;
    live.wait_stdout("typed", 1);
    master.write_all(b"\x03")?;
    live.wait().fault(130).map_or(Ok(()), |fault| Err(fault.into()))
}

/// In the background of a terminal the job leaves what is typed to the shell, and has it once it is in
/// the foreground.
fn background() -> Checked {
    let exe = std::env::current_exe()?;
    let text = format!(
        "'{}' front -n 1 -- /bin/sh -c 'echo up; exec cat' & sleep 0.3; read line; echo shell $line; fg >/dev/null",
        exe.display()
    );
    let (live, mut master) = in_terminal(&["bash", "--norc", "-ic", &text], 1)?;
    master.write_all(b"first\n")?;
    live.wait_stdout("shell first", 1);
    master.write_all(b"second\n")?;
    live.wait_stdout("second", 1);
    master.write_all(b"\x04")?;
    live.wait().fault(0).map_or(Ok(()), |fault| Err(fault.into()))
}

/// All ranks have one session. It is not that of the launcher, unless the job has a nice value.
fn session() -> Checked {
    let exe = std::env::current_exe()?;
    let exe = exe.to_str().ok_or("odd path")?;
    let own = nix::unistd::getsid(None)?.to_string();
    for (nice, leaves) in [("0", true), ("5", false)] {
        let done = testkit::Tree::new("/usr/bin/nice")
            .args(["-n", nice, exe, "front", "-n", "2", "--"])
            .args(sh("cut -d ' ' -f 6 /proc/self/stat"))
            .run();
        let out = done.expect(0).out();
        let sessions: Vec<&str> = out.split_whitespace().collect();
        let [one, other] = sessions[..] else { return Err(format!("{out:?}").into()) };
        ensure(one == other && (one != own) == leaves, format!("nice {nice}, {own}: {out:?}"))?;
    }
    Ok(())
}
