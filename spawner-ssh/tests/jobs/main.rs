//! Whole jobs with real processes. The executable is the test harness, and also the launcher and the ranks that the
//! tests run: a process that forks the agent must not have the threads of a harness.

mod front;

use std::ffi::OsString;

fn main() {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "front") {
        front::main(words.split_off(2));
    }
}
