//! Where the workspace and its binaries are.

use std::path::{Path, PathBuf};

/// Path of the workspace binary `name`, taken from the build directory of the running executable.
///
/// Cargo tells a package's tests only about that package's own binaries, so the path is derived: a
/// test runs as `<build directory>/deps/name-hash`, a benchmark driver as `<build directory>/name`.
///
/// # Panics
/// When the binary has not been built; the text says how to build it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("the running executable has a path");
    let beside = exe.parent().expect("an executable is in a directory");
    let directory = if beside.ends_with("deps") {
        beside.parent().expect("deps is inside a build directory")
    } else {
        beside
    };
    let path = directory.join(name);
    assert!(
        path.is_file(),
        "{} is missing: build the workspace first (`cargo build --workspace`, or run scripts/test, which does)",
        path.display()
    );
    path
}

/// Top of the checkout that the tests were built from.
#[must_use]
pub fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is inside the workspace").to_owned()
}

/// Whether `scripts/test --all` asked for the long versions (variable `TESTKIT_ALL` set to
/// something but `0`).
#[must_use]
pub fn all_requested() -> bool {
    settings::variable("TESTKIT_ALL").is_some_and(|value| !value.is_empty() && value != "0")
}
