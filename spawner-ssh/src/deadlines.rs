//! Every time limit of a login, with its name.

use std::time::Duration;

/// One named limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Name, as messages show it.
    pub name: &'static str,
    /// Value.
    pub limit: Duration,
    /// What it bounds.
    pub doc: &'static str,
}

impl Deadline {
    /// A row.
    #[must_use]
    pub const fn new(name: &'static str, milliseconds: u64, doc: &'static str) -> Self {
        Self { name, limit: Duration::from_millis(milliseconds), doc }
    }

    /// The limit in whole milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX)
    }
}

/// From the start of the remote shell to the agent's first word.
pub const CONNECT: Deadline =
    Deadline::new("tree.connect", 30_000, "from the start of ssh until the agent answers");
/// Shortest pause before a host is tried again; doubles, with jitter.
pub const RETRY: Deadline = Deadline::new("tree.retry", 250, "before a failed login is repeated");
/// From the end of an agent's work until the process behind its link is killed.
pub const FAREWELL: Deadline =
    Deadline::new("tree.farewell", 2_000, "after the last message, until a link is cut");
