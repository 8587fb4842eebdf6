//! How one process ends, without any launcher: exit codes, signals, freezing, backtraces. The test
//! starts itself again for each case; a case is a function here, run by the copy.

#![expect(clippy::print_stdout, reason = "a test harness of its own, and what exits must flush")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gasnet_ibv::{Client, Par, Seq};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;

const CASE: &str = "EXIT_PROCESS_CASE";
/// Far more than any case takes, for machines that are busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a case must end.
#[derive(Clone, Copy, Debug)]
enum End {
    Code(i32),
    Killed(Signal),
}

type Body = fn() -> ExitCode;
type Act = fn(&mut Running);

struct Case {
    name: &'static str,
    body: Body,
    settings: &'static [(&'static str, &'static str)],
    act: Act,
    end: End,
    /// Must be in standard error, and must not.
    says: &'static [&'static str],
    hides: &'static [&'static str],
    /// Standard output.
    out: &'static str,
}

const PLAIN: Case = Case {
    name: "",
    body: || ExitCode::SUCCESS,
    settings: &[],
    act: |_| {},
    end: End::Code(0),
    says: &[],
    hides: &["Caught"],
    out: "",
};

const SEGV_MESSAGE: &str = "*** Caught a fatal signal (proc 0): SIGSEGV(11)\n";

fn cases() -> Vec<Case> {
    let mut cases = exits();
    cases.extend(signals());
    cases.extend(diagnostics());
    cases
}

fn exits() -> Vec<Case> {
    vec![
        Case { name: "exit with a code", body: || client().exit(7), end: End::Code(7), ..PLAIN },
        Case {
            name: "exit flushes a line that is not finished",
            body: || {
                print!("half a line");
                client().exit(0)
            },
            out: "half a line",
            ..PLAIN
        },
        Case {
            name: "exit while this thread holds standard output",
            body: || {
                let mut out = std::io::stdout().lock();
                let _ = out.write_all(b"held");
                client().exit(3)
            },
            end: End::Code(3),
            out: "held",
            ..PLAIN
        },
        Case {
            name: "exit while another thread holds standard output",
            body: held_elsewhere,
            end: End::Code(4),
            ..PLAIN
        },
        Case {
            name: "return from main",
            body: || {
                std::mem::forget(client());
                ExitCode::from(9)
            },
            end: End::Code(9),
            ..PLAIN
        },
        Case {
            name: "exit(3) of libc",
            body: || {
                std::mem::forget(client());
                leave(5)
            },
            end: End::Code(5),
            ..PLAIN
        },
        Case {
            name: "return from main without the hook",
            body: || {
                std::mem::forget(client());
                ExitCode::from(6)
            },
            settings: &[("GASNET_CATCH_EXIT", "0")],
            end: End::Code(6),
            ..PLAIN
        },
        Case { name: "exit before init", body: || gasnet_ibv::exit(8), end: End::Code(8), ..PLAIN },
        Case {
            name: "the first of two exits wins",
            body: || race(false),
            end: End::Code(20),
            ..PLAIN
        },
        Case {
            name: "exit of many threads at once",
            body: || race(true),
            end: End::Code(21),
            ..PLAIN
        },
        Case { name: "exit in a panic hook", body: panicking, end: End::Code(13), ..PLAIN },
        Case {
            name: "an exit time-out below the floor is refused",
            body: || match Client::<Seq>::init("test") {
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::from(2)
                }
                Ok(client) => client.exit(0),
            },
            settings: &[("GASNET_EXITTIMEOUT", "1")],
            end: End::Code(2),
            says: &["GASNET_EXITTIMEOUT"],
            ..PLAIN
        },
    ]
}

fn signals() -> Vec<Case> {
    let asked = |name, body, text| Case {
        name,
        body,
        end: End::Code(1),
        says: text,
        hides: &["fatal"],
        ..PLAIN
    };
    let fatal = |name, body, signal, text| Case {
        name,
        body,
        end: End::Killed(signal),
        says: text,
        hides: &[],
        ..PLAIN
    };
    vec![
        asked(
            "SIGINT",
            || signalled(Signal::SIGINT),
            &["*** Caught a signal (proc 0): SIGINT(2)\n"],
        ),
        asked(
            "SIGTERM",
            || signalled(Signal::SIGTERM),
            &["*** Caught a signal (proc 0): SIGTERM(15)\n"],
        ),
        asked(
            "SIGHUP",
            || signalled(Signal::SIGHUP),
            &["*** Caught a signal (proc 0): SIGHUP(1)\n"],
        ),
        asked(
            "SIGPIPE",
            || signalled(Signal::SIGPIPE),
            &["*** Caught a signal (proc 0): SIGPIPE(13)\n"],
        ),
        asked("SIGQUIT", || signalled(Signal::SIGQUIT), &[]),
        fatal("SIGSEGV", || signalled(Signal::SIGSEGV), Signal::SIGSEGV, &[SEGV_MESSAGE]),
        fatal("SIGBUS", || signalled(Signal::SIGBUS), Signal::SIGBUS, &["(proc 0): SIGBUS(7)\n"]),
        fatal("SIGFPE", || signalled(Signal::SIGFPE), Signal::SIGFPE, &["(proc 0): SIGFPE(8)\n"]),
        fatal("SIGILL", || signalled(Signal::SIGILL), Signal::SIGILL, &["(proc 0): SIGILL(4)\n"]),
        fatal("abort", aborted, Signal::SIGABRT, &["(proc 0): SIGABRT(6)\n"]),
        fatal("a full stack", full_stack, Signal::SIGSEGV, &[SEGV_MESSAGE]),
        fatal("a full stack of a thread", full_thread, Signal::SIGSEGV, &[SEGV_MESSAGE]),
        Case {
            name: "a fatal error",
            body: || {
                std::mem::forget(client());
                gasnet_ibv::fatal_error("so it goes")
            },
            end: End::Killed(Signal::SIGABRT),
            says: &["*** FATAL ERROR (proc 0): so it goes\n"],
            ..PLAIN
        },
        Case {
            name: "a signal that is left alone",
            body: || signalled(Signal::SIGTERM),
            settings: &[("GASNET_NO_CATCH_SIGNAL", "SIGUSR1, TERM")],
            end: End::Killed(Signal::SIGTERM),
            ..PLAIN
        },
        Case {
            name: "all signals are left alone",
            // Not SIGINT, which shells let programs in the background ignore.
            body: || signalled(Signal::SIGTERM),
            settings: &[("GASNET_NO_CATCH_SIGNAL", "*")],
            end: End::Killed(Signal::SIGTERM),
            ..PLAIN
        },
    ]
}

fn diagnostics() -> Vec<Case> {
    let trace = Case {
        settings: &[("GASNET_BACKTRACE", "1"), ("GASNET_BACKTRACE_TYPE", "EXECINFO")],
        hides: &[],
        end: End::Killed(Signal::SIGSEGV),
        ..PLAIN
    };
    vec![
        Case {
            name: "a backtrace of a fatal signal",
            body: || signalled(Signal::SIGSEGV),
            says: &[SEGV_MESSAGE, "by EXECINFO\n", "exit_process::signalled"],
            ..trace
        },
        Case {
            name: "a backtrace of a full stack",
            body: full_stack,
            says: &[SEGV_MESSAGE, "exit_process::dig"],
            ..trace
        },
        Case {
            name: "no backtrace on other ranks",
            body: || signalled(Signal::SIGSEGV),
            settings: &[("GASNET_BACKTRACE", "1"), ("GASNET_BACKTRACE_NODES", "1-3")],
            says: &[SEGV_MESSAGE],
            hides: &["backtrace"],
            ..trace
        },
        Case {
            name: "a backtrace on demand",
            body: || {
                let client = client();
                raised(Signal::SIGUSR2);
                client.exit(0)
            },
            settings: &[
                ("GASNET_BACKTRACE_SIGNAL", "SIGUSR2"),
                ("GASNET_BACKTRACE_TYPE", "EXECINFO"),
            ],
            says: &["by EXECINFO\n", "exit_process::diagnostics"],
            ..PLAIN
        },
        Case {
            name: "a backtrace by call",
            body: || {
                gasnet_ibv::print_backtrace();
                client().exit(0)
            },
            says: &["by EXECINFO\n", "exit_process::diagnostics"],
            ..PLAIN
        },
        Case {
            name: "frozen at init",
            body: || client().exit(0),
            settings: &[("GASNET_FREEZE", "1")],
            act: thaw,
            ..PLAIN
        },
        Case {
            name: "frozen by an error",
            body: || signalled(Signal::SIGSEGV),
            settings: &[("GASNET_FREEZE_ON_ERROR", "yes")],
            act: thaw,
            end: End::Killed(Signal::SIGSEGV),
            says: &[SEGV_MESSAGE],
            hides: &[],
            ..PLAIN
        },
        Case {
            name: "frozen on demand",
            body: || {
                let client = client();
                raised(Signal::SIGUSR1);
                client.exit(12)
            },
            settings: &[("GASNET_FREEZE_SIGNAL", "USR1")],
            act: thaw,
            end: End::Code(12),
            ..PLAIN
        },
    ]
}

// ---- what the copies do ----

#[expect(clippy::disallowed_methods, reason = "what is tested")]
fn leave(code: i32) -> ! {
    std::process::exit(code)
}

fn client() -> Client<Par> {
    Client::init("test").expect("a job of one rank")
}

fn raised(signal: Signal) {
    raise(signal).expect("a signal to this thread");
}

#[inline(never)]
fn signalled(signal: Signal) -> ExitCode {
    let client = client();
    raised(signal);
    drop(client);
    eprintln!("went on after {signal}: Caught nothing");
    ExitCode::from(77)
}

fn aborted() -> ExitCode {
    std::mem::forget(client());
    std::process::abort()
}

fn held_elsewhere() -> ExitCode {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let _held = std::io::stdout().lock();
        send.send(()).expect("main waits");
        std::thread::sleep(PATIENCE);
    });
    receive.recv().expect("the thread has the lock");
    client().exit(4)
}

/// One thread exits with 20 and the others follow, or all with 21 at once.
fn race(at_once: bool) -> ExitCode {
    let client = client();
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (client, start) = (&client, &start);
            scope.spawn(move || {
                start.wait();
                if at_once || number == 0 {
                    client.exit(20 + i32::from(at_once));
                }
                // Every call of another thread stays in the library once the exit has begun.
                while client.poll().is_ok() {}
                client.exit(99)
            });
        }
    });
    ExitCode::from(77)
}

fn panicking() -> ExitCode {
    let client = client();
    std::panic::set_hook(Box::new(|_| gasnet_ibv::exit(13)));
    let zero = client.size() - 1;
    assert_eq!(zero, 1, "the hook exits");
    ExitCode::from(77)
}

#[inline(never)]
#[expect(unconditional_recursion, reason = "fills the stack")]
fn dig(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    dig(depth + 1) + room[0]
}

fn full_stack() -> ExitCode {
    std::mem::forget(client());
    ExitCode::from(u8::try_from(dig(0) % 2).unwrap_or(77))
}

fn full_thread() -> ExitCode {
    std::mem::forget(client());
    let thread = std::thread::spawn(|| dig(0));
    ExitCode::from(u8::from(thread.join().is_err()))
}

// ---- the test ----

/// A copy at work.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: String,
    deadline: Instant,
}

impl Running {
    /// Waits for a line of standard error that contains `text`.
    fn expect_line(&mut self, text: &str) {
        loop {
            let line = self.lines.recv_timeout(self.deadline - Instant::now());
            let line =
                line.unwrap_or_else(|_| panic!("no line with {text:?} after:\n{}", self.seen));
            self.seen.push_str(&line);
            if line.contains(text) {
                return;
            }
        }
    }

    fn finish(&mut self) -> ExitStatus {
        loop {
            match self.lines.recv_timeout(self.deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.seen.push_str(&line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.child.kill().expect("our child");
                    panic!("still there after {PATIENCE:?}:\n{}", self.seen);
                }
            }
        }
        self.child.wait().expect("our child")
    }
}

fn thaw(running: &mut Running) {
    running.expect_line("is frozen");
    let pid = i32::try_from(running.child.id()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGCONT).expect("our child");
}

fn start(case: &Case) -> Running {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    for (name, _) in settings::Env::from_process() {
        if name.to_string_lossy().starts_with("GASNET") {
            command.env_remove(name);
        }
    }
    command.env(CASE, case.name).envs(case.settings.iter().copied());
    // Core files of the crash cases help nobody.
    command.current_dir(std::env::temp_dir());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("a copy of this program");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = Vec::new();
        while errors.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    Running { child, lines, seen: String::new(), deadline: Instant::now() + PATIENCE }
}

fn run(case: &Case) {
    let mut running = start(case);
    (case.act)(&mut running);
    let status = running.finish();
    let mut out = String::new();
    running.child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    let seen = &running.seen;
    match case.end {
        End::Code(code) => assert_eq!(status.code(), Some(code), "{status}:\n{seen}"),
        End::Killed(signal) => {
            assert_eq!(status.signal(), Some(signal as i32), "{status}:\n{seen}")
        }
    }
    for text in case.says {
        assert!(seen.contains(text), "{text:?} is not in:\n{seen}");
    }
    for text in case.hides {
        assert!(!seen.contains(text), "{text:?} is in:\n{seen}");
    }
    assert_eq!(out, case.out);
}

fn main() -> ExitCode {
    let cases = cases();
    if let Some(name) = settings::Env::from_process().text(CASE) {
        let case = cases.iter().find(|case| case.name == name).expect("a case");
        return (case.body)();
    }
    let filter =
        std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let chosen: Vec<_> = cases.iter().filter(|case| case.name.contains(&filter)).collect();
    println!("running {} tests", chosen.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failed = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) =
                    chosen.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let passed = std::panic::catch_unwind(|| run(case)).is_ok();
                    println!("test {} ... {}", case.name, if passed { "ok" } else { "FAILED" });
                    failed.fetch_add(usize::from(!passed), std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out",
        chosen.len() - failed,
        cases.len() - chosen.len()
    );
    ExitCode::from(u8::from(failed > 0))
}
