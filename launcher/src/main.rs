//! `gasnetrun_ibv`: starts the ranks of a job and brings them to an end.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let started = Instant::now();
    // On another host we are its agent; this is nothing for users, so it is no option.
    if std::env::args_os().nth(1).is_some_and(|word| word == spawner_ssh::node::AGENT_WORD) {
        spawner_ssh::node::main();
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == spawner_ssh::doctor::CHECKS_WORD) {
        let words: Vec<_> = std::env::args_os().skip(2).collect();
        return ExitCode::from(spawner_ssh::doctor::main(&words));
    }
    ExitCode::from(launcher::run::main(std::env::args_os().collect(), started))
}
