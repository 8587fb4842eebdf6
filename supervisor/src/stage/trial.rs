//! What sending a program to this host would do, tried with our own: for the doctor.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::statvfs::statvfs;

use super::cache::{Cache, CacheError, file, job_directory_name};
use crate::agent::sys;

/// Writes our own program where programs are sent to, starts it from there, and removes it. Bytes that
/// are still free.
pub(crate) fn trial() -> Result<u64, CacheError> {
    in_cache(&Cache::open(settings::variable)?, Path::new("/proc/self/exe"))
}

fn in_cache(cache: &Cache, program: &Path) -> Result<u64, CacheError> {
    let directory = cache.job_directory(&job_directory_name(), false);
    let tried = in_directory(cache, program, &directory);
    let _ = std::fs::remove_dir_all(&directory);
    tried?;
    let system =
        statvfs(&cache.root).map_err(|errno| file("look at", &cache.root)(errno.into()))?;
    Ok(system.blocks_available().saturating_mul(system.fragment_size()))
}

fn in_directory(cache: &Cache, program: &Path, directory: &Path) -> Result<(), CacheError> {
    cache.make_job_directory(directory)?;
    let path = directory.join("trial");
    // A limit on what a user may keep shows when it is on the disk, if not before.
    let written = std::fs::copy(program, &path).and_then(|_| File::open(&path)?.sync_all());
    written.map_err(file("write a program into", &cache.root))?;
    let mode = std::fs::set_permissions(&path, Permissions::from_mode(0o700));
    mode.map_err(file("make a file executable in", &cache.root))?;
    let mut command = Command::new(&path);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sys::die_with_us(&mut command);
    let mut child = command.spawn().map_err(file("execute what is in", &cache.root))?;
    // That it began is all.
    let _ = child.kill();
    let _ = child.wait();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(directory: &Path) -> Cache {
        let value = directory.as_os_str().to_owned();
        Cache::open(|name| (name == "TMPDIR").then(|| value.clone())).unwrap()
    }

    #[test]
    fn a_trial_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        assert!(in_cache(&cache, Path::new("/bin/true")).unwrap() > 0);
        assert_eq!(std::fs::read_dir(&cache.root).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_written_or_run_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache(directory.path());
        let said = |program: &Path| in_cache(&cache, program).unwrap_err().to_string();
        let broken = directory.path().join("broken");
        std::fs::write(&broken, "#!/nowhere/sh\n").unwrap();
        assert!(said(&broken).starts_with("cannot execute what is in "));
        // What cannot be read stands for a disk that is full, which tests on hosts have.
        assert!(said(Path::new("/proc/self/mem")).starts_with("cannot write a program into "));
        assert_eq!(std::fs::read_dir(&cache.root).unwrap().count(), 0);
    }
}
