//! A C program of an installed library that starts itself as a job on several hosts.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use testkit::{Bed, Outcome, binary};

#[expect(dead_code, reason = "the suite of C programs uses all of it")]
#[expect(clippy::unwrap_used, reason = "a test that cannot be built ends at once")]
#[path = "../c_suite/build.rs"]
mod build;

const NAME: &str = "a C program that starts itself on several hosts";

/// Library, launcher and program in one tree that all hosts see, as an installation has them.
fn installed(bed: &Bed) -> PathBuf {
    let root = PathBuf::from(bed.share()).join("opt");
    for folder in ["bin", "lib"] {
        std::fs::create_dir_all(root.join(folder)).expect("made");
    }
    std::os::unix::fs::symlink(binary("gasnetrun_ibv"), root.join("bin/gasnetrun_ibv"))
        .expect("a link");
    let library = "lib/libgasnet-ibv-seq.so";
    std::fs::copy(build::library().join(library), root.join(library)).expect("copied");
    let soname = root.join("lib/libgasnet-ibv-seq.so.1");
    std::os::unix::fs::symlink("libgasnet-ibv-seq.so", soname).expect("a link");
    let (include, lib) = (build::library().join("include"), root.join("lib"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=c11", "-D_GNU_SOURCE", "-DGASNET_SEQ", "-I"]).arg(include);
    gcc.arg(build::root().join("examples/c/hello.c")).arg("-o").arg(root.join("hello"));
    gcc.arg("-L").arg(&lib).arg(format!("-Wl,-rpath,{}", lib.display()));
    build::must(gcc.arg("-lgasnet-ibv-seq"));
    root
}

/// The program on the head, without a launcher before it.
fn start(bed: &Bed, set: &[&str], words: &[&str]) -> Outcome {
    let program = format!("{}/opt/hello", bed.share());
    let mut line = vec!["env", "-C", "/", "GASNET_QUIET=1", "GASNET_IBV_FABRIC=soft"];
    line.extend(["GASNET_IBV_SPAWNER=ssh", "GASNET_IBV_SELF_START=1"]);
    line.extend(set);
    line.push(&program);
    line.extend(words);
    let tree = bed.cluster.on("head", &line).deadline(NAME, Duration::from_secs(90));
    let outcome = tree.run();
    bed.assert_clean();
    outcome
}

fn assert_greetings(outcome: &Outcome, hosts: &[&str]) {
    outcome.expect(0);
    let out = outcome.out();
    assert_eq!(out.lines().count(), hosts.len(), "{out}");
    for (rank, host) in hosts.iter().enumerate() {
        let line = format!("hello from rank {rank} of {} on {host},", hosts.len());
        assert!(out.contains(&line), "{line} in {out}");
    }
}

#[test]
fn a_c_program_starts_itself_on_several_hosts() {
    if !build::ready() {
        return;
    }
    let Some(bed) = Bed::up(NAME, "n1 n2 n3 n4") else { return };
    let root = installed(&bed);
    let servers = "GASNET_SSH_SERVERS=n1 n2 n3 n4";
    let all = ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"];
    assert_greetings(&start(&bed, &[servers], &["8"]), &all);
    // As the old way of starting has it: -v, ranks and hosts, and then the program's own words.
    let outcome = start(&bed, &[servers, "GASNET_SSH_OUT_DEGREE=1"], &["-v", "4:2", "-n", "7"]);
    assert_greetings(&outcome, &["n1", "n1", "n2", "n2"]);
    assert!(outcome.err().contains("4 ranks of "), "{}", outcome.err());
    // Files with hosts.
    let nodes = root.join("nodes");
    std::fs::write(&nodes, "# two of them\nn3\n\nn4\n").expect("written");
    for variable in ["GASNET_SSH_NODEFILE", "GASNET_NODEFILE", "PBS_NODEFILE"] {
        let file = format!("{variable}={}", nodes.display());
        assert_greetings(&start(&bed, &[&file], &["2"]), &["n3", "n4"]);
    }
    // More hosts than there are.
    let outcome = start(&bed, &[servers], &["8:5"]);
    assert_greetings(&outcome, &all);
    assert!(outcome.err().contains("reduced to -N 4"), "{}", outcome.err());
}
