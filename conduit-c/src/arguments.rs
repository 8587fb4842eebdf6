//! What programs pass, checked: places for answers, arrays, strings, arguments and payloads of
//! messages, and their limits.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::NonNull;

use gasnet_ibv::inner::{MAX_LONG, max_long_alloc, max_medium};
use gasnet_ibv::{Error, Flags as Options, HandlerIndex, MAX_ARGS};

use crate::fail::{Fail, ensure};
use crate::types::{
    EVENT_DEFER, EVENT_GROUP, EventValue, Flags, IMMEDIATE, LEAST_ALLOC, LEAST_CLIENT,
};

/// Writes an answer unless the program does not want it.
#[inline]
pub fn answer<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: room for an answer, by the program's promise.
        unsafe { place.write(value) };
    }
}

/// Checks that there is room for an answer.
pub fn check_place<T>(place: *mut T) -> Result<(), Fail> {
    if place.is_null() { Err(Fail::bad("the pointer for the answer is null")) } else { Ok(()) }
}

/// The program's array, which nobody changes while the call uses it.
#[inline]
pub fn array<'a, T>(what: &str, first: *const T, count: usize) -> Result<&'a [T], Fail> {
    let first = check_array(what, first, count)?;
    // SAFETY: so many elements, by the program's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// As [`array()`] for one that only this call uses while it runs.
pub fn array_mut<'a, T>(what: &str, first: *mut T, count: usize) -> Result<&'a mut [T], Fail> {
    let first = check_array(what, first, count)?.cast_mut();
    // SAFETY: so many elements, by the program's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(first, count) })
}

#[inline]
fn check_array<T>(what: &str, first: *const T, count: usize) -> Result<*const T, Fail> {
    match first {
        _ if count == 0 => Ok(NonNull::dangling().as_ptr()),
        first if first.is_null() => Err(Fail::bad(format!("{what} is null"))),
        _ if count > isize::MAX as usize / size_of::<T>().max(1) => {
            Err(Fail::bad(format!("{what} with {count} entries is beyond the address space")))
        }
        first => Ok(first),
    }
}

/// The program's string; `None` for a null pointer.
pub fn string<'a>(text: *const c_char) -> Option<Cow<'a, str>> {
    // SAFETY: a string, by the program's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
}

/// Checks the flags of a call that has none.
#[inline]
pub fn no_flags(flags: Flags) -> Result<(), Fail> {
    if flags == 0 { Ok(()) } else { Err(Fail::bad(format!("flags {flags:#x} must be 0"))) }
}

fn count(flags: Flags, nargs: c_uint) -> Result<usize, Fail> {
    let both = LEAST_CLIENT | LEAST_ALLOC;
    ensure!(flags & both != both, "the two AM_PREPARE_LEAST flags exclude each other");
    let count = nargs as usize;
    ensure!(count <= MAX_ARGS, "{count} arguments, a message carries at most {MAX_ARGS}");
    Ok(count)
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
    let is_client = handler >= HandlerIndex::FIRST_CLIENT;
    ensure!(is_client, "handler index {handler} is outside 128..=255");
    Ok(())
}

/// Arguments of a message.
#[inline]
pub fn args<'a>(nargs: c_uint, args: *const i32) -> Result<&'a [i32], Fail> {
    let count = nargs as usize;
    if count > MAX_ARGS {
        return Err(Error::TooManyArgs { call: "message", count }.into());
    }
    array("the array of arguments", args, count)
}

/// Payload of a message, which nobody changes until local completion.
#[inline]
pub fn payload<'a>(source: *const c_void, len: usize, max: usize) -> Result<&'a [u8], Fail> {
    if len > max {
        return Err(Error::PayloadSize { call: "message", len, max }.into());
    }
    array("the payload", source.cast(), len)
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
