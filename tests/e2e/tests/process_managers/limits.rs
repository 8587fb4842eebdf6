//! How Slurm ends jobs: a step that is cancelled, a warning, preemption, the time limit.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use testkit::{Running, all_requested, binary, skip};

use super::slurm::{Bed, count};

/// Far above what Slurm's scheduler needs to start a small job.
const STARTS: Duration = Duration::from_secs(60);
/// Slurm looks at time limits every half minute.
const LIMIT: Duration = Duration::from_secs(240);
/// Ranks that end by TERM, as the program has it; by it without the program's doing; by KILL.
const ENDED: [i32; 3] = [4, 143, 137];

/// A batch script that is running or has run.
struct Batch {
    output: PathBuf,
    running: Running,
}

impl Batch {
    /// Submits a script with these options and waits until its output has `up`.
    fn start(bed: &Bed, name: &'static str, options: &[&str], text: &str, up: &str) -> Self {
        let share = bed.0.directory().join("share");
        let (script, output) =
            (share.join(format!("{name}.sh")), share.join(format!("{name}.out")));
        std::fs::write(&script, format!("#!/bin/sh\n{text}")).expect("a script");
        let (path, to) = (script.display().to_string(), output.display().to_string());
        let line = [&["sbatch", "-Q", "-W", "-J", name, "-o", &to], options, &[&path]].concat();
        let running = bed.tree(&line).deadline("a batch job", LIMIT).start();
        let batch = Self { output, running };
        let begin = Instant::now();
        while !batch.text().contains(up) {
            assert!(begin.elapsed() < STARTS, "{name}: {}", batch.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        batch
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// The code of the script and what it wrote.
    fn end(self) -> (i32, String) {
        let outcome = self.running.wait();
        (outcome.code(), std::fs::read_to_string(&self.output).unwrap_or_default())
    }
}

/// The codes that the script printed.
fn codes(text: &str) -> Vec<i32> {
    text.lines().filter_map(|line| line.strip_prefix("code ")?.parse().ok()).collect()
}

/// A job of two ranks that lasts, then its code.
fn lasting() -> String {
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let testexit = binary("testexit").display().to_string();
    format!("{launcher} -n 2 -N 2 {testexit} 5 --delay 600000; code=$?; echo code $code")
}

const UP: &str = "case 5 on 2 ranks";
const TWO: &str = "-N2";

/// The step ends; the batch job goes on with another one.
fn cancelled_step(bed: &Bed) {
    let launcher = binary("gasnetrun_ibv").display().to_string();
    let hello = binary("hello").display().to_string();
    let text = format!("{}\n{launcher} -n 2 -N 2 {hello}; echo code $?", lasting());
    let batch = Batch::start(bed, "cancel-step", &[TWO], &text, UP);
    // Besides the ranks' step there is that of the script.
    let steps = bed.run(&["squeue", "-h", "-s", "-o", "%i"]).out();
    let step = steps.lines().find(|step| step.ends_with(".0")).unwrap_or_default();
    bed.run(&["scancel", step]).expect(0);
    let (code, text) = batch.end();
    let codes = codes(&text);
    assert!(codes.len() == 2 && ENDED.contains(&codes[0]) && codes[1] == 0, "{step}: {text}");
    assert_eq!((code, count(&text, " of 2 on n")), (0, 2), "{text}");
}

/// USR1 reaches the ranks through the script, our launcher and srun; `warn` brings it about.
fn warned(bed: &Bed, name: &'static str, warn: impl FnOnce(&str)) {
    let script = testkit::repository().join("scripts/slurm/limit.sbatch");
    let text = std::fs::read_to_string(script).expect("the script is there");
    let batch = Batch::start(bed, name, &[], &text, "at work\nat work\n");
    warn(name);
    let (code, text) = batch.end();
    assert_eq!((code, count(&text, "saved")), (0, 2), "{text}");
}

/// A job with precedence takes the nodes: TERM, and KILL after the `KillWait`.
fn preempted(bed: &Bed) {
    let script = format!("{}; exit $code", lasting());
    let whole = ["--exclusive", TWO];
    let batch =
        Batch::start(bed, "preempted", &[&whole[..], &["--no-requeue"]].concat(), &script, UP);
    let begin = Instant::now();
    let hostname = ["srun", "-Q", "-p", "urgent", "--exclusive", TWO, "hostname"];
    bed.run(&hostname).expect(0);
    assert!(begin.elapsed() < STARTS, "the other job held the nodes");
    let (code, text) = batch.end();
    assert!(code != 0 && text.contains("DUE TO PREEMPTION"), "{code}: {text}");
    assert!(codes(&text).iter().all(|code| ENDED.contains(code)), "{text}");
}

/// The time limit, with a warning half a minute before in another job, at the same time.
fn time_limit(bed: &Bed) {
    let script = format!("{}; exit $code", lasting());
    let batch = Batch::start(bed, "time-limit", &[TWO, "--time=1"], &script, UP);
    warned(bed, "warned-by-slurm", |_| {});
    let (code, text) = batch.end();
    assert!(code != 0 && text.contains("DUE TO TIME LIMIT"), "{code}: {text}");
    assert!(codes(&text).iter().all(|code| ENDED.contains(code)), "{text}");
}

/// All of them, one after the other.
pub(crate) fn check(bed: &Bed) {
    cancelled_step(bed);
    bed.assert_clean("a step that was cancelled");
    warned(bed, "warned", |name| {
        bed.run(&["scancel", "--batch", "--signal=USR1", "-n", name]).expect(0);
    });
    bed.assert_clean("a job that was warned");
    preempted(bed);
    bed.assert_clean("a job that was preempted");
    if all_requested() {
        time_limit(bed);
        bed.assert_clean("jobs at their time limit");
    } else {
        skip("the time limit of Slurm", "only with --all: it takes a minute and a half");
    }
}
