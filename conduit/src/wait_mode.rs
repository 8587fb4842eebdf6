//! How a rank waits.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// How a blocking call waits when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Poll without giving the processor away (where there is one for every rank of the host).
    Spin,
    /// Give the processor away after each poll that found nothing; sleep soon.
    Block,
    /// Poll for a while, then yield, then sleep. The default.
    SpinBlock,
}

/// Whether this rank may keep its processor while it waits.
pub(crate) struct WaitState {
    oversubscribed: AtomicBool,
    mode: AtomicU8,
    /// Looks for ends of own requests that may pass before the next whole poll.
    pub(crate) looks: AtomicU32,
}

impl WaitState {
    pub(crate) const fn new() -> Self {
        let mode = AtomicU8::new(WaitMode::SpinBlock as u8);
        Self { oversubscribed: AtomicBool::new(true), mode, looks: AtomicU32::new(0) }
    }

    pub(crate) fn set_oversubscribed(&self, oversubscribed: bool) {
        self.oversubscribed.store(oversubscribed, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn oversubscribed(&self) -> bool {
        self.oversubscribed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn mode(&self) -> WaitMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => WaitMode::Spin,
            1 => WaitMode::Block,
            _ => WaitMode::SpinBlock,
        }
    }

    pub(crate) fn set_mode(&self, mode: WaitMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Whether a wait may keep the processor for a while.
    #[inline]
    pub(crate) fn may_spin(&self) -> bool {
        !self.oversubscribed() && self.mode() != WaitMode::Block
    }
}
