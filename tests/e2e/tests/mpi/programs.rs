//! MPI programs of the tests, made once by the compiler of each MPI, and what their output must be.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use testkit::{Outcome, skip};

/// Far above what a case takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// Whether a compiler of an MPI is installed, with headers; says if not.
pub(crate) fn installed(test: &str, compiler: &str) -> bool {
    let probe = Command::new("sh")
        .args(["-c", &format!("echo '#include <mpi.h>' | {compiler} -x c -fsyntax-only -")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let good = probe.is_ok_and(|status| status.success());
    if !good {
        skip(test, &format!("{compiler} is not installed, or has no mpi.h"));
    }
    good
}

/// `tests/mpi/NAME.c`, made by this compiler.
pub(crate) fn mpi_program(name: &str, compiler: &str) -> String {
    made(name, compiler, &[])
}

/// The same with further words for the compiler.
pub(crate) fn made(name: &str, compiler: &str, words: &[String]) -> String {
    static MADE: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);
    let mut all = MADE.lock().expect("no test has failed in here");
    let made = all.get_or_insert_default();
    let key = format!("{name}.{compiler}");
    if let Some(program) = made.get(&key) {
        return program.clone();
    }
    let target = std::env::current_exe().expect("a path");
    let target = target.ancestors().nth(3).expect("the target directory").join("mpi-programs");
    std::fs::create_dir_all(&target).expect("the target directory can be written");
    let source = testkit::repository().join("tests/mpi").join(format!("{name}.c"));
    let program: PathBuf = target.join(format!("{key}.{}", std::process::id()));
    let output = Command::new(compiler)
        .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(source)
        .args(words)
        .output()
        .expect("the compiler can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One name for all runs, and never a file that another run is writing.
    let last = target.join(&key);
    std::fs::rename(program, &last).expect("it can be renamed");
    let program = last.display().to_string();
    made.insert(key, program.clone());
    program
}

/// Words for a compiler by which programs find the library of GASNet, sequential mode; says if it cannot
/// be made.
pub(crate) fn gasnet(test: &str) -> Option<Vec<String>> {
    // One at a time: both would write the same files.
    static BUILDS: Mutex<()> = Mutex::new(());
    let _turn = BUILDS.lock().expect("no test has failed in here");
    let target = std::env::current_exe().expect("a path");
    let target = target.ancestors().nth(3).expect("the target directory").to_owned();
    let out = target.join("mpi-programs/library");
    let made = Command::new(testkit::repository().join("scripts/build-libs"))
        .args(["--profile", "dev", "--out"])
        .arg(&out)
        .arg("seq")
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .expect("scripts/build-libs can be run");
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        skip(test, said.lines().last().unwrap_or("scripts/build-libs fails"));
        return None;
    }
    let out = out.display();
    Some(vec![
        "-DGASNET_SEQ".to_owned(),
        format!("-I{out}/include"),
        format!("-L{out}/lib"),
        "-lgasnet-ibv-seq".to_owned(),
        format!("-Wl,-rpath,{out}/lib"),
    ])
}

/// The program went through, as one world of so many ranks; `shared` has how many ranks each host has.
#[track_caller]
pub(crate) fn passes(outcome: &Outcome, ranks: usize, shared: &[usize]) {
    passes_with(outcome, 0, ranks, shared);
}

/// The same with another code of the job.
#[track_caller]
pub(crate) fn passes_with(outcome: &Outcome, code: i32, ranks: usize, shared: &[usize]) {
    if let Some(fault) = outcome.fault(code) {
        panic!("{fault}\n{}\n{}", outcome.out(), outcome.err());
    }
    let out = outcome.out();
    assert!(out.contains(&format!("PASS {ranks}\n")), "{out}");
    assert_eq!(out.matches("hello from rank").count(), ranks, "{out}");
    for count in shared {
        let line = format!(": {count} ranks share its host\n");
        let expected = shared.iter().filter(|other| *other == count).count() * count;
        assert_eq!(out.matches(&line).count(), expected, "{out}");
    }
}

/// The job has ended because its ranks waited for this one.
#[track_caller]
pub(crate) fn waits_in_vain(outcome: &Outcome, gone: u32) {
    if let Some(fault) = outcome.fault(125) {
        panic!("{fault}\n{}\n{}", outcome.out(), outcome.err());
    }
    let words =
        format!("waits in a barrier of all ranks (as in MPI_Init), but rank {gone} has ended");
    assert!(outcome.err().contains(&words), "{}", outcome.err());
}
