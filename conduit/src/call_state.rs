//! What this rank may call now: whether communication is over, and whether a handler runs.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::mode::Mode;

thread_local! {
    static IN_HANDLER: Cell<bool> = const { Cell::new(false) };
}

/// Marks that a handler runs, also when it panics: in this place, or on this thread where there is
/// none.
pub(crate) struct InHandler<'a>(Option<&'a AtomicU8>);

impl<'a> InHandler<'a> {
    #[inline(always)]
    fn begin(place: Option<&'a AtomicU8>) -> Self {
        match place {
            Some(place) => place.store(HANDLER, Ordering::Relaxed),
            // `LocalKey::set` is not inlined.
            None => IN_HANDLER.with(|inside| inside.set(true)),
        }
        Self(place)
    }
}

impl Drop for InHandler<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.0 {
            Some(place) => place.store(NO_HANDLER, Ordering::Relaxed),
            None => IN_HANDLER.with(|inside| inside.set(false)),
        }
    }
}

/// [`CallState::in_handler`]: no handler runs; one does; each thread knows for itself, because a
/// thread of the network runs handlers too.
const NO_HANDLER: u8 = 0;
const HANDLER: u8 = 1;
const BY_THREAD: u8 = 2;

/// What every call, and every poll, reads.
pub(crate) struct CallState {
    /// The client's handlers are off: this process is exiting.
    closed: AtomicBool,
    /// Whether a handler is running; for modes with one thread at a time.
    in_handler: AtomicU8,
    /// Collectives and loans may go on: [`STIRRED`], [`MEETS`], [`LOANS`], [`LOANS_FLY`].
    collectives: AtomicU8,
}

/// Something has come for collectives.
const STIRRED: u8 = 1;
/// Some wait for a result that rings nothing but the doorbell.
const MEETS: u8 = 2;
/// Loans may go on.
const LOANS: u8 = 4;
/// Some wait for the end of what adapters do, which polls look for.
const LOANS_FLY: u8 = 8;

impl CallState {
    pub(crate) const fn new() -> Self {
        let closed = AtomicBool::new(false);
        Self { closed, in_handler: AtomicU8::new(NO_HANDLER), collectives: AtomicU8::new(0) }
    }

    /// From now on threads of the network run handlers beside the client. No handler runs.
    pub(crate) fn by_thread(&self) {
        self.in_handler.store(BY_THREAD, Ordering::SeqCst);
    }

    /// Whether the next poll has collectives or loans to look at.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.collectives.load(Ordering::Acquire) != 0
    }

    /// Whether it has collectives.
    pub(crate) fn has_collectives(&self) -> bool {
        self.collectives.load(Ordering::Acquire) & (STIRRED | MEETS) != 0
    }

    /// Whether it has loans.
    pub(crate) fn has_loans(&self) -> bool {
        self.collectives.load(Ordering::Acquire) & (LOANS | LOANS_FLY) != 0
    }

    /// Whether collectives or loans can certainly go on.
    pub(crate) fn may_go_on(&self) -> bool {
        self.collectives.load(Ordering::Acquire) & (STIRRED | LOANS) != 0
    }

    pub(crate) fn stir_loans(&self) {
        self.collectives.fetch_or(LOANS, Ordering::Release);
    }

    /// As [`CallState::settle`], for loans.
    pub(crate) fn settle_loans(&self) {
        self.collectives.fetch_and(!LOANS, Ordering::AcqRel);
    }

    pub(crate) fn set_loans_fly(&self, fly: bool) {
        if fly {
            self.collectives.fetch_or(LOANS_FLY, Ordering::Release);
        } else {
            self.collectives.fetch_and(!LOANS_FLY, Ordering::Release);
        }
    }

    /// Whether some of them can certainly go on.
    pub(crate) fn is_stirred(&self) -> bool {
        self.collectives.load(Ordering::Acquire) & STIRRED != 0
    }

    pub(crate) fn stir(&self) {
        self.collectives.fetch_or(STIRRED, Ordering::Release);
    }

    /// Who goes on looks for what came before this.
    pub(crate) fn settle(&self) {
        self.collectives.fetch_and(!STIRRED, Ordering::AcqRel);
    }

    /// Whether polls look for results in shared memory.
    pub(crate) fn meets(&self) -> bool {
        self.collectives.load(Ordering::Acquire) & MEETS != 0
    }

    pub(crate) fn set_meets(&self, meets: bool) {
        if meets {
            self.collectives.fetch_or(MEETS, Ordering::Release);
        } else {
            self.collectives.fetch_and(!MEETS, Ordering::Release);
        }
    }

    /// Whether this process is exiting.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Whether it is open and no handler runs, as far as one look tells: `false` may be wrong.
    #[inline(always)]
    pub(crate) fn is_calm(&self) -> bool {
        let handler = self.in_handler.load(Ordering::Relaxed) != NO_HANDLER;
        !(self.closed.load(Ordering::Relaxed) | handler)
    }

    /// Whether this thread is inside a handler of the client.
    #[inline]
    pub(crate) fn in_handler<M: Mode>(&self) -> bool {
        if M::THREADED {
            return IN_HANDLER.get();
        }
        match self.in_handler.load(Ordering::Relaxed) {
            NO_HANDLER => false,
            HANDLER => true,
            _ => IN_HANDLER.get(),
        }
    }

    /// Runs a handler of the client.
    #[inline(always)]
    pub(crate) fn run_handler<M: Mode>(&self, handler: impl FnOnce()) {
        let _inside = self.enter_handler::<M>();
        handler();
    }

    /// A handler of the client runs until what this returns is dropped.
    #[inline(always)]
    pub(crate) fn enter_handler<M: Mode>(&self) -> InHandler<'_> {
        let by_thread = M::THREADED || self.in_handler.load(Ordering::Relaxed) == BY_THREAD;
        InHandler::begin((!by_thread).then_some(&self.in_handler))
    }
}
