//! Whole jobs with real processes. The executable is the test harness, and also the launcher and
//! the ranks that the tests run: a process that forks the agent must not have the threads of a
//! harness.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test program; the harness reports its panics"
)]

mod ends;
mod front;
mod kit;
mod rank;
mod signals;
mod streams;

use std::ffi::OsString;

use libtest_mimic::{Arguments, Trial};

fn main() {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    match words.get(1).and_then(|word| word.to_str()) {
        Some("front") => front::main(words.split_off(2)),
        Some("rank") => {
            let words = words.split_off(2).into_iter().map(|word| word.into_string().unwrap());
            rank::main(&words.collect::<Vec<_>>());
        }
        _ => {}
    }
    let tests = [("ends", ends::TESTS), ("streams", streams::TESTS), ("signals", signals::TESTS)];
    let trial =
        |(group, (name, test)): (&str, &kit::Test)| Trial::test(format!("{group}::{name}"), *test);
    let trials =
        tests.into_iter().flat_map(|(group, tests)| tests.iter().map(move |test| (group, test)));
    libtest_mimic::run(&Arguments::from_args(), trials.map(trial).collect()).exit();
}
