//! `scripts/build-mpi-plugin` without what it needs: one line that names it, and no build that panics.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn a_missing_libclang_is_named_before_anything_is_built() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    // A compiler that says it is Open MPI's and finds its headers.
    let compiler = path("mpicc");
    std::fs::write(&compiler, "#!/bin/sh\ncase $1 in -show) echo cc -lopenmpi ;; esac\n")
        .expect("a script");
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    // Another library of LLVM, with a name that is nearly the same.
    std::fs::write(path("libclang-cpp.so.14"), "").expect("a file");
    let ran = Command::new(testkit::repository().join("scripts/build-mpi-plugin"))
        .arg(path("out"))
        .env("MPICC", &compiler)
        .env("LIBCLANG_PATH", directory.path())
        .env("CARGO", "false")
        .output()
        .expect("the script runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(ran.status.code(), Some(77), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.starts_with("SKIP ") && said.lines().count() == 1, "{said}");
    assert!(said.contains("has no libclang.so") && said.contains("libclang-dev"), "{said}");
}
