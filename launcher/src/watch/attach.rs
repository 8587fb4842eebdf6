//! A debugger for a rank: here, or on the rank's host by ssh.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use supervisor::watch::{Answer, Ask};

use super::Job;
use super::error::WatchError;

/// Replaces this process by a debugger for the rank. Returns only when that fails.
pub(super) fn run(mut job: Job, rank: u32, debugger: &str) -> Result<u8, WatchError> {
    let name = job.view.job.clone();
    let bad = |problem: String| WatchError::Rank { rank, job: name.clone(), problem };
    if rank >= job.view.ranks {
        return Err(bad(format!("the job has ranks 0 to {}", job.view.ranks.saturating_sub(1))));
    }
    let Answer::Ranks { ranks, .. } = job.ask(&Ask::Ranks)? else { return Err(job.version()) };
    let found = ranks.into_iter().find(|view| view.rank == rank);
    let found = found.ok_or_else(|| bad("the job does not show so many ranks".to_owned()))?;
    let Some(pid) = found.pid.filter(|_| found.cpu_ms > 0 || found.resident_kib > 0) else {
        return Err(bad(format!("it has no process now: {}", found.state)));
    };
    let words = words(debugger, pid)
        .ok_or_else(|| WatchError::Program(format!("--debugger {debugger:?}: no command")))?;
    let words = if is_here(pid, &name) { words } else { over_ssh(&found.host, &words) };
    let program = words[0].clone();
    let error = Command::new(&program).args(&words[1..]).exec();
    Err(WatchError::Program(format!(
        "cannot run {}: {error}; install it, or name another one with --debugger",
        program.display()
    )))
}

/// The words of a debugger for a process; none when `debugger` has none.
fn words(debugger: &str, pid: i32) -> Option<Vec<OsString>> {
    let mut words = shlex::split(debugger).filter(|words| !words.is_empty())?;
    words.extend(["-p".to_owned(), pid.to_string()]);
    Some(words.into_iter().map(OsString::from).collect())
}

/// Whether the process is one of the job on this machine.
fn is_here(pid: i32, job: &str) -> bool {
    let wanted = format!("GASNETRUN_JOB={job}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|one| one == wanted.as_bytes())
}

/// The same on another host, with a terminal there.
fn over_ssh(host: &str, words: &[OsString]) -> Vec<OsString> {
    let texts = words.iter().map(|word| word.to_string_lossy().into_owned());
    let line = shlex::try_join(texts.collect::<Vec<_>>().iter().map(String::as_str));
    ["ssh".into(), "-t".into(), host.into(), line.unwrap_or_default().into()].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debugger_gets_the_process() {
        assert_eq!(words("xterm -e 'my gdb'", 7).unwrap(), ["xterm", "-e", "my gdb", "-p", "7"]);
        assert_eq!(words(" ", 7), None);
        assert_eq!(words("'", 7), None);
        let there = over_ssh("n2", &words("'my gdb'", 7).unwrap());
        assert_eq!(there, ["ssh", "-t", "n2", "'my gdb' -p 7"]);
    }

    #[test]
    fn only_processes_of_the_job_are_here() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_here(own, "no job of this name"));
    }
}
