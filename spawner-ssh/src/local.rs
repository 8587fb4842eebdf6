//! The front half on the launching host: forks the agent, forwards signals to it and collects its report.

use std::time::Instant;

use crate::plan::JobPlan;
use crate::report::JobReport;

/// How far the job has come. Counts of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Ranks of the job.
    pub total: u32,
    /// Ranks started so far.
    pub started: u32,
    /// Ranks that have opened the bootstrap so far; plain programs never do.
    pub hello: u32,
    /// Ranks that have ended so far.
    pub ended: u32,
}

/// Told about the job while it runs, on the calling thread of [`supervise`].
pub trait Observer {
    /// The counts have changed. Calls are thinned out: not every intermediate state is shown, the last one is.
    fn event(&mut self, progress: &Progress);
}

/// Why a job could not be supervised at all. What goes wrong *inside* a job is the report's cause instead.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The plan contradicts itself.
    #[error("the job plan is unusable: {problem}")]
    Plan {
        /// What is wrong with it.
        problem: String,
    },
    /// The process has more than one thread, so it must not fork the agent.
    #[error("cannot start the node agent: this process has {threads} threads, it must have one")]
    Threads {
        /// Threads counted.
        threads: usize,
    },
    /// The system refused something that is needed before the first rank starts.
    #[error("cannot {operation}: {source}")]
    Os {
        /// What was tried.
        operation: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

/// Runs the job of `plan` on this host and returns when every process of it is gone and all output is written.
///
/// `started` is when the launcher began; the phase times of the report count from it. Must be called by a process with
/// one thread, at most once at a time: it makes the process a child sub-reaper, blocks the forwarded signals for the
/// duration of the call and collects every child that ends meanwhile.
///
/// # Errors
/// [`LocalError`]: nothing was started.
pub fn supervise(plan: &JobPlan, started: Instant, observer: &mut dyn Observer) -> Result<JobReport, LocalError> {
    let _ = (started, observer);
    Err(LocalError::Plan { problem: format!("supervision of {} ranks is not built yet", plan.size) })
}
