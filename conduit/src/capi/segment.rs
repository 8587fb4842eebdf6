//! Segments: attached ones, ones of the program's own memory, and what is known of those of other ranks.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use bootstrap::Rank;

use super::fail::{Fail, RESOURCE, code, value};
use super::state::{self, Endpoint, Object, State};
use super::system::gasnet_client_attach_hook;
use super::types::{Flags, MK_HOST};
use super::{M, tools};

/// A local segment.
pub struct Segment {
    pub object: Object,
    pub address: usize,
    pub size: usize,
    /// Memory that the library made and frees.
    owned: bool,
    /// Made by attach, so that all ranks of the host map it.
    pub attached: bool,
    bound: AtomicBool,
}

/// A segment of any rank, in its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub address: usize,
    pub size: usize,
    pub process: i32,
}

/// The segment bound to an endpoint, as far as this rank may know it.
pub fn bound(state: &State, rank: u32, endpoint: u16) -> Option<Published> {
    if rank == state.rank {
        let endpoint = state.objects().endpoints.get(usize::from(endpoint)).copied()?;
        let segment = of(endpoint)?;
        let process = std::process::id().cast_signed();
        return Some(Published { address: segment.address, size: segment.size, process });
    }
    if endpoint == 0
        && let Some(far) =
            state.core.target("segment", Rank(rank)).ok().and_then(|target| {
                state.core.far_segment(target).filter(|segment| segment.len != 0)
            })
    {
        let word = |word: u64| usize::try_from(word).unwrap_or(0);
        return Some(Published { address: word(far.base), size: word(far.len), process: 0 });
    }
    if endpoint == 0
        && let Some(peer) = state.core.local_of(Rank(rank)).and_then(|at| state.peers.get(at))
        && peer.size.load(Ordering::Acquire) != 0
    {
        let (address, size) =
            (peer.owner_base.load(Ordering::Relaxed), peer.size.load(Ordering::Relaxed));
        return Some(Published { address, size, process: 0 });
    }
    let published = state.published.read().unwrap_or_else(PoisonError::into_inner);
    published.get(&(rank, endpoint)).copied()
}

/// The segment bound to a local endpoint.
pub fn of(endpoint: &Endpoint) -> Option<&'static Segment> {
    // SAFETY: null, or a segment of this process: those that were bound are never freed.
    unsafe { endpoint.segment.load(Ordering::Acquire).as_ref() }
}

/// Binds; the endpoint has none yet.
pub fn bind(endpoint: &Endpoint, segment: &'static Segment) -> Result<(), Fail> {
    let (to, order) = (std::ptr::from_ref(segment).cast_mut(), Ordering::AcqRel);
    if endpoint.segment.compare_exchange(null_mut(), to, order, Ordering::Relaxed).is_err() {
        return Err(Fail::bad(format!("endpoint {} has a segment already", endpoint.index)));
    }
    segment.bound.store(true, Ordering::Relaxed);
    Ok(())
}

fn add(state: &State, segment: Segment) -> &'static Segment {
    let segment: &'static Segment = Box::leak(Box::new(segment));
    state.objects().segments.push(segment);
    segment
}

/// The collective part of both kinds of attach.
pub fn attach(call: &'static str, size: usize) -> Result<&'static Segment, Fail> {
    let state = state::open()?;
    let core = state.core;
    core.check_open(call)?;
    core.check_outside::<M>(call)?;
    if of(state.ep0).is_some_and(|segment| !segment.attached) {
        return Err(Fail::bad("endpoint 0 has a segment already"));
    }
    core.attach(size as u64, || core.meet::<M>(call))?;
    let base = core.segment_base(core.local()).unwrap_or(null_mut());
    call_hook(base.cast(), size);
    for (local, peer) in state.peers.iter().enumerate() {
        let row = core.row(local);
        let word = |word: u64| usize::try_from(word).unwrap_or(0);
        let here = core.segment_base(local).map_or(0, |base| base.expose_provenance());
        peer.owner_base.store(word(row.base.load(Ordering::Acquire)), Ordering::Relaxed);
        peer.local_base.store(here, Ordering::Relaxed);
        peer.size.store(word(row.len.load(Ordering::Acquire)), Ordering::Release);
    }
    let (_, count) = core.span().contiguous();
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
    bind(state.ep0, segment)?;
    core.meet::<M>(call)?;
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
        state.client(client)?;
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
        Ok(state::CLIENT.handle())
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
    let Some(seen) = bound(state, target.rank, target.endpoint) else { return Ok(false) };
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
