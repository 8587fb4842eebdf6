//! Put and get beyond the inline part of the header: errors, ranges outside the attached segments, no bytes at all.

use std::ffi::{c_int, c_void};
use std::io;

use bootstrap::Rank;

use super::M;
use super::am::complete;
use super::event::order;
use super::fail::{Fail, RESOURCE, injected, must};
use super::far::{Begun, Far, Way, way_of_put};
use super::state::{self, State, Target};
use super::types::{EVENT_DEFER, EVENT_GROUP, EVENT_NOW, EventValue, Flags, IMMEDIATE, SEG_OFFSET};

/// Where a checked remote range is.
#[derive(Clone, Copy)]
pub enum Place {
    /// In a mapping of this process.
    Here(*mut u8),
    /// In the private memory of another rank: its process and the address there.
    There(i32, usize),
    /// In the segment of a rank that is reached over the network: offset.
    Far(u64),
}

/// Checks a range of at least one byte against the segments of an endpoint.
#[inline]
pub fn place(
    state: &State,
    rank: u32,
    endpoint: u16,
    address: usize,
    len: usize,
) -> Result<Place, Fail> {
    if endpoint == 0
        && let Some(here) = state.reach(rank, address, len)
    {
        return Ok(Place::Here(here));
    }
    elsewhere(state, rank, endpoint, address, len)
}

#[cold]
fn elsewhere(
    state: &State,
    rank: u32,
    endpoint: u16,
    address: usize,
    len: usize,
) -> Result<Place, Fail> {
    let here = || Place::Here(std::ptr::with_exposed_provenance_mut(address));
    let seen = super::segment::bound(state, rank, endpoint);
    let outside = |what: &str| {
        let end = address.saturating_add(len);
        Err(Fail::bad(format!(
            "bytes {address:#x}..{end:#x} are not in a segment of endpoint {endpoint} of rank {rank}: {what}"
        )))
    };
    let Some(segment) = seen else { return outside("none is attached, or bound and published") };
    let offset = address.wrapping_sub(segment.address);
    if offset >= segment.size || len > segment.size - offset {
        let (first, size) = (segment.address, segment.size);
        return outside(&format!("its segment has {size:#x} bytes from {first:#x} on"));
    }
    if rank == state.rank {
        return Ok(here());
    }
    let target = state.core.target("one-sided call", Rank(rank))?;
    if !state.core.is_near(target) {
        let attached = endpoint == 0 && state.core.far_segment(target).is_some();
        if !attached {
            return outside(
                "over the network only segments of gex_Segment_Attach are reached, and this one was made by gex_Segment_Create",
            );
        }
        return Ok(Place::Far(offset as u64));
    }
    if let Some(mapped) = state.reach(rank, address, len) {
        return Ok(Place::Here(mapped));
    }
    Ok(Place::There(segment.process, address))
}

impl Place {
    /// Offset in a segment that is reached over the network.
    pub fn far(self) -> Result<u64, Fail> {
        match self {
            Self::Far(offset) => Ok(offset),
            Self::Here(_) | Self::There(..) => {
                Err(Fail::bad("the rank shares memory with this one"))
            }
        }
    }

    /// Copies `len` bytes to the range.
    #[inline]
    pub fn write(self, from: *const u8, len: usize) -> Result<(), Fail> {
        match self {
            Self::Here(to) => {
                // SAFETY: `to` was checked (`place`); `from` is readable by the program's promise. Overlap is allowed.
                unsafe { std::ptr::copy(from, to, len) };
                order();
                Ok(())
            }
            Self::There(process, to) => move_bytes(process, from.cast_mut(), to, len, true),
            Self::Far(_) => Err(not_here()),
        }
    }

    /// Copies `len` bytes from the range.
    #[inline]
    pub fn read(self, to: *mut u8, len: usize) -> Result<(), Fail> {
        match self {
            Self::Here(from) => {
                // SAFETY: as in `write`, the other way round.
                unsafe { std::ptr::copy(from, to, len) };
                order();
                Ok(())
            }
            Self::There(process, from) => move_bytes(process, to, from, len, false),
            Self::Far(_) => Err(not_here()),
        }
    }
}

#[cold]
fn not_here() -> Fail {
    Fail::bad("the rank shares no memory with this one")
}

/// Copies between this process and the private memory of a rank. The system checks both ranges.
fn move_bytes(
    process: i32,
    here: *mut u8,
    there: usize,
    len: usize,
    write: bool,
) -> Result<(), Fail> {
    let mut done = 0;
    while done < len {
        let ours = libc::iovec { iov_base: here.wrapping_add(done).cast(), iov_len: len - done };
        let theirs = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(there + done),
            iov_len: len - done,
        };
        let call = if write { libc::process_vm_writev } else { libc::process_vm_readv };
        // SAFETY: one range each; the program promises ours, the other process's is checked by the system.
        let moved = unsafe { call(process, &raw const ours, 1, &raw const theirs, 1, 0) };
        match usize::try_from(moved) {
            Ok(moved) if moved > 0 => done += moved,
            _ => {
                let why = io::Error::last_os_error();
                let text = format!(
                    "cannot copy {len} bytes between this process and memory of process {process}: {why}; \
                     segments made by gex_Segment_Create are reached by the system's cross-memory calls, \
                     which this system may restrict: use gex_Segment_Attach"
                );
                return Err(Fail::new(RESOURCE, text));
            }
        }
    }
    Ok(())
}

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
    state.core.check_open(call)?;
    state.core.check_outside::<M>(call)?;
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

    const fn far(&self, call: &'static str, offset: u64, flags: Flags) -> Far {
        Far { call, rank: self.target.rank, offset, immediate: flags & IMMEDIATE != 0 }
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
        Place::Far(at) => range.far(call, at, flags).put(range.state, src.cast(), len, way),
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
        Place::Far(at) => range.far(call, at, flags).get(range.state, dest.cast(), len, way),
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
            complete(lc_opt);
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
    let way = way_of_put(lc_opt, true);
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
    let way = way_of_put(lc_opt, false);
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
                Place::Far(at) => {
                    part.far(call, at, 0).put(part.state, from, len, Way::Blocking)?;
                }
                place => place.write(from, len)?,
            }
        }
        Ok(())
    };
    must(call, fill());
}
