//! The state of one rank. Holds no process-wide state: several ranks may live in one process.

use std::sync::Arc;

use bootstrap::page::{HostPage, Slot};
use bootstrap::{Announcer, Bootstrap, Place, Rank};

/// One rank: its place, its queues, its segment, its handlers.
pub(crate) struct Core {
    place: Place,
    page: Arc<HostPage>,
    announcer: Announcer,
}

/// What `exit` may use of the core. Everything here is async-signal-safe unless it says otherwise.
impl Core {
    /// Rank, size, host.
    pub(crate) const fn place(&self) -> Place {
        self.place
    }

    /// The host page.
    pub(crate) const fn page(&self) -> &Arc<HostPage> {
        &self.page
    }

    /// This rank's doorbell.
    pub(crate) fn slot(&self) -> &Slot {
        self.page.slot(self.place.local)
    }

    /// The handle to the control tree.
    pub(crate) const fn announcer(&self) -> Announcer {
        self.announcer
    }

    /// Sends an internal message (`id` 1..=7, at most 8 arguments) to any rank of the host, this one included. Travels in a queue
    /// of its own, never behind messages of the client. Does not wait: `false` when the queue is full (try again) or the
    /// rank cannot be reached.
    pub(crate) fn send_internal(&self, rank: Rank, id: u8, args: &[i32]) -> bool {
        let _ = (rank, id, args);
        todo!()
    }

    /// Delivers waiting internal messages to `crate::exit::message(core, source, id, args)`; returns how many. Once
    /// client handlers are disabled it also throws the client's messages away, so that nobody waits for room here.
    /// May be called in a signal handler that interrupted any function of this crate, provided the interrupted code never
    /// resumes or is not a poll itself.
    pub(crate) fn poll_internal(&self) -> usize {
        todo!()
    }

    /// From now on no handler of the client runs on this rank, and every call of the client fails with
    /// [`crate::Error::AfterExit`].
    pub(crate) fn disable_client_handlers(&self) {
        todo!()
    }

    /// Sleeps on the doorbell until an internal message or the exit notice is there, a signal comes or `timeout` passes.
    pub(crate) fn sleep_internal(&self, timeout: std::time::Duration) {
        let _ = timeout;
        todo!()
    }

    /// Runs `call` with the bootstrap services. Not async-signal-safe. `None` when another thread is inside them.
    pub(crate) fn try_bootstrap<T>(&self, call: impl FnOnce(&mut dyn Bootstrap) -> T) -> Option<T> {
        let _ = call;
        todo!()
    }
}
