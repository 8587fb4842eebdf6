//! What messages are given, checked: arguments, payloads, ways to complete, and the limits of all
//! of them.

use std::ffi::{c_uint, c_void};

use gasnet_ibv::inner::{MAX_LONG, max_long_alloc, max_medium};
use gasnet_ibv::{Error, Flags as Options, HandlerIndex, MAX_ARGS};

use crate::fail::Fail;
use crate::types::{
    EVENT_DEFER, EVENT_GROUP, EventValue, Flags, IMMEDIATE, LEAST_ALLOC, LEAST_CLIENT,
};

fn count(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
    let both = LEAST_CLIENT | LEAST_ALLOC;
    if flags & both == both {
        return Err(Fail::bad("the two AM_PREPARE_LEAST flags exclude each other"));
    }
    match nargs as usize {
        count if count > MAX_ARGS => {
            Err(Fail::bad(format!("{count} arguments, a message carries at most {MAX_ARGS}")))
        }
        count => Ok(count),
    }
}

/// Largest payload of a Medium.
pub fn medium_limit(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
    count(flags, nargs).map(max_medium)
}

/// Largest payload of a Long.
pub fn long_limit(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
    let count = count(flags, nargs)?;
    Ok(if flags & LEAST_ALLOC != 0 { max_long_alloc(count) } else { MAX_LONG })
}

/// The conduit's options for the flags of a call.
#[inline]
pub const fn options(flags: Flags) -> Options {
    if flags & IMMEDIATE != 0 { Options::IMMEDIATE } else { Options::NONE }
}

/// Checks that an index is one that programs may use: lower ones are the library's own.
#[inline]
pub fn check_index(handler: u8) -> Result<(), Fail> {
    if handler >= HandlerIndex::FIRST_CLIENT {
        return Ok(());
    }
    Err(Fail::bad(format!("handler index {handler} is outside 128..=255")))
}

/// Arguments of a message.
#[inline]
pub fn args<'a>(nargs: c_uint, args: *const i32) -> Result<&'a [i32], Fail> {
    let count = nargs as usize;
    if count > MAX_ARGS {
        return Err(Error::TooManyArgs { call: "message", count }.into());
    }
    if count == 0 {
        return Ok(&[]);
    }
    if args.is_null() {
        return Err(Fail::bad("the array of arguments is null"));
    }
    // SAFETY: `nargs` arguments, alive during the call.
    Ok(unsafe { std::slice::from_raw_parts(args, count) })
}

/// Payload of a message.
#[inline]
pub fn payload<'a>(source: *const c_void, len: usize, max: usize) -> Result<&'a [u8], Fail> {
    if len == 0 {
        return Ok(&[]);
    }
    if len > max {
        return Err(Error::PayloadSize { call: "message", len, max }.into());
    }
    if source.is_null() {
        return Err(Fail::bad("the payload is null"));
    }
    // SAFETY: `len` readable bytes that nobody changes until local completion.
    Ok(unsafe { std::slice::from_raw_parts(source.cast(), len) })
}

/// Checks how local completion is asked for.
#[inline]
pub fn completion(lc_opt: *mut EventValue, group: bool) -> Result<(), Fail> {
    match lc_opt.addr() {
        0 => Err(Fail::bad("lc_opt is null")),
        EVENT_DEFER => Err(Fail::bad("lc_opt is GEX_EVENT_DEFER, which messages do not have")),
        EVENT_GROUP if !group => Err(Fail::bad("lc_opt is GEX_EVENT_GROUP, not for replies")),
        _ => Ok(()),
    }
}
