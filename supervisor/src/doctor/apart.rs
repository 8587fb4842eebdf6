//! The checks of a host, in a process of their own.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use settings::deadlines::tree::CHECKS;

use super::finding::{Finding, Level};
use crate::agent::processes::read_all;

/// First word of our program when it is to look at its host: then whether there are other hosts
/// (`yes`), when programs are sent to it (`--stage`; the launching host: `here`), and the working
/// directory.
pub const CHECKS_WORD: &str = "--doctor-checks";
/// Most bytes that are believed.
const MAX: usize = 1 << 20;

/// What the checks say about this host. `env` goes to them on top of our own environment.
pub(crate) fn findings(
    directory: &OsStr,
    several: bool,
    stage: &str,
    env: &[(OsString, OsString)],
) -> Vec<Finding> {
    let mut command = Command::new("/proc/self/exe");
    let several = if several { "yes" } else { "no" };
    command.args([CHECKS_WORD, several, stage]).arg(directory);
    command.envs(env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    crate::agent::sys::die_with_us(&mut command);
    let told = command.spawn().map_err(|error| format!("cannot start the checks: {error}"));
    let told = told.and_then(|mut child| {
        let read = read(&mut child);
        if read.is_err() {
            let _ = child.kill();
        }
        let ended = child.wait().map_err(|error| error.to_string())?;
        let bytes = read?;
        serde_json::from_slice(&bytes).map_err(|_| format!("the checks ended with {ended}"))
    });
    told.unwrap_or_else(|seen| {
        let fix = "a driver of an adapter may be broken: run `ibv_devinfo` there";
        vec![Finding::bad("adapters", Level::Problem, seen, fix)]
    })
}

/// Everything that the child writes, while its time lasts.
fn read(child: &mut Child) -> Result<Vec<u8>, String> {
    let Some(output) = child.stdout.take() else { return Err("no pipe".to_owned()) };
    match read_all(output, Instant::now() + CHECKS.limit, MAX + 1) {
        Ok(all) if all.len() > MAX => Err(format!("the checks wrote more than {MAX} bytes")),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            Err(format!("the checks took more than {} s", CHECKS.limit.as_secs()))
        }
        read => read.map_err(|error| error.to_string()),
    }
}
