//! The token that calls may name: that of the handler which runs on this thread, while it runs.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use gasnet_ibv::Mode;
use gasnet_ibv::inner::RawToken;

use crate::fail::Fail;
use crate::types::Token;
use crate::{M, checks};

/// The token of a running handler.
pub type Sender = &'static RawToken<'static>;

thread_local! {
    static HERE: Cell<Token> = const { Cell::new(null_mut()) };
}

/// The same in modes where one thread at a time is inside the library: there handlers do not
/// overlap.
static ANYWHERE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Makes a token the one that calls may name, until dropped.
pub struct Current(());

impl Current {
    #[inline]
    pub fn enter(token: Token) -> Self {
        set(token);
        checks::begin_handler();
        Self(())
    }
}

impl Drop for Current {
    #[inline]
    fn drop(&mut self) {
        checks::end_handler();
        set(null_mut());
    }
}

/// Whether threads of the network run handlers beside the program.
static BESIDE: AtomicBool = AtomicBool::new(false);

/// From now on they do. No handler runs.
pub fn run_beside() {
    BESIDE.store(true, Ordering::SeqCst);
}

#[inline]
fn handlers_overlap() -> bool {
    <M as Mode>::THREADED || BESIDE.load(Ordering::Relaxed)
}

#[inline]
fn set(token: Token) {
    if handlers_overlap() {
        // `LocalKey::set` is not inlined.
        HERE.with(|here| here.set(token));
    } else {
        ANYWHERE.store(token, Ordering::Relaxed);
    }
}

/// The token that a call names, if it is that of the handler which runs on this thread.
#[inline]
pub fn current(token: Token) -> Option<Sender> {
    let current = if handlers_overlap() { HERE.get() } else { ANYWHERE.load(Ordering::Relaxed) };
    // SAFETY: the token of the running handler, which this call comes from: it lives until the
    // handler returns, and calls use it only while they run.
    (!token.is_null() && token == current).then(|| unsafe { &*token.cast::<RawToken<'static>>() })
}

/// As [`current`], with the error of a call.
#[inline]
pub fn get(token: Token) -> Result<Sender, Fail> {
    let other = || Fail::bad("this token is not that of the handler which runs on this thread");
    current(token).ok_or_else(other)
}
