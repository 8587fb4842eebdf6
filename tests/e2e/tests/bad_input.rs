//! What users mistype: each a clear error with its documented code, and nothing left behind.

use std::os::unix::fs::PermissionsExt;

use testkit::{Table, Tree, binary, job, launcher};

struct Mistake {
    what: &'static str,
    tree: Tree,
    code: i32,
    /// What the message must contain.
    says: &'static str,
}

fn mistake(what: &'static str, tree: Tree, code: i32, says: &'static str) -> Mistake {
    Mistake { what, tree, code, says }
}

#[test]
fn every_mistake_has_its_code_and_message() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("not-executable");
    std::fs::write(&plain, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
    let hello = binary("hello");
    let hello = hello.to_str().unwrap();
    let run = |args: &[&str]| launcher(args.iter().copied());

    let mistakes = [
        mistake("unknown option", run(&["-n", "2", "--frobnicate", hello]), 2, "--frobnicate"),
        mistake("no program", run(&["-n", "2"]), 2, "program"),
        mistake("no arguments at all", run(&[]), 2, "-n"),
        mistake("-n 2x", run(&["-n", "2x", hello]), 2, "2x"),
        mistake("-n 0", run(&["-n", "0", hello]), 2, "0"),
        mistake("-n -1", run(&["-n", "-1", hello]), 2, "-1"),
        mistake("-n without number", run(&["-n"]), 2, "-n"),
        mistake("-E without list", run(&["-n", "2", "-E"]), 2, "-E"),
        mistake("missing program", run(&["-n", "2", "/no/such/program"]), 127, "/no/such/program"),
        mistake(
            "program not in PATH",
            run(&["-n", "2", "no-such-program"]),
            127,
            "no-such-program",
        ),
        mistake("directory as program", run(&["-n", "2", "/usr"]), 126, "/usr"),
        mistake("not executable", run(&["-n", "2"]).arg(&plain), 126, "not-executable"),
        mistake("unknown spawner", run(&["-n", "2", "-spawner=smoke", hello]), 2, "smoke"),
        mistake(
            "a launcher that is not there",
            run(&["-n", "2", "-spawner=mpi", hello]).env("MPIRUN_CMD", "no-such-launcher %N %C"),
            125,
            "MPIRUN_CMD calls \"no-such-launcher\"",
        ),
        mistake(
            "an escape that does not exist",
            run(&["-n", "2", "-spawner=pmi", hello]).env("PMIRUN_CMD", "launch -n %n %C"),
            125,
            "\"%n\"",
        ),
        mistake(
            "an option that only our agents know",
            run(&["-n", "2", "-spawner=pmi", "--output-dir", "/tmp", hello]),
            2,
            "--output-dir",
        ),
        mistake("bad --stdin", run(&["-n", "2", "--stdin", "7x", hello]), 2, "7x"),
        mistake("bad --timeout", run(&["-n", "2", "--timeout", "soon", hello]), 2, "soon"),
        mistake(
            "bad variable value",
            job(2, "hello").env("GASNET_EXITTIMEOUT", "soon"),
            125,
            "GASNET_EXITTIMEOUT",
        ),
    ];
    let mut table = Table::new("Mistakes of users", &["mistake", "code", "ms"]);
    let mut faults = Vec::new();
    for mistake in mistakes {
        let outcome = mistake.tree.run();
        table.row(vec![mistake.what.into(), outcome.code().to_string(), outcome.ms().to_string()]);
        let err = outcome.err();
        if let Some(fault) = outcome.fault(mistake.code) {
            faults.push(format!("{}: {fault}\n{err}", mistake.what));
        } else if !err.contains(mistake.says) {
            faults.push(format!("{}: {:?} not in\n{err}", mistake.what, mistake.says));
        } else if !outcome.stdout.is_empty() {
            faults.push(format!("{}: output although nothing may start", mistake.what));
        }
    }
    table.show();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn an_unknown_variable_is_named_with_the_nearest_known_one() {
    let outcome = job(2, "hello").env("GASNET_EXITTIMEUOT", "5").run();
    outcome.expect(0);
    let err = outcome.err();
    assert!(err.contains("GASNET_EXITTIMEUOT") && err.contains("GASNET_EXITTIMEOUT"), "{err}");
    // Said once, not by every rank.
    assert_eq!(err.matches("GASNET_EXITTIMEUOT").count(), 1, "{err}");
}
