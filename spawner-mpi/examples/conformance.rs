//! The conformance suite of the bootstrap services, as a program to be started by any launcher.
//! Without arguments it runs the services; with the number of a mismatch (from 0) the last rank
//! makes another call than the others, and all must be refused.
//!
//! Ends with 0 when everything was as it must be, with 1 and a line on stderr otherwise.
#![expect(clippy::print_stdout, reason = "a test program that reports")]

use std::process::ExitCode;

use bootstrap::{Bootstrap, Error, conformance};

fn run(job: &mut dyn Bootstrap, mismatch: Option<usize>) -> Result<(), String> {
    let Some(number) = mismatch else { return conformance::services(job) };
    let (name, call) =
        conformance::MISMATCHES.get(number).ok_or_else(|| format!("no mismatch {number}"))?;
    let last = job.rank_info().rank.0 + 1 == job.rank_info().size;
    match call(job, usize::from(last)) {
        Err(Error::Refused { reason, .. }) if !reason.is_empty() => {
            job.exit_notifier().fini(0);
            Ok(())
        }
        other => Err(format!("{name}: {other:?} instead of a refusal")),
    }
}

fn main() -> ExitCode {
    let mismatch = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let mut job = match bootstrap::connect(&spawner_mpi::client::PROVIDERS) {
        Ok(job) => job,
        Err(error) => {
            eprintln!("conformance: {error}");
            return ExitCode::FAILURE;
        }
    };
    let place = job.rank_info();
    match run(job.as_mut(), mismatch) {
        Ok(()) => {
            if place.rank.0 == 0 {
                println!("conformance: {} ranks on {} hosts conform", place.size, place.hosts);
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("conformance: rank {}: {failure}", place.rank);
            job.abort(1)
        }
    }
}
