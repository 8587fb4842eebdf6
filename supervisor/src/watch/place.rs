//! Where the sockets of a user's jobs on this machine are.
//!
//! ```text
//! $XDG_RUNTIME_DIR/gasnetrun, or ${TMPDIR:-/tmp}/gasnetrun-UID.jobs      mode 0700, ours
//!     JOB.sock                                                           mode 0600
//! ```

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

const END: &str = ".sock";

/// The directory, whether it is there or not.
#[must_use]
pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(runtime) = set("XDG_RUNTIME_DIR") {
        return runtime.join("gasnetrun");
    }
    let temporary = set("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
    temporary.join(format!("gasnetrun-{}.jobs", geteuid().as_raw()))
}

/// The socket of a job in the directory.
#[must_use]
pub fn socket_of(directory: &Path, job: &str) -> PathBuf {
    // A name is a word of ours; a slash in the name of a host must not lead elsewhere.
    directory.join(format!("{}{END}", job.replace('/', "_")))
}

/// Makes the directory if it is missing, and checks that nobody else can write there.
pub(crate) fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    check(directory)
}

/// Whether the directory and what leads to it from ours is the user's alone.
fn check(directory: &Path) -> io::Result<()> {
    let data = directory.symlink_metadata()?;
    let own = data.is_dir() && data.uid() == geteuid().as_raw() && data.mode() & 0o077 == 0;
    if own {
        return Ok(());
    }
    let text = format!("{} is not a directory of this user alone (mode 0700)", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Removes the socket of a job that is over, if it is still there.
pub(crate) fn forget(job: &str) {
    let _ = std::fs::remove_file(socket_of(&directory(settings::variable), job));
}

/// Removes a socket with nobody behind it, unless it is so young that its job may be about to listen.
pub fn remove_dead(socket: &Path) {
    const YOUNG: std::time::Duration = std::time::Duration::from_secs(10);
    let made = socket.symlink_metadata().and_then(|data| data.modified());
    if made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > YOUNG)) {
        let _ = std::fs::remove_file(socket);
    }
}

/// The sockets in the directory, with the names of their jobs, in order. None when there is no
/// directory.
///
/// # Errors
/// The directory cannot be read, or belongs to somebody else.
pub fn sockets(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    if directory.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    check(directory)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if let Some(job) = entry.file_name().to_str().and_then(|name| name.strip_suffix(END))
            && is_socket
        {
            found.push((job.to_owned(), entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_runtime_directory_comes_first() {
        let with = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into());
        assert_eq!(directory(with), Path::new("/run/user/7/gasnetrun"));
        let relative = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "x".into());
        let user = geteuid().as_raw();
        assert_eq!(directory(relative), PathBuf::from(format!("/tmp/gasnetrun-{user}.jobs")));
    }

    #[test]
    fn only_sockets_in_a_directory_of_our_own_count() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("jobs");
        assert!(sockets(&directory).unwrap().is_empty());
        prepare(&directory).unwrap();
        let _socket = UnixListener::bind(socket_of(&directory, "n1.2.3")).unwrap();
        std::fs::write(directory.join("file.sock"), "").unwrap();
        let names: Vec<_> = sockets(&directory).unwrap().into_iter().map(|one| one.0).collect();
        assert_eq!(names, ["n1.2.3"]);
        std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(sockets(&directory).is_err() && prepare(&directory).is_err());
    }
}
