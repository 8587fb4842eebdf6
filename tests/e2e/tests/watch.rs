//! Jobs that are watched while they run: `ps`, `top`, `stacks`, `kill`, `attach`, `--stall-timeout`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use testkit::process::{Process, send};
use testkit::terminal::in_terminal;
use testkit::{Outcome, Running, Tree, binary, launcher, skip};

const BOUND: Duration = Duration::from_secs(90);

/// A user's runtime directory of this test alone.
struct User(TempDir);

impl User {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn jobs(&self) -> PathBuf {
        self.0.path().join("gasnetrun")
    }

    fn launcher(&self, words: &[&str]) -> Tree {
        launcher(words).env("XDG_RUNTIME_DIR", self.0.path()).deadline("watch", BOUND)
    }

    fn ask(&self, words: &[&str]) -> Outcome {
        self.launcher(words).run()
    }

    /// A job of `watched` with so many ranks, once all are up.
    fn job(&self, ranks: usize, way: &str, options: &[&str]) -> Running {
        let (count, program) = (ranks.to_string(), binary("watched").display().to_string());
        let words = [&["-n", &count], options, &[&program, way]].concat();
        let running = self.launcher(&words).start();
        running.wait_stdout("up", ranks);
        running
    }

    /// The sockets of jobs.
    fn sockets(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.jobs()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// What `words` print once that has all of `parts`.
    fn eventually(&self, words: &[&str], parts: &[&str]) -> String {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let outcome = self.ask(words);
            outcome.expect(0);
            if parts.iter().all(|part| outcome.out().contains(part)) {
                return outcome.out();
            }
            assert!(Instant::now() < limit, "{parts:?} in {}", outcome.out());
        }
    }
}

fn end(running: Running, code: i32) -> Outcome {
    let outcome = running.wait();
    outcome.expect(code);
    outcome
}

fn has_debugger(test: &str) -> bool {
    let found = ["eu-stack", "gdb"].iter().any(|name| {
        let path = settings::variable("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
    });
    if !found {
        skip(test, "neither gdb nor eu-stack is installed");
    }
    found
}

#[test]
fn a_job_is_listed_shown_and_ended() {
    let user = User::new();
    let running = user.job(3, "barrier", &[]);
    let jobs = user.ask(&["ps"]);
    jobs.expect(0);
    let launcher = running.pid().to_string();
    let line = jobs.out().lines().nth(1).expect("a job").to_owned();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..4], [launcher.as_str(), "3", "1"], "{line}");
    assert!(line.contains("running") && line.ends_with("watched barrier"), "{line}");
    let shown = user.eventually(
        &["top", "--once", "--interval", "0.3", &launcher],
        &["in barrier", "computing", "3 ranks on 1 host"],
    );
    let rank0 = shown.lines().find(|line| line.starts_with("0 ")).expect("rank 0");
    assert!(rank0.contains("computing"), "{shown}");
    // A name, the beginning of a name, nothing at all: the only job is meant.
    let name = words[0];
    for which in [&[name][..], &[&name[..name.len() - 2]], &[]] {
        user.ask(&[&["top", "--once", "--interval", "0.01"], which].concat()).expect(0);
    }
    assert_eq!(user.sockets().len(), 1);
    let mode = user.sockets()[0].metadata().expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    user.ask(&["kill", "-s", "TERM", name]).expect(0);
    let outcome = end(running, 143);
    assert!(outcome.err().contains("the launcher got SIGTERM from pid"), "{}", outcome.err());
    assert!(user.sockets().is_empty(), "{:?}", user.sockets());
    let gone = user.ask(&["top", "--once", name]);
    gone.expect(125);
    assert!(gone.err().contains("no job of this user runs on this machine"), "{}", gone.err());
}

/// Whoever closes the window leaves nothing behind, also where SIGHUP is ignored.
#[test]
fn top_ends_with_its_terminal() {
    let user = User::new();
    let running = user.job(2, "chat", &[]);
    let program = binary("gasnetrun_ibv").display().to_string();
    for before in ["", "env --ignore-signal=HUP "] {
        let line = format!("{before}'{program}' top --interval 0.2 {}", running.pid());
        let mut script = in_terminal(&line, [24, 80]);
        script.env("XDG_RUNTIME_DIR", user.0.path());
        let (input, output) = (std::process::Stdio::piped(), std::process::Stdio::piped());
        let mut terminal = script.stdin(input).stdout(output).spawn().expect("script");
        // The picture has come.
        let mut picture = BufReader::new(terminal.stdout.take().expect("its output"));
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("RANK") {
            assert_ne!(picture.read_until(b'K', &mut seen).expect("a picture"), 0);
        }
        let below = Process::descendants(terminal.id().cast_signed());
        let top = below.iter().find(|process| process.command.contains(" top --interval"));
        let top = top.expect("top").pid;
        terminal.kill().expect("script");
        terminal.wait().expect("its end");
        let begin = Instant::now();
        while Process::read(top).is_some_and(|process| !process.is_zombie()) {
            let left = begin.elapsed() < Duration::from_secs(20);
            if !left {
                assert!(send(top, Signal::SIGKILL));
            }
            assert!(left, "{before}top goes on without its terminal");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let pid = running.pid();
    assert!(send(pid, Signal::SIGTERM));
    end(running, 143);
}

#[test]
fn messages_are_counted() {
    let user = User::new();
    let running = user.job(2, "chat", &[]);
    let shown = user.ask(&["top", "--once", "--interval", "1"]);
    shown.expect(0);
    let rates = shown.out();
    let ranks: Vec<&str> =
        rates.lines().skip_while(|line| !line.starts_with("RANK")).skip(1).collect();
    assert_eq!(ranks.len(), 2, "{rates}");
    for line in ranks {
        let rate: u64 = line.split_whitespace().last().expect("a rate").parse().expect("a number");
        // They send at most 5,000 a second.
        assert!((1..20_000).contains(&rate), "{line}");
    }
    assert!(running.signal(Signal::SIGKILL));
    let _ = running.wait();
}

#[test]
fn equal_stacks_are_one_group() {
    let test = "equal stacks are one group";
    if !has_debugger(test) {
        return;
    }
    let user = User::new();
    let running = user.job(3, "barrier", &[]);
    user.eventually(&["top", "--once", "--interval", "0.1"], &["2 in barrier"]);
    let text = user.eventually(&["stacks"], &["compute", "barrier", "ranks: 1-2"]);
    assert!(text.contains("rank 0\n"), "{text}");
    let json = user.ask(&["stacks", "--json"]);
    json.expect(0);
    let ranks: Vec<u64> = json
        .out()
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).expect("JSON")["rank"].as_u64().expect("a rank")
        })
        .collect();
    assert_eq!(ranks, [0, 1, 2]);
    // A debugger at one rank: it is run with the process.
    let attached =
        user.ask(&["attach", "--debugger", "echo debugger", &running.pid().to_string(), "2"]);
    attached.expect(0);
    assert!(attached.out().starts_with("debugger -p "), "{}", attached.out());
    let beyond = user.ask(&["attach", &running.pid().to_string(), "3"]);
    beyond.expect(125);
    assert!(beyond.err().contains("the job has ranks 0 to 2"), "{}", beyond.err());
    assert!(running.signal(Signal::SIGTERM));
    end(running, 143);
}

/// Without a debugger the host follows the stacks itself: the names are the same.
#[test]
fn stacks_are_seen_without_a_debugger() {
    let user = User::new();
    let program = binary("watched").display().to_string();
    let words = ["-n", "3", &program, "barrier"];
    let running = user.launcher(&words).env("PATH", "/nowhere").start();
    running.wait_stdout("up", 3);
    user.eventually(&["top", "--once", "--interval", "0.1"], &["2 in barrier"]);
    let parts = ["watched::compute", "watched::main", "barrier", "ranks: 1-2"];
    let text = user.eventually(&["stacks"], &parts);
    assert!(text.contains("rank 0\n") && !text.contains("install gdb"), "{text}");
    // They go on.
    user.eventually(&["top", "--once", "--interval", "0.1"], &["2 in barrier", "1 computing"]);
    assert!(running.signal(Signal::SIGTERM));
    end(running, 143);
}

/// What a debugger is told is the process of the program, not that of a shell around it.
#[test]
fn the_program_behind_a_wrapper_is_debugged() {
    let user = User::new();
    let program = binary("watched").display().to_string();
    let line = format!("{program} barrier; true");
    let running = user.launcher(&["-n", "2", "sh", "-c", &line]).start();
    running.wait_stdout("up", 2);
    let shown = user.eventually(&["top", "--once", "--interval", "0.1"], &["in barrier"]);
    for rank in ["0", "1"] {
        let show = "sh -c 'cat /proc/$1/comm'";
        let attached = user.ask(&["attach", "--debugger", show, &running.pid().to_string(), rank]);
        attached.expect(0);
        assert_eq!(attached.out(), "watched\n", "{shown}");
    }
    assert!(running.signal(Signal::SIGTERM));
    end(running, 143);
}

#[test]
fn a_job_without_progress_is_told_once() {
    let test = "a job without progress is told once";
    if !has_debugger(test) {
        return;
    }
    let user = User::new();
    let running = user.job(3, "stall", &["--stall-timeout", "0.5"]);
    running.wait_stderr("ranks: 1-2", 1);
    std::thread::sleep(Duration::from_secs(2));
    assert!(running.signal(Signal::SIGTERM));
    let err = end(running, 143).err();
    assert_eq!(err.matches("no progress: ").count(), 1, "{err}");
    assert!(err.contains("1 waits for messages") && err.contains("2 in barrier"), "{err}");
    // A job that computes is not told.
    let running = user.job(2, "barrier", &["--stall-timeout", "0.2"]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(running.signal(Signal::SIGTERM));
    let err = end(running, 143).err();
    assert!(!err.contains("no progress"), "{err}");
}

#[test]
fn a_program_without_gasnet_is_shown_by_what_the_system_says() {
    let user = User::new();
    let running = user.launcher(&["-n", "2", "sh", "-c", "echo up; sleep 600"]).start();
    running.wait_stdout("up", 2);
    user.eventually(&["top", "--once", "--interval", "0.1"], &["2 sleeping"]);
    assert!(running.signal(Signal::SIGTERM));
    end(running, 143);
}

#[test]
fn a_socket_of_a_dead_job_is_removed() {
    let user = User::new();
    let jobs = user.jobs();
    std::fs::create_dir(&jobs).expect("a directory");
    std::fs::set_permissions(&jobs, PermissionsExt::from_mode(0o700)).expect("its mode");
    let dead = jobs.join("n1.1.2.sock");
    drop(UnixListener::bind(&dead).expect("a socket"));
    let ask = || {
        let outcome = user.ask(&["kill", "n1.1.2"]);
        outcome.expect(125);
        assert!(outcome.err().contains("no job of this user runs"), "{}", outcome.err());
    };
    // A young one may be of a job that is about to listen.
    ask();
    assert!(dead.symlink_metadata().is_ok());
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    let stamp = nix::sys::time::TimeSpec::from_duration(
        long_ago.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970"),
    );
    nix::sys::stat::utimensat(
        nix::fcntl::AT_FDCWD,
        &dead,
        &stamp,
        &stamp,
        nix::sys::stat::UtimensatFlags::NoFollowSymlink,
    )
    .expect("another time");
    ask();
    assert!(dead.symlink_metadata().is_err());
    // A directory that others can use is not read.
    std::fs::set_permissions(&jobs, PermissionsExt::from_mode(0o777)).expect("its mode");
    let refused = user.ask(&["ps"]);
    refused.expect(125);
    assert!(refused.err().contains("is not a directory of this user alone"), "{}", refused.err());
}

/// What the job says to this line.
fn answer(socket: &Path, line: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).expect("a job");
    stream.set_read_timeout(Some(BOUND)).expect("a timeout");
    // A job that does not want to hear more hangs up.
    let _ = stream.write_all(line);
    let mut text = String::new();
    let _ = BufReader::new(stream).read_line(&mut text);
    text
}

#[test]
fn nonsense_at_the_socket_harms_nobody() {
    let user = User::new();
    let running = user.job(2, "barrier", &[]);
    let socket = user.sockets().pop().expect("a socket");
    for (line, said) in [
        (&b"nonsense\n"[..], "cannot be read"),
        (b"{\"ask\":\"everything\"}\n", "cannot be read"),
        (b"{\"ask\":\"signal\",\"number\":0}\n", "0 is no signal"),
        (b"\xff\xfe\n", "cannot be read"),
    ] {
        let said_now = answer(&socket, line);
        assert!(said_now.contains("refused") && said_now.contains(said), "{said_now}");
    }
    assert_eq!(answer(&socket, &[b'x'; 1 << 16]), "", "a question without an end");
    // Many that connect and say nothing.
    let silent: Vec<UnixStream> =
        (0..40).filter_map(|_| UnixStream::connect(&socket).ok()).collect();
    assert!(silent.len() > 20);
    drop(silent);
    user.eventually(&["top", "--once", "--interval", "0.1"], &["computing"]);
    assert!(running.signal(Signal::SIGTERM));
    end(running, 143);
}

#[test]
fn a_supervisor_that_is_killed_leaves_no_socket() {
    let user = User::new();
    let running = user.job(2, "barrier", &[]);
    let agent = running.descendants().into_iter().find(|process| process.parent == running.pid());
    assert!(send(agent.expect("an agent").pid, Signal::SIGKILL));
    end(running, 125);
    assert!(user.sockets().is_empty(), "{:?}", user.sockets());
}

#[test]
fn wrong_words_are_told() {
    let user = User::new();
    for (words, said) in [
        (&["kill", "-s", "NOTHING", "x"][..], "write a signal, as in TERM"),
        (&["kill"], "<JOB>"),
        (&["top", "--interval", "0", "x"], "0"),
        (&["attach", "x"], "<RANK>"),
        (&["ps", "x"], "unexpected argument"),
    ] {
        let outcome = user.ask(words);
        assert_ne!(outcome.code(), 0, "{words:?}");
        assert!(outcome.err().contains(said), "{words:?}: {}", outcome.err());
    }
    let first = user.job(1, "barrier", &[]);
    let second = user.job(1, "barrier", &[]);
    let outcome = user.ask(&["top", "--once"]);
    outcome.expect(125);
    assert!(outcome.err().contains("2 jobs run; write one of them"), "{}", outcome.err());
    let unknown = user.ask(&["kill", "nobody"]);
    unknown.expect(125);
    assert!(unknown.err().contains("no job here is called \"nobody\""), "{}", unknown.err());
    for running in [first, second] {
        assert!(running.signal(Signal::SIGTERM));
        end(running, 143);
    }
}
