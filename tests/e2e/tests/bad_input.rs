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

/// What came from outside, with what would make it a line of the launcher's or move the cursor.
const FORGED: &str = "x\ngasnetrun_ibv: all is well\r\u{1b}[2K";

#[test]
fn nothing_from_outside_passes_for_a_line_of_the_launcher() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(format!("{name}{FORGED}"));
    let not_executable = path("plain");
    std::fs::write(&not_executable, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&not_executable, PermissionsExt::from_mode(0o644)).unwrap();
    // It is there and may be executed, but its interpreter is not.
    let broken = path("broken");
    std::fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&broken, PermissionsExt::from_mode(0o755)).unwrap();
    let file = path("file");
    std::fs::write(&file, "").unwrap();
    let run = |args: &[&str]| launcher(args.iter().copied()).env("GASNET_QUIET", "0");
    let cases = [
        ("a missing program", run(&["-n", "1", FORGED])),
        ("a program that may not run", run(&["-n", "1"]).arg(&not_executable)),
        ("a program that cannot run", run(&["-n", "1"]).arg(&broken)),
        ("an unknown option", run(&["-n", "1", &format!("--{FORGED}"), "true"])),
        ("a value of an option", run(&["-n", FORGED, "true"])),
        ("a host", run(&["-n", "1", "--hosts", FORGED, "true"])),
        ("a file of hosts", run(&["-n", "1", "--hostfile"]).arg(path("none")).arg("true")),
        ("a directory", run(&["-n", "1", "--wdir"]).arg(&file).arg("true")),
        ("a directory of output", run(&["-n", "1", "--output-dir"]).arg(&file).arg("true")),
        ("a report", run(&["-n", "1", "--report"]).arg(path("none").join("x")).arg("true")),
        ("a spawner", run(&["-n", "1", "-spawner", FORGED, "true"])),
        ("a variable", run(&["-n", "1", "true"]).env("GASNET_EXITTIMEOUT", FORGED)),
        ("a variable's name", run(&["-n", "1", "true"]).env(format!("GASNET_{FORGED}"), "1")),
        ("an argument", run(&["-v", "-n", "1", "/bin/true", FORGED])),
        ("last words", run(&["-n", "1", "sh", "-c", "echo \"$0\" >&2; exit 3", FORGED])),
    ];
    let mut faults = Vec::new();
    for (what, tree) in cases {
        let outcome = tree.run();
        let err = outcome.err();
        // A rank's own output stays as it is.
        let own = format!("{FORGED}\n");
        let said = if what == "last words" { err.replacen(&own, "", 1) } else { err.clone() };
        let ours = |line: &str| {
            let forged = line.starts_with("gasnetrun_ibv: all is well");
            let shape = line.starts_with("gasnetrun_ibv: ") || line.starts_with("  ");
            // The parser's own paragraphs.
            let usage =
                line.is_empty() || line.starts_with("Usage: ") || line.starts_with("For more ");
            !forged && (shape || usage) && !line.contains(|c: char| c.is_control() && c != '\t')
        };
        if err.is_empty() || !said.lines().all(ours) {
            faults.push(format!("{what}: {err:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
