//! Finds the program among the command's words and checks that it can be started.
//!
//! A word is looked up as GASNet does it: an absolute path as it is; then the working directory, if
//! the word contains `/` or such an executable is there; then `PATH`. Words in front of the GASNet
//! program are a *wrapper* (`env A=b`, `numactl --membind=0`, `nice -n 5`): the first word that
//! carries the conduit's identification is the program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::unistd::{AccessFlags, eaccess};

use crate::ident::{self, Marks};
use crate::mpi::{self, Mpi};
use crate::spawner::Spawner;

/// Words looked at for the GASNet program. Wrappers are short; a plain program may have thousands
/// of arguments.
const WRAPPER_WORDS: usize = 64;

/// Why the program cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Not there: the word, and where it was looked for.
    #[error(
        "program {0:?} not found: looked {1}; try its full path, or ./NAME for one in this directory"
    )]
    Missing(String, String),
    /// A directory.
    #[error("{} is a directory, not a program; name the executable file in it", .0.display())]
    Directory(PathBuf),
    /// No permission to execute.
    #[error("{path} is not executable; try chmod +x {path}", path = .0.display())]
    NotExecutable(PathBuf),
    /// It cannot be looked at: its path, why not.
    #[error("cannot look at program {path}: {1}; check the permissions of the directories on the way", path = .0.display())]
    Unreachable(PathBuf, io::Error),
    /// A GASNet program of another conduit: its path, the conduit's name.
    #[error(
        "{path} is a program of GASNet's {1} conduit, this launcher starts ibv programs; use gasnetrun_{other}, or \
         build it for ibv", path = .0.display(), other = .1.to_ascii_lowercase()
    )]
    OtherConduit(PathBuf, String),
    /// An ibv program without the chosen spawner: its path, that spawner, spawners it has.
    #[error("{path} was built without the {1} spawner (it has: {2}); choose one it has with -spawner=", path = .0.display())]
    NoSpawner(PathBuf, &'static str, String),
}

/// Where words are looked up.
#[derive(Clone, Debug)]
pub struct Places {
    /// Working directory of the launcher.
    pub directory: PathBuf,
    /// Value of `PATH`.
    pub path: Option<OsString>,
}

/// A command whose program is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Absolute path of the file to execute: the wrapper's, if there is one.
    pub executable: PathBuf,
    /// Words, with the executable's and the program's own word made absolute paths.
    pub argv: Vec<OsString>,
    /// Index of the GASNet program in `argv`; `None` for a plain program.
    pub program: Option<usize>,
    /// The MPI that it needs, or the first of its words that needs one.
    pub mpi: Option<Mpi>,
}

impl Places {
    /// Finds the executable file that `word` means.
    ///
    /// # Errors
    /// There is none, or it cannot be executed.
    pub fn find(&self, word: &OsStr) -> Result<PathBuf, ProgramError> {
        let here = self
            .directory
            .join(word)
            .components()
            .filter(|c| *c != Component::CurDir)
            .collect::<PathBuf>();
        let missing =
            |looked: String| ProgramError::Missing(word.to_string_lossy().into_owned(), looked);
        if word.as_bytes().contains(&b'/') {
            let looked = || missing(format!("at {}", here.display()));
            return check(&here)?.ok_or_else(looked);
        }
        // A hit that cannot be executed does not end the search, but explains its failure.
        let mut obstacle = None;
        if !word.is_empty() && word != "." && word != ".." {
            let on_path = self.path.iter().flat_map(std::env::split_paths);
            let dirs = on_path.map(|dir| self.directory.join(dir).join(word));
            for candidate in std::iter::once(here).chain(dirs) {
                match check(&candidate) {
                    Ok(Some(path)) => return Ok(path),
                    Ok(None) => {}
                    // Directories in PATH that are closed to this user are common and say nothing.
                    Err(ProgramError::Unreachable(..)) => {}
                    Err(error) => obstacle = obstacle.or(Some(error)),
                }
            }
        }
        Err(obstacle.unwrap_or_else(|| missing(self.described())))
    }

    fn described(&self) -> String {
        let here = self.directory.display();
        match self.path.as_deref().filter(|path| !path.is_empty()) {
            Some(path) => format!("in {here} and in PATH ({})", path.to_string_lossy()),
            None => format!("in {here} (PATH is not set)"),
        }
    }

    /// Finds the executable and the GASNet program in `words` and checks that the latter can be
    /// started by `spawner`.
    ///
    /// # Errors
    /// As [`Places::find`] for the first word; a GASNet program that does not fit.
    pub fn resolve(&self, words: &[OsString], spawner: Spawner) -> Result<Command, ProgramError> {
        let executable = self.find(words.first().map_or(OsStr::new(""), OsString::as_os_str))?;
        let mut command = Command { executable, argv: words.to_vec(), program: None, mpi: None };
        for (index, word) in words.iter().enumerate().take(WRAPPER_WORDS) {
            if index > 0 && word.as_bytes().first() == Some(&b'-') {
                continue;
            }
            let path = if index == 0 { Ok(command.executable.clone()) } else { self.find(word) };
            let Ok(path) = path else { continue };
            // Execute permission does not imply read permission: such a file simply says nothing
            // about itself.
            let marks = ident::scan(&path, spawner).unwrap_or_default();
            command.mpi = command.mpi.or_else(|| mpi::of(&path));
            if fits(&path, &marks, spawner)? {
                command.argv[index] = path.into_os_string();
                command.program = Some(index);
                break;
            }
        }
        command.argv[0] = command.executable.clone().into_os_string();
        Ok(command)
    }
}

/// Whether the file is the GASNet program; `false` when it says nothing.
fn fits(path: &Path, marks: &Marks, spawner: Spawner) -> Result<bool, ProgramError> {
    if marks.is_ibv() {
        if marks.spawners.contains(&spawner) {
            return Ok(true);
        }
        let has: Vec<_> = marks.spawners.iter().map(|spawner| spawner.name()).collect();
        let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
        return Err(ProgramError::NoSpawner(path.to_owned(), spawner.name(), has));
    }
    match marks.conduits.first() {
        None => Ok(false),
        Some(seen) => Err(ProgramError::OtherConduit(path.to_owned(), seen.clone())),
    }
}

/// Whether `path` is a directory that a process may change to; why not, if so.
pub(crate) fn check_directory(path: &Path) -> Result<(), String> {
    match path.metadata() {
        Err(error) => Err(error.to_string()),
        Ok(data) if !data.is_dir() => Err("not a directory".to_owned()),
        Ok(_) => eaccess(path, AccessFlags::X_OK).map_err(|errno| errno.desc().to_owned()),
    }
}

/// The path if it is an executable file, `None` if nothing is there.
fn check(path: &Path) -> Result<Option<PathBuf>, ProgramError> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(None);
        }
        Err(source) => return Err(ProgramError::Unreachable(path.to_owned(), source)),
    };
    if found.is_dir() {
        return Err(ProgramError::Directory(path.to_owned()));
    }
    if !found.is_file() || eaccess(path, AccessFlags::X_OK).is_err() {
        return Err(ProgramError::NotExecutable(path.to_owned()));
    }
    Ok(Some(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const IBV: &str = "$GASNetConduitName: IBV $ $GASNetSSHSpawner: 1 $";

    fn put(dir: &Path, name: &str, text: &str, mode: u32) {
        std::fs::write(dir.join(name), text).expect("write");
        std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode))
            .expect("mode");
    }

    /// A directory with `here/` and `bin/`; PATH is `missing:here/data:bin`.
    fn places() -> (tempfile::TempDir, Places) {
        let dir = tempfile::tempdir().expect("scratch");
        let root = dir.path();
        for name in ["here", "bin"] {
            std::fs::create_dir(root.join(name)).expect("directory");
        }
        put(&root.join("bin"), "env", "", 0o755);
        put(&root.join("bin"), "data", "", 0o755);
        put(&root.join("here"), "data", "", 0o644);
        put(&root.join("bin"), "prog", "plain", 0o755);
        put(&root.join("here"), "prog", IBV, 0o755);
        let path = ["missing", "here/data", "bin"].map(|name| root.join(name));
        let path = std::env::join_paths(path).expect("no colon");
        let places = Places { directory: root.join("here"), path: Some(path) };
        (dir, places)
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_working_directory_beats_the_path() {
        let (dir, places) = places();
        let find = |word: &str| places.find(OsStr::new(word)).expect(word);
        assert_eq!(find("prog"), dir.path().join("here/prog"));
        assert_eq!(find("env"), dir.path().join("bin/env"));
        assert_eq!(find("./prog"), dir.path().join("here/prog"));
        assert_eq!(find("../bin/prog"), dir.path().join("here/../bin/prog"));
        assert_eq!(find("/bin/sh"), Path::new("/bin/sh"));
    }

    #[test]
    fn what_cannot_be_executed_does_not_hide_what_can() {
        let (dir, places) = places();
        assert_eq!(places.find(OsStr::new("data")).expect("in bin"), dir.path().join("bin/data"));
        let nowhere = Places { path: None, ..places.clone() };
        assert!(matches!(nowhere.find(OsStr::new("data")), Err(ProgramError::NotExecutable(_))));
        let error = nowhere.find(OsStr::new("env")).expect_err("no path");
        assert!(error.to_string().contains("PATH is not set"), "{error}");
        for word in [".", "..", "", "x\u{0}y"] {
            assert!(places.find(OsStr::new(word)).is_err(), "{word:?}");
        }
    }

    #[test]
    fn the_program_is_found_behind_wrappers() {
        let (dir, places) = places();
        let odd = OsString::from_vec(b"\xff-x".to_vec());
        let line = [words(&["env", "-u", "X", "A=b", "prog", "prog", "--flag"]), vec![odd.clone()]]
            .concat();
        let command = places.resolve(&line, Spawner::Ssh).expect("an ibv program");
        assert_eq!(command.program, Some(4));
        assert_eq!(command.executable, dir.path().join("bin/env"));
        assert_eq!(command.argv[0], dir.path().join("bin/env"));
        assert_eq!(command.argv[4], dir.path().join("here/prog"));
        assert_eq!(command.argv[5..], [words(&["prog", "--flag"]), vec![odd]].concat());
        assert_eq!(command.argv[1..4], line[1..4]);
    }

    #[test]
    fn plain_programs_and_far_words_are_left_alone() {
        let (_dir, places) = places();
        let mut line = words(&["env"]);
        line.extend((1..WRAPPER_WORDS).map(|i| OsString::from(format!("A{i}=b"))));
        line.push("prog".into());
        let command = places.resolve(&line, Spawner::Ssh).expect("a plain program");
        assert_eq!((command.program, &command.argv[1..]), (None, &line[1..]));
    }

    #[test]
    fn an_ibv_program_without_the_spawner_is_refused() {
        let (_dir, places) = places();
        let error = places.resolve(&words(&["env", "prog"]), Spawner::Pmi).expect_err("ssh only");
        assert!(matches!(error, ProgramError::NoSpawner(_, "pmi", _)), "{error}");
    }
}
