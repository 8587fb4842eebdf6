//! What the tests share: the front under a warden, and the report that it leaves.

use std::path::PathBuf;
use std::time::Duration;

use supervisor::report::{CauseKind, JobReport};
use testkit::{Outcome, Running, Tree};

/// What a test function returns.
pub(crate) type Checked = Result<(), libtest_mimic::Failed>;

/// Name and function of a test.
pub(crate) type Test = (&'static str, fn() -> Checked);

/// Longest that any job here may take on a busy machine.
const JOB: Duration = Duration::from_secs(120);

/// A job: options of the front, then the words of the program.
pub(crate) struct Job {
    tree: Tree,
    directory: tempfile::TempDir,
    size: u32,
}

/// Shell text as a program.
pub(crate) fn sh(text: &str) -> Vec<String> {
    ["/bin/sh", "-c", text].map(str::to_owned).to_vec()
}

/// One of our own rank programs.
pub(crate) fn rank(words: &[&str]) -> Vec<String> {
    let exe = std::env::current_exe().expect("the running executable has a path");
    let own = [exe.to_str().expect("a path of messages"), "rank"];
    own.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

impl Job {
    pub(crate) fn new(size: u32, options: &[&str], program: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let exe = std::env::current_exe().expect("the running executable has a path");
        let report = directory.path().join("report.json");
        let tree = Tree::new(exe)
            .args(["front", "-n", &size.to_string(), "--report"])
            .arg(report)
            .args(options)
            .arg("--")
            .args(program)
            .deadline("job", JOB);
        Self { tree, directory, size }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(Tree) -> Tree) -> Self {
        self.tree = change(self.tree);
        self
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    pub(crate) fn run(self) -> Done {
        self.start().wait()
    }

    pub(crate) fn start(self) -> Live {
        Live { running: self.tree.start(), directory: self.directory, size: self.size }
    }
}

/// A job that runs.
pub(crate) struct Live {
    pub(crate) running: Running,
    directory: tempfile::TempDir,
    size: u32,
}

impl Live {
    pub(crate) fn wait(self) -> Done {
        let outcome = self.running.wait();
        let report = std::fs::read(self.directory.path().join("report.json")).ok();
        let report =
            report.map(|bytes| serde_json::from_slice(&bytes).expect("the report is JSON"));
        Done { outcome, report, size: self.size, directory: self.directory }
    }
}

/// A job that is over.
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) report: Option<JobReport>,
    size: u32,
    pub(crate) directory: tempfile::TempDir,
}

impl Done {
    /// Checks code, survivors and that the report agrees.
    pub(crate) fn expect(self, code: i32) -> Result<Self, libtest_mimic::Failed> {
        if let Some(fault) = self.outcome.fault(code) {
            return Err(fault.into());
        }
        let report = self.report.as_ref().ok_or("no report")?;
        if report.exit_code != code || report.ranks.len() != self.size as usize {
            return Err(format!("report: {report:?}").into());
        }
        if let Some(rank) = report.ranks.iter().find(|r| r.pid.is_some() && r.end.is_none()) {
            return Err(format!("no end of {rank:?}").into());
        }
        Ok(self)
    }

    /// Checks the first cause.
    pub(crate) fn cause(
        self,
        kind: CauseKind,
        rank: Option<u32>,
        text: &str,
    ) -> Result<Self, libtest_mimic::Failed> {
        let cause = self.report.as_ref().and_then(|report| report.cause.as_ref());
        let cause = cause.ok_or("no cause")?;
        if cause.kind != kind || cause.rank != rank || !cause.text.contains(text) {
            return Err(format!("wanted {kind:?} of {rank:?} with {text:?}, seen {cause:?}").into());
        }
        Ok(self)
    }

    pub(crate) fn no_cause(self) -> Result<Self, libtest_mimic::Failed> {
        match self.report.as_ref().and_then(|report| report.cause.as_ref()) {
            None => Ok(self),
            Some(cause) => Err(format!("unexpected {cause:?}").into()),
        }
    }

    pub(crate) fn ok(self) -> Checked {
        drop(self);
        Ok(())
    }
}

/// Fails with `text` unless `holds`.
pub(crate) fn ensure(holds: bool, text: impl Into<String>) -> Checked {
    if holds { Ok(()) } else { Err(text.into().into()) }
}
