//! `gasnetrun_ibv`: starts the ranks of a job and brings them to an end.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let started = Instant::now();
    ExitCode::from(launcher::run::main(std::env::args_os().collect(), started))
}
