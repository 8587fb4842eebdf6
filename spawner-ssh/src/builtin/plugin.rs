//! The library with the client (`spawner-ssh/plugin`): its interface, and where it is.
#![allow(unsafe_code, reason = "the module that owns the calls into the client's library")]

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Goes up with every change of the functions, of [`super::Request`], or of what that is made of.
pub const VERSION: u32 = 2;
/// As OpenSSH: the client's own failure.
pub const CODE_FAILED: i32 = 255;
/// No exit code of a program: the ssh program has to decide about this login. Why is the last line
/// of the error output.
pub const CODE_PROGRAM: i32 = 256;
/// Type of `gasnetrun_ibv_ssh_version`, in all versions.
pub type Version = extern "C" fn() -> u32;
/// Type of `gasnetrun_ibv_ssh_run`: address and length of a [`super::Request`] in postcard's form,
/// then the client's ends of the three pipes, which it borrows. It returns the exit code when all
/// output is written.
pub type Run = unsafe extern "C" fn(*const u8, usize, c_int, c_int, c_int) -> c_int;

/// As `cargo build` names it.
const FILE: &str = "libgasnetrun_ibv_ssh.so";

/// The library, which stays open until the process ends.
#[derive(Debug)]
pub(super) struct Plugin {
    run: Run,
    _library: Library,
}

/// Files in which a library of ours may be: beside the `program`, as it is built, and where
/// `scripts/install` puts it. No other place is searched.
#[must_use]
pub fn candidates(program: &Path, file: &str) -> Vec<PathBuf> {
    let beside = program.parent();
    let installed = beside.and_then(Path::parent).map(|prefix| prefix.join("lib/gasnetrun_ibv"));
    beside.into_iter().map(Path::to_owned).chain(installed).map(|path| path.join(file)).collect()
}

/// Opens the library when it is asked for first.
pub(super) fn open() -> Result<&'static Plugin, String> {
    static PLUGIN: OnceLock<Result<Plugin, String>> = OnceLock::new();
    PLUGIN.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<Plugin, String> {
    let program = std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"))?;
    let mut tried = Vec::new();
    for path in candidates(&program, FILE) {
        let opened = if path.is_file() {
            Plugin::open(&path)
        } else {
            Err(format!("{}: no such file", path.display()))
        };
        match opened {
            Ok(plugin) => return Ok(plugin),
            Err(problem) => tried.push(problem),
        }
    }
    Err(tried.join("; "))
}

impl Plugin {
    fn open(path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let said = |error: libloading::Error| match error.to_string() {
            text if text.starts_with(&name) => text,
            text => format!("{name}: {text}"),
        };
        // SAFETY: a file that was built and installed with this program; what constructors of the
        // libraries that it needs do is their affair.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(said)?;
        // SAFETY: the symbol's type in every version of the interface.
        let version = unsafe { library.get::<Version>(b"gasnetrun_ibv_ssh_version\0") };
        let version = (*version.map_err(said)?)();
        if version != VERSION {
            return Err(format!("{name}: it has version {version}, this program needs {VERSION}"));
        }
        // SAFETY: the symbol's type in this version of the interface.
        let run = *unsafe { library.get::<Run>(b"gasnetrun_ibv_ssh_run\0") }.map_err(said)?;
        Ok(Self { run, _library: library })
    }

    /// Runs a client until its end; its exit code. `ends`: its standard input, output and error.
    pub(super) fn run(&self, request: &[u8], ends: &[impl AsFd; 3]) -> i32 {
        let [input, output, err] = ends.each_ref().map(|end| end.as_fd().as_raw_fd());
        // SAFETY: the slice and the descriptors are borrowed until the call has returned.
        unsafe { (self.run)(request.as_ptr(), request.len(), input, output, err) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_client_is_looked_for() {
        let names: Vec<String> = candidates(Path::new("/opt/x/bin/gasnetrun_ibv"), FILE)
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let installed = format!("/opt/x/lib/gasnetrun_ibv/{FILE}");
        assert_eq!(names, [format!("/opt/x/bin/{FILE}"), installed]);
        assert!(candidates(Path::new(""), FILE).is_empty());
    }

    #[test]
    fn a_file_that_is_no_client_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let error = Plugin::open(file.path()).unwrap_err();
        assert!(error.contains(&path), "{error}");
    }
}
