//! Ignores every polite request to end: the launcher has to insist. Prints `ready` and its process
//! id first.

use std::io::Write;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

fn main() -> std::io::Result<()> {
    let polite = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::from_iter(polite)), None)?;
    writeln!(std::io::stdout(), "ready {}", std::process::id())?;
    loop {
        std::thread::park();
    }
}
