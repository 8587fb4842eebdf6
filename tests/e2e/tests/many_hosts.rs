//! 256 ranks on 64 hosts, over ssh and in an allocation of Slurm: all meet, and the code is right.
//! A program of its own, which runs when no other does: it wants the machine for minutes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use testkit::{Bed, Outcome, all_requested, binary, skip};

const HOSTS: usize = 64;
const RANKS: usize = 256;
/// Far above what 64 logins and 256 starts take on a busy machine.
const BOUND: Duration = Duration::from_secs(240);
/// Slurm's own processes, which stay as long as the bed.
const DAEMONS: [&str; 4] = ["munged", "slurmd", "slurmctld", "slurmscriptd"];
const SLURM: [&str; 4] = ["salloc", "-Q", "--exclusive", "-N64"];

/// The hosts, launcher's host left out, where a long run was asked for.
fn up(name: &str) -> Option<(Bed, Vec<String>)> {
    if !all_requested() {
        skip(name, "only with --all");
        return None;
    }
    let hosts: Vec<String> = (1..=HOSTS).map(|number| format!("n{number}")).collect();
    Some((Bed::up(name, &hosts.join(" "))?, hosts))
}

/// Every rank has met all others, and is one of four of its host.
fn assert_all_met(outcome: &Outcome) {
    outcome.expect(0);
    let mut ranks = BTreeMap::<String, Vec<usize>>::new();
    for line in outcome.out().lines() {
        let words: Vec<&str> = line.split([' ', ',']).collect();
        let ["rank", rank, "of", "256", "on", host, ..] = words[..] else { continue };
        ranks.entry(host.to_owned()).or_default().push(rank.parse().expect("a number"));
    }
    assert_eq!(ranks.len(), HOSTS, "{}", outcome.err());
    let mut all: Vec<usize> =
        ranks.into_values().inspect(|four| assert_eq!(four.len(), 4)).flatten().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..RANKS), "{}", outcome.out());
}

/// Jobs that end by all ranks, and by one that asks another by a message.
fn jobs(bed: &Bed, wrapper: &[&str], options: &[&str]) {
    let programs = ["hello", "testexit"].map(|name| binary(name).display().to_string());
    let run = |words: &[&str]| {
        let words = [&["-n", "256"], options, words].concat();
        bed.job_under(wrapper, &[], &words).deadline("256 ranks", BOUND).run()
    };
    assert_all_met(&run(&[&programs[0]]));
    run(&[&programs[1], "11"]).expect(11);
}

#[test]
fn jobs_on_64_hosts_over_ssh() {
    let Some((bed, hosts)) = up("64 hosts over ssh") else { return };
    jobs(&bed, &[], &["--hosts", &hosts.join(",")]);
    bed.assert_clean();
}

#[test]
fn jobs_on_64_hosts_of_slurm() {
    let name = "64 hosts of Slurm";
    let Some((mut bed, _)) = up(name) else { return };
    if !bed.cluster.slurm(name) {
        return;
    }
    let conf = format!("SLURM_CONF={}", bed.cluster.slurm_conf().display());
    bed.set_always(&[&conf, "GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24"]);
    jobs(&bed, &SLURM, &["-N", "64"]);
    let daemons = |command: &str| DAEMONS.iter().any(|one| command.contains(one));
    let begin = Instant::now();
    loop {
        let left: Vec<_> =
            bed.left(&[]).into_iter().filter(|(_, one)| !daemons(&one.command)).collect();
        if left.is_empty() {
            break;
        }
        assert!(begin.elapsed() < BOUND, "{} processes are left: {left:?}", left.len());
        std::thread::sleep(Duration::from_millis(200));
    }
}
