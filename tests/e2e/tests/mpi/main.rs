//! MPI programs as ranks: the server that agents offer, on one host and on four, with MPICH and with our
//! own clients of PMI-1 and PMI-2.

#![expect(clippy::unwrap_used, reason = "what is missing here fails the test")]

mod figure;
mod hosts;
mod pmix;
mod programs;

use testkit::{Outcome, Tree, binary, launcher, skip};

use programs::{BOUND, installed, mpi_program, passes, waits_in_vain};

/// A job of an MPI program on this host.
fn job(words: &[&str], program: &str, args: &[&str]) -> Tree {
    launcher(words).arg(program).args(args).deadline("an MPI job", BOUND)
}

/// The program of MPICH; `None` after a `SKIP`.
fn mpich(test: &str) -> Option<String> {
    installed(test, "mpicc.mpich").then(|| mpi_program("ranks", "mpicc.mpich"))
}

#[track_caller]
fn says(outcome: &Outcome, code: i32, words: &[&str]) {
    if let Some(fault) = outcome.fault(code) {
        panic!("{fault}\n{}\n{}", outcome.out(), outcome.err());
    }
    for word in words {
        assert!(outcome.err().contains(word), "{word:?} is missing:\n{}", outcome.err());
    }
}

/// Without a server each would be an MPI job of its own.
#[test]
fn ranks_of_mpich_are_one_world_without_a_warning() {
    let Some(program) = mpich("ranks of MPICH") else { return };
    for ranks in ["1", "4"] {
        let outcome = job(&["-n", ranks], &program, &["run"]).run();
        passes(&outcome, ranks.parse().unwrap(), &[ranks.parse().unwrap()]);
        assert_eq!(outcome.err(), "");
    }
    // Behind a shell, which is no MPI program itself.
    let line = format!("{program} run");
    let outcome = job(&["-q", "-n", "2"], "sh", &["-c", &line]).run();
    passes(&outcome, 2, &[2]);
}

#[test]
fn without_the_server_each_rank_is_a_world_and_that_is_said() {
    let Some(program) = mpich("ranks of MPICH without PMI") else { return };
    let outcome = job(&["--pmi=off", "-n", "2"], &program, &["size"]).run();
    says(&outcome, 0, &["each an MPI job of its own, as --pmi=off wants it"]);
    assert_eq!(outcome.out(), "size 1\nsize 1\n");
}

/// Programs of one job are one world, and know which of them they are.
#[test]
fn several_programs_are_one_world() {
    let Some(program) = mpich("several programs of MPICH") else { return };
    are_one_job(&program);
}

/// Two programs are one job, and each rank knows of which it is.
#[track_caller]
fn are_one_job(program: &str) {
    let words = ["run", ":", "-n", "2", program, "run"];
    let outcome = job(&["-n", "1"], program, &words).run();
    passes(&outcome, 3, &[3]);
    for line in ["rank 0: appnum 0\n", "rank 1: appnum 1\n", "rank 2: appnum 1\n"] {
        assert!(outcome.out().contains(line), "{}", outcome.out());
    }
}

#[test]
fn the_first_cause_and_the_code_are_those_of_the_rank_that_ended_the_job() {
    let Some(program) = mpich("ends of MPI jobs") else { return };
    end_as_rank_1_does(&program);
    let outcome = job(&["-n", "2"], &program, &["abort", "6"]).run();
    says(&outcome, 6, &["aborted the job with code 6"]);
}

/// The second of three ranks ends the job in each way.
#[track_caller]
fn end_as_rank_1_does(program: &str) {
    let ends: [(&[&str], i32, &str); 5] = [
        (&["abort", "6"], 6, "aborted the job with code 6"),
        (&["exit", "5"], 5, "exited with code 5"),
        (&["quit", "3"], 3, "exited with code 3"),
        (&["quit", "0"], 1, "without MPI_Finalize"),
        (&["die"], 137, "killed by SIGKILL"),
    ];
    for (args, code, words) in ends {
        let outcome = job(&["-n", "3"], program, args).run();
        says(&outcome, code, &["rank 1 of 3", words]);
    }
}

/// A job of which one part is no MPI program never gets through MPI_Init; that is noticed.
#[test]
fn a_rank_that_never_joins_does_not_leave_the_others_waiting() {
    let Some(program) = mpich("MPI beside other programs") else { return };
    let words = ["run", ":", "-n", "1", "true"];
    let outcome = job(&["-q", "-n", "2"], &program, &words).run();
    waits_in_vain(&outcome, 2);
}

/// A program that asks for what nobody serves, or for what makes no sense, is told so.
#[test]
fn what_is_not_served_is_said_in_one_line() {
    if let Some(program) = mpich("MPI_Comm_spawn") {
        let outcome = job(&["-n", "2"], &program, &["spawn"]).run();
        says(&outcome, 0, &[]);
        assert!(outcome.out().contains("spawn refused"), "{}", outcome.out());
    }
    // The number of the descriptor is in the environment, as for every PMI program.
    let nonsense = r#"eval "printf 'cmd=nonsense\n' >&$PMI_FD"; sleep 60"#;
    let outcome = job(&["-q", "-n", "2"], "bash", &["-c", nonsense]).run();
    says(&outcome, 125, &["PMI-1: a command that is not known here", "cmd=nonsense"]);
}

/// What the process manager of an outer job says about this process is not true of the ranks.
#[test]
fn variables_of_an_outer_job_do_not_reach_ranks() {
    let outcome = job(&["-q", "-n", "2"], "sh", &["-c", "env | grep -E '^(PMI|OMPI|MPI_)' | sort"])
        .env("PMI_RANK", "7")
        .env("PMI_SIZE", "99")
        .env("PMI_PORT", "elsewhere:1")
        .env("PMIX_RANK", "7")
        .env("PMIX_SERVER_URI2", "x")
        .env("PMIX_MCA_gds", "hash")
        .env("OMPI_COMM_WORLD_RANK", "7")
        .run();
    says(&outcome, 0, &[]);
    let out = outcome.out();
    for gone in ["=7", "99", "elsewhere", "PMIX_SERVER"] {
        assert!(!out.contains(gone), "{out}");
    }
    for there in ["PMI_RANK=1\n", "PMI_SIZE=2\n", "PMI_FD=", "PMIX_MCA_gds=hash\n"] {
        assert!(out.contains(there), "{out}");
    }
    let outcome = job(&["-q", "--pmi=off", "-n", "1"], "env", &[]).run();
    assert!(!outcome.out().contains("PMI_"), "{}", outcome.out());
}

/// Our own clients of both wires, as if another process manager had started them: keys of every rank, a
/// fence for each, and the end.
#[test]
fn programs_that_bootstrap_by_pmi_join_in_either_wire() {
    for version in ["1", "2"] {
        let variable = format!("GASNET_IBV_PMI={version}");
        let testexit = binary("testexit").display().to_string();
        let words = ["-u", "GASNETRUN_AGENT_FD", "GASNET_IBV_SPAWNER=pmi", &variable, &testexit];
        for (case, code) in [("1", 1), ("3", 3)] {
            let words = [&words[..], &[case]].concat();
            let outcome = job(&["-n", "4"], "env", &words).run();
            if let Some(fault) = outcome.fault(code) {
                panic!("PMI-{version}, case {case}: {fault}\n{}", outcome.err());
            }
        }
    }
}

#[test]
fn the_dry_run_names_the_mpi() {
    let Some(program) = mpich("dry run of an MPI program") else { return };
    let outcome = job(&["-t", "-n", "2"], &program, &[]).run();
    says(&outcome, 0, &[]);
    let said = format!("{}{}", outcome.out(), outcome.err());
    assert!(said.contains("PMI-1 and PMI-2 from the agent of each host"), "{said}");
}

/// The program of Open MPI; `None` after a `SKIP`.
fn open_mpi(test: &str) -> Option<String> {
    if !installed(test, "mpicc.openmpi") {
        return None;
    }
    if !binary("gasnetrun_ibv").with_file_name("libgasnetrun_ibv_pmi.so").is_file() {
        skip(test, "libgasnetrun_ibv_pmi.so is not built (cargo build -p gasnetrun-ibv-pmi)");
        return None;
    }
    Some(mpi_program("ranks", "mpicc.openmpi"))
}

#[test]
fn ranks_of_open_mpi_are_one_world_too() {
    let Some(program) = open_mpi("ranks of Open MPI") else { return };
    let outcome = job(&["-n", "4"], &program, &["run"]).run();
    passes(&outcome, 4, &[4]);
    assert_eq!(outcome.err(), "");
    // A script hides it.
    let line = format!("{program} run");
    let outcome = job(&["-q", "--pmi=openmpi", "-n", "2"], "sh", &["-c", &line]).run();
    passes(&outcome, 2, &[2]);
    for (args, code) in
        [(&["abort", "6"][..], 6), (&["exit", "5"], 5), (&["quit", "0"], 1), (&["die"], 137)]
    {
        says(&job(&["-n", "3"], &program, args).run(), code, &["rank 1 of 3"]);
    }
}

/// Open MPI without the component that speaks PMI-1, as version 5 is.
#[test]
fn ranks_of_open_mpi_that_start_alone_are_noticed() {
    let Some(program) = open_mpi("ranks of another Open MPI") else { return };
    let words = ["-u", "FLUX_JOB_ID", &program, "size"];
    let outcome = job(&["-n", "2"], "env", &words).run();
    says(&outcome, 0, &["no rank has asked for the others by PMI"]);
    assert_eq!(outcome.out(), "size 1\nsize 1\n");
    let outcome = job(&["--pmi=openmpi", "-q", "-n", "2"], "true", &[]).run();
    says(&outcome, 0, &["no rank has asked for the others by PMI"]);
}

/// GASNet and MPI in one program, with either MPI: our bootstrap serves the one, PMI the other.
#[test]
fn gasnet_and_mpi_work_together() {
    let Some(library) = programs::gasnet("GASNet and MPI") else { return };
    for compiler in ["mpicc.mpich", "mpicc.openmpi"] {
        let here = match compiler {
            "mpicc.mpich" => installed("GASNet and MPICH", compiler),
            _ => open_mpi("GASNet and Open MPI").is_some(),
        };
        if !here {
            continue;
        }
        let program = programs::made("hybrid", compiler, &library);
        for ranks in ["1", "4"] {
            let outcome = job(&["-n", ranks], &program, &[]).run();
            says(&outcome, 0, &[]);
            assert!(outcome.out().contains(&format!("PASS {ranks}\n")), "{}", outcome.out());
        }
        says(&job(&["-n", "3"], &program, &["6"]).run(), 6, &["aborted the job with code 6"]);
    }
}
