//! Data of any length under names in the process manager's key-value space.
//!
//! Keys are `GRI`, a message for the use, a number that is used once, a dot and the chunk: no other
//! library's keys look like that, and no key is put twice in a job.

use super::error::ProcessManagerError;
use super::manager::{JobInfo, ProcessManager};
use super::value;
use bootstrap::frame::MAX_TOTAL;
use bootstrap::service::{Error, Rank};

/// Names of one job's data.
pub(super) struct KeyValueSpace {
    info: JobInfo,
    usable: usize,
}

impl KeyValueSpace {
    pub(super) fn new(manager: &dyn ProcessManager) -> Self {
        let info = manager.job_info().clone();
        // The process managers refuse limits that are of no use when they connect.
        let usable = value::usable(info.value_limit).unwrap_or(32);
        Self { info, usable }
    }

    fn key(stem: &str, chunk: usize) -> String {
        format!("GRI{stem}.{chunk}")
    }

    pub(super) fn broken(&self, stem: &str, from: Rank, problem: String) -> Error {
        let (manager, key) = (self.info.manager, Self::key(stem, 0));
        ProcessManagerError::Value { manager, key, from, problem }.into()
    }

    /// Puts `bytes` as the datum of `purpose` and `number`; it can be read after the next fence.
    pub(super) fn publish(
        &self,
        manager: &mut dyn ProcessManager,
        purpose: &str,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let stem = format!("{purpose}{number}");
        for (chunk, value) in value::encode(bytes, self.usable).iter().enumerate() {
            manager.put(&Self::key(&stem, chunk), value)?;
        }
        Ok(())
    }

    /// The datum that `from` published under its own number.
    pub(super) fn read(
        &self,
        manager: &mut dyn ProcessManager,
        purpose: &str,
        from: Rank,
    ) -> Result<Vec<u8>, Error> {
        let stem = format!("{purpose}{from}");
        let first = manager.get(from, &Self::key(&stem, 0))?;
        let broken = |problem| self.broken(&stem, from, problem);
        let (count, text) = value::head(&first).map_err(broken)?;
        let mut text = text.to_owned();
        for chunk in 1..count {
            text.push_str(&manager.get(from, &Self::key(&stem, chunk))?);
            if text.len() / 4 * 3 > 2 * MAX_TOTAL {
                return Err(broken(format!("more than {} bytes", 2 * MAX_TOTAL)));
            }
        }
        value::decode(&text).map_err(broken)
    }
}
