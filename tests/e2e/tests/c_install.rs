//! The installed tree as its users meet it: installed with `DESTDIR`, moved, and then used with
//! nothing but itself, outside the repository: pkg-config, make fragments, CMake, and the places
//! where other systems look.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use testkit::{Outcome, Tree};

const MODES: [&str; 4] = ["seq", "parsync", "par", "seq-debug"];
const LAUNCHER: &str = "bin/gasnetrun_ibv";

fn repository() -> PathBuf {
    testkit::repository()
}

/// A fresh folder in the build directory, reachable by that name alone.
fn fresh(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_install").join(name);
    if path.exists() {
        std::fs::remove_dir_all(&path).unwrap();
    }
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A command without what the test run, a job or a build system around it says.
fn command(program: impl Into<PathBuf>) -> Tree {
    let mut tree = Tree::new(program).env("LC_ALL", "C").env_remove("LD_LIBRARY_PATH");
    for (name, _) in settings::Env::from_process() {
        let foreign = ["GASNET", "PMI", "OMPI_", "SLURM_", "MPI", "PKG_CONFIG", "MAKE", "CMAKE"];
        if foreign.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            tree = tree.env_remove(name);
        }
    }
    for name in ["CC", "CXX", "CFLAGS", "CPPFLAGS", "LDFLAGS", "DESTDIR", "MFLAGS"] {
        tree = tree.env_remove(name);
    }
    tree.deadline("command", Duration::from_secs(120))
}

fn there(program: &str) -> bool {
    let probe =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// Whether all programs are there; says what is missing when they are not.
fn have(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().copied().filter(|program| !there(program)).collect();
    if !missing.is_empty() {
        testkit::skip(test, &format!("not installed: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Runs `scripts/install` with this build directory and profile, so that what is built already is
/// taken.
fn install(destination: Option<&Path>, prefix: &Path) {
    let folder = testkit::binary("gasnetrun_ibv").parent().unwrap().to_owned();
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut tree = command(repository().join("scripts/install"))
        .args(["--no-mpi", "--debug", "seq", "--profile", profile, "--prefix"])
        .arg(prefix)
        .env("CARGO_TARGET_DIR", folder.parent().unwrap())
        // A build from nothing, with other builds beside it.
        .deadline("scripts/install", Duration::from_secs(900));
    if let Some(destination) = destination {
        tree = tree.env("DESTDIR", destination);
    }
    tree.run().expect(0);
}

/// The tree that all tests use: installed by `DESTDIR` for a prefix that does not exist, then
/// moved.
fn moved() -> &'static Path {
    static MOVED: OnceLock<PathBuf> = OnceLock::new();
    MOVED.get_or_init(|| {
        let stage = fresh("stage");
        install(Some(&stage), Path::new("/opt/a package/gasnet"));
        // Both names have a space in them: shell words in the scripts must not be cut there.
        // Compilers' options that come from pkg-config and make cannot carry one, so the place
        // where the tree is used has none.
        let place = fresh("moved").join("gasnet.opt");
        std::fs::rename(stage.join("opt/a package/gasnet"), &place).unwrap();
        std::fs::remove_dir_all(&stage).unwrap();
        place
    })
}

/// All files and links below `root`, relative, sorted.
fn files(root: &Path) -> Vec<String> {
    fn walk(directory: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), root, found);
            } else {
                found.push(entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

/// What has to be in the tree, no more and no less.
fn expected_files() -> Vec<String> {
    let mut list: Vec<String> = [
        LAUNCHER,
        "lib/gasnetrun_ibv/libgasnetrun_ibv_pmi.so",
        "lib/cmake/gasnet-ibv/gasnet-ibv-config.cmake",
        "lib/cmake/gasnet-ibv/gasnet-ibv-config-version.cmake",
        "share/man/man1/gasnetrun_ibv.1",
        "share/bash-completion/completions/gasnetrun_ibv",
        "share/zsh/site-functions/_gasnetrun_ibv",
        "share/fish/vendor_completions.d/gasnetrun_ibv.fish",
        "share/doc/gasnetrun_ibv/LICENSE-APACHE",
        "share/doc/gasnetrun_ibv/LICENSE-MIT",
    ]
    .map(str::to_owned)
    .to_vec();
    // It is built where OpenSSL is.
    let client = "libgasnetrun_ibv_ssh.so";
    if testkit::binary("gasnetrun_ibv").with_file_name(client).exists() {
        list.push(format!("lib/gasnetrun_ibv/{client}"));
    }
    for (view, suffix) in [("build.opt", ""), ("build.debug", "-debug")] {
        let place = format!("lib/gasnet-ibv/{view}");
        for name in
            ["bin/gasnetrun_ibv", "config.status", "gasnet_config.h", "ibv-conduit/Makefile"]
        {
            list.push(format!("{place}/{name}"));
        }
        for mode in ["seq", "parsync", "par"] {
            if MODES.contains(&format!("{mode}{suffix}").as_str()) {
                list.push(format!("{place}/ibv-conduit/ibv-{mode}.mak"));
            }
        }
    }
    for mode in MODES {
        list.push(format!("include/ibv-conduit/ibv-{mode}.mak"));
        list.push(format!("lib/pkgconfig/gasnet-ibv-{mode}.pc"));
        for ending in ["a", "so", "so.1"] {
            list.push(format!("lib/libgasnet-ibv-{mode}.{ending}"));
        }
    }
    let headers = files(&repository().join("include"));
    list.extend(
        headers.iter().filter(|name| name.ends_with(".h")).map(|name| format!("include/{name}")),
    );
    list.sort();
    list
}

#[test]
fn the_tree_holds_what_it_should_and_names_no_place() {
    use std::os::unix::fs::PermissionsExt;
    let tree = moved();
    assert_eq!(files(tree), expected_files());
    let places = [repository().to_str().unwrap().to_owned(), "/opt/a package".to_owned()];
    for name in files(tree) {
        let path = tree.join(&name);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let runs = name.ends_with(LAUNCHER)
            || [".so", ".so.1", "config.status"].iter().any(|ending| name.ends_with(ending));
        assert_eq!(mode, if runs { 0o755 } else { 0o644 }, "{name}");
        // Machine code is free of the prefix too, but may name sources in its debug information.
        if !name.contains("libgasnet") && !name.ends_with(LAUNCHER) {
            let text = std::fs::read_to_string(&path).unwrap();
            for place in &places {
                assert!(!text.contains(place), "{name} names {place}");
            }
            let begin = text.find('@').filter(|_| name.ends_with(".pc") || name.ends_with(".mak"));
            assert!(begin.is_none(), "{name} has a place that was not filled in:\n{text}");
        }
    }
    let man = std::fs::read_to_string(tree.join("share/man/man1/gasnetrun_ibv.1")).unwrap();
    assert!(man.contains(".TH gasnetrun_ibv 1"), "{}", &man[..200.min(man.len())]);
    if have("bash completion", &["bash"]) {
        let script = tree.join("share/bash-completion/completions/gasnetrun_ibv");
        let test = ". \"$1\" && complete -p gasnetrun_ibv";
        command("bash").args(["-c", test, "bash"]).arg(script).run().expect(0);
    }
    let version = command(tree.join(LAUNCHER)).arg("--version").run();
    assert!(version.expect(0).out().starts_with("gasnetrun_ibv "), "{}", version.out());
}

#[test]
fn an_install_without_destdir_gives_the_same_tree() {
    moved(); // one after the other
    let place = fresh("a plain prefix");
    install(None, &place);
    assert_eq!(files(&place), expected_files());
    // Again over itself, as an upgrade does.
    install(None, &place);
    assert_eq!(files(&place), expected_files());
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn install_says_what_it_cannot_do() {
    let script = repository().join("scripts/install");
    let outcome = command(&script).run();
    assert!(outcome.expect(2).err().contains("--prefix DIR"), "{}", outcome.err());
    let outcome = command(&script).args(["--prefix", "/x", "--colour"]).run();
    assert!(outcome.expect(2).err().contains("'--colour'"), "{}", outcome.err());
}

/// Builds all examples in a fresh folder with what an unmodified copy of `examples/c` says.
fn examples(name: &str, variables: &[&str]) -> PathBuf {
    let build = fresh(name);
    let sources = build.join("sources");
    std::fs::create_dir(&sources).unwrap();
    for entry in std::fs::read_dir(repository().join("examples/c")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), sources.join(entry.file_name())).unwrap();
        }
    }
    let before = files(&sources);
    let make = command("make").args(["-j2", "-f", "sources/Makefile"]).args(variables).dir(&build);
    let (variable, path) = ("PKG_CONFIG_PATH", moved().join("lib/pkgconfig"));
    // Both ways to say it.
    let make = if variables.len() > 1 {
        make.env(variable, path)
    } else {
        make.arg(format!("{variable}={}", path.display()))
    };
    make.run().expect(0);
    assert_eq!(files(&sources), before, "built out of the source tree");
    build
}

/// `gasnetrun_ibv -n RANKS PROGRAM` with the installed launcher.
fn job(ranks: u32, program: &Path) -> Tree {
    command(moved().join(LAUNCHER)).args(["-n", &ranks.to_string()]).arg(program)
}

/// Runs the examples that check themselves.
fn run_examples(build: &Path, ranks: u32) {
    let outcome = job(ranks, &build.join("hello")).run();
    let mut lines: Vec<String> = outcome.expect(0).out().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines.len(), ranks as usize, "{lines:?}");
    for (rank, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("hello from rank {rank} of {ranks} on ")), "{line}");
    }
    let outcome = job(ranks, &build.join("halo")).args(["61", "30"]).run();
    let out = outcome.expect(0).out();
    assert!(out.contains("halo: 61 x 61 cells, 30 steps"), "{out}");
    assert!(out.contains("equal to the serial computation"), "{out}");
    let outcome = job(ranks, &build.join("hashtable")).arg("2000").run();
    let line = format!("hashtable: {} keys on {ranks} ranks, all found\n", 2000 * ranks + 64);
    assert_eq!(outcome.expect(0).out(), line);
}

/// What wordcount prints, without time and rate.
fn words(program: &Path, ranks: u32, files: &[PathBuf]) -> String {
    // Seconds of computing without optimisation, beside tests that go first.
    let many = Duration::from_secs(600);
    let tree = job(ranks, program).deadline("words of many files", many);
    let outcome = tree.args(["-k", "2000"]).args(files).run();
    let out = outcome.expect(0).out();
    let (head, tail) = out.rsplit_once(" ranks: ").unwrap();
    assert!(tail.ends_with(" MB/s\n"), "{tail}");
    head.to_owned()
}

#[test]
fn examples_build_with_pkg_config_alone_and_run_in_every_mode() {
    if !have("C examples", &["make", "pkg-config", "gcc"]) {
        return;
    }
    let texts = testkit::texts::files(if testkit::all_requested() { 3000 } else { 300 });
    for mode in MODES {
        let build = examples(&format!("examples-{mode}"), &["CC=gcc", &format!("MODE={mode}")]);
        for ranks in [1, 2, 4] {
            run_examples(&build, ranks);
            let rust = words(&testkit::binary("wordcount"), ranks, &texts);
            let c = words(&build.join("wordcount"), ranks, &texts);
            assert!(c == rust, "{mode}, {ranks} ranks\n--- C\n{c}\n--- Rust\n{rust}");
        }
    }
    if have("C examples with clang", &["clang"]) {
        let build = examples("examples-clang", &["CC=clang", "MODE=par"]);
        run_examples(&build, 2);
    }
}

#[test]
fn wordcount_in_c_cuts_words_as_the_rust_one_does() {
    if !have("C wordcount", &["make", "pkg-config", "gcc"]) {
        return;
    }
    let build = examples("examples-words", &["CC=gcc"]);
    let texts: [&[u8]; 5] =
        [b"Ab c-ab\xc3\xa4x", b"", b"ab", b" The THE the; x1y\nzz", &[b'q'; 9000]];
    let paths: Vec<PathBuf> = (0..texts.len()).map(|at| build.join(format!("text{at}"))).collect();
    for (path, text) in paths.iter().zip(texts) {
        std::fs::write(path, text).unwrap();
    }
    for ranks in [1, 3, 4, 7, 40] {
        let c = words(&build.join("wordcount"), ranks, &paths);
        assert_eq!(c, words(&testkit::binary("wordcount"), ranks, &paths));
    }
    let outcome = job(3, &build.join("wordcount")).args(["-k", "0", "x"]).run();
    let said = outcome.expect(2).err();
    assert_eq!(said.lines().filter(|line| line.starts_with("usage: ")).count(), 1, "{said}");
    let outcome = job(3, &build.join("wordcount")).arg("/does/not/exist").run();
    assert!(outcome.expect(1).err().contains("/does/not/exist"), "{}", outcome.err());
}

/// A program in the common part of C and C++; 0 when every rank is where it should be.
const CLIENT: &str = r#"
#include <stdio.h>
#include <gasnetex.h>
int main(int argc, char **argv)
{
    gex_Client_t client;
    gex_EP_t ep;
    gex_TM_t tm;
    if (gex_Client_Init(&client, &ep, &tm, "client", &argc, &argv, 0)) return 1;
    if (argc != 2 || argv[1][0] != 'x') gasnet_exit(3);
    printf("rank %u of %u\n", (unsigned)gex_TM_QueryRank(tm), (unsigned)gex_TM_QuerySize(tm));
    fflush(stdout);
    gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
    gasnet_exit(0);
    return 2;
}
"#;

fn client(name: &str, extra: &[(&str, &str)]) -> PathBuf {
    let build = fresh(name);
    for (file, text) in [("client.c", CLIENT), ("client.cc", CLIENT)].iter().chain(extra) {
        std::fs::write(build.join(file), text).unwrap();
    }
    build
}

fn expect_two(outcome: &Outcome) {
    let mut lines: Vec<String> = outcome.expect(0).out().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["rank 0 of 2", "rank 1 of 2"], "{}", outcome.err());
}

#[test]
fn make_fragments_serve_makefiles_of_clients() {
    if !have("make fragments", &["make", "cc", "c++"]) {
        return;
    }
    for mode in MODES {
        let makefile = format!(
            "include $(prefix)/include/ibv-conduit/ibv-{mode}.mak\n\
             include after.mk\n\
             all: c cxx\n\
             c: client.c\n\
             \t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -Wall -Wextra -Werror -c client.c\n\
             \t$(GASNET_LD) $(GASNET_LDFLAGS) -o $@ client.o $(GASNET_LIBS)\n\
             cxx: client.cc\n\
             \t$(GASNET_CXX) $(GASNET_CXXCPPFLAGS) $(GASNET_CXXFLAGS) -Wall -Wextra -Werror -c client.cc -o cxx.o\n\
             \t$(GASNET_CXX) $(GASNET_LDFLAGS) -o $@ cxx.o $(GASNET_LIBS)\n"
        );
        let build = client(
            &format!("fragment-{mode}"),
            &[("Makefile", makefile.as_str()), ("after.mk", "")],
        );
        let prefix = format!("prefix={}", moved().display());
        let outcome = command("make").arg(prefix).dir(&build).run();
        outcome.expect(0);
        let wanted =
            format!("-DGASNET_{}", mode.to_uppercase().replace("-DEBUG", " -DGASNET_DEBUG=1"));
        assert!(outcome.out().contains(&wanted), "{}", outcome.out());
        for program in ["c", "cxx"] {
            expect_two(&job(2, &build.join(program)).arg("x").run());
        }
    }
}

#[test]
fn cmake_finds_the_package() {
    if !have("CMake package", &["cmake", "gcc"]) {
        return;
    }
    let lists = "cmake_minimum_required(VERSION 3.13)\n\
        project(client C)\n\
        find_package(gasnet-ibv 2025.8 REQUIRED CONFIG)\n\
        foreach(kind seq parsync par seq-static par-static seq-debug)\n\
        add_executable(client-${kind} client.c)\n\
        target_link_libraries(client-${kind} PRIVATE gasnet-ibv::${kind})\n\
        endforeach()\n\
        message(STATUS \"launcher=${gasnet-ibv_LAUNCHER}\")\n";
    let build = client("cmake", &[("CMakeLists.txt", lists)]);
    let configure = command("cmake")
        .args(["-S", ".", "-B", "build"])
        .arg(format!("-DCMAKE_PREFIX_PATH={}", moved().display()))
        .dir(&build)
        .run();
    let launcher = format!("launcher={}", moved().join(LAUNCHER).display());
    assert!(configure.expect(0).out().contains(&launcher), "{}", configure.out());
    command("cmake").args(["--build", "build", "-j2"]).dir(&build).run().expect(0);
    for kind in ["seq", "parsync", "par", "seq-static", "par-static", "seq-debug"] {
        expect_two(&job(2, &build.join("build").join(format!("client-{kind}"))).arg("x").run());
    }
    // Reached through a link, as below /lib where that is a link to /usr/lib.
    std::os::unix::fs::symlink(moved().join("lib"), build.join("lib")).unwrap();
    let linked = command("cmake")
        .args(["-S", ".", "-B", "linked"])
        .arg(format!("-Dgasnet-ibv_DIR={}", build.join("lib/cmake/gasnet-ibv").display()))
        .dir(&build)
        .run();
    assert!(linked.expect(0).out().contains(&launcher), "{}", linked.out());
    // A version that is not there is refused instead of taken.
    std::fs::write(build.join("CMakeLists.txt"), lists.replace("2025.8", "2031.1")).unwrap();
    let refused = command("cmake")
        .args(["-S", ".", "-B", "other"])
        .arg(format!("-DCMAKE_PREFIX_PATH={}", moved().display()))
        .dir(&build)
        .run();
    assert!(refused.expect(1).err().contains("2025.8.0"), "{}", refused.err());
}

/// Places of the launcher below an installation of GASNet, relative, in the order in which UPC++'s
/// `upcxx-run` looks.
const UPCXX_PLACES: [&str; 5] =
    ["bin", "ibv-conduit/contrib", "other/amudp", "../gasnet.opt/bin", "../gasnet.debug/bin"];

/// UPC++'s configure links to a folder in which GASNet was built, includes fragments through the
/// link, and has the folder's `config.status` fill what it knows into a file of UPC++'s.
fn build_tree(tree: &Path, upcxx: &Path) {
    let link = upcxx.join("gasnet.link");
    std::os::unix::fs::symlink(tree.join("lib/gasnet-ibv/build.opt"), &link).unwrap();
    let lines = "include gasnet.link/ibv-conduit/ibv-seq.mak\nall: ; @echo $(GASNET_PREFIX)\n";
    std::fs::write(upcxx.join("prefix.mk"), lines).unwrap();
    let outcome = command("make").args(["-s", "-f", "prefix.mk"]).dir(upcxx).run();
    let real = std::fs::canonicalize(tree).unwrap();
    assert_eq!(outcome.expect(0).out().trim_end(), real.to_str().unwrap());

    std::fs::write(upcxx.join("probe.in"), "@CONDUITS@ @CC_FAMILY@ @EXESUFFIX@.\n").unwrap();
    let status = command(link.join("config.status"));
    status.env("CONFIG_FILES", "probe.out:probe.in").dir(upcxx).run().expect(0);
    assert_eq!(std::fs::read_to_string(upcxx.join("probe.out")).unwrap(), "ibv GNU .\n");
}

#[test]
fn upcxx_and_chapel_find_it_where_they_look() {
    let tree = moved();
    let found: Vec<PathBuf> = UPCXX_PLACES
        .iter()
        .map(|place| tree.join(place).join("gasnetrun_ibv"))
        .filter(|path| path.is_file())
        .collect();
    assert_eq!(found[0], tree.join(LAUNCHER));
    // UPC++'s own installation keeps it as `gasnet.opt` beside its `bin`.
    let upcxx = tree.parent().unwrap();
    let launcher = upcxx.join("bin/../gasnet.opt/bin/gasnetrun_ibv");
    std::fs::create_dir_all(upcxx.join("bin")).unwrap();
    assert!(launcher.is_file());
    for mode in MODES {
        assert!(upcxx.join(format!("gasnet.opt/include/ibv-conduit/ibv-{mode}.mak")).is_file());
    }
    if !have("launch lines of UPC++ and Chapel", &["gcc", "pkg-config", "make"]) {
        return;
    }
    build_tree(tree, upcxx);

    // Chapel asks pkg-config for the flags and for these variables.
    let query = |wanted: &[&str]| {
        let outcome = command("pkg-config")
            .args(wanted)
            .arg("gasnet-ibv-par")
            .env("PKG_CONFIG_PATH", tree.join("lib/pkgconfig"))
            .run();
        outcome.expect(0);
        outcome.out().trim().to_owned()
    };
    assert_eq!(query(&["--modversion"]), "2025.8.0");
    assert_eq!(query(&["--variable=GASNET_THREAD_MODE"]), "PAR");
    for name in ["GASNET_CC", "GASNET_CXX", "GASNET_LD", "GASNET_CPPFLAGS"] {
        assert!(!query(&[&format!("--variable={name}")]).is_empty(), "{name}");
    }
    let flags = query(&["--cflags", "--libs", "--static"]);
    let build = client("launch-lines", &[]);
    command("gcc")
        .args(["-o", "client_real", "client.c"])
        .args(flags.split_whitespace())
        .dir(&build)
        .run()
        .expect(0);
    let program = build.join("client_real");
    // UPC++ reads in the executable which launcher to take, and takes one line for an answer.
    let bytes = std::fs::read(&program).unwrap();
    let ident = b"$GASNetConduitName: IBV $";
    assert_eq!(bytes.windows(ident.len()).filter(|window| window == ident).count(), 1);

    let upcxx_run = command(&launcher)
        .args(["-v", "-E", "UPCXX_INSTALL,UPC_NOTHING", "-N", "1", "-n", "2"])
        .arg(&program)
        .arg("x")
        .env("GASNET_MAX_SEGSIZE", "128.0MB/P")
        .env("GASNET_BACKTRACE", "1")
        .env("UPCXX_INSTALL", upcxx);
    expect_two(&upcxx_run.run());
    let names: Vec<String> = settings::Env::from_process()
        .iter()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    let all = format!("{},BASH_FUNC_module%%,NEVER_SET", names.join(","));
    let line = ["-n", "2", "-N", "1", "-c", "0", "-E", all.as_str()];
    let chapel = || command(tree.join(LAUNCHER)).args(line).env("BASH_FUNC_module%%", "() {\n:\n}");
    expect_two(&chapel().arg(&program).arg("x").run());
    // Its older launchers put a wrapper in front.
    expect_two(&chapel().args(["env", "LANG=C", "LC_ALL=C"]).arg(&program).arg("x").run());
}
