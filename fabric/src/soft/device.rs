//! An open device: its queue pairs, and who drives its streams.

use settings::deadlines::soft::NAP;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::context::Context;
use super::limits::LOCK_SPINS;
use super::lock::{Wait, try_lock_for};
use super::memory::Gather;
use super::progress::Progress;
use super::qp::Qp;
use super::qp_shared::QpShared;
use super::qp_table::QpTable;
use crate::Sleep;

#[derive(Debug)]
pub(super) struct SoftDevice {
    pub(super) ctx: Arc<Context>,
    pub(super) qps: Arc<QpTable>,
    progress: Mutex<Progress>,
    /// Polls that found another thread inside.
    turned_away: AtomicU32,
}

impl SoftDevice {
    pub(super) fn new(ctx: Context) -> Self {
        let qps = Arc::new(QpTable::default());
        Self {
            ctx: Arc::new(ctx),
            progress: Mutex::new(Progress::new(Arc::clone(&qps))),
            qps,
            turned_away: AtomicU32::new(0),
        }
    }

    /// Moves data, unless another thread does. For polls.
    pub(super) fn progress(&self) {
        match try_lock_for(&self.progress, Wait::No) {
            Some(mut progress) => drop(progress.pass(&self.ctx, false)),
            None => self.turned_away(),
        }
    }

    /// The thread inside may have lost its processor to this one.
    #[cold]
    fn turned_away(&self) {
        let times = self.turned_away.fetch_add(1, Ordering::Relaxed);
        if times % LOCK_SPINS == LOCK_SPINS - 1 {
            std::thread::yield_now();
        }
    }

    /// Moves everything there is. For control calls.
    pub(super) fn progress_now(&self) {
        if let Some(mut progress) = try_lock_for(&self.progress, Wait::Post) {
            progress.pass(&self.ctx, true);
        }
    }

    /// For the progress thread: moves everything there is; how long the thread may sleep then on the
    /// streams. `None`: a thread that is inside does this thread's work.
    pub(super) fn run_pass(&self) -> Option<Duration> {
        let mut progress = try_lock_for(&self.progress, Wait::No)?;
        let (pass, rest) = (progress.pass(&self.ctx, true), progress.rest());
        drop(progress);
        if pass.contended {
            // The next pass follows at once, and the other thread may wait for this processor.
            std::thread::yield_now();
        }
        Some(if pass.soon { NAP.limit } else { rest })
    }

    /// For a thread that polls and is about to sleep on the streams: what it sleeps on. `None`:
    /// there was something, or another thread is inside.
    pub(super) fn begin_sleep(&self) -> Option<Sleep> {
        let Some(mut progress) = try_lock_for(&self.progress, Wait::No) else {
            // It may have lost its processor to this one.
            std::thread::yield_now();
            return None;
        };
        let sleep = progress.begin_sleep(&self.ctx)?;
        drop(progress);
        self.ctx.activity.begin_sleep();
        Some(sleep)
    }

    /// For the progress thread: timers only.
    pub(super) fn tick(&self) {
        if let Some(mut progress) = try_lock_for(&self.progress, Wait::No) {
            progress.tick(&self.ctx);
        }
    }

    /// Closes the streams of a queue pair. `None`: another thread of this process did not leave in
    /// time.
    pub(super) fn drop_streams(&self, qp: &Qp) -> Option<()> {
        try_lock_for(&self.progress, Wait::Control)?.drop_streams(qp);
        Some(())
    }

    /// Writes a message on the stream of the peer's requests; `rest` copies what is left of it
    /// after so many bytes. False: not now, nothing was written.
    pub(super) fn send_reverse(
        &self,
        qp: &QpShared,
        message: &mut Gather<'_>,
        rest: &dyn Fn(usize) -> Vec<u8>,
    ) -> bool {
        try_lock_for(&self.progress, Wait::No)
            .is_some_and(|mut progress| progress.send_reverse(qp, message, rest))
    }

    /// The user dropped a queue pair.
    pub(super) fn destroy_qp(&self, qp: &Qp) {
        qp.destroyed.store(true);
        if let Some(mut progress) = try_lock_for(&self.progress, Wait::Post) {
            progress.flush_all_of(&self.ctx, qp);
        }
        qp.destroy();
        self.qps.remove(&self.ctx, qp.number);
        qp.request_attention();
        self.progress_now();
    }
}
