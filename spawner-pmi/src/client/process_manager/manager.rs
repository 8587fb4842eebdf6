//! What a process manager offers to the services.

use bootstrap::service::{Error, HostId, Rank};
use bootstrap::wait::Watch;

use super::finalize::Finalization;

/// Nothing to watch.
pub const fn unwatched() -> impl FnMut() -> Result<(), Error> {
    || Ok(())
}

/// Who a rank is, by its process manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInfo {
    /// ProcessManager, as in messages.
    pub manager: &'static str,
    /// This rank.
    pub rank: Rank,
    /// Ranks of the job.
    pub size: u32,
    /// Text that no other job at the same time has.
    pub job: String,
    /// Bytes of a value that the server keeps.
    pub value_limit: usize,
}

/// One rank's connection to the process manager that started it. After an error no further call is
/// possible.
pub trait ProcessManager: Send {
    /// Constant.
    fn job_info(&self) -> &JobInfo;

    /// Host of every rank, if the process manager knows it.
    fn host_map(&mut self) -> Result<Option<Vec<HostId>>, Error>;

    /// Puts a value; others may read it after the next fence. A key is put once in a job.
    fn put(&mut self, key: &str, value: &str) -> Result<(), Error>;

    /// Collective over the job: what was put before can be read after it. `watch` is asked several
    /// times a second.
    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error>;

    /// The value that `from` put before the last fence.
    fn get(&mut self, from: Rank, key: &str) -> Result<String, Error>;

    /// How this rank leaves.
    fn finalization(&self) -> &'static Finalization;
}
