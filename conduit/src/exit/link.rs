//! What the driver needs of the rank around it.

use std::sync::Arc;
use std::time::Duration;

use bootstrap::node_shm::NodeShm;
use bootstrap::{ExitNotifier, Rank, RankInfo};

use super::machine::Tree;

/// One rank, as the exit sees it. Everything here but [`Link::close`] is async-signal-safe.
pub(crate) trait Link: Send + Sync {
    fn rank_info(&self) -> RankInfo;

    /// Whom this rank's reduction of exit codes talks with.
    fn tree(&self) -> Tree;

    fn node_shm(&self) -> &NodeShm;

    fn exit_notifier(&self) -> ExitNotifier;

    /// Sends an internal message; does not wait. False when it cannot be sent now.
    fn send(&self, to: Rank, id: u8, args: &[i32]) -> bool;

    /// Delivers internal messages to the exit; returns how many.
    fn poll(&self) -> usize;

    /// Sleeps until an internal message or the exit decision is there, the doorbell rings, or
    /// `timeout` passes.
    fn sleep(&self, timeout: Duration);

    fn disable_client_handlers(&self);

    /// Closes the network, before the provider is told; the exit sends nothing more. Bounded by
    /// named deadlines. Never called in a signal handler. `agreed`: all ranks reach this call.
    fn close(self: Arc<Self>, agreed: bool);
}
