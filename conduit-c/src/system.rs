//! Joining the job, queries about it, its environment, and its end.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use gasnet_ibv::inner::{self, Foreign, HandlerRow, Preset, Runner};
use gasnet_ibv::{Client, Mode, Rank, Role, exit};

use crate::collectives::{self, Collectives};
use crate::fail::{Fail, RESOURCE, code, must, value};
use crate::objects::{CLIENT, Objects, TM0};
use crate::state::{self, Peer, State, gexi_world};
use crate::types::{
    DEFER_THREADS, Flags, Location, NodeInfo, OldEntry, RANK_INVALID, SegInfo, USES_GASNET1,
};
use crate::{M, endpoint, segment};

/// Most client threads: `GASNETI_MAX_THREADS` of the headers, by which programs make arrays.
const MOST_THREADS: u64 = if <M as Mode>::THREADED || cfg!(feature = "parsync") { 256 } else { 1 };
/// What `GASNET_MAX_THREADS` makes of it.
static MAX_THREADS: AtomicU64 = AtomicU64::new(MOST_THREADS);

// Weak: a program may define them itself.
std::arch::global_asm!(
    ".pushsection .data.gasnet_max_segsize,\"aw\",@progbits",
    ".p2align 3",
    ".weak gasnet_max_segsize",
    ".type gasnet_max_segsize,@object",
    ".size gasnet_max_segsize,8",
    "gasnet_max_segsize: .quad 0",
    ".weak gasnet_max_segsize_str",
    ".type gasnet_max_segsize_str,@object",
    ".size gasnet_max_segsize_str,8",
    "gasnet_max_segsize_str: .quad 0",
    ".popsection",
);

unsafe extern "C" {
    static gasnet_max_segsize: AtomicU64;
    static gasnet_max_segsize_str: AtomicPtr<c_char>;
}

macro_rules! abi {
    ($feature:literal, $init:ident, $old:ident, $requires:ident) => {
        #[cfg(feature = $feature)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(
            client_p: *mut *mut c_void,
            ep_p: *mut *mut c_void,
            tm_p: *mut *mut c_void,
            name: *const c_char,
            _argc: *mut c_int,
            _argv: *mut *mut *mut c_char,
            flags: Flags,
        ) -> c_int {
            let init = || {
                if client_p.is_null() || ep_p.is_null() || tm_p.is_null() || name.is_null() {
                    return Err(Fail::bad("a place for a handle, or the name, is null"));
                }
                // SAFETY: a string, by the program's promise.
                let state = join(unsafe { CStr::from_ptr(name) }, flags)?;
                for (place, handle) in [
                    (client_p, CLIENT.handle()),
                    (ep_p, state.ep0.object.handle()),
                    (tm_p, TM0.handle()),
                ] {
                    // SAFETY: room for a handle, by the program's promise.
                    unsafe { place.write(handle) };
                }
                Ok(())
            };
            code("gex_Client_Init", init())
        }

        #[cfg(feature = $feature)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $old(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
            code("gasnet_init", join(c"LEGACY", USES_GASNET1).map(|_| ()))
        }

        #[cfg(feature = $feature)]
        #[unsafe(no_mangle)]
        pub static $requires: c_int = 1;
    };
}

abi!(
    "seq",
    gexi_client_init_ibv_seq_abi1,
    gexi_gasnet_init_ibv_seq_abi1,
    gexi_requires_ibv_seq_abi1
);
abi!(
    "parsync",
    gexi_client_init_ibv_parsync_abi1,
    gexi_gasnet_init_ibv_parsync_abi1,
    gexi_requires_ibv_parsync_abi1
);
abi!(
    "par",
    gexi_client_init_ibv_par_abi1,
    gexi_gasnet_init_ibv_par_abi1,
    gexi_requires_ibv_par_abi1
);

/// The program's own default for the size of segments.
fn max_segment() -> Option<(&'static str, String)> {
    // SAFETY: a pointer variable, the program's or ours.
    let text = unsafe { &gasnet_max_segsize_str }.load(Ordering::Relaxed);
    // SAFETY: a number, the program's or ours.
    let bytes = unsafe { &gasnet_max_segsize }.load(Ordering::Relaxed);
    let text = if !text.is_null() {
        // SAFETY: a string, by the program's promise.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    } else if bytes != 0 {
        bytes.to_string()
    } else {
        return None;
    };
    Some(("gasnet_max_segsize_str", text))
}

/// Joins the job.
fn join(name: &CStr, flags: Flags) -> Result<&'static State, Fail> {
    if flags & !(USES_GASNET1 | DEFER_THREADS) != 0 {
        return Err(Fail::bad(format!("unknown bits in flags {flags:#x}")));
    }
    keep_strings();
    let preset = Preset { max_threads: MOST_THREADS, max_segment: max_segment() };
    let (client, inner, threads) = inner::join::<M>(&name.to_string_lossy(), preset)?;
    MAX_THREADS.store(threads, Ordering::Relaxed);
    let numbers = |ranks: Vec<Rank>| ranks.iter().map(|rank| rank.0).collect::<Box<[u32]>>();
    let (neighbours, host_ranks) = (numbers(client.neighbours()), numbers(client.host_ranks()));
    let peers: &'static [Peer] = Box::leak(neighbours.iter().map(|_| Peer::new()).collect());
    let ep0 = endpoint::new(0);
    let state = state::set(State {
        name: name.to_owned(),
        flags,
        rank: client.rank().0,
        size: client.size(),
        client,
        inner,
        peers,
        neighbours,
        host_ranks,
        ep0,
        objects: Mutex::new(Objects { endpoints: vec![ep0], segments: Vec::new() }),
        published: RwLock::new(HashMap::new()),
        collectives: Collectives::new(inner),
        threads_asked: AtomicBool::new(false),
    });
    register_parts(state);
    publish(state);
    // Before this a message to a rank would not find its state.
    inner.meet_at_start::<M>("gex_Client_Init")?;
    Ok(state)
}

/// Shows the state to the inline functions of the headers.
fn publish(state: &State) {
    let world = &gexi_world;
    world.rank.store(state.rank, Ordering::Relaxed);
    world.ep0.store(state.ep0.object.handle(), Ordering::Relaxed);
    world.client.store(CLIENT.handle(), Ordering::Relaxed);
    world.peers.store(state.peers.as_ptr().cast_mut(), Ordering::Relaxed);
    world.peer_first.store(state.inner.span().0, Ordering::Relaxed);
    world.size.store(state.size, Ordering::Release);
    world.tm0.store(TM0.handle(), Ordering::Release);
}

/// The handler of the library's own messages, the parts of broadcasts.
fn register_parts(state: &'static State) {
    let runner = Runner { run: collectives::part_arrived, run_burst: |_, _| {} };
    let word = std::ptr::from_ref(&state.collectives).cast_mut().cast();
    let foreign = Foreign::new(runner, Foreign::MEDIUM, word);
    state.inner.register_library(HandlerRow {
        index: collectives::PART,
        name: "part of a broadcast".to_owned(),
        nargs: collectives::PART_ARGS,
        role: Role::Request,
        foreign,
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_attach(
    table: *mut OldEntry,
    count: c_int,
    size: usize,
    _minheapoffset: usize,
) -> c_int {
    let call = "gasnet_attach";
    let attach = || {
        let state = state::open()?;
        let count = usize::try_from(count)
            .map_err(|_| Fail::bad(format!("a table of {count} handlers")))?;
        if count > 0 {
            if table.is_null() || count > 128 {
                return Err(Fail::bad(format!("a table of {count} handlers at {table:p}")));
            }
            // SAFETY: so many entries that only this call uses, by the program's promise.
            register_old(state, unsafe { std::slice::from_raw_parts_mut(table, count) })?;
        }
        let size = if size == 0 { crate::tools::PAGE } else { size };
        segment::attach(call, size).map(|_| ())
    };
    code(call, attach())
}

fn register_old(state: &State, table: &mut [OldEntry]) -> Result<(), Fail> {
    let rows = table.iter().map(|entry| match entry.function {
        Some(function) => Ok(endpoint::any_row(entry.index, function)),
        None => Err(Fail::bad(format!("entry {}: the function is null", entry.index))),
    });
    let chosen = endpoint::register(state, rows.collect::<Result<_, _>>()?)?;
    for (entry, index) in table.iter_mut().zip(chosen) {
        entry.index = index;
    }
    Ok(())
}

/// Writes an answer unless the program does not want it.
fn answer<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: room for an answer, by the program's promise.
        unsafe { place.write(value) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_QueryGexObjects(
    client_p: *mut *mut c_void,
    ep_p: *mut *mut c_void,
    tm_p: *mut *mut c_void,
    segment_p: *mut *mut c_void,
) {
    let state = must("gasnet_QueryGexObjects", state::open());
    answer(client_p, CLIENT.handle());
    answer(ep_p, state.ep0.object.handle());
    answer(tm_p, TM0.handle());
    let segment = state.ep0.segment().map_or(null_mut(), |segment| segment.object.handle());
    answer(segment_p, segment);
}

/// The state when a handle is that of the client.
fn client(handle: *const c_void) -> Result<&'static State, Fail> {
    let state = state::open()?;
    state.check_client(handle)?;
    Ok(state)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Client_QueryFlags(handle: *const c_void) -> Flags {
    value("gex_Client_QueryFlags", 0, client(handle).map(|state| state.flags))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Client_QueryName(handle: *const c_void) -> *const c_char {
    let name = client(handle).map(|state| state.name.as_ptr());
    value("gex_Client_QueryName", std::ptr::null(), name)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Client_SetCData(handle: *const c_void, cdata: *const c_void) {
    let set = |_: &State| CLIENT.cdata.store(cdata.cast_mut(), Ordering::Release);
    value("gex_Client_SetCData", (), client(handle).map(set));
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_Client_QueryCData(handle: *const c_void) -> *mut c_void {
    let cdata = client(handle).map(|_| CLIENT.cdata.load(Ordering::Acquire));
    value("gex_Client_QueryCData", null_mut(), cdata)
}

/// The state when a handle is that of the team of all ranks.
fn team(tm: *const c_void) -> Result<&'static State, Fail> {
    let state = state::open()?;
    state.team(tm)?;
    Ok(state)
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_TM_QueryRank(tm: *const c_void) -> u32 {
    value("gex_TM_QueryRank", RANK_INVALID, team(tm).map(|state| state.rank))
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_TM_QuerySize(tm: *const c_void) -> u32 {
    value("gex_TM_QuerySize", 0, team(tm).map(|state| state.size))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_QueryClient(tm: *const c_void) -> *mut c_void {
    value("gex_TM_QueryClient", null_mut(), team(tm).map(|_| CLIENT.handle()))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_QueryEP(tm: *const c_void) -> *mut c_void {
    value("gex_TM_QueryEP", null_mut(), team(tm).map(|state| state.ep0.object.handle()))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_QueryFlags(tm: *const c_void) -> Flags {
    value("gex_TM_QueryFlags", 0, team(tm).map(|_| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_SetCData(tm: *const c_void, cdata: *const c_void) {
    let set = |_: &State| TM0.cdata.store(cdata.cast_mut(), Ordering::Release);
    value("gex_TM_SetCData", (), team(tm).map(set));
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_QueryCData(tm: *const c_void) -> *mut c_void {
    value("gex_TM_QueryCData", null_mut(), team(tm).map(|_| TM0.cdata.load(Ordering::Acquire)))
}

/// A rank of the team of all ranks, which is its rank in the job.
fn translate(tm: *const c_void, rank: u32) -> Result<u32, Fail> {
    let state = team(tm)?;
    if rank < state.size {
        return Ok(rank);
    }
    Err(Fail::bad(format!("rank {rank} is not in the team of {} ranks", state.size)))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_TranslateRankToJobrank(tm: *const c_void, rank: u32) -> u32 {
    value("gex_TM_TranslateRankToJobrank", RANK_INVALID, translate(tm, rank))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_TranslateJobrankToRank(tm: *const c_void, jobrank: u32) -> u32 {
    let found = team(tm).map(|state| if jobrank < state.size { jobrank } else { RANK_INVALID });
    value("gex_TM_TranslateJobrankToRank", RANK_INVALID, found)
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_TM_TranslateRankToEP(
    tm: *const c_void,
    rank: u32,
    _flags: Flags,
) -> Location {
    let rank = value("gex_TM_TranslateRankToEP", RANK_INVALID, translate(tm, rank));
    Location { rank, index: 0 }
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_System_QueryJobRank() -> u32 {
    value("gex_System_QueryJobRank", RANK_INVALID, state::open().map(|state| state.rank))
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_System_QueryJobSize() -> u32 {
    value("gex_System_QueryJobSize", 0, state::open().map(|state| state.size))
}

fn info(
    call: &str,
    set: fn(&'static State) -> &'static [u32],
    info_p: *mut *const u32,
    count_p: *mut u32,
    my_index_p: *mut u32,
) {
    let write = |state: &'static State| {
        let ranks = set(state);
        answer(info_p, ranks.as_ptr());
        answer(count_p, u32::try_from(ranks.len()).unwrap_or(0));
        let mine = ranks.iter().position(|rank| *rank == state.rank).unwrap_or(0);
        answer(my_index_p, u32::try_from(mine).unwrap_or(0));
    };
    value(call, (), state::open().map(write));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_System_QueryNbrhdInfo(
    info_p: *mut *const u32,
    count_p: *mut u32,
    my_index_p: *mut u32,
) {
    let set = |state: &'static State| &*state.neighbours;
    info("gex_System_QueryNbrhdInfo", set, info_p, count_p, my_index_p);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_System_QueryHostInfo(
    info_p: *mut *const u32,
    count_p: *mut u32,
    my_index_p: *mut u32,
) {
    let set = |state: &'static State| &*state.host_ranks;
    info("gex_System_QueryHostInfo", set, info_p, count_p, my_index_p);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_System_QueryMyPosition(
    nbrhd_set_size: *mut u32,
    nbrhd_set_rank: *mut u32,
    host_set_size: *mut u32,
    host_set_rank: *mut u32,
) {
    let write = |state: &'static State| {
        let position = state.client.position();
        answer(nbrhd_set_size, position.neighbourhoods);
        answer(nbrhd_set_rank, position.neighbourhood);
        answer(host_set_size, position.hosts);
        answer(host_set_rank, position.host);
    };
    value("gex_System_QueryMyPosition", (), state::open().map(write));
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_System_QueryMaxThreads() -> u64 {
    MAX_THREADS.load(Ordering::Relaxed)
}

/// Handlers run on threads of the program, and of the network where it was asked for them.
#[unsafe(no_mangle)]
pub extern "C" fn gex_System_QueryHiddenAMConcurrencyLevel() -> c_int {
    c_int::from(state::get().is_some_and(|state| state.inner.has_receivers()))
}

/// There are no progress threads: the list is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_System_QueryProgressThreads(
    handle: *const c_void,
    count_p: *mut c_uint,
    info_p: *mut *const c_void,
    flags: Flags,
) -> c_int {
    static NONE: AtomicU32 = AtomicU32::new(0);
    let query = || {
        let state = client(handle)?;
        if count_p.is_null() || info_p.is_null() || flags != 0 {
            return Err(Fail::bad("a place for an answer is null, or flags are not 0"));
        }
        if state.flags & DEFER_THREADS == 0 {
            let text = "gex_Client_Init was called without GEX_FLAG_DEFER_THREADS";
            return Err(Fail::new(RESOURCE, text));
        }
        if state.threads_asked.swap(true, Ordering::Relaxed) {
            return Err(Fail::new(RESOURCE, "it was called before"));
        }
        answer(count_p, 0);
        answer(info_p, (&raw const NONE).cast());
        Ok(())
    };
    code("gex_System_QueryProgressThreads", query())
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_exit(code: c_int) -> ! {
    exit(code)
}

/// The launcher carries the environment of the job to every rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_getenv(name: *const c_char) -> *mut c_char {
    if name.is_null() {
        return null_mut();
    }
    // SAFETY: a string, by the program's promise.
    unsafe { libc::getenv(name) }
}

/// The program's table of `count` rows, cut to the size of the job.
fn table<'a, T>(state: &State, table: *mut T, count: c_int) -> Result<&'a mut [T], Fail> {
    let count =
        usize::try_from(count).map_err(|_| Fail::bad(format!("a table of {count} rows")))?;
    let count = count.min(state.size as usize);
    if count == 0 {
        return Ok(&mut []);
    }
    if table.is_null() {
        return Err(Fail::bad("the table is null"));
    }
    // SAFETY: at least so many rows that only this call uses, by the program's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(table, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_getSegmentInfo(rows: *mut SegInfo, count: c_int) -> c_int {
    let fill = || {
        let state = state::open()?;
        for (rank, row) in (0..).zip(table(state, rows, count)?) {
            let seen = state.bound(rank, 0);
            let (addr, size) = seen.map_or((0, 0), |segment| (segment.address, segment.size));
            *row = SegInfo { addr, size };
        }
        Ok(())
    };
    code("gasnet_getSegmentInfo", fill())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_getNodeInfo(rows: *mut NodeInfo, count: c_int) -> c_int {
    let fill = || {
        let state = state::open()?;
        let rows = (0..).zip(table(state, rows, count)?).zip(state.inner.places());
        for ((rank, row), (host, supernode)) in rows {
            let peer = state.inner.local_of(rank).and_then(|local| state.peers.get(local));
            let offset = peer.map_or(0, |peer| {
                let (here, there) = (&peer.local_base, &peer.owner_base);
                here.load(Ordering::Relaxed).wrapping_sub(there.load(Ordering::Relaxed))
            });
            *row = NodeInfo { host, supernode, offset, reserved: 0 };
        }
        Ok(())
    };
    code("gasnet_getNodeInfo", fill())
}

fn largest_segment(call: &str, of: fn(&Client<M>) -> u64) -> usize {
    let bytes = state::open().map(|state| of(&state.client));
    usize::try_from(value(call, 0, bytes)).unwrap_or(usize::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxLocalSegmentSize() -> usize {
    largest_segment("gasnet_getMaxLocalSegmentSize", Client::max_local_segment)
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxGlobalSegmentSize() -> usize {
    largest_segment("gasnet_getMaxGlobalSegmentSize", Client::max_global_segment)
}

// What is found by looking at the file of a program.

macro_rules! identification {
    ($($name:ident: $text:expr;)*) => {
        $(
            #[used]
            static $name: [u8; $text.len()] = {
                let mut bytes = [0; $text.len()];
                let mut at = 0;
                while at < bytes.len() {
                    bytes[at] = $text.as_bytes()[at];
                    at += 1;
                }
                bytes
            };
        )*

        /// Keeps the strings in every program.
        fn keep_strings() {
            $(std::hint::black_box(&raw const $name);)*
        }
    };
}

#[cfg(feature = "seq")]
macro_rules! mode {
    () => {
        "SEQ"
    };
}
#[cfg(feature = "parsync")]
macro_rules! mode {
    () => {
        "PARSYNC"
    };
}
#[cfg(not(any(feature = "seq", feature = "parsync")))]
macro_rules! mode {
    () => {
        "PAR"
    };
}

identification! {
    CONFIG_STRING: concat!(
        "$GASNetConfig: (libgasnet) RELEASE=2025.8.0,SPEC=0.19,CONDUIT=IBV(IBV-2.17/IBV-2.17),",
        "THREADMODEL=", mode!(), ",SEGMENT=FAST,PTR=64bit,CACHE_LINE_BYTES=64,noalign,pshm,nodebug,notrace,",
        "nostats,nodebugmalloc,nosrclines,timers_native,membars_native,atomics_native,atomic32_native,",
        "atomic64_native,notiopt $\0"
    );
    THREAD_MODEL: concat!("$GASNetThreadModel: GASNET_", mode!(), " $\0");
    API_VERSION: "$GASNetAPIVersion: 1 $\0";
    EX_API_VERSION: "$GASNetEXAPIVersion: 0.19 $\0";
    SEGMENT_CONFIG: "$GASNetSegment: GASNET_SEGMENT_FAST $\0";
    CORE_VERSION: "$GASNetCoreLibraryVersion: 2.17 $\0";
    CORE_NAME: "$GASNetCoreLibraryName: IBV $\0";
}
