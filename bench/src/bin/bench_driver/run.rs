//! Runs a program under a deadline and takes its wall time.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bench::sys::now_ns;
use bench::timing::median;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// Longest that any measured program may take. Far above what one needs.
pub(crate) const RUN: Duration = Duration::from_secs(120);

/// Why something could not be measured.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// A program beside this one.
pub(crate) fn sibling(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.is_file() {
        Ok(path)
    } else {
        Err(Failure(format!("{} is not built (cargo build --release)", path.display())))
    }
}

/// `gasnetrun_ibv -n RANKS OPTIONS PROGRAM ARGS`.
pub(crate) fn job(ranks: u32, options: &[&str], program: &Path, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(sibling("gasnetrun_ibv")?);
    command.arg("-n").arg(ranks.to_string()).args(options).arg(program).args(args);
    Ok(command)
}

/// Name of the variable by which the processes of a run are recognised.
const TOKEN: &str = "GASNET_BENCH_TOKEN_OF_RUN";

/// A program that runs.
pub(crate) struct Running {
    child: Child,
    name: String,
    token: String,
    out: Option<File>,
    err: File,
    ended: Option<Sender<()>>,
    started: u64,
}

/// How a run went.
pub(crate) struct Ended {
    /// Milliseconds from before the start to the return.
    pub(crate) wall_ms: f64,
    /// `CLOCK_MONOTONIC` nanoseconds of the return.
    pub(crate) at: u64,
    /// Processes of the run that were still there right after the return.
    pub(crate) survivors: usize,
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    err: String,
    name: String,
}

/// The command line for a message: without its middle when it is long, such as one that has a
/// script in it.
fn shortened(line: &str) -> String {
    const KEPT: usize = 200;
    let letters: Vec<char> = line.chars().collect();
    if letters.len() <= 2 * KEPT {
        return line.to_owned();
    }
    let (head, tail) = (&letters[..KEPT], &letters[letters.len() - KEPT..]);
    format!("{} … {}", head.iter().collect::<String>(), tail.iter().collect::<String>())
}

fn memory_file(name: &str) -> Result<File> {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    Ok(nix::sys::memfd::memfd_create(name, flags)?.into())
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Starts `command`. Its output goes to memory when `keep`, else nowhere.
pub(crate) fn start(command: Command, keep: bool) -> Result<Running> {
    start_within(RUN, command, keep)
}

fn start_within(limit: Duration, mut command: Command, keep: bool) -> Result<Running> {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let token = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let name = shortened(&format!("{command:?}"));
    // Files in memory, not pipes: a process that outlives the run could hold a pipe open.
    let out = if keep { Some(memory_file("out")?) } else { None };
    let err = memory_file("err")?;
    command.stdin(Stdio::null()).stderr(err.try_clone()?).env(TOKEN, &token);
    match &out {
        Some(file) => command.stdout(file.try_clone()?),
        None => command.stdout(Stdio::null()),
    };
    let started = now_ns();
    let child =
        command.spawn().map_err(|error| Failure(format!("cannot start {name}: {error}")))?;
    let pid = pid_of(&child)?;
    let (ended, watch) = channel();
    std::thread::spawn(move || {
        if watch
            .recv_timeout(limit)
            .is_err_and(|why| why == std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            // Not collected yet, so the number still is its.
            let _ = kill(pid, Signal::SIGKILL);
        }
    });
    Ok(Running { child, name, token, out, err, ended: Some(ended), started })
}

fn pid_of(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

/// Processes that have `token` in their environment.
fn holders(token: &str) -> usize {
    let wanted = format!("{TOKEN}={token}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let holds = |entry: io::Result<std::fs::DirEntry>| {
        let environ = entry.ok()?.path().join("environ");
        let bytes = std::fs::read(environ).ok()?;
        bytes.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes()).then_some(())
    };
    processes.filter_map(holds).count()
}

impl Running {
    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The output so far. Leaves the place where the program writes untouched.
    pub(crate) fn so_far(&self) -> Result<String> {
        use std::os::unix::fs::FileExt;
        let Some(file) = &self.out else { return Ok(String::new()) };
        let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
        let got = file.read_at(&mut bytes, 0)?;
        bytes.truncate(got);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Result<Ended> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(pid_of(&self.child)?), flags)?;
        let at = now_ns();
        let survivors = holders(&self.token);
        drop(self.ended.take());
        let status = self.child.wait()?;
        let out = self.out.as_mut().map(text).transpose()?.unwrap_or_default();
        let wall_ms = millis(at - self.started);
        Ok(Ended {
            wall_ms,
            at,
            survivors,
            status,
            out,
            err: text(&mut self.err)?,
            name: self.name,
        })
    }
}

impl Ended {
    /// Fails unless the program returned `code`.
    pub(crate) fn expect(self, code: i32) -> Result<Self> {
        if self.status.code() == Some(code) {
            return Ok(self);
        }
        let last: Vec<&str> = self.err.trim_end().lines().rev().take(2).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        let (name, status) = (&self.name, self.status);
        Err(Failure(format!("{name}: {status} instead of {code}: {}", last.join(" | "))))
    }

    /// The `KEY VALUE` lines of the output.
    pub(crate) fn samples(&self) -> Samples {
        let mut samples = Samples::default();
        for line in self.out.lines() {
            if let Some((key, value)) = line.split_once(' ')
                && let Ok(value) = value.trim().parse()
            {
                samples.add(key, value);
            }
        }
        samples
    }
}

/// Starts `command`, waits for its end, expects status 0.
pub(crate) fn run(command: Command, keep: bool) -> Result<Ended> {
    start(command, keep)?.wait()?.expect(0)
}

/// As [`run`], for what may take `limit`.
pub(crate) fn run_within(limit: Duration, command: Command) -> Result<Ended> {
    start_within(limit, command, true)?.wait()?.expect(0)
}

#[expect(clippy::cast_precision_loss, reason = "a time for people")]
pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Measured numbers by name, in order of measurement.
#[derive(Debug, Default)]
pub(crate) struct Samples(pub(crate) BTreeMap<String, Vec<f64>>);

impl Samples {
    pub(crate) fn add(&mut self, key: &str, value: f64) {
        self.0.entry(key.to_owned()).or_default().push(value);
    }

    pub(crate) fn extend(&mut self, more: Self) {
        for (key, mut values) in more.0 {
            self.0.entry(key).or_default().append(&mut values);
        }
    }

    /// The samples of `key`.
    pub(crate) fn of(&self, key: &str) -> Result<&[f64]> {
        self.0.get(key).map(Vec::as_slice).ok_or_else(|| Failure(format!("no sample of {key:?}")))
    }

    pub(crate) fn median(&self, key: &str) -> Result<f64> {
        Ok(median(self.of(key)?))
    }
}

/// The largest resident memory that a process had, as the system keeps it (VmHWM), KiB; `None`: it
/// does not tell.
pub(crate) fn largest_resident(pid: impl Display) -> io::Result<Option<f64>> {
    kilobytes(pid, "status", "VmHWM:")
}

/// Its resident memory, with shared pages divided among those who map them (Pss), KiB.
pub(crate) fn proportional(pid: impl Display) -> io::Result<Option<f64>> {
    kilobytes(pid, "smaps_rollup", "Pss:")
}

/// A line of a file below `/proc`.
fn kilobytes(pid: impl Display, file: &str, name: &str) -> io::Result<Option<f64>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()))
}
