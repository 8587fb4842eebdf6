//! PMIx: programs that speak it themselves, and Open MPI through it, on one host and on four.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::process::{Process, eventually, send};
use testkit::{Bed, Running, launcher, skip};

use crate::hosts::{HOSTS, LIST, degrees};
use crate::programs::{BOUND, installed, made, mpi_program, passes};
use crate::{are_one_job, end_as_rank_1_does, job, says};

/// Where Debian has libpmix.
const PLACES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu/pmix2", "/usr/lib/aarch64-linux-gnu/pmix2"];

/// The words for a compiler that finds libpmix; `None` after a `SKIP`.
fn library(test: &str) -> Option<Vec<String>> {
    let found = PLACES.into_iter().find(|place| Path::new(place).join("include/pmix.h").exists());
    let Some(place) = found else {
        skip(test, "pmix.h is not installed (libpmix-dev)");
        return None;
    };
    Some(vec![format!("-I{place}/include"), format!("-L{place}/lib"), "-lpmix".to_owned()])
}

/// The program of the tests that speaks PMIx.
fn client(test: &str) -> Option<String> {
    Some(made("pmix", "cc", &library(test)?))
}

/// Directories of jobs that libpmix has on this machine.
fn sessions() -> HashSet<String> {
    sessions_in(&std::env::temp_dir())
}

fn sessions_in(temporary: &Path) -> HashSet<String> {
    let entries = std::fs::read_dir(temporary).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("-pmix.")).collect()
}

/// Waits until there are none that were not there `before`: those of other tests go, too.
#[track_caller]
fn nothing_new(before: &HashSet<String>) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let left: Vec<String> = sessions().difference(before).cloned().collect();
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "{left:?} are left");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn programs_of_pmix_are_one_job_on_this_host() {
    let Some(program) = client("programs of PMIx") else { return };
    let before = sessions();
    for ranks in ["1", "4"] {
        for what in ["run", "direct"] {
            let outcome = job(&["-n", ranks], &program, &[what]).run();
            passes(&outcome, ranks.parse().unwrap(), &[ranks.parse().unwrap()]);
            assert_eq!(outcome.err(), "");
        }
    }
    let outcome = job(&["-n", "4"], &program, &["some"]).run();
    says(&outcome, 0, &[]);
    assert!(outcome.out().contains("PASS 4\n"), "{}", outcome.out());
    are_one_job(&program);
    // A script hides it.
    let line = format!("{program} run");
    let outcome = job(&["-q", "--pmi=pmix", "-n", "2"], "sh", &["-c", &line]).run();
    passes(&outcome, 2, &[2]);
    nothing_new(&before);
}

#[test]
fn jobs_of_pmix_end_with_the_code_and_the_cause_of_the_first() {
    let Some(program) = client("ends of PMIx jobs") else { return };
    let before = sessions();
    end_as_rank_1_does(&program);
    // What is asked for and not served is refused, and the job goes on.
    let outcome = job(&["-n", "2"], &program, &["refused"]).run();
    says(&outcome, 0, &[]);
    assert_eq!(outcome.out(), "publish: refused\nspawn: refused\n");
    // A rank that is no program of PMIx.
    let words = ["run", ":", "-n", "1", "true"];
    let outcome = job(&["-q", "-n", "2"], &program, &words).run();
    says(
        &outcome,
        125,
        &["rank 2 of 3", "it has ended without PMIx_Init, which other ranks have called"],
    );
    // Nobody speaks it.
    let outcome = job(&["-q", "--pmi=pmix", "-n", "2"], "true", &[]).run();
    says(&outcome, 0, &["no rank has asked for the others by PMIx"]);
    nothing_new(&before);
}

/// libpmix joins what ranks of a host do, and waits for one that has finalized like for any other.
#[test]
fn a_rank_that_has_finalized_is_named_when_others_wait_for_it() {
    let Some(program) = client("a rank that finalizes PMIx before the others") else { return };
    let before = sessions();
    for what in ["vain", "linger"] {
        let outcome = job(&["-n", "3"], &program, &[what]).run();
        let words =
            "waits in a barrier of all ranks (as in MPI_Init), but rank 1 has ended or finalized";
        says(&outcome, 125, &[words]);
    }
    // libpmix itself ends a fence of one host in which the others are already.
    let outcome = job(&["-n", "3"], &program, &["early"]).run();
    assert_ne!(outcome.code(), 0, "{}", outcome.err());
    // Who begins anew is no such rank.
    let folder = tempfile::tempdir().unwrap();
    let sign = folder.path().join("sign").display().to_string();
    let outcome = job(&["-n", "3"], &program, &["again", &sign]).run();
    says(&outcome, 0, &[]);
    assert_eq!(outcome.out(), "PASS 3\n");
    nothing_new(&before);
}

/// The helper process of a job on this host.
#[track_caller]
fn helper_of(running: &Running) -> i32 {
    let found = running.descendants().into_iter();
    let helper = found.filter(|process| process.command.starts_with("(gasnetrun_pmix) "));
    let helper: Vec<i32> = helper.map(|process| process.pid).collect();
    assert_eq!(helper.len(), 1);
    helper[0]
}

#[track_caller]
fn agent_of(running: &Running) -> i32 {
    let of_launcher = |process: &&Process| process.parent == running.pid();
    running.descendants().iter().find(of_launcher).expect("the agent").pid
}

/// The launcher is stopped, so that it cannot clean up; then it is killed like the agent.
#[test]
fn launcher_and_agent_that_are_killed_together_leave_no_files() {
    let Some(program) = client("loss of launcher and agent of a PMIx job") else { return };
    for stopped in [false, true] {
        let before = sessions();
        let running = job(&["-n", "2"], &program, &["sleep"]).grace(BOUND).start();
        running.wait_stdout("sleeps\n", 2);
        let (agent, helper) = (agent_of(&running), helper_of(&running));
        assert!(!sessions().is_subset(&before));
        assert!(running.signal(Signal::SIGSTOP));
        if stopped {
            assert!(send(helper, Signal::SIGSTOP));
        }
        assert!(send(agent, Signal::SIGKILL) && running.signal(Signal::SIGKILL));
        says(&running.wait(), 137, &[]);
        nothing_new(&before);
    }
}

/// Then nobody is left to remove the files: the next job does, and touches none of a job that runs.
#[test]
fn files_of_a_job_that_was_killed_as_a_whole_go_with_the_next() {
    let Some(program) = client("loss of launcher, agent and PMIx server") else { return };
    let temporary = tempfile::tempdir().unwrap();
    let start = || {
        let tree = job(&["-n", "1"], &program, &["sleep"]).env("TMPDIR", temporary.path());
        let running = tree.grace(BOUND).start();
        running.wait_stdout("sleeps\n", 1);
        running
    };
    let there = || sessions_in(temporary.path());
    let dead = start();
    let left = there();
    assert_eq!(left.len(), 1, "{left:?}");
    let parts = [helper_of(&dead), agent_of(&dead), dead.pid()];
    assert!(parts.iter().all(|pid| send(*pid, Signal::SIGSTOP)));
    assert!(parts.iter().all(|pid| send(*pid, Signal::SIGKILL)));
    says(&dead.wait(), 137, &[]);
    assert_eq!(there(), left);
    let first = start();
    eventually("what was left goes", BOUND, || there().is_disjoint(&left).then_some(()));
    let second = start();
    assert_eq!(there().len(), 2);
    for running in [first, second] {
        assert!(running.signal(Signal::SIGTERM));
        says(&running.wait(), 143, &[]);
    }
    assert_eq!(there(), HashSet::new());
}

#[test]
fn a_helper_that_is_stopped_ends_the_job() {
    let Some(program) = client("a PMIx server that is stopped") else { return };
    let before = sessions();
    let tree = launcher(&["-n", "2"]).arg(&program).arg("sleep");
    let running = tree.deadline("a job whose PMIx server is stopped", 3 * BOUND).start();
    running.wait_stdout("sleeps\n", 2);
    let helper = helper_of(&running);
    assert!(send(helper, Signal::SIGSTOP));
    let words = ["the PMIx server of host", &helper.to_string(), "has not answered for 30 s"];
    says(&running.wait(), 125, &words);
    nothing_new(&before);
}

#[test]
fn a_helper_that_is_killed_ends_the_job() {
    let Some(program) = client("loss of the PMIx server") else { return };
    let before = sessions();
    let running = job(&["-n", "2"], &program, &["sleep"]).start();
    running.wait_stdout("sleeps\n", 2);
    let helper = helper_of(&running);
    assert!(send(helper, Signal::SIGKILL));
    says(&running.wait(), 125, &["the PMIx server of host", &helper.to_string()]);
    // With the agent it goes, too.
    let running = job(&["-n", "2"], &program, &["sleep"]).start();
    running.wait_stdout("sleeps\n", 2);
    assert!(send(agent_of(&running), Signal::SIGKILL));
    says(&running.wait(), 125, &["the node agent", "was killed by SIGKILL"]);
    nothing_new(&before);
}

/// A library that is none, one of a generation that nobody knows, and a program that is to get less than
/// it needs.
#[test]
fn what_cannot_be_served_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libpmix.so.2");
    std::fs::write(&file, "no library\n").unwrap();
    let path = folder.path().display().to_string();
    let serve = || {
        let tree = job(&["-q", "--pmi=pmix", "-n", "2"], "true", &[]);
        tree.env("LD_LIBRARY_PATH", &path).run()
    };
    says(&serve(), 125, &["cannot serve PMIx: cannot open libpmix.so.2", "libpmix2"]);
    if Command::new("cc").arg("--version").output().is_err() {
        return skip("a libpmix that is not known", "cc is not installed");
    }
    let names = [
        "Error_string",
        "server_init",
        "server_finalize",
        "generate_regex",
        "generate_ppn",
        "server_register_nspace",
        "server_deregister_nspace",
        "server_register_client",
        "server_deregister_client",
        "server_setup_fork",
        "server_dmodex_request",
    ];
    let functions = names.map(|name| format!("int PMIx_{name}(void) {{ return -1; }}\n")).concat();
    let source = folder.path().join("fake.c");
    let version = "const char *PMIx_Get_version(void) { return \"OpenPMIx 9.1.0\"; }\n";
    std::fs::write(&source, format!("{version}{functions}")).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&file).arg(&source).status();
    assert!(made.unwrap().success());
    says(&serve(), 125, &["libpmix.so.2 is \"OpenPMIx 9.1.0\", and PMIx 3 to 5 are served"]);
    if let Some(program) = client("a program of PMIx with less") {
        let outcome = job(&["--pmi=on", "-n", "2"], &program, &["run"]).run();
        says(&outcome, 125, &["libpmix.so.2", "--pmi=pmix"]);
    }
}

/// Open MPI's library has one name since version 2; that of version 5 needs libpmix.
#[test]
fn open_mpi_5_is_known_by_what_its_library_needs() {
    let test = "the library of Open MPI 5";
    let Some(words) = library(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("mpi.c"), "int PMPI_x(void) { return 0; }\n").unwrap();
    std::fs::write(path.join("main.c"), "int PMPI_x(void);\nint main(void) { return PMPI_x(); }\n")
        .unwrap();
    let compile = |words: &[&str]| {
        let made = Command::new("cc").current_dir(path).args(words).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let shared = ["-shared", "-fPIC", "-o", "libmpi.so.40", "mpi.c"];
    let seen = || {
        let program = path.join("main").display().to_string();
        let outcome = job(&["-t", "-n", "2"], &program, &[]).run();
        says(&outcome, 0, &[]);
        outcome.out()
    };
    compile(&shared);
    compile(&["-o", "main", "main.c", "./libmpi.so.40", "-Wl,-rpath,$ORIGIN"]);
    let program = std::fs::read(path.join("main")).unwrap();
    // The name that the program wants is that of a library, not a path.
    let named = program.windows(14).filter(|part| *part == b"./libmpi.so.40").count();
    assert_eq!(named, 1);
    let wanted = [&shared[..], &["-Wl,-soname,libmpi.so.40"]].concat();
    compile(&wanted);
    compile(&["-o", "main", "main.c", "./libmpi.so.40", "-Wl,-rpath,$ORIGIN"]);
    assert!(seen().contains("a library for Open MPI"), "{}", seen());
    let more: Vec<&str> = words.iter().map(String::as_str).collect();
    compile(&[&wanted[..], &["-Wl,--no-as-needed"], &more].concat());
    assert!(seen().contains("PMIx through its libpmix"), "{}", seen());
}

#[test]
fn open_mpi_works_through_pmix() {
    let test = "Open MPI through PMIx";
    if !installed(test, "mpicc.openmpi") || library(test).is_none() {
        return;
    }
    let program = mpi_program("ranks", "mpicc.openmpi");
    let before = sessions();
    for ranks in ["1", "4"] {
        let outcome = job(&["--pmi=pmix", "-n", ranks], &program, &["run"]).run();
        passes(&outcome, ranks.parse().unwrap(), &[ranks.parse().unwrap()]);
        assert_eq!(outcome.err(), "");
    }
    for (args, code) in
        [(&["abort", "6"][..], 6), (&["exit", "5"], 5), (&["quit", "0"], 1), (&["die"], 137)]
    {
        let outcome = job(&["--pmi=pmix", "-n", "3"], &program, args).run();
        says(&outcome, code, &["rank 1 of 3"]);
    }
    nothing_new(&before);
}

#[test]
fn programs_of_pmix_are_one_job_on_four_hosts() {
    let test = "PMIx on four hosts";
    let Some(program) = client(test) else { return };
    let Some(bed) = Bed::up(test, HOSTS) else { return };
    let program = program.as_str();
    for degree in degrees() {
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        for (what, ranks, shared) in
            [("run", "4", [1; 4]), ("run", "8", [2; 4]), ("direct", "8", [2; 4])]
        {
            let words = ["-n", ranks, "--hosts", LIST, program, what];
            passes(&bed.run(&[&degree], &words), ranks.parse().unwrap(), &shared);
        }
        let outcome = bed.run(&[&degree], &["-n", "8", "--hosts", LIST, program, "some"]);
        says(&outcome, 0, &[]);
        assert!(outcome.out().contains("PASS 8\n"), "{}", outcome.out());
    }
    let cyclic = ["-n", "6", "--hosts", "n1,n2,n3", "--map", "cyclic", program, "run"];
    passes(&bed.run(&[], &cyclic), 6, &[2; 3]);
    for (args, code, words) in [
        (&["abort", "6"][..], 6, "aborted the job with code 6"),
        (&["quit", "0"], 1, "without MPI_Finalize"),
        (&["die"], 137, "SIGKILL"),
        (&["vain"], 125, "waits in a barrier of all ranks (as in MPI_Init), but rank 1 has ended"),
    ] {
        let words_of_job = [&["-n", "4", "--hosts", LIST, program][..], args].concat();
        says(&bed.run(&[], &words_of_job), code, &[words]);
    }
    // The last rank, on a host of its own, does not speak PMIx: its host sees that, or another that it
    // is missing, whichever is first.
    let mixed = ["-n", "3", "--hosts", LIST, program, "run", ":", "-n", "1", "true"];
    let outcome = bed.run(&[], &mixed);
    says(&outcome, 125, &["rank 3"]);
    let seen =
        ["rank 3, PMIx: it has ended without PMIx_Init", "but rank 3 has ended or finalized"];
    assert!(seen.iter().any(|one| outcome.err().contains(one)), "{}", outcome.err());
    // A host loses its server.
    let running = bed.job(&[], &["-n", "4", "--hosts", LIST, program, "sleep"]).start();
    running.wait_stdout("sleeps\n", 4);
    let helper = bed.find("n3", "(gasnetrun_pmix) ");
    assert_eq!(helper.len(), 1, "{helper:?}");
    assert!(send(helper[0].pid, Signal::SIGKILL));
    says(&running.wait(), 125, &["the PMIx server of host n3"]);
    bed.assert_clean();
    // Each host has a directory for temporary files of its own.
    for host in bed.hosts() {
        assert_eq!(bed.shell(host, "ls -A /tmp | grep pmix; true"), "", "{host}");
    }
}

#[test]
fn open_mpi_works_through_pmix_on_four_hosts() {
    let test = "Open MPI through PMIx on four hosts";
    if !installed(test, "mpicc.openmpi") || library(test).is_none() {
        return;
    }
    let Some(bed) = Bed::up(test, HOSTS) else { return };
    let program = mpi_program("ranks", "mpicc.openmpi");
    for (ranks, shared) in [("4", [1; 4]), ("8", [2; 4])] {
        let words = ["--pmi=pmix", "-n", ranks, "--hosts", LIST, &program, "run"];
        passes(&bed.run(&[], &words), ranks.parse().unwrap(), &shared);
    }
    let words = ["--pmi=pmix", "-n", "4", "--hosts", LIST, &program, "abort", "6"];
    says(&bed.run(&[], &words), 6, &["rank 1 of 4"]);
}
