//! Slurm as users have it: the example scripts, allocations, the calls of other languages'
//! launchers, and ends from outside.

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Cluster, Outcome, Tree, binary};

use super::limits;

/// Far above what a job takes on a busy machine.
const BOUND: Duration = Duration::from_secs(90);
/// What Slurm needs to end a job: TERM, its `KillWait` of 3 s, KILL, and its own bookkeeping.
const GONE: Duration = Duration::from_secs(30);
const HOSTS: &str = "head n1 n2";

pub(crate) struct Bed(pub(crate) Cluster);

impl Bed {
    /// A command on the head with Slurm's configuration and our programs in PATH.
    pub(crate) fn tree(&self, words: &[&str]) -> Tree {
        let hello = binary("hello");
        let programs = hello.parent().unwrap_or(Path::new("/")).display();
        let path = format!(
            "PATH={programs}:{}",
            settings::Env::from_process().text("PATH").unwrap_or_default()
        );
        let conf = format!("SLURM_CONF={}", self.0.slurm_conf().display());
        let directory = self.0.directory().join("share").display().to_string();
        let mut line = vec!["env", "-C", &directory, &path, &conf, "GASNET_QUIET=1"];
        line.push("GASNET_IBV_SOFT_ADDRESS=198.18.77.0/24");
        line.extend(words);
        self.0.on("head", &line).deadline("a command of Slurm's", BOUND)
    }

    pub(crate) fn run(&self, words: &[&str]) -> Outcome {
        self.tree(words).run()
    }

    /// Runs an example script to its end; returns what it wrote.
    fn script(&self, name: &str) -> String {
        let source = testkit::repository().join("scripts/slurm").join(name);
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

    /// The report `name`.
    fn report(&self, name: &str) -> serde_json::Value {
        let path = self.0.directory().join("share").join(name);
        let text = std::fs::read_to_string(path).expect("a report");
        serde_json::from_str(&text).expect("JSON")
    }

    /// What it says about Slurm's job.
    fn slurm_of(&self, name: &str) -> serde_json::Value {
        self.report(name)["plan"]["slurm"].clone()
    }

    /// Nothing of a job is left on the nodes.
    pub(crate) fn assert_clean(&self, what: &str) {
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

pub(crate) fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

fn scripts(bed: &Bed) {
    let text = bed.script("one-job.sbatch");
    assert_eq!((count(&text, "of 4 on n1,"), count(&text, "of 4 on n2,")), (2, 2), "{text}");
    let text = bed.script("array.sbatch");
    for member in ["member 1 ", "member 2 ", "member 3 ", "10 laps", "20 laps", "30 laps"] {
        assert_eq!(count(&text, member), 1, "{member} in {text}");
    }
    array_reports(bed, &text);
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

/// Every member of an array has a directory and a report of its own, which says which member it is.
fn array_reports(bed: &Bed, text: &str) {
    let job = text.lines().find_map(|line| line.strip_prefix("member 1 of job ")).expect("its job");
    for member in ["1", "2", "3"] {
        let slurm = bed.slurm_of(&format!("array-{job}/{member}/report.json"));
        let seen = (&slurm["array_job"], &slurm["array_task"]);
        assert_eq!(seen, (&job.into(), &member.into()), "{slurm}");
    }
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

/// A step without PMI is refused with the option that would work, once.
fn wrong_flavour(bed: &Bed) {
    let hello = binary("hello").display().to_string();
    let outcome = bed.run(&["srun", "-n2", "--mpi=none", &hello]);
    outcome.expect(1);
    assert_eq!(count(&outcome.err(), "srun --mpi=pmi2"), 1, "{}", outcome.err());
    assert_eq!(outcome.out(), "");
}

/// Hosts with different programs at the same place are told, though no agent of ours looks.
fn another_program(bed: &Bed) {
    for (host, program) in [("n1", "hello"), ("n2", "greet")] {
        let program = binary(program).display().to_string();
        let copy = format!("mkdir /tmp/place && cp {program} /tmp/place/hello");
        bed.0.on(host, &["sh", "-c", &copy]).run().expect(0);
    }
    let words = ["srun", "--mpi=pmi2", "-N2", "-n2", "/tmp/place/hello"];
    let outcome = bed.run(&words);
    assert_ne!(outcome.code(), 0, "{}", outcome.err());
    let said = "has another program at /tmp/place/hello on its host than rank";
    assert!(count(&outcome.err(), said) > 0, "{}", outcome.err());
    bed.assert_clean("another program");
}

/// The report names job and step of Slurm, whatever way the ranks were started.
fn report(bed: &Bed) {
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let hello = binary("hello").display().to_string();
    let two =
        "for i in 0 1; do \"$@\" --report report-$i.json $0 || exit; done; echo $SLURM_JOB_ID";
    let job = bed.run(&["salloc", "-Q", "-N2", "sh", "-c", two, &hello, &launcher, "-n", "2"]);
    job.expect(0);
    let job = job.out().lines().last().unwrap_or_default().to_owned();
    for step in ["0", "1"] {
        let name = format!("report-{step}.json");
        let text = bed.report(&name);
        let manager = &text["plan"]["engine"];
        assert_eq!(manager["dialect"], "srun", "{text}");
        assert_eq!(manager["batch_job"][0], "SLURM_JOB_ID", "{text}");
        assert_eq!((&text["plan"]["ranks"], &text["exit_code"]), (&2.into(), &0.into()), "{text}");
        let slurm = bed.slurm_of(&name);
        assert_eq!((slurm["job"].as_str(), slurm["step"].as_str()), (Some(&*job), Some(step)));
    }
    let outside = "PMIRUN_CMD=srun --mpi=pmi2 -n %N %C";
    let of_srun = [&launcher, "-spawner=pmi", "-n", "2", "--report", "outside.json", &hello];
    let inside = [&launcher, "-n", "2", "--report", "inside.json", &hello];
    let ssh = [&launcher, "-spawner=ssh", "-n", "2", "--report", "ssh.json", &hello];
    for (name, line, step) in [
        ("outside", [&["env", outside][..], &of_srun].concat(), Some("0")),
        ("inside", [&["srun", "-n1", "-c2"][..], &inside].concat(), Some("0")),
        ("ssh", [&["salloc", "-Q", "-N2"][..], &ssh].concat(), None),
    ] {
        bed.run(&line).expect(0);
        let slurm = bed.slurm_of(&format!("{name}.json"));
        assert_eq!(slurm["step"].as_str(), step, "{name}: {slurm}");
        let number = slurm["job"].as_str().and_then(|job| job.parse::<u32>().ok());
        assert!(number > job.parse().ok(), "{name}: {slurm}");
    }
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

    // The batch script is the launcher's parent; the warning signal reaches only that script, which
    // sends it on.
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
    another_program(&bed);
    report(&bed);
    ends(&bed);
    limits::check(&bed);
}
