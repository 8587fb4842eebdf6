//! What the leader of a neighbourhood keeps of a barrier between neighbourhoods.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::dissemination::Dissemination;

/// One kind of barrier, as the leader of a neighbourhood sees it.
pub(crate) struct Leader {
    pub(super) machine: Mutex<Dissemination>,
    /// Generation that the machine was begun for.
    pub(super) begun: AtomicU32,
    /// It may go further: a word has come, or one could not be sent.
    pub(super) stirred: AtomicBool,
}

impl Leader {
    pub(crate) fn new(count: u32) -> Self {
        let machine = Mutex::new(Dissemination::new(count));
        Self { machine, begun: AtomicU32::new(0), stirred: AtomicBool::new(false) }
    }
}
