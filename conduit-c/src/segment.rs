//! Segments: attached ones, ones of the program's own memory, and what is known of those of other
//! ranks.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::fail::{Fail, RESOURCE, code, value};
use crate::objects::{CLIENT, Object, Segment};
use crate::state::{self, State};
use crate::types::{Flags, MK_HOST};
use crate::{M, tools};

/// What a program sets to be called between mapping and barrier of an attach.
#[unsafe(no_mangle)]
pub static gasnet_client_attach_hook: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn add(state: &State, segment: Segment) -> &'static Segment {
    let segment: &'static Segment = Box::leak(Box::new(segment));
    state.objects().segments.push(segment);
    segment
}

/// The collective part of both kinds of attach.
pub fn attach(call: &'static str, size: usize) -> Result<&'static Segment, Fail> {
    let state = state::open()?;
    let inner = state.inner;
    inner.check_open(call)?;
    inner.check_outside::<M>(call)?;
    if state.ep0.segment().is_some_and(|segment| !segment.attached) {
        return Err(Fail::bad("endpoint 0 has a segment already"));
    }
    let base = state.client.attach_segment(size as u64)?.base();
    call_hook(base.cast(), size);
    for (rank, peer) in state.neighbours.iter().zip(state.peers) {
        let Some(seen) = inner.segment(inner.target(call, *rank)?) else { continue };
        let word = |word: u64| usize::try_from(word).unwrap_or(0);
        let here = seen.here.map_or(0, <*mut u8>::expose_provenance);
        peer.owner_base.store(word(seen.owner_base), Ordering::Relaxed);
        peer.local_base.store(here, Ordering::Relaxed);
        peer.size.store(word(seen.len), Ordering::Release);
    }
    let (_, count) = inner.span();
    state::gexi_world.peer_count.store(count, Ordering::Release);
    let segment = add(
        state,
        Segment {
            object: Object::new(),
            address: base.expose_provenance(),
            size,
            owned: false,
            attached: true,
            bound: AtomicBool::new(false),
        },
    );
    state.ep0.bind(segment)?;
    inner.meet::<M>(call)?;
    Ok(segment)
}

fn call_hook(base: *mut c_void, size: usize) {
    let hook = gasnet_client_attach_hook.load(Ordering::Relaxed);
    if hook.is_null() {
        return;
    }
    // SAFETY: the program set it to a function of this type.
    let hook = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void, usize)>(hook)
    };
    // SAFETY: as above.
    unsafe { hook(base, size) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Segment_Attach(
    segment_p: *mut *mut c_void,
    tm: *const c_void,
    size: usize,
) -> c_int {
    let call = "gex_Segment_Attach";
    let attach = || {
        state::open()?.team(tm)?;
        if segment_p.is_null() {
            return Err(Fail::bad("the place for the segment is null"));
        }
        let segment = attach(call, size)?;
        // SAFETY: room for a handle, by the program's promise.
        unsafe { segment_p.write(segment.object.handle()) };
        Ok(())
    };
    code(call, attach())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Segment_Create(
    segment_p: *mut *mut c_void,
    client: *const c_void,
    address: *mut c_void,
    length: usize,
    kind: *const c_void,
    flags: Flags,
) -> c_int {
    let create = || {
        let state = state::open()?;
        state.check_client(client)?;
        if segment_p.is_null() {
            return Err(Fail::bad("the place for the segment is null"));
        }
        if length == 0 {
            return Err(Fail::bad("a segment of 0 bytes"));
        }
        if flags != 0 || kind.addr() != MK_HOST {
            return Err(Fail::bad("only flags 0 and kind GEX_MK_HOST are possible"));
        }
        let owned = address.is_null();
        let (address, size) = if owned {
            let size = length.checked_next_multiple_of(tools::PAGE).unwrap_or(usize::MAX);
            let memory = tools::fresh_memory(size)
                .ok_or_else(|| Fail::new(RESOURCE, format!("no memory of {length} bytes")))?;
            (memory, size)
        } else {
            (address, length)
        };
        let (object, bound) = (Object::new(), AtomicBool::new(false));
        let address = address.expose_provenance();
        let attached = false;
        let segment = add(state, Segment { object, address, size, owned, attached, bound });
        // SAFETY: room for a handle, by the program's promise.
        unsafe { segment_p.write(segment.object.handle()) };
        Ok(())
    };
    code("gex_Segment_Create", create())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_Destroy(segment: *const c_void, flags: Flags) {
    let destroy = || {
        let state = state::open()?;
        let segment = state.segment(segment)?;
        if flags != 0 {
            return Err(Fail::bad("flags must be 0"));
        }
        if segment.bound.load(Ordering::Relaxed) {
            return Err(Fail::bad("the segment is bound to an endpoint, which keeps it"));
        }
        state.objects().segments.retain(|other| !std::ptr::eq(*other, segment));
        if segment.owned {
            tools::free_memory(segment.address, segment.size);
        }
        // The few bytes of the handle stay, so that an old handle is found out.
        Ok(())
    };
    value("gex_Segment_Destroy", (), destroy());
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_QueryClient(segment: *const c_void) -> *mut c_void {
    let client = || {
        state::open()?.segment(segment)?;
        Ok(CLIENT.handle())
    };
    value("gex_Segment_QueryClient", null_mut(), client())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_QueryFlags(segment: *const c_void) -> Flags {
    let found = state::open().and_then(|state| state.segment(segment));
    value("gex_Segment_QueryFlags", 0, found.map(|_| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_QueryAddr(segment: *const c_void) -> *mut c_void {
    let found = state::open().and_then(|state| state.segment(segment));
    let address = found.map(|found| std::ptr::with_exposed_provenance_mut(found.address));
    value("gex_Segment_QueryAddr", null_mut(), address)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_QuerySize(segment: *const c_void) -> usize {
    let found = state::open().and_then(|state| state.segment(segment));
    value("gex_Segment_QuerySize", 0, found.map(|found| found.size))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_SetCData(segment: *const c_void, cdata: *const c_void) {
    let found = state::open().and_then(|state| state.segment(segment));
    let set = |found: &Segment| found.object.cdata.store(cdata.cast_mut(), Ordering::Release);
    value("gex_Segment_SetCData", (), found.map(set));
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_QueryCData(segment: *const c_void) -> *mut c_void {
    let found = state::open().and_then(|state| state.segment(segment));
    let cdata = found.map(|found| found.object.cdata.load(Ordering::Acquire));
    value("gex_Segment_QueryCData", null_mut(), cdata)
}

/// Places for the answers about a segment; each may be null.
pub struct Answers {
    pub owner: *mut *mut c_void,
    pub local: *mut *mut c_void,
    pub size: *mut usize,
}

/// Answers where a rank's bound segment is; `false` when there is none that this rank may know.
pub fn query(tm: *const c_void, rank: u32, answers: &Answers) -> Result<bool, Fail> {
    let state = state::open()?;
    let target = state.target(tm, rank)?;
    let Some(seen) = state.bound(target.rank, target.endpoint) else { return Ok(false) };
    let pointer = std::ptr::with_exposed_provenance_mut;
    let own = target.rank == state.rank;
    let here = if own { Some(pointer(seen.address)) } else { None };
    let mapped = || state.reach(target.rank, seen.address, seen.size).map(<*mut u8>::cast);
    let local = here.or_else(mapped).unwrap_or(null_mut());
    answers.write(pointer(seen.address), local, seen.size);
    Ok(true)
}

impl Answers {
    pub fn write(&self, owner: *mut c_void, local: *mut c_void, size: usize) {
        if !self.owner.is_null() {
            // SAFETY: room for an answer, by the program's promise.
            unsafe { self.owner.write(owner) };
        }
        if !self.local.is_null() {
            // SAFETY: as above.
            unsafe { self.local.write(local) };
        }
        if !self.size.is_null() {
            // SAFETY: as above.
            unsafe { self.size.write(size) };
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Segment_QueryBound(
    tm: *const c_void,
    rank: u32,
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
) -> c_int {
    match query(tm, rank, &Answers { owner, local, size }) {
        Ok(true) => 0,
        // A question, not a mistake: no warning.
        Ok(false) => 1,
        Err(fail) => fail.report("gex_Segment_QueryBound"),
    }
}
