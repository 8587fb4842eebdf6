//! What a handler asks about its message.

use std::ffi::{c_int, c_uint, c_void};

use crate::arguments::{long_limit, medium_limit};
use crate::call::CHandler;
use crate::fail::{Fail, value};
use crate::types::{Flags, TI_ALL, TokenInfo};
use crate::{current, state};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Token_Info(
    token: *mut c_void,
    info: *mut TokenInfo,
    mask: c_uint,
) -> c_uint {
    let answer = || {
        let raw = current::get(token)?;
        if info.is_null() {
            return Err(Fail::bad("the place for the answer is null"));
        }
        let entry = raw.foreign_context().map_or(std::ptr::null(), CHandler::entry);
        let answer = TokenInfo {
            srcrank: raw.source().0,
            ep: state::open()?.ep0.object.handle(),
            entry,
            is_req: c_int::from(raw.is_request()),
            is_long: c_int::from(raw.is_long()),
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
    let limit = || current::get(token).and_then(|_| medium_limit(flags, nargs));
    value("gex_Token_MaxReplyMedium", 0, limit())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Token_MaxReplyLong(
    token: *mut c_void,
    _lc_opt: *const usize,
    flags: Flags,
    nargs: c_uint,
) -> usize {
    let limit = || current::get(token).and_then(|_| long_limit(flags, nargs));
    value("gex_Token_MaxReplyLong", 0, limit())
}
