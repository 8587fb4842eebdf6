//! What a job pays for being looked at: `top` in a terminal, and the processor time of the launcher
//! and its agent meanwhile.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::process::{Process, send};
use testkit::terminal::in_terminal;

use crate::Repetitions;
use crate::launch::in_path;
use crate::row::{Findings, Row, Target, Verdict};
use crate::run::{Failure, Result, Running, Samples, job, sibling, start};

const NAME: &str = "watched by `top`";
/// How long a job is left alone, and then looked at: five pictures, at an interval of a second.
const LOOK: Duration = Duration::from_secs(5);
/// Until everything that belongs to a start or to an end is over.
const SETTLED: Duration = Duration::from_millis(500);

/// Seconds of processor time that a process has had.
fn processor_time(pid: i32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let nanoseconds: f64 = text.split_whitespace().next().unwrap_or_default().parse()?;
    Ok(nanoseconds / 1e9)
}

/// A job whose ranks sleep.
struct Watched {
    running: Option<Running>,
    launcher: i32,
    /// The launcher, and its agent.
    own: Vec<i32>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = send(self.launcher, Signal::SIGTERM);
            let _ = running.wait();
        }
    }
}

impl Watched {
    fn start(ranks: u32) -> Result<Self> {
        let running = start(job(ranks, &[], Path::new("/bin/sleep"), &["600"])?, false)?;
        let launcher = i32::try_from(running.id())?;
        let mut watched = Self { running: Some(running), launcher, own: vec![launcher] };
        std::thread::sleep(SETTLED);
        let below = Process::descendants(launcher);
        let is_rank = |process: &&Process| process.command.starts_with("(sleep)");
        let seen = below.iter().filter(is_rank).count();
        if u32::try_from(seen)? != ranks {
            return Err(Failure(format!("{seen} of {ranks} ranks run")));
        }
        let others = below.iter().filter(|process| !is_rank(process));
        watched.own.extend(others.map(|process| process.pid));
        Ok(watched)
    }

    /// Processor time of launcher and agent per second.
    fn cost(&self) -> Result<f64> {
        let all = || self.own.iter().map(|pid| processor_time(*pid)).sum::<Result<f64>>();
        let (begin, before) = (Instant::now(), all()?);
        std::thread::sleep(LOOK);
        Ok((all()? - before) / begin.elapsed().as_secs_f64())
    }
}

/// `top` in a terminal of its own.
struct Top(Child);

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Top {
    fn start(launcher: i32) -> Result<Self> {
        let top = format!("'{}' top {launcher}", sibling("gasnetrun_ibv")?.display());
        let mut terminal = in_terminal(&top, [80, 120]);
        Ok(Self(terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?))
    }

    /// Processor time of `top` itself so far.
    fn own(&self) -> Result<f64> {
        let below = Process::descendants(i32::try_from(self.0.id())?);
        let top = below.iter().find(|process| process.command.starts_with("(gasnetrun_ibv)"));
        processor_time(top.ok_or_else(|| Failure("`top` has ended".to_owned()))?.pid)
    }
}

/// What `top` takes of the processors that a job has.
pub(crate) fn top(repetitions: Repetitions) -> Result<Findings> {
    if in_path("script").is_none() {
        return Ok(Findings {
            rows: vec![Row::without(NAME, Verdict::Skipped("there is no `script`".to_owned()))],
            ..Findings::default()
        });
    }
    let processors = std::thread::available_parallelism()?.get();
    let mut samples = Samples::default();
    let mut rows = Vec::new();
    for ranks in [4_u32, 64] {
        // Both are small.
        let share = 100.0 / f64::from(ranks.min(u32::try_from(processors)?));
        let key = |what| format!("{what} {ranks} ranks");
        for _ in 0..repetitions.exits {
            let watched = Watched::start(ranks)?;
            let alone = watched.cost()?;
            let top = Top::start(watched.launcher)?;
            std::thread::sleep(SETTLED);
            let (begin, before) = (Instant::now(), top.own()?);
            let with = watched.cost()?;
            let own = (top.own()? - before) / begin.elapsed().as_secs_f64();
            samples.add(&key("job"), (with - alone).max(0.0) * share);
            samples.add(&key("top"), own * share);
        }
        let of_job =
            format!("`top` looks at {ranks} ranks each second: of the job's processor time");
        rows.push(Row::alone(&of_job, &samples, &key("job"), "%", Target::Bound(0.1))?);
        let its_own =
            format!("`top` itself, {ranks} ranks: as much as this of the job's processor time");
        rows.push(Row::alone(&its_own, &samples, &key("top"), "%", Target::None)?);
    }
    let notes = vec![
        "top: /proc/PID/schedstat of launcher and agent while `top` runs in a terminal, less the same without it; a job has as \
         much processor time as it has ranks or the machine has processors, whichever is less."
            .to_owned(),
    ];
    Ok(Findings { rows, samples, notes, ..Findings::default() })
}
