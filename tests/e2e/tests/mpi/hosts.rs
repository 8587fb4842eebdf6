//! The same over ssh on four hosts.

use testkit::{Bed, Outcome, all_requested, binary};

use crate::programs::{gasnet, made, passes, passes_with, waits_in_vain};
use crate::{mpich, open_mpi, says};

pub(crate) const HOSTS: &str = "n1 n2 n3 n4";
pub(crate) const LIST: &str = "n1,n2,n3,n4";

/// Runs the program of MPICH to its end. MPICH 4.0 may hang in `MPI_Finalize` after that, with any
/// launcher: a rank that waits in its PMI barrier makes no progress for one that still closes connections
/// of UCX. Then the time limit ends the job.
fn run(bed: &Bed, set: &str, words: &[&str], ranks: usize, shared: &[usize]) {
    let words = [&["--timeout", "15"], words].concat();
    let outcome = bed.run(&[set], &words);
    passes_with(&outcome, code_of_mpich(&outcome, ranks), ranks, shared);
}

/// The code of a job of MPICH that has done its work; one that hangs after that is told.
fn code_of_mpich(outcome: &Outcome, ranks: usize) -> i32 {
    if outcome.code() != 124 || !outcome.out().contains("PASS ") {
        return 0;
    }
    let why = format!("MPICH hangs in MPI_Finalize after the program's end ({ranks} ranks)");
    testkit::report::show(&why);
    124
}

/// Out-degrees of the tree of agents.
pub(crate) fn degrees() -> &'static [&'static str] {
    if all_requested() { &["1", "2", "32"] } else { &["2"] }
}

#[test]
fn ranks_of_four_hosts_are_one_world() {
    let test = "MPI programs on four hosts";
    let Some(program) = mpich(test) else { return };
    let Some(bed) = Bed::up(test, HOSTS) else { return };
    let program = program.as_str();
    for degree in degrees() {
        let degree = format!("GASNET_SSH_OUT_DEGREE={degree}");
        for (ranks, shared) in [("4", [1; 4]), ("8", [2; 4])] {
            let words = ["-n", ranks, "--hosts", LIST, program, "run"];
            run(&bed, &degree, &words, ranks.parse().expect("a number"), &shared);
        }
    }
    let cyclic = ["-n", "6", "--hosts", "n1,n2,n3", "--map", "cyclic", program, "run"];
    run(&bed, "A=B", &cyclic, 6, &[2; 3]);
    for (args, code, words) in [
        (&["abort", "6"][..], 6, "aborted the job with code 6"),
        (&["quit", "0"], 1, "without MPI_Finalize"),
        (&["die"], 137, "SIGKILL"),
    ] {
        let words_of_job = [&["-n", "4", "--hosts", LIST, program][..], args].concat();
        says(&bed.run(&[], &words_of_job), code, &[words]);
    }
    // The last rank, on a host of its own, is no MPI program.
    let mixed = ["-n", "3", "--hosts", LIST, program, "run", ":", "-n", "1", "true"];
    waits_in_vain(&bed.run(&[], &mixed), 3);
}

#[test]
fn ranks_of_open_mpi_on_four_hosts_are_one_world() {
    let test = "Open MPI on four hosts";
    let Some(program) = open_mpi(test) else { return };
    let Some(bed) = Bed::up(test, HOSTS) else { return };
    let program = program.as_str();
    for (ranks, shared) in [("4", [1; 4]), ("8", [2; 4])] {
        let outcome = bed.run(&[], &["-n", ranks, "--hosts", LIST, program, "run"]);
        passes(&outcome, ranks.parse().expect("a number"), &shared);
    }
    for (args, code) in [(&["abort", "6"][..], 6), (&["exit", "5"], 5), (&["die"], 137)] {
        let words = [&["-n", "4", "--hosts", LIST, program][..], args].concat();
        says(&bed.run(&[], &words), code, &["rank 1 of 4"]);
    }
}

/// GASNet over the software adapter, MPI over its own TCP.
#[test]
fn gasnet_and_mpi_work_together_on_four_hosts() {
    let test = "GASNet and MPI on four hosts";
    if open_mpi(test).is_none() {
        return;
    }
    let Some(library) = gasnet(test) else { return };
    let Some(bed) = Bed::up(test, HOSTS) else { return };
    let program = made("hybrid", "mpicc.openmpi", &library);
    let outcome = bed.run(&[], &["-n", "8", "--hosts", LIST, &program]);
    says(&outcome, 0, &[]);
    assert!(outcome.out().contains("PASS 8\n"), "{}", outcome.out());
}

/// Keys and fences without any MPI: our own clients of both wires.
#[test]
fn keys_of_four_hosts_reach_all_ranks() {
    let Some(bed) = Bed::up("PMI on four hosts", HOSTS) else { return };
    let testexit = binary("testexit").display().to_string();
    for version in ["1", "2"] {
        let variable = format!("GASNET_IBV_PMI={version}");
        let own = ["-u", "GASNETRUN_AGENT_FD", "GASNET_IBV_SPAWNER=pmi", &variable, &testexit];
        for (case, code) in [("1", 1), ("3", 3)] {
            let mut words = vec!["-n", "8", "--hosts", LIST, "env"];
            words.extend(own);
            words.push(case);
            let outcome = bed.run(&[], &words);
            if let Some(fault) = outcome.fault(code) {
                panic!("PMI-{version}, case {case}: {fault}\n{}", outcome.err());
            }
        }
    }
}

/// The launcher and its library are on the launching host alone, in a directory that no other host sees.
#[test]
fn the_library_of_open_mpi_is_sent_to_hosts_that_lack_it() {
    let test = "the library of Open MPI is sent";
    let Some(program) = open_mpi(test) else { return };
    let Some(mut bed) = Bed::up(test, HOSTS) else { return };
    bed.shell("head", "mkdir -m 755 /tmp/only");
    let launcher = binary("gasnetrun_ibv");
    for file in [launcher.clone(), launcher.with_file_name("libgasnetrun_ibv_pmi.so")] {
        bed.shell("head", &format!("cp {} /tmp/only/", file.display()));
    }
    bed.set_launcher("/tmp/only/gasnetrun_ibv");
    let job = |words: &[&str]| {
        let words = [words, &["-n", "4", "--hosts", LIST, program.as_str(), "run"]].concat();
        bed.run(&["GASNET_SSH_OUT_DEGREE=2"], &words)
    };
    passes(&job(&[]), 4, &[1; 4]);
    // It is kept, with the launcher; what the job itself had is gone.
    for host in ["n1", "n4"] {
        let names = bed.shell(host, "ls -A /tmp/gasnetrun-0");
        assert_eq!(names.lines().count(), 2, "{host}: {names}");
    }
    passes(&job(&["--stage", "always"]), 4, &[1; 4]);
    let found = bed.run(&[], &["doctor", "--hosts", LIST]);
    let line = "4 of 4 hosts: Open MPI by a library that is sent with the job";
    assert!(found.out().contains(line), "{}\n{}", found.out(), found.err());
    // The launcher is there, its library is not, and nothing may be sent.
    for host in ["n1", "n2", "n3", "n4"] {
        bed.shell(host, &format!("mkdir -m 755 /tmp/only && cp {} /tmp/only/", launcher.display()));
    }
    let parts = ["4 of 4 hosts", "cannot serve ranks of Open MPI", "libgasnetrun_ibv_pmi.so"];
    says(&job(&["--stage", "never"]), 125, &parts);
    let found = bed.run(&[], &["doctor", "--stage", "never", "--hosts", LIST]);
    assert!(
        found.out().contains("4 of 4 hosts (n1 n2 n3 n4): no PMI for Open MPI 2 to 4"),
        "{}",
        found.out()
    );
}

/// The same with MPICH, whose ranks may hang in `MPI_Finalize` after the program's end; see [`run`].
#[test]
fn gasnet_and_mpich_work_together_on_four_hosts() {
    let test = "GASNet and MPICH on four hosts";
    if mpich(test).is_none() {
        return;
    }
    let Some(library) = gasnet(test) else { return };
    let Some(bed) = Bed::up(test, HOSTS) else { return };
    let program = made("hybrid", "mpicc.mpich", &library);
    for ranks in [4, 8] {
        let words = ["--timeout", "30", "-n", &ranks.to_string(), "--hosts", LIST, &program];
        let outcome = bed.run(&[], &words);
        says(&outcome, code_of_mpich(&outcome, ranks), &[]);
        assert!(outcome.out().contains(&format!("PASS {ranks}\n")), "{}", outcome.out());
    }
}
