//! Joining the job, queries about it, its environment, and its end.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use bootstrap::Rank;

use super::coll::Coll;
use super::fail::{Fail, RESOURCE, code, must, value};
use super::state::{self, CLIENT, Objects, Peer, State, TM0, gexi_world};
use super::types::{
    DEFER_THREADS, Flags, Location, NodeInfo, OldEntry, RANK_INVALID, SegInfo, USES_GASNET1,
};
use super::{M, endpoint, segment};
use crate::client::Client;
use crate::core::Core;
use crate::error::Error;
use crate::exit;
use crate::mode::Mode;
use crate::settings::{SegmentLimit, Settings};

/// Most client threads: `GASNETI_MAX_THREADS` of the headers, by which programs make arrays.
const MOST_THREADS: u64 =
    if <M as Mode>::THREADED || cfg!(feature = "capi-parsync") { 256 } else { 1 };
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

#[unsafe(no_mangle)]
pub static gasnet_client_attach_hook: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

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
    "capi-seq",
    gexi_client_init_ibv_seq_abi1,
    gexi_gasnet_init_ibv_seq_abi1,
    gexi_requires_ibv_seq_abi1
);
abi!(
    "capi-parsync",
    gexi_client_init_ibv_parsync_abi1,
    gexi_gasnet_init_ibv_parsync_abi1,
    gexi_requires_ibv_parsync_abi1
);
abi!(
    "capi-par",
    gexi_client_init_ibv_par_abi1,
    gexi_gasnet_init_ibv_par_abi1,
    gexi_requires_ibv_par_abi1
);

/// Keeps the limit of threads. The program's own default for the size of segments, where the environment says nothing.
fn limits(table: &settings::Values, settings: Settings) -> Result<Settings, Error> {
    let threads = u64::try_from(table.int("GASNET_MAX_THREADS")).unwrap_or(MOST_THREADS);
    MAX_THREADS.store(threads.clamp(1, MOST_THREADS), Ordering::Relaxed);
    let variable = "GASNET_MAX_SEGSIZE";
    if table.is_set(variable) {
        return Ok(settings);
    }
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
        return Ok(settings);
    };
    let Some(row) = settings::find(variable) else { return Ok(settings) };
    let name = "gasnet_max_segsize_str";
    match settings::parse(row.kind, &text) {
        Ok(settings::Value::MemSpec(spec)) => {
            Ok(Settings { max_segment: SegmentLimit::of(spec), ..settings })
        }
        Ok(_) => Ok(settings),
        Err(problem) => Err(Error::Setting { name, problem }),
    }
}

/// Joins the job.
fn join(name: &CStr, flags: Flags) -> Result<&'static State, Fail> {
    if flags & !(USES_GASNET1 | DEFER_THREADS) != 0 {
        return Err(Fail::bad(format!("unknown bits in flags {flags:#x}")));
    }
    keep_strings();
    let client = Client::<M>::init_with(&name.to_string_lossy(), limits)?;
    // SAFETY: nobody takes back the count that `into_raw` gives away, so the core stays until the process ends.
    let core: &'static Core = unsafe { &*Arc::into_raw(Arc::clone(&client.core)) };
    let numbers = |ranks: Vec<Rank>| ranks.iter().map(|rank| rank.0).collect::<Box<[u32]>>();
    let (neighbours, host_ranks) = (numbers(client.neighbours()), numbers(client.host_ranks()));
    let peers: &'static [Peer] = Box::leak(neighbours.iter().map(|_| Peer::new()).collect());
    let ep0 = endpoint::new(0);
    let state = state::set(State {
        core,
        name: name.to_owned(),
        flags,
        rank: client.rank().0,
        size: client.size(),
        peers,
        neighbours,
        host_ranks,
        ep0,
        objects: Mutex::new(Objects { endpoints: vec![ep0], segments: Vec::new() }),
        published: RwLock::new(HashMap::new()),
        coll: Coll::new(),
        threads_asked: AtomicBool::new(false),
    });
    let world = &gexi_world;
    world.rank.store(state.rank, Ordering::Relaxed);
    world.ep0.store(ep0.object.handle(), Ordering::Relaxed);
    world.client.store(CLIENT.handle(), Ordering::Relaxed);
    world.peers.store(peers.as_ptr().cast_mut(), Ordering::Relaxed);
    world.peer_first.store(core.span().contiguous().0, Ordering::Relaxed);
    world.size.store(state.size, Ordering::Release);
    world.tm0.store(TM0.handle(), Ordering::Release);
    // Before this a message to a rank would not find its state.
    core.meet_at_start::<M>("gex_Client_Init")?;
    Ok(state)
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
        let size = if size == 0 { super::tools::PAGE } else { size };
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
    let segment = segment::of(state.ep0).map_or(null_mut(), |segment| segment.object.handle());
    answer(segment_p, segment);
}

/// The state when a handle is that of the client.
fn client(handle: *const c_void) -> Result<&'static State, Fail> {
    let state = state::open()?;
    state.client(handle)?;
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
        let place = state.core.rank_info();
        let neighbours = state.core.neighbours();
        answer(nbrhd_set_size, neighbours.count());
        answer(nbrhd_set_rank, neighbours.number());
        answer(host_set_size, place.hosts);
        answer(host_set_rank, place.host.0);
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
    let remote = state::get().and_then(|state| state.core.remote());
    c_int::from(remote.is_some_and(crate::transport::remote::Remote::has_receivers))
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
            let seen = segment::bound(state, rank, 0);
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
        let core = state.core;
        let host_of = |rank| core.node_shm().host_of(Rank(rank)).map_or(0, |host| host.0);
        let supernodes = core.neighbours().of_all(core.rank_info(), host_of);
        let rows = (0..).zip(table(state, rows, count)?).zip(supernodes);
        for ((rank, row), supernode) in rows {
            let peer = core.local_of(Rank(rank)).and_then(|local| state.peers.get(local));
            let offset = peer.map_or(0, |peer| {
                let (here, there) = (&peer.local_base, &peer.owner_base);
                here.load(Ordering::Relaxed).wrapping_sub(there.load(Ordering::Relaxed))
            });
            *row = NodeInfo { host: host_of(rank), supernode, offset, reserved: 0 };
        }
        Ok(())
    };
    code("gasnet_getNodeInfo", fill())
}

fn max_segment(call: &str, of: fn(&Core) -> u64) -> usize {
    let bytes = state::open().map(|state| of(state.core));
    usize::try_from(value(call, 0, bytes)).unwrap_or(usize::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxLocalSegmentSize() -> usize {
    max_segment("gasnet_getMaxLocalSegmentSize", Core::max_segment)
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxGlobalSegmentSize() -> usize {
    max_segment("gasnet_getMaxGlobalSegmentSize", Core::max_segment_of_all)
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

#[cfg(feature = "capi-seq")]
macro_rules! mode {
    () => {
        "SEQ"
    };
}
#[cfg(feature = "capi-parsync")]
macro_rules! mode {
    () => {
        "PARSYNC"
    };
}
#[cfg(not(any(feature = "capi-seq", feature = "capi-parsync")))]
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
