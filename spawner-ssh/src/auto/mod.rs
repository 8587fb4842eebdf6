//! The default, `GASNET_SSH_CMD=auto`: each host by the client of our own where that does exactly
//! what OpenSSH would, else by the ssh program.
//!
//! * [`effective`]: what `ssh -G HOST` prints. [`files`]: which hosts share an answer.
//! * `classify`: the decision, a pure function. `keys`: what each key means to it.
//! * [`pattern`]: names and patterns of OpenSSH.
//!
//! Each host that starts others decides by its own configuration, as its ssh program would.

pub mod classify;
pub mod effective;
pub mod files;
pub mod keys;
pub mod pattern;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{User, geteuid};
use settings::deadlines::tree::CONFIGURATION;

use crate::builtin::{self, CODE_FAILED, CODE_PROGRAM, Session, Settings};
use crate::{HostEntry, Ssh, command};
use classify::{Around, Choice, classify};
use effective::Effective;
use files::Files;

/// Value of `GASNET_SSH_CMD`.
pub const NAME: &str = "auto";

/// Most that is read of an answer.
const MAX_ANSWER: usize = 256 * 1024;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Silence {
    /// There is no ssh program.
    NoProgram,
    /// What it did instead.
    Other(String),
}

type Answer = Result<Effective, Silence>;
/// Answers by what tells hosts apart; each with the name of the host that was asked about.
type Answers = HashMap<(Vec<bool>, Option<String>, Option<u16>), Arc<OnceLock<(String, Answer)>>>;

/// Decides about hosts, and keeps what it has found out.
#[derive(Debug)]
pub struct Chooser {
    ssh: Ssh,
    base: OnceLock<Base>,
    answers: Mutex<Answers>,
}

/// What is the same for all hosts.
#[derive(Debug)]
struct Base {
    around: Around,
    files: Files,
    default: Answer,
}

impl Chooser {
    /// For logins made so.
    #[must_use]
    pub fn new(ssh: &Ssh) -> Self {
        Self { ssh: ssh.clone(), base: OnceLock::new(), answers: Mutex::default() }
    }

    /// Who logs in to a host. May ask the ssh program, and waits for it.
    ///
    /// # Errors
    /// Nobody can: there is no ssh program, and the client cannot do what is configured.
    pub fn choose(&self, host: &HostEntry) -> Result<Choice, String> {
        if let Err(problem) = builtin::open() {
            return Ok(Choice::Program(format!("the built-in client cannot be used: {problem}")));
        }
        if let Some(option) = keys::unanswered(&self.ssh.options) {
            return Ok(Choice::Program(format!("GASNET_SSH_OPTIONS has {option}")));
        }
        let base = self.base.get_or_init(|| self.base(host));
        if let Some(path) = &base.files.exec {
            return Ok(Choice::Program(format!("Match exec in {}", path.display())));
        }
        match (&self.effective(base, host), &base.default) {
            (Ok(effective), Ok(default)) => Ok(classify(effective, default, &base.around)),
            (Err(Silence::NoProgram), _) | (_, Err(Silence::NoProgram)) => self.alone(base),
            (Err(Silence::Other(seen)), _) | (_, Err(Silence::Other(seen))) => {
                Ok(Choice::Program(format!("`ssh -G` {seen}")))
            }
        }
    }

    /// Without an ssh program: only where nothing is configured.
    fn alone(&self, base: &Base) -> Result<Choice, String> {
        let no = "no program `ssh` was found in PATH";
        if let Some(path) = &base.files.any {
            let path = path.display();
            return Err(format!("{no}, and the built-in client does not read {path}"));
        }
        let settings = Settings::read(&self.ssh.options);
        let settings = settings.map_err(|problem| format!("{no}, and {problem}"))?;
        Ok(Choice::Builtin(Box::new(settings)))
    }

    fn base(&self, host: &HostEntry) -> Base {
        let around = around();
        let files = Files::read(&self.ssh.options, &around.home);
        let empty = ["ssh", "-F", "/dev/null", "-G", "-T", "localhost"].map(OsString::from);
        let asked = ask(&empty);
        // Both questions are answered at the same time.
        if files.exec.is_none() {
            let _ = self.shared(&files, host);
        }
        let default = asked.and_then(answer);
        Base { around, files, default }
    }

    fn effective(&self, base: &Base, host: &HostEntry) -> Answer {
        let Some((first, answer)) = self.shared(&base.files, host) else { return self.ask(host) };
        if first == host.name {
            return answer;
        }
        match answer {
            Ok(of_first) => of_first.renamed(&first, &host.name).map_or_else(|| self.ask(host), Ok),
            silence => silence,
        }
    }

    /// The answer about the first host of a group, and its name.
    fn shared(&self, files: &Files, host: &HostEntry) -> Option<(String, Answer)> {
        let key = (files.group(&host.name)?, host.user.clone(), host.port);
        let cell = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry(key).or_default())
        };
        Some(cell.get_or_init(|| (host.name.clone(), self.ask(host))).clone())
    }

    fn ask(&self, host: &HostEntry) -> Answer {
        ask(&command::question(&self.ssh, host)).and_then(answer)
    }
}

/// Starts the client of our own where it is to log in; where not, the session ends with
/// [`CODE_PROGRAM`] and the reason.
///
/// # Errors
/// The system refuses pipes or a thread.
pub fn start(chooser: &Arc<Chooser>, host: &HostEntry, command: &str) -> std::io::Result<Session> {
    let (chooser, host, command) = (Arc::clone(chooser), host.clone(), command.to_owned());
    builtin::session(move |ends| match chooser.choose(&host) {
        Ok(Choice::Builtin(settings)) => builtin::run(host, *settings, command, ends),
        Ok(Choice::Program(reason)) => builtin::failed(ends, CODE_PROGRAM, &reason),
        Err(problem) => builtin::failed(ends, CODE_FAILED, &problem),
    })
}

fn around() -> Around {
    let account = User::from_uid(geteuid()).ok().flatten();
    let (user, home) = account.map_or_else(Default::default, |user| (user.name, user.dir));
    let uid = geteuid().as_raw();
    let cache = PathBuf::from(format!("/tmp/krb5cc_{uid}"));
    let ticket = settings::variable("KRB5CCNAME").is_some() || cache.exists();
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let here = here.trim().to_owned();
    let env = settings::Env::from_process().into_iter().collect();
    Around { home, user, uid, here, env, ticket }
}

/// A question to the ssh program, under way since then.
type Asked = (Child, Instant);

fn ask(words: &[OsString]) -> Result<Asked, Silence> {
    let Some((program, words)) = words.split_first() else { return Err(Silence::NoProgram) };
    let mut question = Command::new(program);
    question.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match question.spawn() {
        Ok(child) => Ok((child, Instant::now())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Silence::NoProgram),
        Err(error) => Err(Silence::Other(format!("cannot be started: {error}"))),
    }
}

/// Waits for the answer. How the program ended does not matter, and somebody else may have heard of
/// it: agents collect all their children.
fn answer((mut child, since): Asked) -> Answer {
    let said = child.stdout.take().and_then(|pipe| read(pipe, since));
    let complaint = child.stderr.take().and_then(|pipe| read(pipe, since));
    if said.is_none() || complaint.is_none() {
        let _ = child.kill();
        let seen = format!("has not answered within {} s", CONFIGURATION.limit.as_secs());
        return Err(Silence::Other(seen));
    }
    let _ = child.wait();
    let complaint = complaint.unwrap_or_default();
    Effective::parse(&said.unwrap_or_default()).ok_or_else(|| {
        let last = complaint.lines().map(str::trim).rfind(|line| !line.is_empty());
        let seen = last.map_or("says nothing".to_owned(), |line| format!("says: {line}"));
        Silence::Other(seen)
    })
}

/// Everything until its end; `None` when that does not come in time.
fn read(mut pipe: impl Read + AsFd, since: Instant) -> Option<String> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = CONFIGURATION.limit.saturating_sub(since.elapsed());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, left) {
            Ok(0) => return None,
            Err(nix::Error::EINTR) => continue,
            _ => {}
        }
        match pipe.read(&mut piece) {
            Ok(0) => return Some(String::from_utf8_lossy(&all).into_owned()),
            Ok(count) if all.len() <= MAX_ANSWER => all.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_answer_is_said() {
        let of = |script: &str| ask(&["sh", "-c", script].map(OsString::from)).and_then(answer);
        assert_eq!(of("exit 3"), Err(Silence::Other("says nothing".to_owned())));
        let said = Silence::Other("says: Bad configuration option: x".to_owned());
        assert_eq!(of("echo 'Bad configuration option: x' >&2; exit 255"), Err(said));
        assert_eq!(ask(&["/nowhere/ssh".into()]).err(), Some(Silence::NoProgram));
        let good =
            "printf 'hostname a\\nuser b\\nport 22\\nbatchmode yes\\nstricthostkeychecking ask\\n'";
        assert!(of(good).is_ok());
    }

    #[test]
    fn hosts_that_nothing_tells_apart_share_an_answer() {
        let directory = tempfile::tempdir().unwrap();
        let (config, log) = (directory.path().join("config"), directory.path().join("log"));
        std::fs::write(&config, "Host a*\n Port 7\nHost alias\n HostName real\n").unwrap();
        let program = directory.path().join("ssh");
        let script = format!(
            "#!/bin/sh\necho x >> {}\nfor name; do :; done\nprintf \"hostname $name\\nhost $name\\nuser b\\nport 22\\nbatchmode yes\\nstricthostkeychecking ask\\n\"\n",
            log.display()
        );
        std::fs::write(&program, script).unwrap();
        let mut mode = std::fs::metadata(&program).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let ssh = Ssh {
            command: program.into(),
            options: vec!["-F".into(), config.into()],
            ..Ssh::default()
        };
        let chooser = Chooser::new(&ssh);
        let files = Files::read(&ssh.options, directory.path());
        let default = Err(Silence::NoProgram);
        let base = Base { around: Around::default(), files, default };
        let asked = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        for (name, so_far) in [("n1", 1), ("n2", 1), ("n3", 1), ("a1", 2), ("a2", 2), ("alias", 3)]
        {
            let effective = chooser.effective(&base, &HostEntry::new(name)).unwrap();
            assert_eq!(effective.get("hostname"), Some(name));
            assert_eq!(asked(), so_far, "{name}");
        }
        let with_port = HostEntry { port: Some(7), ..HostEntry::new("n1") };
        let _ = chooser.effective(&base, &with_port);
        assert_eq!(asked(), 4);
    }
}
