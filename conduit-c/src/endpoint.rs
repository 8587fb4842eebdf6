//! Endpoints: creation, binding and publication of segments, registration of handlers.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicPtr, Ordering};

use gasnet_ibv::inner::{ANY_ARGS, HandlerRow};
use gasnet_ibv::{MAX_ARGS, Role};

use crate::call::{CHandler, Kept};
use crate::fail::{Fail, RESOURCE, code, must, value};
use crate::objects::{CLIENT, Endpoint, Object, Published};
use crate::segment::{self, Answers};
use crate::state::{self, State};
use crate::types::{
    AM_LONG, AM_MEDIUM, AM_REPLY, AM_REQUEST, AM_SHORT, CAPABILITY_ALL, CAPABILITY_RMA, Entry,
    EventValue, Flags, MAX_EPS,
};
use crate::{M, ancestor};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_Create(
    ep_p: *mut *mut c_void,
    client: *const c_void,
    capabilities: u32,
    _hints: Flags,
) -> c_int {
    let create = || {
        let state = state::open()?;
        state.check_client(client)?;
        if ep_p.is_null() {
            return Err(Fail::bad("the place for the endpoint is null"));
        }
        if capabilities == 0 || capabilities & !CAPABILITY_ALL != 0 {
            return Err(Fail::bad(format!("capabilities {capabilities:#x} do not exist")));
        }
        if capabilities != CAPABILITY_RMA {
            return Err(Fail::bad(
                "endpoints beside the first can only have GEX_EP_CAPABILITY_RMA",
            ));
        }
        let mut objects = state.objects();
        let count = objects.endpoints.len();
        if count >= MAX_EPS {
            let text = format!("all {MAX_EPS} endpoints (GASNET_MAXEPS) are in use");
            return Err(Fail::new(RESOURCE, text));
        }
        let index = u16::try_from(count).unwrap_or(u16::MAX);
        let endpoint = new(index);
        objects.endpoints.push(endpoint);
        // SAFETY: room for a handle, by the program's promise.
        unsafe { ep_p.write(endpoint.object.handle()) };
        Ok(())
    };
    code("gex_EP_Create", create())
}

/// A fresh endpoint, never freed.
pub fn new(index: u16) -> &'static Endpoint {
    let segment = AtomicPtr::new(null_mut());
    Box::leak(Box::new(Endpoint { object: Object::new(), index, segment }))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_BindSegment(
    ep: *const c_void,
    segment: *const c_void,
    flags: Flags,
) -> c_int {
    let bind = || {
        let state = state::open()?;
        let (endpoint, segment) = (state.endpoint(ep)?, state.segment(segment)?);
        if flags != 0 {
            return Err(Fail::bad("flags must be 0"));
        }
        endpoint.bind(segment)
    };
    code("gex_EP_BindSegment", bind())
}

/// Words of one published segment on its way: endpoint + 1 (0: no more), address, size.
const WORDS: usize = 3;
const WORD: usize = size_of::<u64>();
/// Process, then the segments.
const ROW: usize = WORD + MAX_EPS * WORDS * WORD;

fn row_of(eps: &[*mut c_void], state: &State) -> Result<Vec<u8>, Fail> {
    let mut row = u64::from(std::process::id()).to_le_bytes().to_vec();
    for ep in eps {
        let endpoint = state.endpoint(*ep)?;
        if let Some(segment) = endpoint.segment() {
            let words = [usize::from(endpoint.index) + 1, segment.address, segment.size];
            row.extend(words.iter().flat_map(|word| (*word as u64).to_le_bytes()));
        }
    }
    row.resize(ROW, 0);
    Ok(row)
}

fn learn(state: &State, rank: u32, row: &[u8]) {
    let word = |bytes: &[u8]| {
        let word = bytes.try_into().map_or(0, u64::from_le_bytes);
        usize::try_from(word).unwrap_or(0)
    };
    let Some((process, segments)) = row.split_at_checked(WORD) else { return };
    let process = i32::try_from(word(process)).unwrap_or(0);
    let mut published = state.published.write().unwrap_or_else(PoisonError::into_inner);
    for seen in segments.chunks_exact(WORDS * WORD) {
        let [endpoint, address, size] = [0, 1, 2].map(|at| word(&seen[at * WORD..][..WORD]));
        let Some(endpoint) = endpoint.checked_sub(1).and_then(|index| index.try_into().ok()) else {
            return;
        };
        published.insert((rank, endpoint), Published { address, size, process });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_PublishBoundSegment(
    tm: *const c_void,
    eps: *mut *mut c_void,
    num_eps: usize,
    flags: Flags,
) -> c_int {
    let call = "gex_EP_PublishBoundSegment";
    let publish = || {
        let state = state::open()?;
        state.team(tm)?;
        if flags != 0 || num_eps > MAX_EPS || (num_eps > 0 && eps.is_null()) {
            return Err(Fail::bad(format!(
                "flags must be 0, and the list have at most {MAX_EPS} endpoints"
            )));
        }
        let list = if num_eps == 0 {
            &[][..]
        } else {
            // SAFETY: so many handles, by the program's promise.
            unsafe { std::slice::from_raw_parts(eps, num_eps) }
        };
        let row = row_of(list, state)?;
        let inner = state.inner;
        inner.check_outside::<M>(call)?;
        // The exchange does not poll: first all ranks arrive.
        inner.meet::<M>(call)?;
        let rows = inner.exchange(&row)?;
        for (rank, row) in (0..state.size).zip(rows.chunks_exact(ROW)) {
            learn(state, rank, row);
        }
        // The others know only after the meeting below, and attached segments are reached by a
        // mapping.
        if list.iter().any(|ep| is_own_memory(state, *ep)) {
            ancestor::allow(&rows.chunks_exact(ROW).filter_map(process_in).collect::<Vec<_>>());
        }
        Ok(inner.meet::<M>(call)?)
    };
    code(call, publish())
}

/// Whether an endpoint has a segment that others reach through the system.
fn is_own_memory(state: &State, ep: *const c_void) -> bool {
    let endpoint = state.endpoint(ep).ok();
    endpoint.and_then(Endpoint::segment).is_some_and(|segment| !segment.attached)
}

/// Process of the rank that sent a row.
fn process_in(row: &[u8]) -> Option<u32> {
    let word = row.first_chunk().map(|word| u64::from_le_bytes(*word))?;
    u32::try_from(word).ok()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_QueryBoundSegmentNB(
    tm: *const c_void,
    rank: u32,
    owner: *mut *mut c_void,
    local: *mut *mut c_void,
    size: *mut usize,
    _flags: Flags,
) -> EventValue {
    let answers = Answers { owner, local, size };
    let found = segment::query(tm, rank, &answers);
    if !must("gex_EP_QueryBoundSegmentNB", found) {
        answers.write(null_mut(), null_mut(), 0);
    }
    0
}

/// A handler to register, and where it is kept.
pub type Row = (HandlerRow, Kept);

/// Checks an entry and copies it.
fn row(entry: &Entry) -> Result<Row, Fail> {
    let index = entry.index;
    let Some(function) = entry.function else {
        return Err(Fail::bad(format!("entry {index}: the function is null")));
    };
    let category = entry.flags & (AM_SHORT | AM_MEDIUM | AM_LONG);
    let medium_and_long = AM_MEDIUM | AM_LONG;
    if ![AM_SHORT, AM_MEDIUM, AM_LONG, medium_and_long].contains(&category) {
        return Err(Fail::bad(format!(
            "entry {index}: flags {:#x} name no category: one of GEX_FLAG_AM_SHORT, MEDIUM, LONG, MEDLONG",
            entry.flags
        )));
    }
    let role = match entry.flags & (AM_REQUEST | AM_REPLY) {
        0 => {
            return Err(Fail::bad(format!(
                "entry {index}: flags {:#x} have none of GEX_FLAG_AM_REQUEST, REPLY, REQREP",
                entry.flags
            )));
        }
        AM_REQUEST => Role::Request,
        AM_REPLY => Role::Reply,
        _ => Role::ReqRep,
    };
    if entry.flags & !(AM_SHORT | AM_MEDIUM | AM_LONG | AM_REQUEST | AM_REPLY) != 0 {
        return Err(Fail::bad(format!("entry {index}: unknown bits in flags {:#x}", entry.flags)));
    }
    let nargs = entry.nargs as usize;
    if nargs > MAX_ARGS {
        let text = format!("entry {index}: {nargs} arguments, a message has at most {MAX_ARGS}");
        return Err(Fail::bad(text));
    }
    let name = if entry.name.is_null() {
        String::new()
    } else {
        // SAFETY: a string, by the program's promise.
        unsafe { CStr::from_ptr(entry.name) }.to_string_lossy().into_owned()
    };
    Ok(CHandler::row(function, *entry, (name, nargs, role)))
}

/// Registers rows; their indices.
pub fn register(state: &State, rows: Vec<Row>) -> Result<Vec<u8>, Fail> {
    let (rows, kept): (Vec<_>, Vec<Kept>) = rows.into_iter().unzip();
    let chosen = state.inner.register(rows, |at, index| kept[at].settle(index))?;
    kept.into_iter().for_each(Kept::stay);
    Ok(chosen)
}

/// A handler of a GASNet-1 table, which takes every category and number of arguments.
pub fn any_row(index: u8, function: unsafe extern "C" fn()) -> Row {
    let flags = AM_SHORT | AM_MEDIUM | AM_LONG | AM_REQUEST | AM_REPLY;
    let (cdata, name) = (std::ptr::null(), std::ptr::null());
    let entry = Entry { index, function: Some(function), flags, nargs: 16, cdata, name };
    CHandler::row(function, entry, ("gasnet_attach".to_owned(), ANY_ARGS, Role::ReqRep))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_RegisterHandlers(
    ep: *const c_void,
    table: *mut Entry,
    numentries: usize,
) -> c_int {
    let register = || {
        let state = state::open()?;
        if state.endpoint(ep)?.index != 0 {
            return Err(Fail::bad("only the endpoint of index 0 receives messages"));
        }
        if numentries == 0 {
            return Ok(());
        }
        if table.is_null() || numentries > 128 {
            return Err(Fail::bad(format!("a table of {numentries} handlers at {table:p}")));
        }
        // SAFETY: so many entries that only this call uses, by the program's promise.
        let table = unsafe { std::slice::from_raw_parts_mut(table, numentries) };
        let rows = table.iter().map(row).collect::<Result<_, _>>()?;
        let chosen = register(state, rows)?;
        for (entry, index) in table.iter_mut().zip(chosen) {
            entry.index = index;
        }
        Ok(())
    };
    code("gex_EP_RegisterHandlers", register())
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_QueryClient(ep: *const c_void) -> *mut c_void {
    let found = state::open().and_then(|state| state.endpoint(ep));
    value("gex_EP_QueryClient", null_mut(), found.map(|_| CLIENT.handle()))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_QueryFlags(ep: *const c_void) -> Flags {
    let found = state::open().and_then(|state| state.endpoint(ep));
    value("gex_EP_QueryFlags", 0, found.map(|_| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_QuerySegment(ep: *const c_void) -> *mut c_void {
    let found = state::open().and_then(|state| state.endpoint(ep));
    let handle = |endpoint: &Endpoint| endpoint.segment().map_or(null_mut(), |s| s.object.handle());
    value("gex_EP_QuerySegment", null_mut(), found.map(handle))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_QueryIndex(ep: *const c_void) -> u16 {
    let found = state::open().and_then(|state| state.endpoint(ep));
    value("gex_EP_QueryIndex", u16::MAX, found.map(|endpoint| endpoint.index))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_SetCData(ep: *const c_void, cdata: *const c_void) {
    let found = state::open().and_then(|state| state.endpoint(ep));
    let set = |endpoint: &Endpoint| {
        endpoint.object.cdata.store(cdata.cast_mut(), Ordering::Release);
    };
    value("gex_EP_SetCData", (), found.map(set));
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_QueryCData(ep: *const c_void) -> *mut c_void {
    let found = state::open().and_then(|state| state.endpoint(ep));
    let cdata = found.map(|endpoint| endpoint.object.cdata.load(Ordering::Acquire));
    value("gex_EP_QueryCData", null_mut(), cdata)
}

/// A pair as the header documents it.
#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_Pair(local: *const c_void, remote: u16) -> *mut c_void {
    let pair = || {
        let index = state::open()?.endpoint(local)?.index;
        if usize::from(remote) >= 4096 {
            return Err(Fail::bad(format!("remote endpoint {remote} cannot exist")));
        }
        let bits = usize::from(remote) << 20 | usize::from(index) << 8 | 1;
        Ok(std::ptr::without_provenance_mut(bits))
    };
    value("gex_TM_Pair", null_mut(), pair())
}
