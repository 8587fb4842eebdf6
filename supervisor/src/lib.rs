//! Launches the ranks of a job, supervises them and leaves no process behind.
//!
//! * [`plan`]: what is to be started, as data (pure). `map`: where each rank runs.
//! * [`report`]: what became of it, as data.
//! * [`local`]: the launcher's own process: forks the supervisor, forwards signals, collects the
//!   report.
//! * [`binding`]: which cpus each rank of a host may use.
//! * `agent`: supervises ranks: a pure machine that decides, and what carries its decisions out.
//! * `root`, [`node`], [`tree`], `link`: jobs with other hosts. The root is what the launcher forks
//!   then; a node is the agent of one host; they talk over links (`docs/design/tree.md`).
//! * `stage`: the job's program on hosts that do not have it.
//! * [`trace`]: the memory that ranks leave their traces in.
//! * [`watch`]: questions about a job while it runs.
//! * [`doctor`]: all steps of a start without a job.

mod agent;
pub mod binding;
pub mod doctor;
pub(crate) mod event_loop;
mod link;
pub mod local;
mod map;
pub mod node;
pub mod plan;
pub mod report;
mod root;
mod stage;
pub mod trace;
pub mod tree;
pub mod watch;

pub use agent::limits::{LowStack, fit_limits};
pub use agent::pmi_server::open_mpi_library;
pub use agent::processes::allowed_cpus;
pub use spawner_pmi::server::pmix::{helper as pmix_helper, version as pmix_version};

/// Life of the supervisor of a job, in the process that [`local::supervise`] forks.
pub fn run(plan: &plan::JobPlan, origin: local::Origin) -> ! {
    if plan.map.is_here_only() {
        agent::control::run(plan, origin)
    } else {
        root::run(plan, origin)
    }
}

/// Tries whether programs can be sent to this host and run there, with our own; the bytes that are free
/// then.
///
/// # Errors
/// Why they cannot.
pub fn try_staging() -> Result<u64, String> {
    stage::trial().map_err(|error| error.to_string())
}
