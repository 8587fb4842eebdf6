//! Other launchers and their libraries, by name: a line here is all that a new one needs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use supervisor::doctor::Finding;

/// Commands that start ranks.
const COMMANDS: [&str; 9] = [
    "mpirun",        // MPI
    "mpiexec",       // MPI
    "mpiexec.hydra", // MPICH
    "srun",          // Slurm
    "prun",          // PRRTE
    "flux",          // Flux
    "jsrun",         // LSF
    "aprun",         // ALPS
    "yod",           // Portals
];

/// The libraries of process managers, as the dynamic loader knows them.
const LIBRARIES: [&str; 5] =
    ["libpmix.so.2", "libpmi2.so.0", "libpmi.so.0", "libpmi.so.12", "libmpi.so.40"];

/// Directories in which the dynamic loader looks.
const DIRECTORIES: [&str; 8] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/powerpc64le-linux-gnu",
];

fn there(name: &str, directories: &[PathBuf]) -> bool {
    directories.iter().any(|directory| directory.join(name).is_file())
}

/// What of it is on this host; `path` and `libraries` are the values of `PATH` and
/// `LD_LIBRARY_PATH`.
pub(super) fn finding(path: Option<&OsStr>, libraries: Option<&OsStr>) -> Finding {
    let split = |value: Option<&OsStr>| -> Vec<PathBuf> {
        value.map(|value| std::env::split_paths(value).collect()).unwrap_or_default()
    };
    let mut places = split(libraries);
    places.extend(DIRECTORIES.iter().map(|directory| Path::new(directory).to_owned()));
    let commands = COMMANDS.into_iter().filter(|name| {
        which::which_in_global(name, path).is_ok_and(|mut found| found.next().is_some())
    });
    let libraries = LIBRARIES.into_iter().filter(|name| there(name, &places));
    let found: Vec<&str> = commands.chain(libraries).collect();
    let seen = if found.is_empty() { "none found".to_owned() } else { found.join(" ") };
    Finding::ok("other launchers", seen)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_in_the_way_of_the_search_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let srun = directory.path().join("srun");
        std::fs::write(&srun, "").unwrap();
        std::fs::set_permissions(srun, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(directory.path().join("libpmi.so.12"), "").unwrap();
        let here = Some(directory.path().as_os_str());
        assert!(finding(here, None).seen.starts_with("srun"));
        assert!(finding(None, here).seen.contains("libpmi.so.12"));
        let names: std::collections::BTreeSet<_> = COMMANDS.iter().collect();
        assert_eq!(names.len(), COMMANDS.len());
    }
}
