//! Endpoints: creation, binding and publication of segments, registration of handlers.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::rc::Rc;
use std::sync::PoisonError;

use gasnet_ibv::inner::{ANY_ARGS, BoundSegment, MAX_ENDPOINTS, Registered, Task};
use gasnet_ibv::{MAX_ARGS, Rank, Role};

use crate::arguments::{answer, array, array_mut, check_place, no_flags, string};
use crate::call::CHandler;
use crate::fail::{Fail, RESOURCE, code, ensure, value};
use crate::state::{self, Endpoint, Memory, Published, State, word};
use crate::types::{
    AM_CATEGORIES, AM_LONG, AM_MEDIUM, AM_REPLY, AM_REQUEST, AM_SHORT, CAPABILITY_ALL,
    CAPABILITY_RMA, Entry, Flags, Handle, MAX_EPS, OldEntry,
};
use crate::{M, ancestor, segment, tools};

const _: () = assert!(MAX_EPS == MAX_ENDPOINTS);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_Create(
    ep_p: *mut *mut c_void,
    client: Handle,
    capabilities: u32,
    _hints: Flags,
) -> c_int {
    code("gex_EP_Create", || {
        let state = state::client(client)?;
        check_place(ep_p)?;
        ensure!(
            capabilities != 0 && capabilities & !CAPABILITY_ALL == 0,
            "capabilities {capabilities:#x} do not exist"
        );
        ensure!(
            capabilities == CAPABILITY_RMA,
            "endpoints beside the first can only have GEX_EP_CAPABILITY_RMA"
        );
        let mut objects = state.objects();
        let count = objects.endpoints.len();
        if count >= MAX_EPS {
            let text = format!("all {MAX_EPS} endpoints (GASNET_MAXEPS) are in use");
            return Err(Fail::new(RESOURCE, text));
        }
        let endpoint = Endpoint::new(u16::try_from(count).unwrap_or(u16::MAX));
        objects.endpoints.push(endpoint);
        answer(ep_p, endpoint.object.handle());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_EP_BindSegment(ep: Handle, segment: Handle, flags: Flags) -> c_int {
    code("gex_EP_BindSegment", || {
        let (endpoint, segment) = (state::endpoint(ep)?, state::segment(segment)?);
        no_flags(flags)?;
        ensure!(
            endpoint.index != 0 || !state::open()?.inner.segment_mode().is_everything(),
            "endpoint 0 is bound to all memory (GASNET_SEGMENT_EVERYTHING)"
        );
        endpoint.check_free()?;
        segment::register(segment, endpoint.index)?;
        endpoint.bind(segment)
    })
}

/// The segments that are bound to endpoints of a list; the others are passed over.
fn bound_segments(eps: &[*mut c_void]) -> Result<Vec<BoundSegment>, Fail> {
    let mut segments: Vec<BoundSegment> = Vec::new();
    for ep in eps {
        let endpoint = state::endpoint(*ep)?;
        let index = endpoint.index;
        ensure!(
            segments.iter().all(|other| other.endpoint != index),
            "endpoint {index} is in the list twice"
        );
        if let Some(segment) = endpoint.segment() {
            let (address, size) = (segment.address as u64, segment.size as u64);
            segments.push(BoundSegment { endpoint: index, address, size });
        }
    }
    Ok(segments)
}

/// Keeps what a rank has published; its process.
fn learn(state: &State, rank: u32, row: &[u8]) -> Option<u32> {
    let (process, segments) = state.inner.learn_publication(Rank(rank), row)?;
    let owner = i32::try_from(process).ok()?;
    let mut published = state.published.write().unwrap_or_else(PoisonError::into_inner);
    for BoundSegment { endpoint, address, size } in segments {
        let (address, size) = (word(address), word(size));
        published.insert((rank, endpoint), Published { address, size, process: owner });
    }
    Some(process)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_PublishBoundSegment(
    tm: Handle,
    eps: *mut *mut c_void,
    num_eps: usize,
    flags: Flags,
) -> c_int {
    let call = "gex_EP_PublishBoundSegment";
    code(call, || {
        let team = state::team(tm)?;
        let (state, group) = (team.state, team.group());
        no_flags(flags)?;
        ensure!(num_eps <= MAX_EPS, "{num_eps} endpoints, at most {MAX_EPS} are possible");
        let list = array("the list of endpoints", eps, num_eps)?;
        let inner = state.inner;
        let row = inner.publication(&bound_segments(list)?);
        inner.check_outside::<M>(call)?;
        let rows = inner.gather_all::<M>(call, group, &row)?;
        let rows = (0..).zip(rows.chunks_exact(row.len()));
        let learned = rows.filter_map(|(rank, row)| learn(state, group.job_rank(rank)?, row));
        let processes: Vec<_> = learned.collect();
        // The others know only after the meeting below, and attached segments are reached by a
        // mapping.
        if list.iter().any(|ep| is_own_memory(*ep)) {
            ancestor::allow(&processes);
        }
        Ok(inner.run_collective::<M>(call, group, Task::barrier(group))?)
    })
}

/// Whether an endpoint has a segment that others reach through the system.
fn is_own_memory(ep: Handle) -> bool {
    let segment = state::endpoint(ep).ok().and_then(Endpoint::segment);
    segment.is_some_and(|segment| segment.memory != Memory::Attached)
}

/// A handler to register.
type Row = (Registered, Rc<CHandler>);

/// Checks an entry and copies it.
fn row(entry: &Entry) -> Result<Row, Fail> {
    let Entry { index, flags, .. } = *entry;
    let Some(function) = entry.function else {
        return Err(Fail::bad(format!("entry {index}: the function is null")));
    };
    ensure!(
        [AM_SHORT, AM_MEDIUM, AM_LONG, AM_MEDIUM | AM_LONG].contains(&entry.categories()),
        "entry {index}: flags {flags:#x} name no category: one of GEX_FLAG_AM_SHORT, MEDIUM, LONG, MEDLONG"
    );
    let role = match flags & (AM_REQUEST | AM_REPLY) {
        AM_REQUEST => Role::Request,
        AM_REPLY => Role::Reply,
        both => {
            ensure!(
                both != 0,
                "entry {index}: flags {flags:#x} have none of GEX_FLAG_AM_REQUEST, REPLY, REQREP"
            );
            Role::ReqRep
        }
    };
    let unknown = flags & !(Flags::from(AM_CATEGORIES) | AM_REQUEST | AM_REPLY);
    ensure!(unknown == 0, "entry {index}: unknown bits in flags {flags:#x}");
    let nargs = entry.nargs as usize;
    ensure!(
        nargs <= MAX_ARGS,
        "entry {index}: {nargs} arguments, a message has at most {MAX_ARGS}"
    );
    let name = string(entry.name).unwrap_or_default().into_owned();
    Ok(CHandler::row(function, *entry, (name, nargs, role)))
}

/// As [`row`] for an entry of GASNet-1: a handler for every category and number of arguments.
fn old_row(old: &OldEntry) -> Result<Row, Fail> {
    let OldEntry { index, function } = *old;
    let Some(called) = function else {
        return Err(Fail::bad(format!("entry {index}: the function is null")));
    };
    let flags = Flags::from(AM_CATEGORIES) | AM_REQUEST | AM_REPLY;
    let entry = Entry { index, function, flags, nargs: 16, cdata: null(), name: null() };
    Ok(CHandler::row(called, entry, ("gasnet_attach".to_owned(), ANY_ARGS, Role::ReqRep)))
}

/// Registers a program's table, and writes the chosen indices into it.
fn register<T>(
    state: &State,
    (table, count): (*mut T, usize),
    row: fn(&T) -> Result<Row, Fail>,
    index: fn(&mut T) -> &mut u8,
) -> Result<(), Fail> {
    ensure!(count <= 128, "a table of {count} handlers");
    let table = array_mut("the table of handlers", table, count)?;
    let rows = table.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let (rows, kept): (Vec<_>, Vec<Rc<CHandler>>) = rows.into_iter().unzip();
    let chosen = state.inner.register(rows, |at, index| kept[at].settle(index))?;
    // They live for as long as the process.
    kept.into_iter().for_each(std::mem::forget);
    table.iter_mut().zip(chosen).for_each(|(entry, chosen)| *index(entry) = chosen);
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_EP_RegisterHandlers(
    ep: Handle,
    table: *mut Entry,
    count: usize,
) -> c_int {
    code("gex_EP_RegisterHandlers", || {
        let state = state::open()?;
        ensure!(state::endpoint(ep)?.index == 0, "only the endpoint of index 0 receives messages");
        register(state, (table, count), row, |entry| &mut entry.index)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_attach(
    table: *mut OldEntry,
    count: c_int,
    size: usize,
    _minheapoffset: usize,
) -> c_int {
    let call = "gasnet_attach";
    code(call, || {
        let count = usize::try_from(count)
            .map_err(|_| Fail::bad(format!("a table of {count} handlers")))?;
        register(state::open()?, (table, count), old_row, |entry| &mut entry.index)?;
        segment::attach(call, if size == 0 { tools::PAGE } else { size }).map(|_| ())
    })
}

/// A pair as the header documents it.
#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_Pair(local: Handle, remote: u16) -> *mut c_void {
    value("gex_TM_Pair", null_mut(), || {
        let index = state::endpoint(local)?.index;
        ensure!(remote < 4096, "remote endpoint {remote} cannot exist");
        let bits = usize::from(remote) << 20 | usize::from(index) << 8 | 1;
        Ok(without_provenance_mut(bits))
    })
}
