//! `--trace` and `--stats` of jobs that other launchers start, over two hosts of Slurm and with ranks
//! that speak MPI. (`trace.rs` has Hydra and Open MPI's launcher with PMI.)

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::{Cluster, Outcome, Tree, all_requested, binary, skip};

use super::process_manager::ProcessManager;
use super::slurm::Bed;
use super::timeline::Timeline;
use super::{BOUND, HOSTS, at_rest, plugin, ranks_of};

/// Ranks of each job.
const RANKS: u64 = 4;

/// One table, one timeline; every rank is in it, or is named as one that has left nothing. How many
/// those are.
fn check(name: &str, path: &Path, outcome: &Outcome) -> (Timeline, u64) {
    let err = outcome.err();
    assert_eq!(err.matches("statistics").count(), 1, "{name}: {err}");
    let timeline = Timeline::read(path);
    let silent = timeline.whole["otherData"]["ranks without records"].as_u64();
    let silent = silent.expect("a number");
    let has = |rank: &u64| timeline.has(*rank, "Short request to");
    assert_eq!((0..RANKS).filter(has).count() as u64, RANKS - silent, "{name}: {err}");
    assert_eq!(err.contains("nothing came from these ranks"), silent > 0, "{name}: {err}");
    (timeline, silent)
}

/// `ring` of some laps through a process manager in front of which ours is.
fn traced(manager: ProcessManager, bed: Option<&Cluster>, path: &Path, laps: &str) -> Tree {
    let file = path.display().to_string();
    let ring = binary("ring").display().to_string();
    let words = ["--trace", &file, "--stats", &ring, laps].map(str::to_owned);
    manager.job(bed, &words).env("GASNET_TRACE_MEMORY", "256K")
}

#[test]
fn traces_of_ranks_on_hosts_of_slurm() {
    let name = "traces of ranks that Slurm starts";
    // Slurmds have the clocks of their hosts.
    let Some(cluster) = Cluster::up_with_clocks(name, HOSTS, "n1=5000 n2=70000") else { return };
    if !cluster.slurm(name) {
        return;
    }
    let path = cluster.directory().join("share/job.json");
    let outcome = traced(ProcessManager::OursSlurm, Some(&cluster), &path, "50").run();
    outcome.expect(0);
    let (timeline, silent) = check(name, &path, &outcome);
    assert_eq!(silent, 0, "{}", outcome.err());
    timeline.assert_aligned();
    Bed(cluster).assert_clean(name);
}

#[test]
fn a_killed_rank_on_a_host_of_slurm_is_named() {
    let name = "traces of ranks that Slurm starts, one of which is killed";
    if !all_requested() {
        skip(name, "only with --all");
        return;
    }
    let Some(cluster) = Cluster::up(name, HOSTS) else { return };
    if !cluster.slurm(name) {
        return;
    }
    let path = cluster.directory().join("share/job.json");
    let tree = traced(ProcessManager::OursSlurm, Some(&cluster), &path, "100000000");
    let running = tree.start();
    let begin = Instant::now();
    let victim = loop {
        if let [.., last] = &*ranks_of("(ring)", &running, Some(&cluster))
            && ranks_of("(ring)", &running, Some(&cluster)).len() as u64 == RANKS
        {
            break last.pid;
        }
        assert!(begin.elapsed() < BOUND, "no ranks");
        std::thread::sleep(Duration::from_millis(20));
    };
    std::thread::sleep(Duration::from_secs(1));
    assert!(testkit::process::send(victim, Signal::SIGKILL));
    let outcome = running.wait();
    assert_ne!(outcome.code(), 0, "{}", outcome.err());
    // Slurm kills the others, which have left something if they ended before that.
    let (_, silent) = check(name, &path, &outcome);
    assert!((1..=RANKS).contains(&silent), "{}", outcome.err());
    assert_eq!(at_rest(&cluster), None);
}

/// A traced job whose ranks speak MPI, on this machine or on two hosts whose clocks differ. What the
/// launcher has said.
fn speaks_mpi(manager: ProcessManager, bed: Option<&Cluster>, path: &Path) -> String {
    let outcome = traced(manager, bed, path, "50").run();
    outcome.expect(0);
    let (timeline, silent) = check(manager.name(), path, &outcome);
    assert_eq!(silent, 0, "{}", outcome.err());
    timeline.assert_aligned();
    outcome.err().to_owned()
}

#[test]
fn traces_of_ranks_that_speak_mpi() {
    let name = "traces of ranks that speak MPI";
    if !all_requested() {
        skip(name, "only with --all");
        return;
    }
    for manager in [ProcessManager::OursMpi, ProcessManager::OursHydraMpi] {
        let flavour = manager.flavour().unwrap_or_default();
        let lacks = match manager.is_here() {
            true => plugin(flavour).err(),
            false => Some(format!("{} is not installed", manager.program())),
        };
        if let Some(reason) = lacks {
            skip(&format!("{name}: {}", manager.name()), &reason);
            continue;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("job.json");
        speaks_mpi(manager, None, &path);
        let files = directory.path().read_dir().expect("it can be read").count();
        assert_eq!(files, 1, "{}: other files", manager.name());
        let name = format!("{name}: {}, two hosts", manager.name());
        let Some(cluster) = Cluster::up_with_clocks(&name, HOSTS, "n1=5000 n2=70000") else {
            continue;
        };
        let path = cluster.directory().join("share/job.json");
        let hosts = speaks_mpi(manager, Some(&cluster), &path);
        for host in ["n1", "n2"] {
            assert!(hosts.contains(host), "{name}: no rank on {host}: {hosts}");
            let left = cluster.processes(host);
            let rank = left.iter().find(|process| process.command.starts_with("(ring)"));
            assert!(rank.is_none(), "{name}: left on {host}: {rank:?}");
        }
    }
}
