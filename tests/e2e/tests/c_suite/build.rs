//! Libraries and programs, made once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

/// Thread modes, as in the names of the libraries.
pub(crate) const MODES: [&str; 3] = ["seq", "parsync", "par"];
/// Those that check what the specification demands of programs.
pub(crate) const DEBUG_MODES: [&str; 3] = ["seq-debug", "parsync-debug", "par-debug"];
/// Kinds of library.
pub(crate) const KINDS: [Kind; 2] = [Kind::Static, Kind::Shared];

/// The kind of library of a program in a table of many: `full` with `scripts/test --all`. Linking
/// the archive takes seconds, so by default every fifth program is linked with it.
pub(crate) fn kind(turn: usize, full: Kind) -> Kind {
    match testkit::all_requested() {
        true => full,
        false if turn.is_multiple_of(5) => Kind::Static,
        false => Kind::Shared,
    }
}

/// How a program gets the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// From the archive.
    Static,
    /// From the shared object.
    Shared,
}

impl Kind {
    /// What the file's name ends with.
    pub(crate) const fn ending(self) -> &'static str {
        match self {
            Self::Static => "a",
            Self::Shared => "so",
        }
    }

    fn linked(self, mode: &str) -> Vec<String> {
        let folder = library().join("lib");
        let folder = folder.display();
        match self {
            Self::Static => vec![format!("{folder}/libgasnet-ibv-{mode}.a")],
            Self::Shared => vec![
                format!("-L{folder}"),
                format!("-lgasnet-ibv-{mode}"),
                format!("-Wl,-rpath,{folder}"),
            ],
        }
    }
}

/// Top of the checkout.
pub(crate) fn root() -> PathBuf {
    testkit::repository()
}

/// Cargo's target directory, from the place of the running test: `<target>/<profile>/deps/name`.
pub(crate) fn target() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.ancestors().nth(3).unwrap().to_owned()
}

/// Whether a program of this name answers to `--version`.
pub(crate) fn installed(program: &str) -> bool {
    let probe =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// Whether the tools that make programs are there; says once what is missing.
pub(crate) fn ready() -> bool {
    static READY: OnceLock<bool> = OnceLock::new();
    *READY.get_or_init(|| {
        let needed = ["gcc", "g++", "nm", "ar", "objcopy"];
        let missing: Vec<&str> = needed.into_iter().filter(|tool| !installed(tool)).collect();
        if !missing.is_empty() {
            testkit::skip("C programs", &format!("not installed: {}", missing.join(" ")));
        }
        missing.is_empty()
    })
}

/// Runs a command to its end and panics with what it said when it failed.
pub(crate) fn must(command: &mut Command) -> String {
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Directory with `lib` and `include`, made by `scripts/build-libs`.
pub(crate) fn library() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let out = target().join("c-suite");
        must(
            Command::new(root().join("scripts/build-libs"))
                .args(["--profile", "dev", "--out"])
                .arg(&out)
                .env("CARGO_TARGET_DIR", target()),
        );
        out
    })
}

/// Makes the library of one of [`DEBUG_MODES`], once, beside the others.
pub(crate) fn debug_library(mode: &'static str) {
    static MADE: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap();
    if !made.contains(&mode) {
        must(
            Command::new(root().join("scripts/build-libs"))
                .args(["--profile", "dev", "--out"])
                .arg(library())
                .arg(mode)
                .env("CARGO_TARGET_DIR", target()),
        );
        made.push(mode);
    }
}

/// What chooses a mode.
pub(crate) fn defines(mode: &str) -> Vec<String> {
    let (mode, checks) = mode.strip_suffix("-debug").map_or((mode, false), |mode| (mode, true));
    let debug = checks.then(|| "-DGASNET_DEBUG".to_owned());
    std::iter::once(format!("-DGASNET_{}", mode.to_uppercase())).chain(debug).collect()
}

/// All programs, sorted.
pub(crate) fn sources() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(root().join("tests/c"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "c" || ending == "cpp"))
        .collect();
    found.sort();
    found
}

fn is_cxx(source: &Path) -> bool {
    source.extension().is_some_and(|ending| ending == "cpp")
}

/// The compiler with warnings, the mode and the headers.
fn compiler(program: &str, cxx: bool, mode: &str) -> Command {
    let mut command = Command::new(program);
    command
        .arg(if cxx { "-std=c++17" } else { "-std=c11" })
        .args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"])
        .args(defines(mode))
        .arg("-I")
        .arg(library().join("include"));
    command
}

/// Makes nothing; fails when the compiler refuses.
pub(crate) fn compiles(program: &str, source: &Path, mode: &str) {
    let cxx = program.ends_with("++");
    if is_cxx(source) && !cxx {
        return;
    }
    let mut command = compiler(program, cxx, mode);
    if cxx {
        command.args(["-x", "c++"]);
    }
    must(command.arg("-fsyntax-only").arg(source));
}

/// A program's place among all.
pub(crate) fn place(name: &str) -> usize {
    sources().iter().position(|path| path.file_stem().unwrap() == name).unwrap()
}

fn source_of(name: &str) -> PathBuf {
    sources().swap_remove(place(name))
}

/// Where this test's programs are, gigabytes of them: what the last run left there is removed.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let test = test.file_stem().unwrap().to_string_lossy().into_owned();
        let name = test.rsplit_once('-').map_or(&*test, |(name, _)| name);
        let folder = target().join("c-programs").join(name);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => std::fs::create_dir_all(&folder).unwrap(),
        }
        folder
    })
}

/// Values that are made once each, several at a time.
struct Once<K>(Mutex<HashMap<K, Arc<OnceLock<PathBuf>>>>);

impl<K: std::hash::Hash + Eq> Once<K> {
    fn get(&self, key: K, make: impl FnOnce() -> PathBuf) -> PathBuf {
        let cell = Arc::clone(self.0.lock().unwrap().entry(key).or_default());
        cell.get_or_init(make).clone()
    }
}

fn object(name: &str, mode: &'static str, extra: &'static [&'static str]) -> PathBuf {
    type Key = (String, &'static str, &'static [&'static str]);
    static MADE: OnceLock<Once<Key>> = OnceLock::new();
    let made = MADE.get_or_init(|| Once(Mutex::new(HashMap::new())));
    made.get((name.to_owned(), mode, extra), || {
        let source = source_of(name);
        let cxx = is_cxx(&source);
        let path = folder().join(format!("{name}-{mode}{}.o", extra.join("")));
        must(
            compiler(if cxx { "g++" } else { "gcc" }, cxx, mode)
                .args(extra)
                .arg("-c")
                .arg(&source)
                .arg("-o")
                .arg(&path),
        );
        path
    })
}

/// Makes a program of `tests/c/smoke`.
pub(crate) fn smoke(name: &str, mode: &'static str, kind: Kind) -> PathBuf {
    let path = folder().join(format!("smoke-{name}-{mode}-{}", kind.ending()));
    let source = root().join(format!("tests/c/smoke/{name}.c"));
    let mut command = compiler("gcc", false, mode);
    must(command.arg(source).args(kind.linked(mode)).args(SYSTEM).arg("-o").arg(&path));
    path
}

/// Makes a C program with the C++ compiler.
pub(crate) fn built_as_cxx(name: &str, mode: &'static str, kind: Kind) -> PathBuf {
    let path = folder().join(format!("{name}-{mode}-cxx-{}", kind.ending()));
    let mut command = compiler("g++", true, mode);
    command.args(["-x", "c++"]).arg(source_of(name)).args(["-x", "none"]);
    must(command.args(kind.linked(mode)).args(SYSTEM).arg("-o").arg(&path));
    path
}

fn linker(name: &str) -> Command {
    Command::new(if is_cxx(&source_of(name)) { "g++" } else { "gcc" })
}

const SYSTEM: [&str; 4] = ["-lpthread", "-lm", "-ldl", "-lgcc_s"];

/// Path of the program, which is made by the first caller.
pub(crate) fn built(name: &str, mode: &'static str, kind: Kind) -> PathBuf {
    built_with(name, mode, kind, &[])
}

/// As [`built`], with more options for compiler and linker.
pub(crate) fn built_with(
    name: &str,
    mode: &'static str,
    kind: Kind,
    extra: &'static [&'static str],
) -> PathBuf {
    type Key = (String, &'static str, Kind, &'static [&'static str]);
    static MADE: OnceLock<Once<Key>> = OnceLock::new();
    let made = MADE.get_or_init(|| Once(Mutex::new(HashMap::new())));
    made.get((name.to_owned(), mode, kind, extra), || {
        let object = object(name, mode, extra);
        let path = folder().join(format!("{name}-{mode}-{}{}", kind.ending(), extra.join("")));
        must(
            linker(name)
                .args(extra)
                .arg(object)
                .args(kind.linked(mode))
                .args(SYSTEM)
                .arg("-o")
                .arg(&path),
        );
        path
    })
}

/// Links the object of one mode with the library of another; what the linker said when it refused.
pub(crate) fn link_across(
    name: &str,
    header: &'static str,
    mode: &str,
    kind: Kind,
) -> Option<String> {
    let object = object(name, header, &[]);
    let path = folder().join(format!("{name}-{header}-on-{mode}-{}", kind.ending()));
    let output = linker(name)
        .arg(object)
        .args(kind.linked(mode))
        .args(SYSTEM)
        .arg("-o")
        .arg(path)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Whether gcc makes a program with these options.
pub(crate) fn links_with(options: &[&str]) -> bool {
    let source = folder().join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let output = Command::new("gcc")
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(folder().join("empty"))
        .output();
    output.is_ok_and(|output| output.status.success())
}
