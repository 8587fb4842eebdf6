//! `--container`: each rank runs in a container, which a command in front of it makes.
//!
//! What a rank needs of its agent are its variables, its socket (a descriptor) and memory that it is
//! sent through that. A command that keeps environment and descriptors lets them through; `RUNTIMES`
//! says of those that do not what they must be told, and which of their options are in the way.
//! `docs/containers.md` has the same for users.

use std::ffi::OsString;
use std::path::PathBuf;

use supervisor::plan::{Container as Planned, Program};

use crate::chosen::Words;
use crate::program::{Command, Places, ProgramError};
use crate::spawner::Spawner;

/// What is told to a runtime, unless the user has said something about it.
struct Add {
    /// Beginnings of options that say it.
    said_by: &'static [&'static str],
    words: &'static [&'static str],
}

const fn add(said_by: &'static [&'static str], words: &'static [&'static str]) -> Add {
    Add { said_by, words }
}

/// A runtime that is known.
struct Runtime {
    names: &'static [&'static str],
    /// Of these one must stand behind the name, if there are any; what is added stands behind it.
    verbs: &'static [&'static str],
    adds: &'static [Add],
    /// Options that keep away what a rank needs.
    refused: &'static [&'static str],
    /// Why it cannot be used at all; empty: it can.
    never: &'static str,
    /// How it is told the name of a variable that is to be let in; empty: all are.
    variable: &'static str,
    /// Number of the only descriptor that it passes on.
    socket: Option<i32>,
}

const KEEPS_ALL: Runtime = Runtime {
    names: &[],
    verbs: &[],
    adds: &[],
    refused: &[],
    never: "",
    variable: "",
    socket: None,
};

/// Those that need to be told something. All others are taken for commands that keep environment and
/// descriptors, as `enroot`, `ch-run`, `chroot`, `unshare` and `nsenter` do.
const RUNTIMES: [Runtime; 4] = [
    Runtime {
        names: &["apptainer", "singularity"],
        verbs: &["exec", "run"],
        refused: &["--cleanenv", "-e", "--containall", "-C"],
        ..KEEPS_ALL
    },
    Runtime {
        names: &["bwrap"],
        adds: &[add(&["--die-with-parent"], &["--die-with-parent"])],
        refused: &["--clearenv"],
        ..KEEPS_ALL
    },
    Runtime {
        names: &["podman"],
        verbs: &["run"],
        adds: &[
            add(&["--rm"], &["--rm"]),
            add(&["-i", "--interactive"], &["--interactive"]),
            add(&["--net", "--network"], &["--network=host"]),
            add(&["--pid"], &["--pid=host"]),
            add(&["--ipc"], &["--ipc=host"]),
            add(&["--preserve-fds"], &["--preserve-fds=1"]),
            add(&["--env-host"], &["--env=GASNET*"]),
        ],
        refused: &["-d", "--detach", "-t", "--tty", "-it", "-ti"],
        variable: "--env=",
        socket: Some(3),
        ..KEEPS_ALL
    },
    Runtime {
        names: &["docker", "nerdctl"],
        never: "its daemon starts containers, so nothing of a rank's agent reaches them; use podman, apptainer or bwrap, \
                or start gasnetrun_ibv itself in the container",
        ..KEEPS_ALL
    },
];

/// Why ranks cannot run in a container.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The runtime is not installed.
    #[error("--container: {0}")]
    Runtime(#[from] ProgramError),
    /// One that cannot: its name, why.
    #[error("--container {0}: {1}")]
    Never(String, &'static str),
    /// Without the word that makes it run something: its name, the words.
    #[error("--container {0}: write {0} {1}, and what it needs, as in {0} {2} IMAGE")]
    Verb(String, String, &'static str),
    /// An option that keeps away what a rank needs: the name, the option.
    #[error(
        "--container {0}: ranks need their variables and descriptors, which {1} keeps from them; leave it out"
    )]
    Option(String, String),
    /// More descriptors than it passes on.
    #[error("--container {0}: it passes on one descriptor, and {1} needs another; leave {1} out")]
    Descriptors(String, &'static str),
    /// Not with another launcher.
    #[error(
        "--container is for ranks that our own agents start, with -spawner=ssh; with -spawner={0} another launcher starts \
         them: use what it has for containers"
    )]
    Spawner(&'static str),
}

/// A container for each rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The words in front of those of a rank, the first one an absolute path.
    pub words: Vec<OsString>,
    /// What agents must know.
    pub planned: Planned,
}

impl Container {
    /// That of the command line, found on this host. `forwarded`: names of variables that the user wants
    /// ranks to have. `more`: an option by which ranks need another descriptor.
    ///
    /// # Errors
    /// [`ContainerError`].
    pub fn of(
        words: &Words,
        places: &Places,
        spawner: Spawner,
        forwarded: &[OsString],
        more: Option<&'static str>,
    ) -> Result<Self, ContainerError> {
        if spawner != Spawner::Ssh {
            return Err(ContainerError::Spawner(spawner.name()));
        }
        let (runtime, at) = known(words.all());
        let name = words.all().get(at).cloned().unwrap_or_default();
        let at = check(runtime, words.all(), at, &name)?;
        if let (Some(_), Some(option)) = (runtime.socket, more) {
            return Err(ContainerError::Descriptors(name, option));
        }
        let mut all: Vec<OsString> = words.all().iter().map(OsString::from).collect();
        let behind = &words.all()[at..];
        let missing =
            |add: &&Add| !behind.iter().any(|word| add.said_by.iter().any(|said| says(word, said)));
        let adds = runtime.adds.iter().filter(missing).flat_map(|add| add.words);
        let mut added: Vec<OsString> = adds.map(OsString::from).collect();
        if !runtime.variable.is_empty() {
            let let_in = |name: &OsString| {
                let mut word = OsString::from(runtime.variable);
                word.push(name);
                word
            };
            added.extend(forwarded.iter().map(let_in));
        }
        all.splice(at..at, added);
        all[0] = places.find(&all[0])?.into_os_string();
        Ok(Self { words: all, planned: Planned { socket: runtime.socket } })
    }

    /// Puts it in front of programs. Nothing of theirs is sent to hosts: they are in the container.
    #[must_use]
    pub fn around(&self, programs: Vec<Program>) -> Vec<Program> {
        let contained = |mut program: Program| {
            program.put_behind(&self.words);
            Program { word: 0, ..program }
        };
        programs.into_iter().map(contained).collect()
    }
}

/// Whether a word is an option, or that with a value glued to it.
fn says(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// The runtime of a command, and where its name stands.
fn known(words: &[String]) -> (&'static Runtime, usize) {
    let of = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or(word);
        RUNTIMES.iter().find(|runtime| runtime.names.contains(&name))
    };
    let found = (0..).zip(words).find_map(|(at, word)| Some((of(word)?, at)));
    found.unwrap_or((&KEEPS_ALL, 0))
}

/// Checks the words; where added ones stand.
fn check(
    runtime: &Runtime,
    words: &[String],
    at: usize,
    name: &str,
) -> Result<usize, ContainerError> {
    if !runtime.never.is_empty() {
        return Err(ContainerError::Never(name.to_owned(), runtime.never));
    }
    let verb = |word: &String| runtime.verbs.contains(&word.as_str());
    let behind = match (runtime.verbs, words[at..].iter().position(verb)) {
        ([], _) => at + 1,
        (_, Some(verb)) => at + verb + 1,
        ([first, ..], None) => {
            return Err(ContainerError::Verb(name.to_owned(), runtime.verbs.join(" or "), first));
        }
    };
    let refused = |word: &&String| runtime.refused.iter().any(|option| says(word, option));
    // Options stand in front of the image; words behind it are none of the runtime's.
    let options = words[behind..].iter().take_while(|word| *word != "--");
    match options.into_iter().find(refused) {
        Some(word) => Err(ContainerError::Option(name.to_owned(), word.clone())),
        None => Ok(behind),
    }
}

/// A program as it is looked for in the container: what is not on this host is there alone, and a name
/// without a path is found there in its own places.
///
/// # Errors
/// A GASNet program that cannot be started so.
pub fn resolve(
    places: &Places,
    words: &[OsString],
    spawner: Spawner,
) -> Result<Command, ProgramError> {
    let as_typed = || Command {
        executable: words.first().map(PathBuf::from).unwrap_or_default(),
        argv: words.to_vec(),
        program: None,
        mpi: None,
    };
    let mut command = match places.resolve(words, spawner) {
        Ok(command) => command,
        Err(error @ (ProgramError::OtherConduit(..) | ProgramError::NoSpawner(..))) => {
            return Err(error);
        }
        Err(_) => return Ok(as_typed()),
    };
    for (found, typed) in command.argv.iter_mut().zip(words) {
        let here = places.directory.join(typed);
        let named = typed.to_string_lossy().contains('/') || here.as_os_str() == found.as_os_str();
        if !named {
            found.clone_from(typed);
        }
    }
    command.executable = command.argv.first().map(PathBuf::from).unwrap_or_default();
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places { directory: "/nowhere".into(), path: Some("/bin".into()) }
    }

    fn of(text: &str) -> Result<String, String> {
        // Words of `env` stand for those of runtimes that this machine may not have.
        let words = Words::parse(&format!("env {text}")).expect("words");
        let forwarded = ["HOME".into()];
        let made = Container::of(&words, &places(), Spawner::Ssh, &forwarded, None);
        let made = made.map_err(|error| error.to_string())?;
        let words = made.words.iter().map(|word| word.to_string_lossy().into_owned());
        Ok(words.collect::<Vec<_>>().join(" ").replace("/bin/env ", ""))
    }

    #[test]
    fn each_runtime_is_told_what_it_needs_to_be() {
        let podman = "podman --log-level error run --interactive --network=host --ipc=host --preserve-fds=1 --env=GASNET* \
                      --env=HOME --rm --pid=private image";
        assert_eq!(
            of("podman --log-level error run --rm --pid=private image").as_deref(),
            Ok(podman)
        );
        let bwrap = Ok("bwrap --die-with-parent --dev-bind / /");
        assert_eq!(of("bwrap --dev-bind / /").as_deref(), bwrap);
        assert_eq!(of("bwrap --die-with-parent --dev-bind / /").as_deref(), bwrap);
        for kept in ["apptainer exec --nv a.sif", "/opt/bin/singularity run a.sif", "chroot /x -d"]
        {
            assert_eq!(of(kept).as_deref(), Ok(kept));
        }
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (text, said) in [
            ("docker run image", "its daemon starts containers"),
            ("podman image", "write podman run"),
            (
                "apptainer a.sif",
                "write apptainer exec or run, and what it needs, as in apptainer exec",
            ),
            ("apptainer exec --cleanenv a.sif", "which --cleanenv keeps from them"),
            ("bwrap --clearenv --dev-bind / /", "which --clearenv keeps"),
            ("podman run -t image", "which -t keeps"),
        ] {
            let error = of(text).expect_err(text);
            assert!(error.contains(said) && error.starts_with("--container "), "{text}: {error}");
        }
        let words = |text| Words::parse(text).expect("words");
        let made = |text, spawner, records| {
            Container::of(&words(text), &places(), spawner, &[], records).expect_err(text)
        };
        let error = made("env x", Spawner::Pmi, None).to_string();
        assert!(error.contains("with -spawner=ssh"), "{error}");
        let error = made("env podman run x", Spawner::Ssh, Some("--trace")).to_string();
        assert!(error.contains("leave --trace out"), "{error}");
        let error = made("no-such-runtime x", Spawner::Ssh, None).to_string();
        assert!(error.contains("\"no-such-runtime\" not found"), "{error}");
    }

    #[test]
    fn programs_are_looked_for_in_the_container() {
        let directory = tempfile::tempdir().expect("a directory");
        let places = Places { directory: directory.path().into(), path: Some("/bin".into()) };
        std::fs::copy("/bin/true", directory.path().join("own")).expect("a program");
        let argv = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            resolve(&places, &words, Spawner::Ssh).expect("good").argv
        };
        assert_eq!(argv(&["sh", "-c", "x"]), ["sh", "-c", "x"]);
        assert_eq!(argv(&["/only/there", "x"]), ["/only/there", "x"]);
        let own = directory.path().join("own").into_os_string();
        assert_eq!(argv(&["./own", "x"])[0], own);
        assert_eq!(argv(&["own"])[0], own);
    }

    #[test]
    fn nothing_of_what_is_inside_is_sent() {
        let words = ["/bin/env".into(), "podman".into()].to_vec();
        let container = Container { words, planned: Planned::default() };
        let argv = vec!["/p".into(), "x".into()];
        let program = Program { file: "/p".into(), word: 0, argv, ..Program::default() };
        let [around] = container.around(vec![program]).try_into().expect("one");
        assert_eq!((around.own_file().to_str(), around.word), (Some("/bin/env"), 0));
        assert_eq!(around.argv, ["/bin/env", "podman", "/p", "x"].map(OsString::from));
    }
}
