//! A debugger for a rank: here, or on the rank's host through the remote shell that the job uses.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use ::settings::{Env, Values};
use supervisor::plan::{HostEntry, Ssh};
use supervisor::watch::{Answer, Ask, RankView};

use super::Job;
use super::error::WatchError;
use crate::chosen::Words;
use crate::reach;

/// Replaces this process by a debugger for the rank. Returns only when that fails.
pub(super) fn run(mut job: Job, rank: u32, debugger: &Words) -> Result<u8, WatchError> {
    let name = job.view.job.clone();
    let bad = |problem: String| WatchError::Rank { rank, job: name.clone(), problem };
    if rank >= job.view.ranks {
        return Err(bad(format!("the job has ranks 0 to {}", job.view.ranks.saturating_sub(1))));
    }
    let Answer::Ranks { ranks, silent } = job.ask(&Ask::Ranks)? else { return Err(job.version()) };
    let found = ranks.into_iter().find(|view| view.rank == rank);
    let found = found.ok_or_else(|| bad("the job does not show so many ranks".to_owned()))?;
    if silent.contains(&found.host) {
        return Err(bad(format!("its host {} does not answer", found.host)));
    }
    let Some(pid) = found.pid.filter(|_| found.cpu_ms > 0 || found.resident_kib > 0) else {
        return Err(bad(format!("it has no process now: {}", found.state)));
    };
    let words = words(debugger, pid);
    let words = match login(&job.view.logins, &found) {
        Some(login) if !is_here(pid, &name, rank) => over(&shell(&login.name)?, login, &words),
        _ => words,
    };
    let program = words[0].clone();
    let error = Command::new(&program).args(&words[1..]).exec();
    Err(WatchError::Program(format!(
        "cannot run {}: {error}; install it, or name another one with --debugger",
        program.display()
    )))
}

/// The words of a debugger for a process.
fn words(debugger: &Words, pid: i32) -> Vec<OsString> {
    let end = ["-p".to_owned(), pid.to_string()];
    debugger.all().iter().chain(&end).map(OsString::from).collect()
}

/// How the host of a rank was logged in to; none: it is this one.
fn login<'a>(logins: &'a [HostEntry], rank: &RankView) -> Option<&'a HostEntry> {
    logins.iter().find(|login| login.name == rank.host).filter(|login| !login.here)
}

/// Whether the process is that rank of the job, on this machine. Another host may have a process of
/// the same number.
fn is_here(pid: i32, job: &str, rank: u32) -> bool {
    let wanted = [format!("GASNETRUN_JOB={job}"), format!("GASNETRUN_RANK={rank}")];
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let has = |one: &String| environment.split(|byte| *byte == 0).any(|set| set == one.as_bytes());
    wanted.iter().all(has)
}

/// The remote shell, by the variables of a job; what only logs in for agents is the ssh program here.
fn shell(host: &str) -> Result<Ssh, WatchError> {
    let told = |problem: String| {
        WatchError::Program(format!("cannot log in to {host} for the debugger: {problem}"))
    };
    let values = Values::from_env(&Env::from_process()).map_err(|error| told(error.to_string()))?;
    let mut ssh = reach::reach(&values, 1).map_err(|error| told(error.to_string()))?.ssh;
    if [spawner_ssh::auto::NAME, spawner_ssh::builtin::NAME].iter().any(|own| ssh.command == *own) {
        ssh.command = "ssh".into();
    }
    Ok(ssh)
}

/// The same words on another host, with a terminal there.
fn over(ssh: &Ssh, login: &HostEntry, words: &[OsString]) -> Vec<OsString> {
    let texts = words.iter().map(|word| word.to_string_lossy().into_owned());
    let line = shlex::try_join(texts.collect::<Vec<_>>().iter().map(String::as_str));
    let port = login.port.map(|port| ["-p".into(), port.to_string().into()]);
    let target = match &login.user {
        Some(user) => format!("{user}@{}", login.name),
        None => login.name.clone(),
    };
    let head =
        std::iter::once(ssh.command.as_os_str()).chain(ssh.options.iter().map(AsRef::as_ref));
    let head = head.chain([OsStr::new("-t")]).map(OsStr::to_owned);
    let end = [target.into(), line.unwrap_or_default().into()];
    head.chain(port.into_iter().flatten()).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debugger(text: &str, pid: i32) -> Vec<OsString> {
        words(&Words::parse(text).expect("a command"), pid)
    }

    #[test]
    fn the_debugger_gets_the_process() {
        assert_eq!(debugger("xterm -e 'my gdb'", 7), ["xterm", "-e", "my gdb", "-p", "7"]);
        let ssh = Ssh { command: "ssh".into(), options: vec!["-v".into()], ..Ssh::default() };
        let there = |login| over(&ssh, &login, &debugger("'my gdb'", 7));
        let plain = there(HostEntry::new("n2"));
        assert_eq!(plain, ["ssh", "-v", "-t", "n2", "'my gdb' -p 7"]);
        let user = HostEntry { user: Some("me".into()), port: Some(23), ..HostEntry::new("n2") };
        assert_eq!(there(user), ["ssh", "-v", "-t", "-p", "23", "me@n2", "'my gdb' -p 7"]);
    }

    #[test]
    fn only_processes_of_the_job_are_here() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_here(own, "no job of this name", 0));
    }
}
