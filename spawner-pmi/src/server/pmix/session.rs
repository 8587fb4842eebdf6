//! The directory of a job on a host, in which libpmix and its clients keep files.
//!
//! ```text
//! ${TMPDIR:-/tmp}/gasnetrun-UID-pmix.JOB      mode 0700, ours
//!     owner       locked by the helper as long as it lives; has the number of the host's boot
//! ```
//!
//! The helper makes it, the agent removes it. Where both are killed with the launcher, a later helper
//! does: what has an owner's file that nobody locks is left over. Nothing else is taken for that,
//! neither what is about to be made nor what another host made, whose locks may not be seen here.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

const OWNER: &str = "owner";
/// The same before it is locked.
const NEW: &str = "owner.new";

/// What the names of all of this user begin with.
fn beginning() -> String {
    format!("gasnetrun-{}-pmix.", geteuid().as_raw())
}

/// The directory of a job, whether it is there or not.
#[must_use]
pub fn directory(session: &str) -> PathBuf {
    let temporary = settings::variable("TMPDIR").map(PathBuf::from);
    let temporary = temporary.filter(|path| path.is_absolute()).unwrap_or_else(|| "/tmp".into());
    temporary.join(format!("{}{session}", beginning()))
}

/// Removes that directory, if it is there.
pub fn forget(session: &str) {
    let _ = remove(&directory(session));
}

/// Makes a directory. It counts as used as long as what is returned is open; on a file system without
/// locks there is nothing, and nobody will take it for left over.
pub(super) fn make(path: &Path) -> io::Result<Option<File>> {
    DirBuilder::new().mode(0o700).create(path)?;
    Ok(mark(path).ok())
}

fn mark(path: &Path) -> io::Result<File> {
    let new = path.join(NEW);
    let mut owner = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    owner.try_lock()?;
    owner.write_all(boot().as_bytes())?;
    std::fs::rename(new, path.join(OWNER))?;
    Ok(owner)
}

/// Number of this host's boot: the same in all its containers, on no other host.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    // Neither a link nor something that waits for whoever opens it.
    let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// A directory of this user alone, and a path by which it stays the same one.
fn enter(path: &Path) -> io::Result<(File, PathBuf)> {
    let directory = open(path, libc::O_DIRECTORY)?;
    let data = directory.metadata()?;
    if data.uid() != geteuid().as_raw() || data.mode() & 0o777 != 0o700 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let inside = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    Ok((directory, inside))
}

/// Removes a directory of this user with all that is in it; links in it are not followed. The owner's
/// file goes last: what is left, if that is interrupted, is still known.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let (_directory, inside) = enter(path)?;
    for entry in std::fs::read_dir(&inside)? {
        let entry = entry?;
        match entry.file_type()? {
            _ if entry.file_name() == OWNER => {}
            kind if kind.is_dir() => std::fs::remove_dir_all(entry.path())?,
            _ => std::fs::remove_file(entry.path())?,
        }
    }
    match std::fs::remove_file(inside.join(OWNER)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::remove_dir(path)
}

/// The lock of a directory's owner, if that has gone without removing it.
fn lock_of_the_dead(path: &Path) -> Option<File> {
    let (_directory, inside) = enter(path).ok()?;
    let owner = open(&inside.join(OWNER), 0).ok()?;
    let data = owner.metadata().ok()?;
    if !data.is_file() || data.uid() != geteuid().as_raw() {
        return None;
    }
    let (mut seen, boot) = (String::new(), boot());
    (&owner).take(64).read_to_string(&mut seen).ok()?;
    (!boot.is_empty() && seen == boot && owner.try_lock().is_ok()).then_some(owner)
}

/// Removes what lies beside the directory `own` and is left over.
pub(super) fn tidy(own: &Path) {
    let Some(parent) = own.parent() else { return };
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let beginning = beginning();
    let is_one = |name: &OsStr| name.as_encoded_bytes().starts_with(beginning.as_bytes());
    let names: Vec<OsString> =
        entries.flatten().map(|entry| entry.file_name()).filter(|name| is_one(name)).collect();
    for path in names.iter().map(|name| parent.join(name)) {
        if let Some(_lock) = lock_of_the_dead(&path) {
            let _ = remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A directory of a job, with what libpmix may have put there.
    fn made(parent: &Path, job: &str) -> (PathBuf, File) {
        let path = parent.join(format!("{}{job}", beginning()));
        let owner = make(&path).unwrap().expect("a lock");
        std::fs::create_dir(path.join("below")).unwrap();
        std::fs::write(path.join("below/file"), "x").unwrap();
        (path, owner)
    }

    #[test]
    fn what_a_dead_owner_left_goes_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let (own, _own) = made(parent.path(), "own");
        let (used, _used) = made(parent.path(), "used");
        let (left, owner) = made(parent.path(), "left");
        let precious = parent.path().join("precious");
        std::fs::write(&precious, "x").unwrap();
        symlink(&precious, left.join("link")).unwrap();
        symlink(parent.path(), left.join("below/up")).unwrap();
        assert_eq!(left.metadata().unwrap().mode() & 0o777, 0o700);
        tidy(&own);
        assert!(left.exists(), "it is in use");
        drop(owner);
        tidy(&own);
        assert!(!left.exists());
        assert!(own.join("below/file").exists() && used.join("below/file").exists());
        assert!(precious.exists());
        remove(&own).unwrap();
        assert!(!own.exists());
    }

    #[test]
    fn what_cannot_be_told_from_the_use_of_others_stays() {
        let parent = tempfile::tempdir().unwrap();
        let left = |job: &str| made(parent.path(), job).0;
        let (own, _own) = made(parent.path(), "own");
        let open_to_others = left("open");
        std::fs::set_permissions(&open_to_others, Permissions::from_mode(0o755)).unwrap();
        let without_owner = left("new");
        std::fs::remove_file(without_owner.join(OWNER)).unwrap();
        let elsewhere = left("elsewhere");
        std::fs::write(elsewhere.join(OWNER), "another boot\n").unwrap();
        let pipe = left("pipe");
        std::fs::remove_file(pipe.join(OWNER)).unwrap();
        nix::unistd::mkfifo(&pipe.join(OWNER), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let linked = left("linked");
        std::fs::rename(linked.join(OWNER), parent.path().join("other")).unwrap();
        symlink(parent.path().join("other"), linked.join(OWNER)).unwrap();
        // A link to a directory that would go itself.
        let target = parent.path().join("target");
        std::fs::rename(left("target"), &target).unwrap();
        let link = parent.path().join(format!("{}link", beginning()));
        symlink(&target, &link).unwrap();
        tidy(&own);
        for path in [&open_to_others, &without_owner, &elsewhere, &pipe, &linked] {
            assert!(path.join("below/file").exists(), "{}", path.display());
        }
        assert!(target.join("below/file").exists());
        assert!(remove(&link).is_err() && link.symlink_metadata().is_ok());
    }

    #[test]
    fn what_belongs_to_another_user_stays() {
        if !geteuid().is_root() {
            eprintln!("SKIP a directory of another user: only root can make one");
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let (own, _own) = made(parent.path(), "own");
        let (theirs, _) = made(parent.path(), "theirs");
        std::os::unix::fs::lchown(&theirs, Some(65_534), Some(65_534)).unwrap();
        tidy(&own);
        assert!(theirs.join("below/file").exists());
    }

    /// What is interrupted while it removes one leaves what the next one finds.
    #[test]
    fn what_is_half_removed_is_still_left_over() {
        let parent = tempfile::tempdir().unwrap();
        let (own, _own) = made(parent.path(), "own");
        let (left, _) = made(parent.path(), "left");
        std::fs::remove_dir_all(left.join("below")).unwrap();
        tidy(&own);
        assert!(!left.exists());
    }
}
