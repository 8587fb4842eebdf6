//! One test program: where it is, how it runs, what it said.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde_json::Value;

/// How many lines of a failed program are said once more at the end.
const REPORT: usize = 60;
/// How long what a program started may still hold its output after its end.
const OUTPUT: Duration = Duration::from_secs(2);

/// A test program that cargo built.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Package and target.
    pub(crate) name: String,
    executable: PathBuf,
    /// Folder of the package, where cargo runs its tests.
    folder: PathBuf,
}

/// The test programs in cargo's messages.
pub(crate) fn listed(messages: &str) -> Vec<Program> {
    let read = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let executable = PathBuf::from(message["executable"].as_str()?);
        let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let test = message["profile"]["test"].as_bool()?;
        let package = folder.file_name()?.to_str()?.to_owned();
        let name = format!("{package} {}", message["target"]["name"].as_str()?);
        test.then_some(Program { name, executable, folder })
    };
    messages.lines().filter_map(read).collect()
}

/// A program that was started.
pub(crate) struct Running {
    program: Program,
    child: Child,
    begin: Instant,
    threads: usize,
    lines: Arc<Mutex<Vec<(Instant, String)>>>,
    reader: JoinHandle<()>,
    /// It was ended because its time was over.
    late: bool,
}

impl Running {
    /// Starts the program with so many tests at a time, behind all others when `behind`.
    pub(crate) fn start(program: Program, threads: usize, behind: bool) -> std::io::Result<Self> {
        let mut command = match behind {
            true => {
                let mut command = Command::new("nice");
                command.args(["-n", "5"]).arg(&program.executable);
                command
            }
            false => Command::new(&program.executable),
        };
        let (read, write) = std::io::pipe()?;
        let child = command
            .arg(format!("--test-threads={threads}"))
            .current_dir(&program.folder)
            // As cargo does.
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .env("RUST_TEST_THREADS", threads.to_string())
            .stdin(Stdio::null())
            .stdout(write.try_clone()?)
            .stderr(write)
            .process_group(0)
            .spawn()?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            let mut read = BufReader::new(read);
            let mut line = Vec::new();
            while read.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                said.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), text));
                line.clear();
            }
        });
        Ok(Self { program, child, begin: Instant::now(), threads, lines, reader, late: false })
    }

    /// Ends the program and what it started in its group, once.
    pub(crate) fn end(&mut self) {
        if !std::mem::replace(&mut self.late, true) {
            let _ = killpg(self.pid(), Signal::SIGKILL);
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are positive"))
    }

    /// Whether the program is at its end.
    pub(crate) fn is_over(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        !matches!(waitid(Id::Pid(self.pid()), flags), Ok(WaitStatus::StillAlive))
    }

    /// What came out of a program that is over.
    pub(crate) fn collect(mut self) -> Ended {
        let took = self.begin.elapsed();
        let used = processor_time(self.child.id());
        let status = self.child.wait();
        let limit = Instant::now() + OUTPUT;
        while !self.reader.is_finished() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        let count = |word: &str| {
            let results = lines.iter().filter(|(_, line)| line.starts_with("test result:"));
            let numbers = results.filter_map(|(_, line)| {
                let before = line.split(word).next().filter(|before| before.len() < line.len())?;
                before.split(' ').rfind(|part| !part.is_empty())?.parse::<usize>().ok()
            });
            numbers.sum::<usize>()
        };
        let ok = status.is_ok_and(|status| status.success()) && !self.late;
        let (passed, mut failed) = (count(" passed;"), count(" failed;"));
        if !ok && failed == 0 {
            // It crashed, or was ended.
            failed = 1;
        }
        let said = lines.iter().filter(|(_, line)| line.starts_with("SKIP ")).count();
        let skipped = count(" ignored;") + said;
        let (program, begin, late, threads) = (self.program, self.begin, self.late, self.threads);
        Ended { program, begin, took, used, passed, failed, skipped, late, threads, lines }
    }
}

/// Processor time of a process that is over but still there, with that of its children.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks =
        behind.split_whitespace().skip(11).take(4).filter_map(|one| one.parse::<u64>().ok());
    // A tick is 10 ms wherever Linux has a user space.
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// A program that is at its end.
pub(crate) struct Ended {
    pub(crate) program: Program,
    begin: Instant,
    pub(crate) took: Duration,
    pub(crate) used: Duration,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    late: bool,
    threads: usize,
    lines: Vec<(Instant, String)>,
}

impl Ended {
    /// A program that could not be started.
    pub(crate) fn never(program: Program, error: &std::io::Error) -> Self {
        let now = Instant::now();
        let lines = vec![(now, format!("it cannot be started: {error}\n"))];
        let (took, used) = (Duration::ZERO, Duration::ZERO);
        let (passed, failed, skipped) = (0, 1, 0);
        Self {
            program,
            begin: now,
            took,
            used,
            passed,
            failed,
            skipped,
            late: false,
            threads: 1,
            lines,
        }
    }

    /// All that it said.
    pub(crate) fn log(&self) -> String {
        self.lines.iter().map(|(_, line)| line.as_str()).collect()
    }

    /// What is shown of it.
    pub(crate) fn text(&self, since: Instant) -> String {
        let mut text = String::new();
        for (_, line) in &self.lines {
            let passed = test_name(line).is_some() && line.trim_end().ends_with("... ok");
            let frame = line.starts_with("running ") || line.starts_with("test result: ok");
            if !passed && !frame && !line.trim().is_empty() {
                text += line;
            }
        }
        let verdict = if self.failed > 0 { "FAILED" } else { "ok" };
        let late = if self.late { ", ended because its time was over" } else { "" };
        text + &format!(
            "== {}: {verdict}, {} passed, {} failed, {} skipped in {:.1} s{late} (at {:.0} s)\n",
            self.program.name,
            self.passed,
            self.failed,
            self.skipped,
            self.took.as_secs_f64(),
            since.elapsed().as_secs_f64()
        )
    }

    /// The names of the tests that failed, then the end of what was said about them.
    pub(crate) fn failures(&self) -> Option<String> {
        let verdicts = self.lines.iter().filter_map(|(_, line)| verdict(line));
        let names: Vec<_> = verdicts.filter(|(_, ok)| !ok).map(|(name, _)| name).collect();
        let why = match (self.failed > 0, self.late, names.is_empty()) {
            (false, ..) => return None,
            (_, true, _) => "ended because its time was over".to_owned(),
            (_, _, true) => "it failed outside a test".to_owned(),
            _ => names.join(", "),
        };
        // Reports of tests follow this line; a program that crashed has none.
        let report = self.lines.iter().position(|(_, line)| line.trim_end() == "failures:");
        let said = report.map_or(self.lines.as_slice(), |at| &self.lines[at..]);
        let end = &said[said.len().saturating_sub(REPORT)..];
        let text: String = end.iter().map(|(_, line)| line.as_str()).collect();
        Some(format!("FAILED {}: {why}\n{text}", self.program.name))
    }

    /// How long each test took. Tests begin in the order of their names, each as soon as one before
    /// it has ended.
    pub(crate) fn durations(&self) -> Vec<(Duration, String)> {
        let mut names = Vec::new();
        let mut ends = Vec::new();
        for (at, line) in &self.lines {
            if let Some(name) = test_name(line) {
                names.push((name, *at));
                ends.push(*at);
            }
        }
        names.sort();
        let begin = |index: usize| {
            let before = index.checked_sub(self.threads).and_then(|at| ends.get(at));
            before.copied().unwrap_or(self.begin)
        };
        let took = |(index, (name, end)): (usize, &(String, Instant))| {
            let took = end.saturating_duration_since(begin(index));
            (took, format!("{} {name}", self.program.name))
        };
        names.iter().enumerate().map(took).collect()
    }
}

/// The test that this line says the end of.
fn test_name(line: &str) -> Option<String> {
    verdict(line).map(|(name, _)| name)
}

/// The test that this line says the end of, and whether it passed.
fn verdict(line: &str) -> Option<(String, bool)> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let passed = match verdict.trim() {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    Some((name.trim().to_owned(), passed))
}
