//! Tokens: valid on the thread that runs the handler, while it runs.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::am::limits;
use super::fail::{Fail, value};
use super::types::{Flags, TI_ALL, TokenInfo};
use super::{M, state};
use crate::handler::Function;
use crate::mode::Mode;
use crate::token::{RawToken, Token};

thread_local! {
    static HERE: Cell<*mut c_void> = const { Cell::new(null_mut()) };
}

/// The same in modes where one thread at a time is inside the library: there handlers do not overlap.
static ANYWHERE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Makes a token the one that calls may name, until dropped.
pub struct Current(());

impl Current {
    #[inline]
    pub fn enter(token: *mut c_void) -> Self {
        set(token);
        Self(())
    }
}

impl Drop for Current {
    #[inline]
    fn drop(&mut self) {
        set(null_mut());
    }
}

#[inline]
fn set(token: *mut c_void) {
    if <M as Mode>::THREADED {
        HERE.set(token);
    } else {
        ANYWHERE.store(token, Ordering::Relaxed);
    }
}

/// The token that a call names, if it is that of the handler which runs on this thread.
#[inline]
pub fn current(token: *mut c_void) -> Option<&'static RawToken<'static>> {
    let current = if <M as Mode>::THREADED { HERE.get() } else { ANYWHERE.load(Ordering::Relaxed) };
    // SAFETY: the token of the running handler, which this call comes from: it lives until the handler returns, and calls
    // use it only while they run.
    (!token.is_null() && token == current).then(|| unsafe { &*token.cast::<RawToken<'static>>() })
}

/// As [`current`], with the error of a call.
#[inline]
pub fn get(token: *mut c_void) -> Result<&'static RawToken<'static>, Fail> {
    let other = || Fail::bad("this token is not that of the handler which runs on this thread");
    current(token).ok_or_else(other)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Token_Info(
    token: *mut c_void,
    info: *mut TokenInfo,
    mask: c_uint,
) -> c_uint {
    let answer = || {
        let raw = get(token)?;
        if info.is_null() {
            return Err(Fail::bad("the place for the answer is null"));
        }
        let seen = Token::<M>::new(raw);
        let entry = match &seen.entry().function {
            Function::C(handler) => std::ptr::from_ref(handler.entry()),
            _ => std::ptr::null(),
        };
        let answer = TokenInfo {
            srcrank: seen.source().0,
            ep: state::open()?.ep0.object.handle(),
            entry,
            is_req: c_int::from(seen.is_request()),
            is_long: c_int::from(seen.is_long()),
        };
        // SAFETY: room for an answer, by the program's promise.
        unsafe { info.write(answer) };
        Ok(mask & TI_ALL | 17)
    };
    value("gex_Token_Info", 0, answer())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Token_MaxReplyMedium(
    token: *mut c_void,
    _lc_opt: *const usize,
    flags: Flags,
    nargs: c_uint,
) -> usize {
    let limit = || get(token).and_then(|_| limits::medium(flags, nargs));
    value("gex_Token_MaxReplyMedium", 0, limit())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Token_MaxReplyLong(
    token: *mut c_void,
    _lc_opt: *const usize,
    flags: Flags,
    nargs: c_uint,
) -> usize {
    let limit = || get(token).and_then(|_| limits::long(flags, nargs));
    value("gex_Token_MaxReplyLong", 0, limit())
}
