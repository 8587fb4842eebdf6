//! A directory with fake programs, and the launcher run in it with a known environment.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a call gave.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit code; `None` for a signal.
    pub(crate) code: Option<i32>,
    /// Standard output with the directory and the host replaced by `$DIR` and `$HOST`.
    pub(crate) out: String,
    /// Standard error, likewise.
    pub(crate) err: String,
}

/// A scratch directory with programs in it.
#[derive(Debug)]
pub(crate) struct Room {
    directory: tempfile::TempDir,
}

impl Room {
    /// With these programs: `prog_real` and `ssh_only` (ibv), `udp_prog` (another conduit), `bare`
    /// (ibv without spawners), `script` (plain); `data` is not executable and `folder` is a
    /// directory.
    pub(crate) fn new() -> Self {
        let room = Self { directory: tempfile::tempdir().expect("scratch directory") };
        let ibv = "$GASNetConduitName: IBV $";
        room.program(
            "prog_real",
            &format!("{ibv} $GASNetSSHSpawner: 1 $ $GASNetPMISpawner: 1 $"),
            0o755,
        );
        room.program("mpi_only", &format!("{ibv} $GASNetMPISpawner: 1 $"), 0o755);
        room.program("udp_prog", "$GASNetConduitName: UDP $", 0o755);
        room.program("bare", ibv, 0o755);
        room.program("script", "nothing", 0o755);
        room.program("data", "nothing", 0o644);
        std::fs::create_dir(room.path().join("folder")).expect("folder");
        room
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().canonicalize().expect("own directory")
    }

    fn program(&self, name: &str, mark: &str, mode: u32) {
        let path = self.directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n# {mark}\nexit 0\n")).expect("write program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
            .expect("permissions");
    }

    /// The launcher, to be run in the directory with nothing but `PATH` in its environment.
    pub(crate) fn launcher<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gasnetrun_ibv"));
        command.args(words).current_dir(self.path()).env_clear().env("PATH", "/usr/bin:/bin");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, command: &mut Command) -> Outcome {
        let output = command.output().expect("run the launcher");
        Outcome {
            code: output.status.code(),
            out: self.known(&output.stdout),
            err: self.known(&output.stderr),
        }
    }

    fn known(&self, bytes: &[u8]) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("host name");
        let text =
            String::from_utf8_lossy(bytes).replace(&self.path().display().to_string(), "$DIR");
        text.replace(&format!("host {}", host.trim()), "host $HOST")
            .replace(&format!("hosts        {}", host.trim()), "hosts        $HOST")
    }

    /// Names of the entries of the directory.
    pub(crate) fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).expect("list");
        let mut names: Vec<_> =
            entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// Absolute path of a tool in `/usr/bin` or `/bin`, as the launcher finds it.
pub(crate) fn tool(name: &str) -> String {
    let found = ["/usr/bin", "/bin"]
        .map(|dir| Path::new(dir).join(name))
        .into_iter()
        .find(|path| path.is_file());
    found.expect("a tool of every system").display().to_string()
}
