//! What this rank may call now: whether communication is over, and whether a handler runs.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mode::Mode;

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside a handler while it lives.
struct ThreadInHandler(());

impl Drop for ThreadInHandler {
    fn drop(&mut self) {
        IN_HANDLER.set(false);
    }
}

/// Marks that a handler runs, also when it panics.
struct InHandler<'a>(&'a AtomicBool);

impl Drop for InHandler<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// What every call, and every poll, reads.
pub(crate) struct CallState {
    /// The client's handlers are off: this process is exiting.
    closed: AtomicBool,
    /// A handler is running; for modes with one thread at a time.
    in_handler: AtomicBool,
    /// Collectives may go on.
    stirred: AtomicBool,
}

impl CallState {
    pub(crate) const fn new() -> Self {
        let [closed, in_handler, stirred] = [const { AtomicBool::new(false) }; 3];
        Self { closed, in_handler, stirred }
    }

    /// Whether the next poll has collectives to go on with.
    #[inline(always)]
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred.load(Ordering::Acquire)
    }

    pub(crate) fn stir(&self) {
        self.stirred.store(true, Ordering::Release);
    }

    /// Who goes on looks for what came before this.
    pub(crate) fn settle(&self) {
        self.stirred.swap(false, Ordering::AcqRel);
    }

    /// Whether this process is exiting.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether this thread is inside a handler of the client.
    #[inline]
    pub(crate) fn in_handler<M: Mode>(&self) -> bool {
        if M::THREADED { IN_HANDLER.get() } else { self.in_handler.load(Ordering::Relaxed) }
    }

    /// Runs a handler of the client.
    #[inline]
    pub(crate) fn run_handler<M: Mode>(&self, handler: impl FnOnce()) {
        if M::THREADED {
            IN_HANDLER.set(true);
            let _inside = ThreadInHandler(());
            return handler();
        }
        self.in_handler.store(true, Ordering::Relaxed);
        let _inside = InHandler(&self.in_handler);
        handler();
    }
}
