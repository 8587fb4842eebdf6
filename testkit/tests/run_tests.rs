//! What `run-tests` says of programs that fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A test program as a script, and what cargo says about it.
fn program(folder: &Path, name: &str, script: &str) -> String {
    let executable = folder.join(name);
    fs::write(&executable, format!("#!/bin/sh\n{script}\n")).expect("the folder can be written");
    fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let manifest = folder.join("Cargo.toml");
    format!(
        r#"{{"executable":{executable:?},"manifest_path":{manifest:?},"profile":{{"test":true}},"target":{{"name":"{name}"}}}}"#
    )
}

#[test]
fn what_failed_is_said_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nseen 7\n\n\
                   test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured";
    let messages = [
        program(folder.path(), "good", "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'"),
        program(folder.path(), "bad", &format!("cat <<'END'\n{results}\nEND\nexit 101")),
        program(folder.path(), "crashed", "echo before; kill -9 $$"),
    ];
    let list = folder.path().join("messages");
    fs::write(&list, messages.join("\n")).expect("the folder can be written");
    let logs = folder.path().join("logs");
    let output = Command::new(env!("CARGO_BIN_EXE_run-tests"))
        .args([&list, &logs])
        .arg("60")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().last(), Some("4 passed, 2 failed, 0 skipped"), "{said}");
    let failed = fs::read_to_string(logs.join("failed")).expect("it is written");
    let package = folder.path().file_name().expect("it has a name").to_string_lossy();
    assert!(failed.contains(&format!("FAILED {package} bad: b\nfailures:\n")), "{failed}");
    assert!(failed.contains("seen 7"), "{failed}");
    let crashed = format!("FAILED {package} crashed: it failed outside a test\nbefore\n");
    assert!(failed.contains(&crashed), "{failed}");
    assert!(!failed.contains("good"), "{failed}");
}
