//! The machine as it is: programs in `PATH`, what they print, variables.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use settings::Env;
use settings::deadlines::launcher::{ASK, ASK_POLL};

use crate::launch::plan::Machine;

/// Most that is read of it.
const SAYS: u64 = 1 << 20;

/// The file system, and the environment that the launcher was given.
#[derive(Clone, Copy, Debug)]
pub struct System<'a> {
    environment: &'a Env,
}

impl<'a> System<'a> {
    /// The machine as a process with these variables sees it.
    #[must_use]
    pub const fn new(environment: &'a Env) -> Self {
        Self { environment }
    }

    fn said(
        self,
        program: &Path,
        words: &[&str],
        bound: Duration,
    ) -> std::io::Result<Option<String>> {
        let file = File::from(memfd_create("launcher-says", MFdFlags::MFD_CLOEXEC)?);
        let mut command = Command::new(program);
        command
            .args(words)
            .env_clear()
            .envs(self.environment.iter())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file.try_clone()?);
        let mut child = command.process_group(0).spawn()?;
        let deadline = Instant::now() + bound;
        while child.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                // A leader of a group of its own: what it started goes as well.
                let group = Pid::from_raw(child.id().cast_signed());
                let _ = killpg(group, Signal::SIGKILL);
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(ASK_POLL.limit);
        }
        let mut bytes = Vec::new();
        let mut file = file;
        file.rewind()?;
        file.take(SAYS).read_to_end(&mut bytes)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Machine for System<'_> {
    fn find(&self, name: &OsStr) -> Option<PathBuf> {
        let here = std::env::current_dir().ok()?;
        which::which_in(name, self.environment.get("PATH"), here).ok()
    }

    fn real(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn ask(&self, program: &Path, words: &[&str]) -> Option<String> {
        self.said(program, words, ASK.limit).ok().flatten()
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        self.environment.get(name).filter(|value| !value.is_empty()).map(OsStr::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Env {
        [("PATH", "/usr/bin:/bin"), ("A", "1"), ("B", "")].into_iter().collect()
    }

    #[test]
    fn programs_are_found_and_asked() {
        let environment = environment();
        let system = System::new(&environment);
        let sh = system.find(OsStr::new("sh")).expect("a shell");
        assert!(sh.is_absolute());
        let said = system.ask(&sh, &["-c", "echo one; echo $A >&2"]).expect("an answer");
        assert_eq!(said, "one\n1\n");
        assert_eq!(system.find(OsStr::new("no-such-program-anywhere")), None);
        assert_eq!(system.ask(Path::new("/no/such/program"), &[]), None);
    }

    #[test]
    fn variables_are_those_that_were_given() {
        let environment = environment();
        let system = System::new(&environment);
        assert_eq!(system.variable("A"), Some("1".into()));
        assert_eq!(system.variable("B"), None, "empty is not set");
        assert!(settings::variable("CARGO_MANIFEST_DIR").is_some(), "set in this process");
        assert_eq!(system.variable("CARGO_MANIFEST_DIR"), None);
        let nowhere = [("PATH", "/no/such/directory")].into_iter().collect();
        assert_eq!(System::new(&nowhere).find(OsStr::new("sh")), None);
    }

    #[test]
    fn one_that_does_not_end_is_ended() {
        let bound = Duration::from_millis(100);
        let environment = environment();
        let system = System::new(&environment);
        let sh = system.find(OsStr::new("sh")).expect("a shell");
        let said = system.said(&sh, &["-c", "sleep 60 & sleep 60"], bound);
        assert_eq!(said.expect("the shell was started"), None);
    }
}
