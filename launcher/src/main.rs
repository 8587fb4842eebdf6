//! `gasnetrun_ibv`: launches the ranks of a job, supervises them and returns one exit code.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let started = Instant::now();
    // On another host we are its agent; this is nothing for users, so it is no option.
    if std::env::args_os().nth(1).is_some_and(|word| word == supervisor::node::AGENT_WORD) {
        supervisor::node::main();
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == supervisor::doctor::CHECKS_WORD) {
        let words: Vec<_> = std::env::args_os().skip(2).collect();
        return ExitCode::from(launcher::doctor::check_this_host(&words));
    }
    ExitCode::from(launcher::run::main(std::env::args_os().collect(), started))
}
