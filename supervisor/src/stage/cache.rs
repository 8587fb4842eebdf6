//! The directory of a user on a host in which programs that were sent are kept.
//!
//! ```text
//! $XDG_CACHE_HOME/gasnetrun, or ${TMPDIR:-/tmp}/gasnetrun-UID      mode 0700, ours
//!     <SHA-256>                what was sent; used by later jobs; bounded by size and age
//!     job.<host>.<pid>.<time>  what one job runs: links to the above; removed at its end
//!     kept.<host>.<pid>.<time> the same of a job with -k; removed as all that is old
//! ```
//!
//! A job runs a link of its own, so nobody who tidies up can take away what it needs.
//!
//! The temporary directory is everybody's. Whoever was there first, or could change what lies there,
//! is not trusted: neither a directory nor a file of another user is used, nor a link, nor what others
//! could write.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, eaccess, geteuid};

use super::digest::Digest;
use crate::agent::sys;

/// Age after which nothing is kept, used or not.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

const JOB: &str = "job.";
const KEPT: &str = "kept.";

#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error(
        "no directory here can take the program: {}; set XDG_CACHE_HOME or TMPDIR there to a directory of your own",
        .0.join("; ")
    )]
    Nowhere(Vec<String>),
    #[error("cannot {what} {}: {source}", .path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "what came is not the program that was meant (its hash differs); was it changed after the start of the job?"
    )]
    Differs,
}

pub(super) fn file<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> CacheError + use<'a> {
    move |source| CacheError::File { what, path: path.to_owned(), source }
}

/// Where it may be, best first; what the script of `spawner_ssh::command` does is the same.
fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = format!("gasnetrun-{}", geteuid().as_raw());
    let cache = set("XDG_CACHE_HOME").map(|path| path.join("gasnetrun"));
    let temporary = set("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")).join(user);
    cache.into_iter().chain([temporary]).collect()
}

/// Name of the directory of one job on this host, without its beginning; no other process has the
/// same.
pub(crate) fn job_directory_name() -> String {
    let host = sys::host_name();
    let host: String = host.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{host}.{}.{:x}", std::process::id(), now.as_micros())
}

/// Removes what a job of this name has left; `-k` put it elsewhere.
pub(crate) fn forget_job(name: &str) {
    for root in candidates(settings::variable) {
        let path = root.join(format!("{JOB}{name}"));
        if path.symlink_metadata().is_ok() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Tidies up where our own program was sent to, if it was.
pub(super) fn tidy_own(most: u64) {
    let Ok(program) = std::env::current_exe() else { return };
    let Some(directory) = program.parent() else { return };
    if let (Some(name), Some(root)) = (directory.file_name(), directory.parent())
        && is_of_a_job(name)
    {
        Cache { root: root.to_owned() }.tidy(most, SystemTime::now());
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Cache {
    pub(crate) root: PathBuf,
}

impl Cache {
    /// Finds the directory, and makes it if it is missing.
    pub(crate) fn open(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, CacheError> {
        let mut seen = Vec::new();
        for root in candidates(variable) {
            match usable(&root) {
                Ok(()) => return Ok(Self { root }),
                Err(problem) => seen.push(format!("{}: {problem}", root.display())),
            }
        }
        Err(CacheError::Nowhere(seen))
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.root.join(digest.hex())
    }

    /// What is kept, if it is ours alone and its content is right. What is not is removed.
    pub(crate) fn find(&self, digest: &Digest, size: u64) -> Option<PathBuf> {
        let path = self.path(digest);
        let data = path.symlink_metadata().ok()?;
        let right = data.is_file()
            && is_ours_alone(&data)
            && data.len() == size
            && Digest::of(&path).is_ok_and(|(seen, _)| seen == *digest);
        if !right {
            let _ = std::fs::remove_file(&path);
            return None;
        }
        // Age counts from the last use.
        let used = std::fs::File::open(&path);
        let _ = used.and_then(|file| file.set_modified(SystemTime::now()));
        Some(path)
    }

    /// Directory of the job of this name, not made yet.
    pub(crate) fn job_directory(&self, name: &str, keep: bool) -> PathBuf {
        self.root.join(format!("{}{name}", if keep { KEPT } else { JOB }))
    }

    pub(crate) fn make_job_directory(&self, path: &Path) -> Result<(), CacheError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(file("make a directory in", &self.root))
    }

    /// Links `content` to `to`, where a job runs it.
    pub(crate) fn place(&self, content: &Path, to: &Path) -> Result<(), CacheError> {
        let linked = std::fs::hard_link(content, to);
        let done = linked.or_else(|_| std::fs::copy(content, to).map(drop));
        done.map_err(file("put the program into", &self.root))?;
        let run = eaccess(to, AccessFlags::X_OK);
        run.map_err(|errno| file("execute what is in", &self.root)(errno.into()))
    }

    /// Removes what is old, and of the rest the oldest until no more than `most` bytes are kept.
    pub(crate) fn tidy(&self, most: u64, now: SystemTime) {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return };
        let mut kept = Vec::new();
        for entry in entries.flatten() {
            let Ok(data) = entry.metadata() else { continue };
            let age = now.duration_since(modified(&data)).unwrap_or_default();
            let name = entry.file_name();
            if is_content(&name) && data.is_file() {
                kept.push((age, data.len(), entry.path()));
            } else if is_of_a_job(&name) && age > MAX_AGE {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        kept.sort();
        let mut sum: u64 = 0;
        for (age, size, path) in kept {
            sum = sum.saturating_add(size);
            if sum > most || age > MAX_AGE {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Whether nobody else can change a file: its owner could at any time.
fn is_ours_alone(data: &Metadata) -> bool {
    data.uid() == geteuid().as_raw() && data.mode() & 0o022 == 0
}

/// Why what lies in `directory` is not safe from others, if so.
fn is_open_to_others(directory: &Path) -> Option<String> {
    const STICKY: u32 = 0o1000;
    let mode = directory.metadata().ok()?.mode();
    (mode & 0o002 != 0 && mode & STICKY == 0).then(|| {
        format!("everybody may replace what is in {}: it lacks the sticky bit", directory.display())
    })
}

fn modified(data: &Metadata) -> SystemTime {
    data.modified().unwrap_or(UNIX_EPOCH)
}

fn is_content(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit)
}

fn is_of_a_job(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    [JOB, KEPT].iter().any(|start| name.starts_with(start.as_bytes()))
}

/// Makes `root` if it is missing; why it cannot be used, if so.
fn usable(root: &Path) -> Result<(), String> {
    let said = |error: io::Error| error.to_string();
    DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(said)?;
    let data = root.symlink_metadata().map_err(said)?;
    if !data.is_dir() {
        return Err("it is no directory".to_owned());
    }
    if data.uid() != geteuid().as_raw() {
        return Err(format!("it belongs to another user ({}), who was there first", data.uid()));
    }
    if let Some(problem) = root.parent().and_then(is_open_to_others) {
        return Err(problem);
    }
    if data.mode() & 0o077 != 0 {
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(root, closed).map_err(said)?;
    }
    eaccess(root, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|errno| errno.desc().to_owned())?;
    match statvfs(root) {
        Ok(system) if system.flags().contains(FsFlags::ST_NOEXEC) => {
            Err("its file system is mounted noexec, so no program can run there".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(directory: &Path) -> Cache {
        let value = directory.as_os_str().to_owned();
        Cache::open(|name| (name == "TMPDIR").then(|| value.clone())).unwrap()
    }

    fn content(cache: &Cache, text: &str) -> (PathBuf, Digest) {
        let scratch = cache.root.join("scratch");
        std::fs::write(&scratch, text).unwrap();
        let (digest, _) = Digest::of(&scratch).unwrap();
        std::fs::rename(&scratch, cache.path(&digest)).unwrap();
        (cache.path(&digest), digest)
    }

    #[test]
    fn the_directory_is_ours_alone() {
        let directory = tempfile::tempdir().unwrap();
        let first = cache(directory.path());
        std::fs::set_permissions(&first.root, std::fs::Permissions::from_mode(0o755)).unwrap();
        let again = cache(directory.path());
        assert_eq!(again.root.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(again.root.parent(), Some(directory.path()));
        // A link that somebody else could have made is not followed.
        let other = tempfile::tempdir().unwrap();
        let name = first.root.file_name().unwrap();
        std::os::unix::fs::symlink(directory.path(), other.path().join(name)).unwrap();
        let value = other.path().as_os_str().to_owned();
        let error = Cache::open(|name| (name == "TMPDIR").then(|| value.clone())).unwrap_err();
        assert!(error.to_string().contains("no directory"), "{error}");
    }

    /// Makes another user the owner of a file or directory; only root can.
    fn give_away(path: &Path) -> bool {
        if !geteuid().is_root() {
            eprintln!("SKIP files of another user: only root can make some");
            return false;
        }
        std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).unwrap();
        true
    }

    #[test]
    fn what_another_user_made_first_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let value = directory.path().as_os_str().to_owned();
        let open = || Cache::open(|name| (name == "TMPDIR").then(|| value.clone()));
        let first = open().unwrap();
        if give_away(&first.root) {
            let error = open().unwrap_err().to_string();
            assert!(error.contains("belongs to another user (65534)"), "{error}");
            assert!(error.contains("set XDG_CACHE_HOME") && !error.contains('\n'), "{error}");
            std::fs::remove_dir(&first.root).unwrap();
        }
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), mode(0o1777)).unwrap();
        open().unwrap();
        std::fs::set_permissions(directory.path(), mode(0o777)).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains("lacks the sticky bit"), "{error}");
    }

    #[test]
    fn what_another_user_can_change_is_not_run() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        let (path, digest) = content(&cache, "one");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o722)).unwrap();
        assert_eq!(cache.find(&digest, 3), None, "others may write it");
        let (path, digest) = content(&cache, "one");
        if give_away(&path) {
            assert_eq!(cache.find(&digest, 3), None, "its owner may write it");
            assert!(!path.exists());
        }
        let elsewhere = directory.path().join("elsewhere");
        std::fs::write(&elsewhere, "one").unwrap();
        std::os::unix::fs::symlink(&elsewhere, cache.path(&digest)).unwrap();
        assert_eq!(cache.find(&digest, 3), None, "a link");
        assert!(elsewhere.exists() && cache.path(&digest).symlink_metadata().is_err());
    }

    #[test]
    fn the_users_cache_comes_first_and_what_cannot_be_used_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).into_os_string();
        std::fs::write(path("file"), "").unwrap();
        let with = |cache: &'static str| {
            Cache::open(move |name| match name {
                "XDG_CACHE_HOME" => Some(OsString::from(cache)),
                _ => None,
            })
        };
        assert!(with("relative").unwrap().root.starts_with("/tmp"), "only absolute paths count");
        let both = Cache::open(|name| match name {
            "XDG_CACHE_HOME" => Some(path("file")),
            "TMPDIR" => Some(path("temporary")),
            _ => None,
        });
        assert!(both.unwrap().root.starts_with(path("temporary")));
        let nowhere = Cache::open(|_| Some(path("file"))).unwrap_err().to_string();
        assert_eq!(nowhere.matches("Not a directory").count(), 2, "{nowhere}");
    }

    #[test]
    fn what_is_kept_is_checked_before_it_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        let (path, digest) = content(&cache, "one");
        assert_eq!(cache.find(&digest, 3), Some(path.clone()));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(cache.find(&digest, 3), None, "its content changed");
        assert!(!path.exists());
        assert_eq!(cache.find(&digest, 3), None);
    }

    #[test]
    fn a_job_runs_a_link_that_outlives_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        let (path, _) = content(&cache, "#!/bin/sh\n");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let job = cache.job_directory("x", false);
        cache.make_job_directory(&job).unwrap();
        let program = job.join("program");
        cache.place(&path, &program).unwrap();
        cache.tidy(0, SystemTime::now());
        assert!(!path.exists() && program.exists());
        let kept = cache.job_directory("x", true);
        assert_ne!(kept, job);
    }

    #[test]
    fn the_oldest_go_first_and_what_is_too_old_goes_anyway() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        let now = SystemTime::now();
        let aged = |text: &str, age: Duration| {
            let (path, _) = content(&cache, text);
            std::fs::File::open(&path).unwrap().set_modified(now - age).unwrap();
            path
        };
        let young = aged("aaaa", Duration::from_secs(10));
        let middle = aged("bbbb", Duration::from_secs(20));
        let old = aged("cccc", Duration::from_secs(30));
        let ancient = aged("dd", MAX_AGE + Duration::from_secs(1));
        let job = cache.job_directory("live", false);
        cache.make_job_directory(&job).unwrap();
        std::fs::write(cache.root.join("other"), "not ours to judge").unwrap();
        cache.tidy(100, now);
        assert!(young.exists() && middle.exists() && old.exists() && !ancient.exists());
        cache.tidy(8, now);
        assert!(young.exists() && middle.exists() && !old.exists());
        cache.tidy(0, now + MAX_AGE + Duration::from_secs(60));
        assert!(!young.exists() && !middle.exists() && !job.exists());
        assert!(cache.root.join("other").exists());
    }
}
