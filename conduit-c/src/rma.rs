//! Put and get beyond the inline part of the header: errors, ranges outside the attached segments,
//! no bytes at all.

use std::ffi::{c_int, c_void};

use crate::arguments::options;
use crate::fail::{Fail, injected, must};
use crate::state::{self, State, Target};
use crate::transfer::{Begun, Place, Remote, Way, place};
use crate::types::{EVENT_DEFER, EVENT_GROUP, EVENT_NOW, EventValue, Flags, SEG_OFFSET};
use crate::{M, events};

struct Range {
    state: &'static State,
    target: Target,
    remote: usize,
    len: usize,
}

/// What every one-sided call checks. `None`: no bytes, nothing to do.
fn begin(
    call: &'static str,
    tm: *const c_void,
    rank: u32,
    remote: *const c_void,
    local: *const c_void,
    len: usize,
    flags: Flags,
) -> Result<Option<Range>, Fail> {
    let state = state::open()?;
    let target = state.target(tm, rank)?;
    state.inner.check_open(call)?;
    state.inner.check_outside::<M>(call)?;
    if len == 0 {
        return Ok(None);
    }
    if flags & SEG_OFFSET != 0 {
        return Err(Fail::bad("offsets instead of addresses are not supported"));
    }
    if local.is_null() {
        return Err(Fail::bad("the local address is null"));
    }
    Ok(Some(Range { state, target, remote: remote.addr(), len }))
}

impl Range {
    fn place(&self) -> Result<Place, Fail> {
        place(self.state, self.target.rank, self.target.endpoint, self.remote, self.len)
    }

    const fn remote(&self, call: &'static str, offset: u64, flags: Flags) -> Remote {
        Remote { call, rank: self.target.rank, offset, flags: options(flags) }
    }
}

fn put(
    call: &'static str,
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    (src, len): (*const c_void, usize),
    flags: Flags,
    way: Way,
) -> Result<Begun, Fail> {
    let Some(range) = begin(call, tm, rank, dest, src, len, flags)? else {
        return Ok(Begun::Complete);
    };
    match range.place()? {
        Place::Remote(at) => range.remote(call, at, flags).put(range.state, src.cast(), len, way),
        place => place.write(src.cast(), len).map(|()| Begun::Complete),
    }
}

fn get(
    call: &'static str,
    tm: *const c_void,
    (dest, len): (*mut c_void, usize),
    rank: u32,
    src: *const c_void,
    flags: Flags,
    way: Way,
) -> Result<Begun, Fail> {
    let Some(range) = begin(call, tm, rank, src, dest, len, flags)? else {
        return Ok(Begun::Complete);
    };
    match range.place()? {
        Place::Remote(at) => range.remote(call, at, flags).get(range.state, dest.cast(), len, way),
        place => place.read(dest.cast(), len).map(|()| Begun::Complete),
    }
}

/// Result of a call without event.
fn began(call: &'static str, begun: Result<Begun, Fail>) -> c_int {
    if begun.as_ref().is_ok_and(|begun| *begun == Begun::Declined) {
        return NOT_BEGUN;
    }
    injected(call, begun.map(|_| ()))
}

/// `GEX_EVENT_NO_OP`.
const EVENT_NO_OP: EventValue = 1;

/// Returned by an operation that was not to wait.
const NOT_BEGUN: c_int = 1;

/// Result of a call with an event; `lc_opt` is complete with an operation that is.
fn event_of(call: &'static str, begun: Result<Begun, Fail>, lc_opt: *mut EventValue) -> EventValue {
    match must(call, begun) {
        Begun::Event(event) => event,
        Begun::Declined => EVENT_NO_OP,
        Begun::Complete => {
            events::write(lc_opt, || 0);
            0
        }
    }
}

/// For operations that have no local completion of their own.
const fn no_leaf() -> *mut EventValue {
    std::ptr::without_provenance_mut(EVENT_NOW)
}

/// Checks how local completion of a put is asked for.
fn put_completion(lc_opt: *mut EventValue, implicit: bool) -> Result<(), Fail> {
    match lc_opt.addr() {
        0 => Err(Fail::bad("lc_opt is null")),
        EVENT_NOW | EVENT_DEFER => Ok(()),
        EVENT_GROUP if implicit => Ok(()),
        EVENT_GROUP => Err(Fail::bad("lc_opt is GEX_EVENT_GROUP, for implicit puts only")),
        _ if implicit => Err(Fail::bad("lc_opt is an event, for puts with an event only")),
        _ => Ok(()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_PutBlocking(
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    flags: Flags,
) -> c_int {
    let call = "gex_RMA_PutBlocking";
    began(call, put(call, tm, rank, dest, (src, nbytes), flags, Way::Blocking))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_PutNBI(
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
) -> c_int {
    let call = "gex_RMA_PutNBI";
    let checked = put_completion(lc_opt, true);
    let way = Way::of_put(lc_opt, true);
    let put = || put(call, tm, rank, dest, (src, nbytes), flags, way);
    began(call, checked.and_then(|()| put()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_PutNB(
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    src: *const c_void,
    nbytes: usize,
    lc_opt: *mut EventValue,
    flags: Flags,
) -> EventValue {
    let call = "gex_RMA_PutNB";
    let checked = put_completion(lc_opt, false);
    let way = Way::of_put(lc_opt, false);
    let put = || put(call, tm, rank, dest, (src, nbytes), flags, way);
    event_of(call, checked.and_then(|()| put()), lc_opt)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_GetBlocking(
    tm: *const c_void,
    dest: *mut c_void,
    rank: u32,
    src: *const c_void,
    nbytes: usize,
    flags: Flags,
) -> c_int {
    let call = "gex_RMA_GetBlocking";
    began(call, get(call, tm, (dest, nbytes), rank, src, flags, Way::Blocking))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_GetNBI(
    tm: *const c_void,
    dest: *mut c_void,
    rank: u32,
    src: *const c_void,
    nbytes: usize,
    flags: Flags,
) -> c_int {
    let call = "gex_RMA_GetNBI";
    let way = Way::Implicit { now: false };
    began(call, get(call, tm, (dest, nbytes), rank, src, flags, way))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_GetNB(
    tm: *const c_void,
    dest: *mut c_void,
    rank: u32,
    src: *const c_void,
    nbytes: usize,
    flags: Flags,
) -> EventValue {
    let call = "gex_RMA_GetNB";
    let way = Way::Event(no_leaf());
    event_of(call, get(call, tm, (dest, nbytes), rank, src, flags, way), no_leaf())
}

fn check_value(len: usize) -> Result<(), Fail> {
    if (1..=8).contains(&len) {
        return Ok(());
    }
    Err(Fail::bad(format!("a value has 1 to 8 bytes, {len} were asked for")))
}

fn put_value(
    call: &'static str,
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    (value, len): (u64, usize),
    flags: Flags,
    way: Way,
) -> Result<Begun, Fail> {
    check_value(len)?;
    let bytes = value.to_le_bytes();
    put(call, tm, rank, dest, (bytes.as_ptr().cast(), len), flags, way)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gexi_RMA_GetBlockingVal(
    tm: *const c_void,
    rank: u32,
    src: *const c_void,
    nbytes: usize,
    flags: Flags,
) -> u64 {
    let call = "gex_RMA_GetBlockingVal";
    let mut bytes = [0_u8; 8];
    let dest = bytes.as_mut_ptr().cast();
    let get = || get(call, tm, (dest, nbytes), rank, src, flags, Way::Blocking);
    must(call, check_value(nbytes).and_then(|()| get()));
    u64::from_le_bytes(bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_RMA_PutBlockingVal(
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    value: u64,
    nbytes: usize,
    flags: Flags,
) -> c_int {
    let call = "gex_RMA_PutBlockingVal";
    began(call, put_value(call, tm, rank, dest, (value, nbytes), flags, Way::Blocking))
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_RMA_PutNBIVal(
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    value: u64,
    nbytes: usize,
    flags: Flags,
) -> c_int {
    let call = "gex_RMA_PutNBIVal";
    let way = Way::Implicit { now: true };
    began(call, put_value(call, tm, rank, dest, (value, nbytes), flags, way))
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_RMA_PutNBVal(
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    value: u64,
    nbytes: usize,
    flags: Flags,
) -> EventValue {
    let call = "gex_RMA_PutNBVal";
    let way = Way::Event(no_leaf());
    event_of(call, put_value(call, tm, rank, dest, (value, nbytes), flags, way), no_leaf())
}

/// Bytes of a memset that go out at a time where there is no mapping.
const PATTERN: usize = 4096;

#[unsafe(no_mangle)]
pub extern "C" fn gexi_RMA_Memset(
    tm: *const c_void,
    rank: u32,
    dest: *mut c_void,
    value: c_int,
    nbytes: usize,
) {
    let call = "gasnet_memset";
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as memset does")]
    let pattern = [value as u8; PATTERN];
    let fill = || {
        let from = pattern.as_ptr();
        let Some(range) = begin(call, tm, rank, dest, from.cast(), nbytes, 0)? else {
            return Ok(());
        };
        range.place()?;
        for done in (0..nbytes).step_by(PATTERN) {
            let len = PATTERN.min(nbytes - done);
            let part = Range { remote: range.remote + done, len, ..range };
            match part.place()? {
                Place::Remote(at) => {
                    part.remote(call, at, 0).put(part.state, from, len, Way::Blocking)?;
                }
                place => place.write(from, len)?,
            }
        }
        Ok(())
    };
    must(call, fill());
}
