//! Signals, and death of any part of a job at any time: the job ends, and nothing survives.

use std::time::Duration;

use nix::sys::signal::Signal;
use testkit::process::{Process, eventually, send};
use testkit::{Running, Tree, all_requested, job, launcher};

/// For a front that was killed: its descendants end by themselves within this.
const GRACE: Duration = Duration::from_secs(10);
/// What a test waits for comes far sooner.
const PATIENCE: Duration = Duration::from_secs(20);

fn shell(ranks: u32, script: &str) -> Tree {
    launcher(["-n", &ranks.to_string(), "/bin/sh", "-c", script])
        .deadline("fault", Duration::from_secs(30))
}

#[test]
fn last_lines_of_a_rank_cannot_pass_for_the_launchers() {
    let forged = "printf 'bad \\033[2J\\rgasnetrun_ibv: all is well\\n' >&2; exit 3";
    let outcome = shell(1, forged).run();
    outcome.expect(3);
    let err = outcome.err();
    let (_, summary) = err.split_once("last lines of its standard error:").expect("last lines");
    assert!(summary.contains("bad \\u{1b}[2J\\rgasnetrun_ibv: all is well"), "{summary:?}");
    assert!(!summary.contains(['\u{1b}', '\r']), "{summary:?}");
}

/// The agent: the only child of the front.
fn agent(running: &Running) -> i32 {
    eventually("an agent below the front", PATIENCE, || {
        running.descendants().iter().find(|process| process.parent == running.pid()).map(|p| p.pid)
    })
}

/// The processes of the ranks: children of the agent, or of whatever starts them, with this
/// program.
fn ranks(running: &Running, program: &str, count: usize) -> Vec<Process> {
    eventually("all ranks running", PATIENCE, || {
        let mut found = running.descendants();
        found.retain(|process| process.command.contains(program));
        // The front and its forks carry the program's name among their own arguments.
        found.retain(|process| !process.command.contains("gasnetrun_ibv"));
        (found.len() == count).then_some(found)
    })
}

#[test]
fn signals_are_forwarded_to_every_rank() {
    for signal in ["USR1", "USR2", "HUP", "TERM", "INT", "QUIT"] {
        let script = format!(
            "trap 'echo got {signal}; exit 0' {signal}; echo ready; while :; do sleep 0.05; done"
        );
        let running = shell(3, &script).start();
        running.wait_stdout("ready", 3);
        assert!(
            running.signal(
                signal
                    .parse::<Signal>()
                    .unwrap_or_else(|_| { format!("SIG{signal}").parse().unwrap() })
            )
        );
        running.wait_stdout(&format!("got {signal}"), 3);
        let outcome = running.wait();
        assert!(outcome.survivors.is_empty(), "{signal}: {:?}", outcome.survivors);
        assert_ne!(outcome.code(), -1, "{signal}");
    }
}

#[test]
fn a_second_interrupt_kills_ranks_that_ignore_the_first() {
    let running = job(2, "stubborn").deadline("interrupts", Duration::from_secs(30)).start();
    running.wait_stdout("ready", 2);
    assert!(running.signal(Signal::SIGINT));
    std::thread::sleep(Duration::from_millis(100));
    assert!(running.signal(Signal::SIGINT));
    let outcome = running.wait();
    outcome.expect(130);
    assert!(outcome.duration < Duration::from_secs(10), "{:?}", outcome.duration);
}

/// A job of two ranks whose agent does nothing any more.
fn with_stopped_agent(options: &[&str]) -> Running {
    let words = ["/bin/sh", "-c", "echo up; exec sleep 1000"];
    let job = launcher([&["-n", "2"], options, &words].concat());
    // The launcher gives its agent `agent.stuck`, half a minute.
    let running = job.deadline("a stuck agent", Duration::from_secs(120)).start();
    running.wait_stdout("up", 2);
    assert!(send(agent(&running), Signal::SIGSTOP));
    running
}

#[test]
fn a_stuck_agent_does_not_outlive_the_time_limit() {
    let outcome = with_stopped_agent(&["--timeout", "3"]).wait();
    outcome.expect(124);
    assert!(outcome.err().contains("was stuck"), "{}", outcome.err());
}

#[test]
fn a_stuck_agent_does_not_outlive_a_second_interrupt() {
    let running = with_stopped_agent(&[]);
    assert!(running.signal(Signal::SIGINT));
    std::thread::sleep(Duration::from_millis(200));
    assert!(running.signal(Signal::SIGINT));
    let outcome = running.wait();
    outcome.expect(130);
    let err = outcome.err();
    assert!(err.contains("was stuck") && err.contains("a second signal after SIGINT"), "{err}");
}

/// The reduction of the exit codes must not lose a message to a handler that interrupts the poll
/// that took it out.
#[test]
fn interrupts_at_any_moment_end_a_job_without_a_stall() {
    for round in 0..if all_requested() { 200 } else { 15 } {
        let program = job(8, "testexit").args(["3"]).deadline("interrupt", Duration::from_secs(30));
        let running = program.start();
        running.wait_stderr("case 3", 1);
        std::thread::sleep(Duration::from_millis(round % 15 * 3));
        assert!(running.signal(Signal::SIGINT));
        let outcome = running.wait();
        // The program's SIGQUIT handler exits with 4; a rank that exits by itself gives 3.
        assert!(
            [3, 4, 130].contains(&outcome.code()),
            "round {round}: code {}\n{}",
            outcome.code(),
            outcome.err()
        );
        assert!(outcome.survivors.is_empty(), "round {round}: {:?}", outcome.survivors);
        // A lost message costs the two seconds of the reduction's time-out.
        assert!(outcome.duration < Duration::from_secs(8), "round {round}: {:?}", outcome.duration);
    }
}

#[test]
fn a_rank_that_ignores_the_end_is_killed_after_the_grace() {
    let script = format!(
        "[ $GASNETRUN_RANK = 0 ] && {{ sleep 0.2; exit 5; }}; exec {}",
        testkit::binary("stubborn").display()
    );
    shell(3, &script).run().expect(5);
}

#[test]
fn stop_and_continue_reach_the_ranks() {
    let running = shell(2, "echo ready; exec sleep 600").start();
    running.wait_stdout("ready", 2);
    let ranks = ranks(&running, "sleep", 2);
    let state = |pid: i32| Process::read(pid).map_or('?', |process| process.state);
    assert!(running.signal(Signal::SIGTSTP));
    eventually("all ranks and the front stopped", PATIENCE, || {
        let ranks_stopped = ranks.iter().all(|rank| state(rank.pid) == 'T');
        (ranks_stopped && state(running.pid()) == 'T').then_some(())
    });
    assert!(running.signal(Signal::SIGCONT));
    eventually("all ranks running again", PATIENCE, || {
        ranks.iter().all(|rank| state(rank.pid) != 'T').then_some(())
    });
    assert!(running.signal(Signal::SIGTERM));
    let outcome = running.wait();
    outcome.expect(143);
}

#[test]
fn killing_any_rank_ends_the_job_and_is_named() {
    for victim in 0..3 {
        // A ring that never ends in the time of this test.
        let running = job(3, "ring").arg("700000000").start();
        let mut processes = ranks(&running, "ring", 3);
        processes.sort_by_key(|process| process.pid);
        // Some are killed while they start, some in the middle of their messages.
        std::thread::sleep(Duration::from_millis(20 * victim));
        let pid = processes[usize::try_from(victim).unwrap()].pid;
        assert!(send(pid, Signal::SIGKILL));
        let outcome = running.wait();
        outcome.expect(137);
        assert!(outcome.err().contains(&pid.to_string()), "{pid} not in {}", outcome.err());
        assert!(outcome.duration < Duration::from_secs(20));
    }
}

#[test]
fn killing_the_agent_ends_everything() {
    for program in ["stubborn", "grandchild", "ring"] {
        let arg = if program == "ring" { &["700000000"][..] } else { &[] };
        let running =
            job(3, program).args(arg).deadline("agent lost", Duration::from_secs(30)).start();
        let _ = ranks(&running, program, 3);
        if program != "ring" {
            running.wait_stdout("ready", 3);
        }
        assert!(send(agent(&running), Signal::SIGKILL));
        let outcome = running.wait();
        assert!(outcome.survivors.is_empty(), "{program}: {:?}", outcome.survivors);
        assert!(outcome.code() > 0, "{program}: {:?}", outcome.end);
        assert!(!outcome.stderr.is_empty(), "{program}: the loss of the agent is not reported");
    }
}

#[test]
fn killing_the_front_ends_everything() {
    for program in ["stubborn", "grandchild", "ring"] {
        let arg = if program == "ring" { &["700000000"][..] } else { &[] };
        let running = job(3, program).args(arg).grace(GRACE).start();
        let _ = ranks(&running, program, 3);
        if program != "ring" {
            running.wait_stdout("ready", 3);
        }
        assert!(running.signal(Signal::SIGKILL));
        let outcome = running.wait();
        assert_eq!(outcome.code(), 137);
        assert!(outcome.survivors.is_empty(), "{program}: {:?}", outcome.survivors);
    }
}

/// The agent of a killed launcher, stopped before or after, does not keep the job.
#[test]
fn killing_the_front_ends_everything_behind_a_stopped_agent() {
    for program in ["stubborn", "grandchild"] {
        let running = job(3, program).grace(GRACE).start();
        running.wait_stdout("ready", 3);
        assert!(send(agent(&running), Signal::SIGSTOP));
        assert!(running.signal(Signal::SIGKILL));
        let outcome = running.wait();
        assert_eq!(outcome.code(), 137);
        assert!(outcome.survivors.is_empty(), "{program}: {:?}", outcome.survivors);
    }
}

#[test]
fn an_agent_that_was_stopped_still_writes_what_ranks_had_said() {
    let go = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = go.path().display();
    let wait = format!("echo up; while [ -e {path} ]; do sleep 0.01; done; echo late; sleep 1000");
    let running = shell(2, &wait).grace(GRACE).start();
    running.wait_stdout("up", 2);
    let shells = ranks(&running, "late", 2);
    assert!(send(agent(&running), Signal::SIGSTOP));
    drop(go);
    for rank in shells {
        eventually("the rank sleeps", PATIENCE, || {
            // A shell that has only forked carries the whole script as its command, before it said "late".
            let below = Process::descendants(rank.pid);
            below.iter().any(|process| process.command == "(sleep) sleep 1000").then_some(())
        });
    }
    assert!(running.signal(Signal::SIGKILL));
    let outcome = running.wait();
    assert_eq!(outcome.out().matches("late").count(), 2, "{}", outcome.out());
    assert!(outcome.survivors.is_empty(), "{:?}", outcome.survivors);
}

/// Nothing that an agent without launcher does lasts longer than `agent.orphaned`.
#[test]
fn an_agent_without_launcher_is_killed_in_the_end() {
    let script = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done";
    let running = shell(2, script).grace(Duration::from_secs(60)).start();
    running.wait_stdout("ready", 2);
    let agent = agent(&running);
    assert!(running.signal(Signal::SIGKILL));
    // It has sent TERM, which these ranks survive, and now waits before it kills them.
    running.wait_stdout("told", 2);
    assert!(send(agent, Signal::SIGSTOP));
    let outcome = running.wait();
    assert!(outcome.survivors.is_empty(), "{:?}", outcome.survivors);
}

/// Which part dies.
#[derive(Clone, Copy, Debug)]
enum Part {
    Front,
    Agent,
    Rank,
}

#[test]
fn death_of_any_part_at_any_moment_leaves_nothing() {
    let step = if all_requested() { 1 } else { 6 };
    for program in ["grandchild", "ring"] {
        for part in [Part::Front, Part::Agent, Part::Rank] {
            for delay in (0..60).step_by(step) {
                die(program, part, Duration::from_millis(delay));
            }
        }
    }
}

fn die(program: &str, part: Part, delay: Duration) {
    let arg = if program == "ring" { &["700000000"][..] } else { &[] };
    let running = job(8, program).args(arg).grace(GRACE).start();
    std::thread::sleep(delay);
    let below = running.descendants();
    let agent = below.iter().find(|p| p.parent == running.pid()).map(|p| p.pid);
    let victim = match part {
        Part::Front => Some(running.pid()),
        Part::Agent => agent,
        Part::Rank => below.iter().rfind(|p| Some(p.parent) == agent).map(|p| p.pid),
    };
    // Before the part exists, the front takes its place.
    let _ = send(victim.unwrap_or(running.pid()), Signal::SIGKILL);
    let outcome = running.wait();
    let what = format!("{program}, {part:?} killed after {delay:?}");
    assert!(outcome.survivors.is_empty(), "{what}: {:?}", outcome.survivors);
    assert!(outcome.code() > 0, "{what}: {:?}\n{}", outcome.end, outcome.err());
}
