//! Segments: attached ones, ones of the program's own memory, and what is known of those of other
//! ranks.

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::arguments::{answer, check_place, no_flags};
use crate::fail::{Fail, RESOURCE, code, ensure, must, status, value};
use crate::state::{self, Memory, Object, Segment, State, word};
use crate::types::{EventValue, Flags, Handle, MK_HOST};
use crate::{M, tools};

/// What a program sets to be called between mapping and barrier of an attach.
#[unsafe(no_mangle)]
pub static gasnet_client_attach_hook: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

fn add(state: &State, address: *mut c_void, size: usize, memory: Memory) -> &'static Segment {
    let (object, bound) = (Object::new(), AtomicBool::new(false));
    let address = address.expose_provenance();
    let segment: &'static Segment =
        Box::leak(Box::new(Segment { object, address, size, memory, bound }));
    state.objects().segments.push(segment);
    segment
}

/// The collective part of both kinds of attach.
pub fn attach(call: &'static str, size: usize) -> Result<Option<&'static Segment>, Fail> {
    let state = state::open()?;
    let inner = state.inner;
    inner.check_open(call)?;
    inner.check_outside::<M>(call)?;
    if inner.segment_mode().is_everything() {
        // All memory is reached already; a barrier.
        state.client.attach_segment(0)?;
        return Ok(None);
    }
    let bound = state.ep0.segment();
    let attached = bound.is_none_or(|segment| segment.memory == Memory::Attached);
    ensure!(attached, "endpoint 0 has a segment already");
    let base = state.client.attach_segment(size as u64)?.base().cast();
    call_hook(base, size);
    for (neighbour, peer) in state.peers.iter().enumerate() {
        let Some(seen) = inner.segment(neighbour) else { continue };
        let here = seen.here.map_or(0, <*mut u8>::expose_provenance);
        peer.owner_base.store(word(seen.owner_base), Ordering::Relaxed);
        peer.local_base.store(here, Ordering::Relaxed);
        peer.size.store(word(seen.len), Ordering::Release);
    }
    // Transfers that are traced or counted have to come to the library, each of them.
    if !gasnet_ibv::inner::transfers() {
        state::gexi_world.peer_count.store(inner.span().1, Ordering::Release);
    }
    let segment = add(state, base, size, Memory::Attached);
    state.ep0.bind(segment)?;
    inner.meet::<M>(call)?;
    Ok(Some(segment))
}

fn call_hook(base: *mut c_void, size: usize) {
    let hook = gasnet_client_attach_hook.load(Ordering::Relaxed);
    // SAFETY: null, or the program set it to a function of this type.
    let hook = unsafe {
        std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn(*mut c_void, usize)>>(hook)
    };
    if let Some(hook) = hook {
        // SAFETY: as above.
        unsafe { hook(base, size) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Segment_Attach(
    segment_p: *mut *mut c_void,
    tm: Handle,
    size: usize,
) -> c_int {
    let call = "gex_Segment_Attach";
    code(call, || {
        state::whole_team(tm)?;
        check_place(segment_p)?;
        let segment = attach(call, size)?;
        answer(segment_p, segment.map_or(null_mut(), |segment| segment.object.handle()));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Segment_Create(
    segment_p: *mut *mut c_void,
    client: Handle,
    address: *mut c_void,
    length: usize,
    kind: Handle,
    flags: Flags,
) -> c_int {
    code("gex_Segment_Create", || {
        let state = state::client(client)?;
        check_place(segment_p)?;
        ensure!(length != 0, "a segment of 0 bytes");
        ensure!(
            kind.addr() == MK_HOST,
            "kind {kind:p} is not a kind of memory: GEX_MK_HOST is the only one"
        );
        no_flags(flags)?;
        let segment = if address.is_null() {
            let size = tools::whole_pages(length);
            let memory = tools::fresh_memory(size)
                .ok_or_else(|| Fail::new(RESOURCE, format!("no memory of {length} bytes")))?;
            add(state, memory, size, Memory::Owned)
        } else {
            add(state, address, length, Memory::Program)
        };
        answer(segment_p, segment.object.handle());
        Ok(())
    })
}

/// Lets ranks that share no memory with this one reach a segment, once it is published.
pub fn register(segment: &Segment, endpoint: u16) -> Result<(), Fail> {
    let state = state::open()?;
    let base = NonNull::new(with_exposed_provenance_mut(segment.address));
    let base = base.ok_or_else(|| Fail::bad("a segment at address 0"))?;
    // SAFETY: bound segments are never freed by the library; memory of the program stays by its
    // promise (it made a segment of it), which allows others to change it, too.
    let bound = unsafe { state.inner.bind_memory(endpoint, base, segment.size) };
    bound.map_err(|error| Fail::new(RESOURCE, error.to_string()))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Segment_Destroy(segment: Handle, flags: Flags) {
    value("gex_Segment_Destroy", (), || {
        let state = state::open()?;
        let segment = state::segment(segment)?;
        no_flags(flags)?;
        ensure!(
            !segment.bound.load(Ordering::Relaxed),
            "the segment is bound to an endpoint, which keeps it"
        );
        state.objects().segments.retain(|other| !std::ptr::eq(*other, segment));
        if segment.memory == Memory::Owned {
            tools::free_memory(segment.address, segment.size);
        }
        // The few bytes of the handle stay, so that an old handle is found out.
        Ok(())
    });
}

/// The pointers for the answers about a segment; each may be null.
type Answers = (*mut *mut c_void, *mut *mut c_void, *mut usize);

/// Answers where a rank's bound segment is: in its owner's addresses and in those of this process,
/// and its size; `false` when there is none that this rank may know.
fn query(tm: Handle, rank: u32, (owner, local, size): Answers) -> Result<bool, Fail> {
    let state = state::open()?;
    let target = state.target(tm, rank)?;
    let Some(seen) = state.bound(target.rank, target.endpoint) else { return Ok(false) };
    let own = with_exposed_provenance_mut(seen.address);
    let mapped = || state.reach(target.rank, seen.address, seen.size).map(<*mut u8>::cast);
    let here = if target.rank == state.rank { Some(own) } else { mapped() };
    answer(owner, own);
    answer(local, here.unwrap_or(null_mut()));
    answer(size, seen.size);
    Ok(true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_Segment_QueryBound(
    tm: Handle,
    rank: u32,
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
) -> c_int {
    // A segment that is not there is a question answered, not a mistake: no warning.
    status("gex_Segment_QueryBound", || Ok(c_int::from(!query(tm, rank, (owner, local, size))?)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_QueryBoundSegmentNB(
    tm: Handle,
    rank: u32,
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
    _flags: Flags,
) -> EventValue {
    if !must("gex_EP_QueryBoundSegmentNB", || query(tm, rank, (owner, local, size))) {
        answer(owner, null_mut());
        answer(local, null_mut());
        answer(size, 0);
    }
    0
}
