//! Starts a process in a session of its own that would outlive it, prints `ready` and both process
//! ids, then ends with the code given as argument, or waits to be ended when there is none.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};

fn main() -> std::io::Result<ExitCode> {
    let sleeper = Command::new("setsid")
        .args(["sleep", "600"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    writeln!(std::io::stdout(), "ready {} {}", std::process::id(), sleeper.id())?;
    match std::env::args().nth(1) {
        Some(code) => code.parse::<u8>().map(ExitCode::from).map_err(std::io::Error::other),
        None => loop {
            std::thread::park();
        },
    }
}
