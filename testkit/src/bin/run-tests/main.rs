//! Runs the test programs of the workspace side by side: those that compute, as many as there are
//! processors and behind the others; those that mostly wait, several at once; at last, one after the
//! other, those that want the whole machine.
//!
//! `run-tests MESSAGES LOGS SECONDS`: MESSAGES is what `cargo test --no-run --message-format=json`
//! wrote; the whole output goes to the folder LOGS, a file for each program. Ends all that still
//! run after SECONDS. Shows the output of each program when it ends, without the tests that passed,
//! then what took the longest, then `N passed, N failed, N skipped`. Exit code 1 when something
//! failed.

mod program;
mod queue;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use testkit::report::show;

use crate::program::{Ended, Program};
use crate::queue::Queue;

/// How many lines the tables of durations have.
const SLOWEST: usize = 25;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let messages = arguments.next().map(std::fs::read_to_string);
    let logs = arguments.next().map(PathBuf::from);
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let (Some(Ok(messages)), Some(logs), Some(seconds)) = (messages, logs, seconds) else {
        let _ = writeln!(std::io::stderr(), "usage: run-tests MESSAGES LOGS SECONDS");
        return ExitCode::from(2);
    };
    let programs = program::listed(&messages);
    if programs.is_empty() {
        let _ = writeln!(std::io::stderr(), "run-tests: no test program in these messages");
        return ExitCode::from(2);
    }
    let begin = Instant::now();
    let limit = begin.checked_add(Duration::from_secs(seconds));
    let _ = std::fs::create_dir_all(&logs);
    // Test programs have process groups of their own, so an interrupt at the terminal comes here
    // only.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            let _ = writeln!(std::io::stderr(), "run-tests: signal {signal}: {error}");
        }
    }
    let ended = Queue::new(&programs).run(limit, &stop, |one| {
        // A full disk must not end the run.
        let _ = std::fs::write(logs.join(format!("{}.log", one.program.name)), one.log());
        show(&one.text(begin));
    });
    show(&tables(&ended, begin.elapsed()));
    let failures: String = ended.iter().filter_map(Ended::failures).collect();
    let _ = std::fs::write(logs.join("failed"), failures);
    let sum = |count: fn(&Ended) -> usize| ended.iter().map(count).sum::<usize>();
    let failed = sum(|one| one.failed);
    show(&format!(
        "{} passed, {failed} failed, {} skipped\n",
        sum(|one| one.passed),
        sum(|one| one.skipped)
    ));
    ExitCode::from(u8::from(failed > 0))
}

/// Which programs and which tests took the longest.
fn tables(ended: &[Ended], all: Duration) -> String {
    let mut programs: Vec<&Ended> = ended.iter().collect();
    programs.sort_by_key(|one| std::cmp::Reverse(one.took));
    let mut text = format!(
        "\n{} test programs in {:.0} s\n{:40} {:>6} {:>12}\n",
        ended.len(),
        all.as_secs_f64(),
        "slowest test programs",
        "s",
        "processor s"
    );
    for one in programs.iter().take(SLOWEST) {
        let (took, used) = (one.took.as_secs_f64(), one.used.as_secs_f64());
        text += &format!("{:40} {took:>6.1} {used:>12.1}\n", one.program.name);
    }
    let mut tests: Vec<(Duration, String)> = ended.iter().flat_map(Ended::durations).collect();
    tests.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    text += &format!("{:90} {:>6}\n", "slowest tests", "s");
    for (took, name) in tests.iter().take(SLOWEST) {
        text += &format!("{name:90} {:>6.1}\n", took.as_secs_f64());
    }
    text
}

/// The program's place in the queue.
pub(crate) fn kind_of(program: &Program) -> queue::Kind {
    queue::kind(&program.name)
}
