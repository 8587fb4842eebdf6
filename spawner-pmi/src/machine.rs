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

use crate::plan::Machine;

/// Deadline `engine.ask`: what a launcher needs to say what it is.
pub const ASK: Duration = Duration::from_secs(5);
/// Between two looks whether it has ended.
const TICK: Duration = Duration::from_millis(2);
/// Most that is read of it.
const SAYS: u64 = 1 << 20;

/// The process's own environment and file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl System {
    fn said(program: &Path, words: &[&str], bound: Duration) -> std::io::Result<Option<String>> {
        let file = File::from(memfd_create("launcher-says", MFdFlags::MFD_CLOEXEC)?);
        let mut command = Command::new(program);
        command
            .args(words)
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
            std::thread::sleep(TICK);
        }
        let mut bytes = Vec::new();
        let mut file = file;
        file.rewind()?;
        file.take(SAYS).read_to_end(&mut bytes)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Machine for System {
    fn find(&self, name: &OsStr) -> Option<PathBuf> {
        which::which(name).ok()
    }

    fn real(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn ask(&self, program: &Path, words: &[&str]) -> Option<String> {
        Self::said(program, words, ASK).ok().flatten()
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_asked() {
        let sh = System.find(OsStr::new("sh")).expect("a shell");
        assert!(sh.is_absolute());
        let said = System.ask(&sh, &["-c", "echo one; echo two >&2"]).expect("an answer");
        assert_eq!(said, "one\ntwo\n");
        assert_eq!(System.find(OsStr::new("no-such-program-anywhere")), None);
        assert_eq!(System.ask(Path::new("/no/such/program"), &[]), None);
    }

    #[test]
    fn one_that_does_not_end_is_ended() {
        let bound = Duration::from_millis(100);
        let sh = System.find(OsStr::new("sh")).expect("a shell");
        let said = System::said(&sh, &["-c", "sleep 60 & sleep 60"], bound);
        assert_eq!(said.expect("the shell was started"), None);
    }
}
