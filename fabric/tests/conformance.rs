//! The conformance suite over the software adapter: both sides on one fabric, on a fabric each, and
//! in two processes; and over the fake libibverbs of the testkit. (Over real devices it runs where
//! one is: `scripts/softroce`.)
#![expect(clippy::unwrap_used, reason = "a broken fixture is a failed test")]

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use fabric::conformance::{CASES, Exchange, FdLink, Outcome, Side, Verdict, channel_links, run};
use fabric::soft::{SoftConfig, open};
use fabric::{Fabric, Mtu};

/// Set in the process that is side 1 of [`in_two_processes`].
const OTHER: &str = "FABRIC_CONFORMANCE_OTHER_SIDE";

fn fabric(secure: bool) -> Arc<dyn Fabric> {
    let config = SoftConfig {
        devices: 2,
        ports: 1,
        bind: "127.0.0.1".parse().unwrap(),
        key: *b"conformance test",
        secure,
        mtu: Mtu::B4096,
        faults: None,
    };
    open(&config).unwrap()
}

fn side(role: u8, fabric: Arc<dyn Fabric>, link: &mut dyn Exchange) -> Vec<Outcome> {
    run(&mut Side::new(role, fabric, 0, 1, link), "", &mut |_| ()).unwrap()
}

fn threads(first: Arc<dyn Fabric>, second: Arc<dyn Fabric>) -> Vec<Outcome> {
    let (mut left, mut right) = channel_links();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| side(1, second, &mut right));
        let outcomes = side(0, first, &mut left);
        other.join().unwrap();
        outcomes
    })
}

fn processes() -> Vec<Outcome> {
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "side_of_another_process", "--nocapture"])
        .env(OTHER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The harness of the other process writes to its standard output, so the answers come over
    // standard error.
    let input = OwnedFd::from(other.stderr.take().unwrap());
    let output = OwnedFd::from(other.stdin.take().unwrap());
    let outcomes = side(0, fabric(false), &mut FdLink::new(input, output));
    assert!(other.wait().unwrap().success());
    outcomes
}

/// Side 1, when [`processes`] starts this test; nothing otherwise.
#[test]
fn side_of_another_process() {
    use std::os::fd::AsFd;
    if settings::variable(OTHER).is_none() {
        return;
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let output = std::io::stderr().as_fd().try_clone_to_owned().unwrap();
    side(1, fabric(false), &mut FdLink::new(input, output));
}

/// Over the fake libibverbs, each side with a library handle of its own; `None`, with the reason
/// told, where it cannot be built.
fn fake_verbs() -> Option<Vec<Outcome>> {
    let file = std::env::temp_dir().join(format!("fabric-conformance-{}.so", std::process::id()));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/fake-verbs/build");
    if !Path::new("/usr/include/infiniband/verbs.h").is_file() {
        let reason = "no infiniband/verbs.h (package libibverbs-dev)";
        let _ = writeln!(std::io::stdout(), "SKIP conformance of fake verbs: {reason}");
        return None;
    }
    let built = Command::new(script).arg(&file).arg("-DFAKE_MOVES").status().unwrap();
    assert!(built.success(), "the fake library cannot be built");
    let open = || fabric::verbs::open(Some(&file)).unwrap();
    let outcomes = threads(open(), open());
    std::fs::remove_file(&file).unwrap();
    Some(outcomes)
}

fn cell(outcome: &Outcome) -> String {
    match &outcome.verdict {
        Verdict::Pass => "pass".to_owned(),
        Verdict::Skip(_) => "skip".to_owned(),
        Verdict::Fail(_) => "FAIL".to_owned(),
    }
}

#[test]
fn the_software_adapter_and_the_fake_library_conform() {
    let shared = fabric(false);
    let columns = [
        threads(shared.clone(), shared),
        threads(fabric(false), fabric(false)),
        processes(),
        threads(fabric(true), fabric(true)),
    ];
    let fake = fake_verbs();
    let header = format!(
        "\nconformance{:<11}soft: one fabric  two  processes  encrypted   fake verbs\n  case",
        ""
    );
    let (mut lines, mut failures) = (vec![header], Vec::new());
    for (index, case) in CASES.iter().enumerate() {
        let row = columns.each_ref().map(|column| &column[index]);
        assert!(row.iter().all(|outcome| outcome.case == case.name), "{row:?}");
        let [one, two, processes, secure] = row.map(cell);
        let fake = fake.as_ref().map(|column| &column[index]);
        let told = fake.map_or("-".to_owned(), cell);
        lines.push(format!(
            "  {:<26}{one:>10}{two:>5}{processes:>11}{secure:>11}{told:>13}",
            case.name
        ));
        if let Some(Verdict::Skip(reason)) = fake.map(|outcome| &outcome.verdict) {
            lines.push(format!("SKIP conformance of fake verbs, {}: {reason}", case.name));
        }
        for outcome in row.into_iter().chain(fake) {
            if let Verdict::Fail(problem) = &outcome.verdict {
                failures.push(format!("{}: {problem}", case.name));
            }
        }
        if let Some(Verdict::Skip(reason)) = row.first().map(|outcome| &outcome.verdict) {
            lines.push(format!("SKIP conformance of soft, {}: {reason}", case.name));
        }
    }
    lines.push(String::new());
    // Past the harness, so that the table is seen when all is well.
    let _ = std::io::stdout().lock().write_all(lines.join("\n").as_bytes());
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn names_of_cases_are_unique() {
    for case in CASES {
        assert_eq!(CASES.iter().filter(|one| one.name == case.name).count(), 1, "{}", case.name);
    }
}
