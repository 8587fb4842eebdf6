//! Ranks whose program runs under a debugger, or another command in front of it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use testkit::{Input, Tree, binary, launcher, skip};

const BOUND: Duration = Duration::from_secs(90);

fn job(words: &[&str]) -> Tree {
    launcher(words).env("GASNET_QUIET", "1").deadline("a job with debuggers", BOUND)
}

/// A command that says for which rank it was called, and how, and then runs the program.
fn wrapper(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("wrapper");
    let text = "#!/bin/sh\necho \"wrapper of $GASNETRUN_RANK: $*\" >&2\nexec \"$@\"\n";
    std::fs::write(&path, text).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    path
}

#[test]
fn chosen_ranks_run_behind_the_command() {
    let directory = tempfile::tempdir().expect("a directory");
    let wrapper = wrapper(&directory).display().to_string();
    let hello = binary("hello").display().to_string();
    let behind = |words: &[&str]| {
        let outcome = job(&[&["-n", "4", "--debugger", &wrapper], words, &[&hello]].concat()).run();
        outcome.expect(0);
        assert_eq!(outcome.out().matches(" of 4 on ").count(), 4, "{}", outcome.out());
        let err = outcome.err();
        let mut ranks: Vec<char> = err
            .lines()
            .filter_map(|line| line.strip_prefix("wrapper of ")?.chars().next())
            .collect();
        ranks.sort_unstable();
        ranks.into_iter().collect::<String>()
    };
    assert_eq!(behind(&[]), "0123");
    assert_eq!(behind(&["--debugger-ranks", "3,0-1"]), "013");
    // Of several programs, too.
    let words =
        ["-n", "1", "--debugger", &wrapper, "--debugger-ranks", "1-2", &hello, ":", "-n", "3"];
    let outcome = job(&[&words[..], &["env", "A=b", &hello]].concat()).run();
    outcome.expect(0);
    let err = outcome.err();
    assert_eq!(err.matches("wrapper of 1: ").count(), 1, "{err}");
    assert_eq!(err.matches("wrapper of 2: ").count(), 1, "{err}");
    assert!(err.contains(&format!("{} A=b", on_path("env").expect("env").display())), "{err}");
    assert!(!err.contains("wrapper of 0") && !err.contains("wrapper of 3"), "{err}");
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = settings::variable("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|place| place.join(name)).find(|path| path.is_file())
}

#[test]
fn the_only_chosen_rank_reads_the_input() {
    let show = "read line && echo $GASNETRUN_RANK got $line; true";
    for (words, reader) in [(&[][..], "1"), (&["--stdin", "2"][..], "2")] {
        let line = [
            &["-n", "3", "--debugger", "env A=b", "--debugger-ranks", "1"],
            words,
            &["sh", "-c", show],
        ];
        let outcome = job(&line.concat()).stdin(Input::Bytes(b"hello\n".to_vec())).run();
        outcome.expect(0);
        assert_eq!(outcome.out(), format!("{reader} got hello\n"));
    }
}

#[test]
fn a_rank_under_gdb_does_not_end_the_job_early() {
    let test = "ranks under gdb";
    if on_path("gdb").is_none() {
        skip(test, "gdb is not installed");
        return;
    }
    let hello = binary("hello").display().to_string();
    // It waits longer at the end than ranks have after the others without a debugger.
    let gdb = "gdb -batch -nx -ex run -ex 'shell sleep 5' -ex 'echo over\\n'";
    let words = ["-n", "2", "--debugger", gdb, "--debugger-ranks", "1", &hello];
    let outcome = job(&words).env("DEBUGINFOD_URLS", "").run();
    outcome.expect(0);
    let out = outcome.out();
    assert!(out.contains("exited normally") && out.contains("over\n"), "{out}");
    assert_eq!(out.matches(" of 2 on ").count(), 2, "{out}");
    // A crash is the debugger's to show.
    let gdb = "gdb -batch -nx -ex run -ex bt";
    let words = ["-n", "2", "--debugger", gdb, "--debugger-ranks", "0", "sh", "-c"];
    let outcome = job(&[&words[..], &["test $GASNETRUN_RANK = 1 || kill -SEGV $$"]].concat());
    let outcome = outcome.env("DEBUGINFOD_URLS", "").run();
    outcome.expect(0);
    assert!(outcome.out().contains("SIGSEGV"), "{}", outcome.out());
}

#[test]
fn what_cannot_be_is_told() {
    for (words, code, said) in [
        (&["--debugger-ranks", "0"][..], 2, "--debugger-ranks needs a debugger"),
        (&["--debugger", "gdb", "--debugger-ranks", "2"], 2, "there is no rank 2"),
        (&["--debugger", "gdb", "--debugger-ranks", "x"], 2, "as in 0,3-5"),
        (&["--debugger", "'"], 2, "a quote is not closed"),
        (&["--debugger", "no-such-debugger"], 127, "\"no-such-debugger\" not found"),
        (&["-gdb"], 2, "--debugger 'xterm -e gdb'"),
    ] {
        let outcome = job(&[&["-n", "2"], words, &["true"]].concat()).run();
        outcome.expect(code);
        assert!(outcome.err().contains(said), "{words:?}: {}", outcome.err());
    }
}
