//! Slurm as users have it: the example scripts, allocations, the calls of other languages' launchers, and ends from outside.

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Cluster, Outcome, Tree, binary};

/// Far above what a job takes on a busy machine.
const BOUND: Duration = Duration::from_secs(90);
/// What Slurm needs to end a job: TERM, its `KillWait` of 3 s, KILL, and its own bookkeeping.
const GONE: Duration = Duration::from_secs(30);
const HOSTS: &str = "head n1 n2";

struct Bed(Cluster);

impl Bed {
    /// A command on the head with Slurm's configuration and our programs in PATH.
    fn tree(&self, words: &[&str]) -> Tree {
        let hello = binary("hello");
        let programs = hello.parent().unwrap_or(Path::new("/")).display();
        let path = format!("PATH={programs}:{}", std::env::var("PATH").unwrap_or_default());
        let conf = format!("SLURM_CONF={}", self.0.slurm_conf().display());
        let directory = self.0.directory().join("share").display().to_string();
        let mut line = vec!["env", "-C", &directory, &path, &conf, "GASNET_QUIET=1"];
        line.push("GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24");
        line.extend(words);
        self.0.on("head", &line).deadline("a command of Slurm's", BOUND)
    }

    fn run(&self, words: &[&str]) -> Outcome {
        self.tree(words).run()
    }

    /// Runs an example script to its end; returns what it wrote.
    fn script(&self, name: &str) -> String {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = package.parent().unwrap_or(package).join("scripts/slurm").join(name);
        // The hosts have a /tmp of their own, where the checkout may be.
        let script = self.0.directory().join("share").join(format!("run-{name}"));
        std::fs::copy(&source, &script).expect("the script is there");
        let output = self.0.directory().join("share").join(format!("{name}.%J"));
        let (script, output) = (script.display().to_string(), output.display().to_string());
        let outcome = self.run(&["sbatch", "-Q", "-W", "-o", &output, &script]);
        let mut text = String::new();
        let mut files: Vec<_> = std::fs::read_dir(self.0.directory().join("share"))
            .expect("the directory is there")
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(name))
            .map(|entry| entry.path())
            .collect();
        files.sort();
        for file in files {
            text += &std::fs::read_to_string(file).unwrap_or_default();
        }
        assert_eq!(outcome.code(), 0, "{name}: {}\n{text}", outcome.err());
        text
    }

    /// Nothing of a job is left on the nodes.
    fn assert_clean(&self, what: &str) {
        let begin = Instant::now();
        loop {
            let all = ["n1", "n2"].iter().flat_map(|host| self.0.processes(host));
            let ours: Vec<_> = all
                .filter(|p| !["munged", "slurmd"].iter().any(|d| p.command.contains(d)))
                .collect();
            if ours.is_empty() {
                return;
            }
            assert!(begin.elapsed() < GONE, "{what}: {ours:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

fn scripts(bed: &Bed) {
    let text = bed.script("one-job.sbatch");
    assert_eq!((count(&text, "of 4 on n1,"), count(&text, "of 4 on n2,")), (2, 2), "{text}");
    let text = bed.script("array.sbatch");
    for member in ["member 1 ", "member 2 ", "member 3 ", "10 laps", "20 laps", "30 laps"] {
        assert_eq!(count(&text, member), 1, "{member} in {text}");
    }
    let text = bed.script("steps.sbatch");
    assert_eq!(
        (count(&text, " of 4 on"), count(&text, " of 2 on"), count(&text, " laps around 2")),
        (4, 2, 2),
        "{text}"
    );
    let text = bed.script("sizes.sbatch");
    assert_eq!((count(&text, "of 4 on n1,"), count(&text, "of 4 on n2,")), (3, 1), "{text}");
    let text = bed.script("ssh.sbatch");
    assert_eq!((count(&text, "of 4 on n1,"), count(&text, "of 4 on n2,")), (2, 2), "{text}");
    let text = bed.script("adapter.sbatch");
    assert_eq!((count(&text, "fabric "), count(&text, "laps around 2 ranks")), (1, 1), "{text}");
}

/// What other languages' launchers call, as they call it.
fn calls_of_others(bed: &Bed) {
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let hello = binary("hello").display().to_string();
    // Chapel's slurm-gasnetrun_ibv.
    let chapel = [
        "salloc",
        "--quiet",
        "-J",
        "CHPL-hello",
        "-N",
        "2",
        "--ntasks-per-node=1",
        "--exclusive",
        &launcher,
        "-n",
        "2",
        "-N",
        "2",
        "-c",
        "0",
        "-E",
        "PATH,HOME,BASH_FUNC_module%%,NOT_SET",
        "env",
        "LANG=C",
        "LC_ALL=C",
        &hello,
    ];
    let outcome = bed.run(&chapel);
    outcome.expect(0);
    assert_eq!(
        (count(&outcome.out(), "of 2 on n1,"), count(&outcome.out(), "of 2 on n2,")),
        (1, 1),
        "{}",
        outcome.out()
    );
    // upcxx-run inside an allocation.
    let upcxx = [
        "salloc",
        "--quiet",
        "--exclusive",
        "-N",
        "2",
        &launcher,
        "-E",
        "UPCXX_VERBOSE,PATH",
        "-N",
        "2",
        "-n",
        "4",
        &hello,
    ];
    let outcome = bed.run(&upcxx);
    outcome.expect(0);
    assert_eq!(
        (count(&outcome.out(), "of 4 on n1,"), count(&outcome.out(), "of 4 on n2,")),
        (2, 2),
        "{}",
        outcome.out()
    );
    // One node and this host is not it; then labels.
    let outcome =
        bed.run(&["salloc", "--quiet", "-n", "2", &launcher, "-n", "2", "--tag-output", &hello]);
    outcome.expect(0);
    assert!(outcome.out().contains("1: rank 1 of 2 on n"), "{}", outcome.out());
}

/// A step without PMI is refused with the option that would work, by every rank.
fn wrong_flavour(bed: &Bed) {
    let hello = binary("hello").display().to_string();
    let outcome = bed.run(&["srun", "-n2", "--mpi=none", &hello]);
    outcome.expect(1);
    assert_eq!(count(&outcome.err(), "srun --mpi=pmi2"), 2, "{}", outcome.err());
    assert_eq!(outcome.out(), "");
}

/// The report names the batch job.
fn report(bed: &Bed) {
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let hello = binary("hello").display().to_string();
    let outcome = bed.run(&[
        "salloc",
        "--quiet",
        "-N2",
        &launcher,
        "-n",
        "2",
        "--report",
        "report.json",
        &hello,
    ]);
    outcome.expect(0);
    let text =
        std::fs::read_to_string(bed.0.directory().join("share/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let engine = &report["plan"]["engine"];
    assert_eq!(engine["dialect"], "srun", "{text}");
    assert_eq!(engine["batch_job"][0], "SLURM_JOB_ID", "{text}");
    assert_eq!((&report["plan"]["ranks"], &report["exit_code"]), (&2.into(), &0.into()), "{text}");
}

/// scancel, a time limit and a signal to the launcher end everything, with Slurm's codes.
fn ends(bed: &Bed) {
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let testexit = binary("testexit").display().to_string();
    let lasting = [&*launcher, "-n", "4", "-N", "2", &testexit, "5", "--delay", "600000"];

    let line =
        [&["salloc", "--quiet", "--exclusive", "-N2", "-J", "to-cancel"], &lasting[..]].concat();
    let running = bed.tree(&line).start();
    running.wait_stderr("case 5 on 4 ranks", 1);
    bed.run(&["scancel", "-n", "to-cancel"]).expect(0);
    let outcome = running.wait();
    assert_ne!(outcome.code(), 0, "{}", outcome.err());
    assert!(outcome.code() > 0, "scancel: still there\n{}", outcome.err());
    bed.assert_clean("scancel");

    let line = [
        &["salloc", "--quiet", "--exclusive", "-N2"],
        &[&*launcher, "--timeout", "3"][..],
        &lasting[1..],
    ]
    .concat();
    let outcome = bed.run(&line);
    outcome.expect(124);
    bed.assert_clean("--timeout");

    // The batch script is the launcher's parent; the warning signal reaches only that script, which sends it on.
    let signal = "trap 'kill -TERM $launcher' TERM; \"$@\" & launcher=$!; wait $launcher; wait $launcher; exit $?";
    let line = [
        &["salloc", "--quiet", "--exclusive", "-N2", "-J", "to-signal", "sh", "-c", signal, "sh"],
        &lasting[..],
    ]
    .concat();
    let running = bed.tree(&line).start();
    running.wait_stderr("case 5 on 4 ranks", 1);
    let shell =
        running.descendants().into_iter().find(|p| p.command.contains("kill -TERM $launcher"));
    let shell = shell.expect("the script runs");
    assert!(
        testkit::process::send(shell.pid, nix::sys::signal::Signal::SIGTERM),
        "it is still there"
    );
    let outcome = running.wait();
    // What the program makes of TERM, unless Slurm's KILL was there first.
    assert!([4, 137, 143].contains(&outcome.code()), "{}: {}", outcome.code(), outcome.err());
    bed.assert_clean("TERM");
}

#[test]
fn slurm_as_users_have_it() {
    let name = "Slurm's allocations and scripts";
    let Some(bed) = Cluster::up(name, HOSTS) else { return };
    if !bed.slurm(name) {
        return;
    }
    let bed = Bed(bed);
    scripts(&bed);
    calls_of_others(&bed);
    wrong_flavour(&bed);
    report(&bed);
    ends(&bed);
}
