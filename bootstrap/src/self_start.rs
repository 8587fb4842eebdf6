//! A program that starts itself as a job: `program [-v] N[:M] [arguments]`, as in GASNet's oldest
//! conduits for InfiniBand, when `GASNET_IBV_SELF_START` asks for it. The process becomes the
//! launcher; the ranks that it starts get the arguments behind the number.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use settings::{Env, Kind, Value};

use crate::rank::MAX_RANKS;

/// Asks for it.
const VARIABLE: &str = "GASNET_IBV_SELF_START";
/// Must be set, and say `ssh`: without the variable, programs never start others.
const SPAWNER: &str = "GASNET_IBV_SPAWNER";
/// Path of the launcher.
const LAUNCHER: &str = "GASNET_IBV_LAUNCHER";
/// Its name.
const NAME: &str = "gasnetrun_ibv";

/// Why a program that was asked to cannot start itself.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum SelfStartError {
    /// No `N[:M]`.
    #[error(
        "{VARIABLE} is set, but {seen} is not N[:M], the number of ranks and of hosts; start the program as \
         `program [-v] 4 arguments` or `program [-v] 4:2 arguments`, or leave {VARIABLE} out"
    )]
    Words { seen: String },
    /// No launcher.
    #[error(
        "{VARIABLE} is set, but there is no {NAME} beside the library, in its ../bin or in PATH; name it with {LAUNCHER}"
    )]
    NoLauncher,
    /// It cannot become the launcher.
    #[error("{VARIABLE} is set, but {} cannot be executed: {source}; name the launcher with {LAUNCHER}", .path.display())]
    Execute { path: PathBuf, source: std::io::Error },
    /// The path of the program.
    #[error("{VARIABLE} is set, but the path of this program is unknown: {0}")]
    Program(std::io::Error),
}

/// The launcher's words for those of the command line, without the program's own. Without M the
/// launcher uses as many hosts as it knows, N at most.
fn launcher_words(words: &[OsString], program: &Path) -> Result<Vec<OsString>, SelfStartError> {
    let verbose = words.iter().take_while(|word| *word == "-v").count();
    let Some(word) = words.get(verbose) else {
        return Err(SelfStartError::Words { seen: "the end of the command line".to_owned() });
    };
    let is_number = |text: &str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        plain && text.parse().is_ok_and(|value: u32| (1..=MAX_RANKS).contains(&value))
    };
    let text = word.to_str().unwrap_or_default();
    let (ranks, hosts) = match text.split_once(':') {
        None => (text, None),
        Some((ranks, hosts)) => (ranks, Some(hosts)),
    };
    if !is_number(ranks) || !hosts.is_none_or(is_number) {
        return Err(SelfStartError::Words { seen: format!("{word:?}") });
    }
    let mut called = vec![OsString::from("-v"); verbose];
    called.extend(["-n".into(), ranks.into()]);
    if let Some(hosts) = hosts {
        called.extend(["-N".into(), hosts.into()]);
    }
    called.extend(["--".into(), program.as_os_str().to_owned()]);
    called.extend_from_slice(&words[verbose + 1..]);
    Ok(called)
}

/// Whether the environment asks for it.
fn is_asked(env: &Env) -> bool {
    // Whoever reads the variables afterwards says what is wrong with other values.
    let yes = |text: String| settings::parse(Kind::Bool, &text) == Ok(Value::Bool(true));
    env.text(VARIABLE).is_some_and(yes)
        && env.text(SPAWNER).is_some_and(|text| text.eq_ignore_ascii_case("ssh"))
}

/// File that this code was loaded from: the program, or the shared library.
fn loaded_from() -> Option<PathBuf> {
    let own = loaded_from as fn() -> Option<PathBuf> as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        range.is_some_and(|(from, to)| {
            let number = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            (number(from)..number(to)).contains(&own)
        })
    })?;
    line.find('/').map(|at| PathBuf::from(&line[at..]))
}

/// Finds the launcher.
fn launcher(env: &Env, loaded: Option<&Path>) -> Result<PathBuf, SelfStartError> {
    if let Some(named) = env.get(LAUNCHER).filter(|value| !value.is_empty()) {
        return Ok(named.into());
    }
    let beside = loaded.and_then(Path::parent);
    let near = beside.into_iter().flat_map(|dir| [dir.join(NAME), dir.join("../bin").join(NAME)]);
    let far = || which::which_in(NAME, env.get("PATH"), "/").ok();
    near.into_iter().find(|path| path.is_file()).or_else(far).ok_or(SelfStartError::NoLauncher)
}

/// The launcher that belongs to this library, as far as it can be found.
#[must_use]
pub fn installed_launcher(env: &Env) -> Option<PathBuf> {
    launcher(env, loaded_from().as_deref()).ok()
}

/// Becomes the launcher if the environment asks for it; returns when it does not. Called by a
/// process that nobody started as a rank, before it has threads of ours.
pub(crate) fn exec_if_asked(env: &Env) -> Result<(), SelfStartError> {
    if !is_asked(env) {
        return Ok(());
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().map_err(SelfStartError::Program)?;
    let called = launcher_words(&words, &program)?;
    let path = launcher(env, loaded_from().as_deref())?;
    let mut command = Command::new(&path);
    // What ranks start is no job again.
    command.args(called).env_remove(VARIABLE);
    Err(SelfStartError::Execute { path, source: command.exec() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect()
    }

    #[test]
    fn command_lines() {
        let program = Path::new("/x/prog");
        for (line, called) in [
            ("4", "-n 4 -- /x/prog"),
            ("-v 4:2 a -b", "-v -n 4 -N 2 -- /x/prog a -b"),
            ("-v -v 1 -v 2:1", "-v -v -n 1 -- /x/prog -v 2:1"),
        ] {
            assert_eq!(launcher_words(&words(line), program).unwrap(), words(called), "{line}");
        }
        for bad in ["", "-v", "x", "0", "4:", ":2", "4:0", "4:2:1", "-1", "99999999999", "+4", "4x"]
        {
            let error = launcher_words(&words(bad), program).unwrap_err().to_string();
            assert!(error.contains("program [-v] 4"), "{bad}: {error}");
        }
    }

    #[test]
    fn only_who_asks_in_full_gets_it() {
        let env = |pairs: &[(&str, &str)]| -> Env {
            pairs.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect()
        };
        assert!(is_asked(&env(&[(VARIABLE, "1"), (SPAWNER, "SSH")])));
        assert!(is_asked(&env(&[(VARIABLE, "yes"), (SPAWNER, "ssh")])));
        for bad in [
            &[(VARIABLE, "1")][..],
            &[(VARIABLE, "0"), (SPAWNER, "ssh")],
            &[(VARIABLE, "1"), (SPAWNER, "pmi")],
            &[(SPAWNER, "ssh")],
        ] {
            assert!(!is_asked(&env(bad)), "{bad:?}");
            assert!(exec_if_asked(&env(bad)).is_ok());
        }
    }

    #[test]
    fn the_launcher_is_named_or_near_or_in_path() {
        let name = format!("gasnetrun-self-start-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let make = |path: &str| {
            let path = directory.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let library = make("lib/libx.so");
        let path = directory.join("path").into_os_string();
        let env: Env = [(OsString::from("PATH"), path)].into_iter().collect();
        assert!(matches!(launcher(&env, Some(&library)), Err(SelfStartError::NoLauncher)));
        let far = make("path/gasnetrun_ibv");
        assert_eq!(launcher(&env, Some(&library)).unwrap(), far);
        make("bin/gasnetrun_ibv");
        let near = launcher(&env, Some(&library)).unwrap();
        assert_eq!(near, directory.join("lib/../bin/gasnetrun_ibv"));
        let named: Env = [(OsString::from(LAUNCHER), OsString::from("/y"))].into_iter().collect();
        assert_eq!(launcher(&named, Some(&library)).unwrap(), Path::new("/y"));
        assert_eq!(loaded_from().unwrap(), std::env::current_exe().unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
