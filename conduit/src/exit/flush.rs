//! Flushing the streams without being caught by a lock that somebody holds for ever.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use settings::deadlines::exit::{FLUSH, FLUSH_OTHERS, FLUSH_SLICE};

use super::signals::{self, Streams};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Flushed {
    Nothing,
    Standard,
    All,
}

struct Helper {
    flushed: Mutex<Flushed>,
    changed: Condvar,
    /// When the time began, or the reader of the output was last seen to be slow.
    since: Mutex<Instant>,
}

const IDLE: u32 = 0;
const GRACEFUL: u32 = 1;
const FAILED: u32 = 2;

pub(super) struct Flush {
    state: AtomicU32,
    /// There only when a helper thread does it.
    helper: OnceLock<Arc<Helper>>,
}

impl Flush {
    pub(super) const fn new() -> Self {
        Self { state: AtomicU32::new(IDLE), helper: OnceLock::new() }
    }

    /// Begins; done on return unless another thread could hold a lock, then a helper thread does
    /// it.
    pub(super) fn start(&self, graceful: bool, in_signal: bool, sync: bool) {
        self.state.store(if graceful { GRACEFUL } else { FAILED }, Ordering::SeqCst);
        if in_signal {
            // The interrupted code may be inside Rust's stream or the allocator; C streams allow
            // the same thread in.
            signals::flush(Streams::Standard);
            if sync {
                signals::sync();
            }
        } else if is_single_threaded() || !self.start_helper(sync) {
            flush_standard();
            signals::flush(Streams::All);
            if sync {
                signals::sync();
            }
        }
    }

    fn start_helper(&self, sync: bool) -> bool {
        let helper = Arc::new(Helper {
            flushed: Mutex::new(Flushed::Nothing),
            changed: Condvar::new(),
            since: Mutex::new(Instant::now()),
        });
        let its = Arc::clone(&helper);
        let thread = std::thread::Builder::new().name("gasnet-flush".into()).stack_size(64 * 1024);
        let started = thread.spawn(move || {
            flush_standard();
            if sync {
                signals::sync();
            }
            its.reach(Flushed::Standard);
            signals::flush(Streams::All);
            its.reach(Flushed::All);
        });
        started.is_ok() && self.helper.set(helper).is_ok()
    }

    pub(super) fn is_graceful(&self) -> bool {
        self.state.load(Ordering::SeqCst) == GRACEFUL
    }

    /// Whether it is done, or has taken too long.
    pub(super) fn is_over(&self) -> bool {
        if self.state.load(Ordering::SeqCst) == IDLE {
            return false;
        }
        let Some(helper) = self.helper.get() else { return true };
        let bound = match *helper.flushed.lock().unwrap_or_else(PoisonError::into_inner) {
            Flushed::Nothing => FLUSH,
            Flushed::Standard => FLUSH_OTHERS,
            Flushed::All => return true,
        };
        let mut since = helper.since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_held() {
            *since = Instant::now();
        }
        since.elapsed() >= bound.limit
    }

    /// Whether the flush waits for a slow reader, and not for a lock.
    pub(super) fn is_held(&self) -> bool {
        let begun = self.state.load(Ordering::SeqCst) != IDLE;
        let helper = self.helper.get().filter(|_| begun);
        let flushed =
            |helper: &Arc<Helper>| *helper.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        helper.is_some_and(|helper| flushed(helper) != Flushed::All) && signals::is_output_full()
    }

    /// Waits for progress of the helper, at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        if let Some(helper) = self.helper.get() {
            let flushed = helper.flushed.lock().unwrap_or_else(PoisonError::into_inner);
            if *flushed != Flushed::All {
                drop(helper.changed.wait_timeout(flushed, timeout));
            }
        } else {
            std::thread::sleep(FLUSH_SLICE.limit.min(timeout));
        }
    }
}

impl Helper {
    fn reach(&self, flushed: Flushed) {
        *self.flushed.lock().unwrap_or_else(PoisonError::into_inner) = flushed;
        self.changed.notify_all();
    }
}

fn flush_standard() {
    // A closed or full stream is the program's affair; there is nobody left to tell.
    let _ = std::io::stdout().flush();
    signals::flush(Streams::Standard);
}

/// Whether this process has one thread. (A directory's link count is two more than its
/// directories.)
fn is_single_threaded() -> bool {
    nix::sys::stat::stat("/proc/self/task").is_ok_and(|task| task.st_nlink == 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_delays_but_does_not_stop_a_flush() {
        let flush = Flush::new();
        assert!(!flush.is_over());
        let held = std::io::stdout().lock();
        flush.start(true, false, false);
        assert!(flush.is_graceful());
        flush.wait(Duration::from_millis(1));
        assert!(!flush.is_over(), "test harnesses have threads, so a helper waits for the lock");
        drop(held);
        while !flush.is_over() {
            flush.wait(Duration::from_millis(100));
        }
    }
}
