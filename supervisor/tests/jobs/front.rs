//! A small launcher: `jobs front [options] -- program [words]`. Stands for `gasnetrun_ibv`, without
//! its command line.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bootstrap::Rank;
use supervisor::local::{Observer, Progress, supervise};
use supervisor::plan::{JobPlan, StdinTo};

struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, progress: &Progress) {
        assert!(progress.started <= progress.total && progress.ended <= progress.started);
    }
}

/// Runs the job that the words describe and ends the process with its code.
#[expect(clippy::disallowed_methods, reason = "the process is a launcher, not a test")]
pub(crate) fn main(words: Vec<OsString>) -> ! {
    let started = Instant::now();
    let mut words = words.into_iter();
    let mut plan = JobPlan::new(1, PathBuf::new(), Vec::new());
    plan.env = settings::Env::from_process().into_iter().collect();
    plan.directory = std::env::current_dir().unwrap();
    plan.exit_bound = Duration::from_secs(3);
    let mut report = None;
    while let Some(word) = words.next() {
        let word = word.into_string().unwrap();
        let mut value = || words.next().unwrap().into_string().unwrap();
        match word.as_str() {
            "-n" => plan.size = value().parse().unwrap(),
            "--report" => report = Some(PathBuf::from(value())),
            "--tag" => plan.output.tag = true,
            "--timestamp" => plan.output.timestamp = true,
            "--output-dir" => plan.output.directory = Some(PathBuf::from(value())),
            "--stdin" => {
                plan.stdin = match value().as_str() {
                    "all" => StdinTo::All,
                    "none" => StdinTo::None,
                    rank => StdinTo::Rank(Rank(rank.parse().unwrap())),
                }
            }
            "--timeout-ms" => plan.timeout = Some(Duration::from_millis(value().parse().unwrap())),
            "--exit-bound-ms" => plan.exit_bound = Duration::from_millis(value().parse().unwrap()),
            "--dir" => plan.directory = PathBuf::from(value()),
            "--verbose" => plan.verbose = value().parse().unwrap(),
            "--cpus" => {
                plan.cpus = value().split(':').map(|set| vec![set.parse().unwrap()]).collect()
            }
            "--" => break,
            other => panic!("unknown option {other}"),
        }
    }
    plan.argv = words.collect();
    plan.program = PathBuf::from(&plan.argv[0]);
    let code = match supervise(&plan, supervisor::run, started, &mut Quiet) {
        Ok(outcome) => {
            if let Some(path) = report {
                std::fs::write(path, serde_json::to_vec_pretty(&outcome).unwrap()).unwrap();
            }
            outcome.exit_code
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "front: {error}");
            125
        }
    };
    std::process::exit(code)
}
