//! A reader of our output that reads nothing does not keep a job that has failed, or is to end.

use std::fs::File;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use testkit::process::Process;
use testkit::{Outcome, Running, Tree};

/// A pipe with a reader that never reads.
struct Unread {
    directory: tempfile::TempDir,
    _reader: File,
}

impl Unread {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("pipe");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("a pipe");
        // Opened for both, because opening it for reading alone waits for a writer.
        let reader = File::options().read(true).write(true).open(&path);
        Self { _reader: reader.expect("a reader"), directory }
    }

    /// Two ranks that write without end, with their output, or what `redirect` says, into it.
    fn start(&self, redirect: &str, options: &[&str]) -> Running {
        let command = format!("exec \"$@\" {redirect}");
        let started = Tree::new("/bin/sh")
            .args(["-c", &command, "sh"])
            .arg(testkit::binary("gasnetrun_ibv"))
            .args(["-n", "2"])
            .args(options)
            .args(["/usr/bin/yes", "text"])
            .dir(self.directory.path())
            .env("GASNET_QUIET", "1")
            .deadline("a reader that does not read", Duration::from_secs(100))
            .start();
        let limit = Instant::now() + Duration::from_secs(20);
        while started.descendants().iter().filter(|p| is_rank(p) && has_written(p)).count() < 2 {
            assert!(Instant::now() < limit, "no ranks: {:?}", started.descendants());
            std::thread::sleep(Duration::from_millis(5));
        }
        started
    }
}

fn is_rank(process: &Process) -> bool {
    process.command.starts_with("(yes)")
}

/// A rank that is ended before it wrote anything has nothing that could be dropped.
fn has_written(process: &Process) -> bool {
    let counters = std::fs::read_to_string(format!("/proc/{}/io", process.pid)).unwrap_or_default();
    let written = counters.lines().find_map(|line| line.strip_prefix("wchar: "));
    written.and_then(|bytes| bytes.parse().ok()).is_some_and(|bytes: u64| bytes >= 4096)
}

fn says_what_was_dropped(outcome: &Outcome) {
    let err = outcome.err();
    let line = err.lines().find(|line| line.contains("nobody read for 10 s"));
    let line = line.unwrap_or_else(|| panic!("nothing of dropped output in {err}"));
    assert!(line.starts_with("gasnetrun_ibv: dropped "), "{line}");
    assert!(line.contains(" of rank 0, ") && line.ends_with(" of rank 1"), "{line}");
    assert!(!err.contains("was stuck"), "{err}");
}

#[test]
fn the_time_limit_ends_a_job_whose_output_nobody_reads() {
    let outcome = Unread::new().start("> pipe", &["--timeout", "3"]).wait();
    outcome.expect(124);
    says_what_was_dropped(&outcome);
}

#[test]
fn one_signal_ends_a_job_whose_output_nobody_reads() {
    let unread = Unread::new();
    let running = unread.start("> pipe", &[]);
    assert!(running.signal(Signal::SIGTERM));
    let outcome = running.wait();
    outcome.expect(143);
    says_what_was_dropped(&outcome);
}

/// The launcher's own last words wait for the same reader.
#[test]
fn a_job_ends_that_nobody_listens_to_at_all() {
    Unread::new().start("> pipe 2>&1", &["--timeout", "3"]).wait().expect(124);
}
