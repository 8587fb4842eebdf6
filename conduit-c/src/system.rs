//! Joining the job, queries about it, its environment, and its end.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, RwLock};

use gasnet_ibv::inner::{self, DeferredThread, Preset};
use gasnet_ibv::{Client, Mode, Rank, SegmentMode, exit};

use crate::arguments::{answer, array_mut, check_place, no_flags, string};
use crate::collectives::Collectives;
use crate::fail::{Fail, RESOURCE, code, ensure, must, value};
use crate::state::{self, CLIENT, Endpoint, Objects, Peer, State, TM0, gexi_world};
use crate::teams::Teams;
use crate::types::{
    DEFER_THREADS, Flags, Handle, NodeInfo, RANK_INVALID, SegInfo, THREAD_ROLES, USES_GASNET1,
};
use crate::{M, across, atomics, current};

/// A handle that a call answers.
type Object = *mut c_void;

/// Most client threads: `GASNETI_MAX_THREADS` of the headers, by which programs make arrays.
const MOST_THREADS: u64 = if <M as Mode>::THREADED || cfg!(feature = "parsync") { 256 } else { 1 };
/// What `GASNET_MAX_THREADS` makes of it.
static MAX_THREADS: AtomicU64 = AtomicU64::new(MOST_THREADS);

/// Defines variables of 0 with so many bytes, weak: a program may define them itself.
macro_rules! weak_variables {
    ($($name:literal: $bytes:literal;)*) => {$(
        std::arch::global_asm!(
            concat!(".pushsection .data.", $name, ",\"aw\",@progbits"),
            concat!(".balign ", $bytes),
            concat!(".weak ", $name),
            concat!(".type ", $name, ",@object"),
            concat!(".size ", $name, ",", $bytes),
            concat!($name, ": .zero ", $bytes),
            ".popsection",
        );
    )*};
}

// The last three: the files of a program define that of the segment mode which they were compiled for.
weak_variables! {
    "gasnet_max_segsize": 8;
    "gasnet_max_segsize_str": 8;
    "gexi_segment_fast": 4;
    "gexi_segment_large": 4;
    "gexi_segment_everything": 4;
}

unsafe extern "C" {
    static gasnet_max_segsize: AtomicU64;
    static gasnet_max_segsize_str: AtomicPtr<c_char>;
    static gexi_segment_fast: c_int;
    static gexi_segment_large: c_int;
    static gexi_segment_everything: c_int;
}

/// Defines the name of the library's thread mode, and how it stands in symbols.
macro_rules! thread_mode {
    ($mode:literal, $symbols:literal) => {
        macro_rules! mode {
            () => {
                $mode
            };
            (symbols) => {
                $symbols
            };
        }
    };
}

#[cfg(feature = "seq")]
thread_mode!("SEQ", "seq");
#[cfg(feature = "parsync")]
thread_mode!("PARSYNC", "parsync");
#[cfg(not(any(feature = "seq", feature = "parsync")))]
thread_mode!("PAR", "par");

#[cfg(feature = "debug")]
macro_rules! build {
    () => {
        "debug"
    };
    (symbols) => {
        "_debug"
    };
}
#[cfg(not(feature = "debug"))]
macro_rules! build {
    () => {
        "nodebug"
    };
    (symbols) => {
        ""
    };
}

/// Thread mode, build and ABI version, at the end of symbols that a program has of the library for
/// which it was compiled.
macro_rules! abi {
    () => {
        concat!(mode!(symbols), build!(symbols), "_abi1")
    };
}

#[unsafe(export_name = concat!("gexi_client_init_ibv_", abi!()))]
pub unsafe extern "C" fn client_init(
    client_p: *mut Object,
    ep_p: *mut Object,
    tm_p: *mut Object,
    name: *const c_char,
    _argc: *mut c_int,
    _argv: *mut *mut *mut c_char,
    flags: Flags,
) -> c_int {
    code("gex_Client_Init", || {
        let null = client_p.is_null() || ep_p.is_null() || tm_p.is_null();
        ensure!(!null && !name.is_null(), "a pointer for a handle, or the name, is null");
        // SAFETY: a string, by the program's promise.
        let state = join(unsafe { CStr::from_ptr(name) }, flags)?;
        answer(client_p, CLIENT.handle());
        answer(ep_p, state.ep0.object.handle());
        answer(tm_p, TM0.handle());
        Ok(())
    })
}

#[unsafe(export_name = concat!("gexi_gasnet_init_ibv_", abi!()))]
pub extern "C" fn gasnet_init(_argc: *mut c_int, _argv: *mut *mut *mut c_char) -> c_int {
    code("gasnet_init", || join(c"LEGACY", USES_GASNET1).map(|_| ()))
}

#[unsafe(export_name = concat!("gexi_requires_ibv_", abi!()))]
pub static REQUIRES: c_int = 1;

/// The program's own default for the size of segments.
fn max_segment() -> Option<(&'static str, String)> {
    // SAFETY: a pointer variable, the program's or ours.
    let text = unsafe { &gasnet_max_segsize_str }.load(Ordering::Relaxed);
    // SAFETY: a number, the program's or ours.
    let bytes = unsafe { &gasnet_max_segsize }.load(Ordering::Relaxed);
    let number = (bytes != 0).then(|| bytes.to_string());
    Some(("gasnet_max_segsize_str", string(text).map(Cow::into_owned).or(number)?))
}

/// The segment mode that the program was compiled for.
fn segment_mode() -> Result<SegmentMode, Fail> {
    // SAFETY: words that nobody writes, the program's or ours.
    let seen = unsafe { [gexi_segment_fast, gexi_segment_large, gexi_segment_everything] };
    // SAFETY: a program that was compiled for it promises what it transfers to.
    let everything = unsafe { SegmentMode::everything() };
    let modes = [
        ("GASNET_SEGMENT_FAST", SegmentMode::FAST),
        ("GASNET_SEGMENT_LARGE", SegmentMode::LARGE),
        ("GASNET_SEGMENT_EVERYTHING", everything),
    ];
    let chosen = || modes.iter().zip(seen).filter(|(_, seen)| *seen != 0).map(|(mode, _)| *mode);
    ensure!(
        chosen().count() <= 1,
        "the files of this program were compiled for several segment modes, which have to be one: {}",
        chosen().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
    );
    Ok(chosen().next().map_or(SegmentMode::FAST, |(_, mode)| mode))
}

/// Joins the job.
fn join(name: &CStr, flags: Flags) -> Result<&'static State, Fail> {
    ensure!(flags & !(USES_GASNET1 | DEFER_THREADS) == 0, "unknown bits in flags {flags:#x}");
    std::hint::black_box(&IDENTIFICATION);
    let preset = Preset {
        max_threads: MOST_THREADS,
        max_segment: max_segment(),
        segment_mode: segment_mode()?,
        defer_threads: flags & DEFER_THREADS != 0,
    };
    let (client, inner, threads) = inner::join::<M>(&name.to_string_lossy(), preset)?;
    MAX_THREADS.store(threads, Ordering::Relaxed);
    if inner.has_receivers() {
        current::run_beside();
    }
    let peers = (0..inner.neighbour_count()).map(|_| Peer::new());
    let peers: &'static [Peer] = Box::leak(peers.collect());
    let ep0 = Endpoint::new(0);
    let state = state::set(State {
        name: name.to_owned(),
        flags,
        rank: client.rank().0,
        size: client.size(),
        client,
        inner,
        peers,
        neighbours: OnceLock::new(),
        host_ranks: OnceLock::new(),
        ep0,
        objects: Mutex::new(Objects { endpoints: vec![ep0], segments: Vec::new() }),
        published: RwLock::new(HashMap::new()),
        across: OnceLock::new(),
        collectives: Collectives::new(inner),
        whole: inner.whole(),
        teams: Teams::default(),
        threads_asked: AtomicBool::new(false),
    });
    inner.set_atomic_memory(atomics::own_word);
    across::learn(state)?;
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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_QueryGexObjects(
    client_p: *mut Object,
    ep_p: *mut Object,
    tm_p: *mut Object,
    segment_p: *mut Object,
) {
    let state = must("gasnet_QueryGexObjects", state::open);
    answer(client_p, CLIENT.handle());
    answer(ep_p, state.ep0.object.handle());
    answer(tm_p, TM0.handle());
    answer(segment_p, state.ep0.segment_handle());
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_System_QueryJobRank() -> u32 {
    value("gex_System_QueryJobRank", RANK_INVALID, || state::open().map(|state| state.rank))
}

#[unsafe(no_mangle)]
pub extern "C" fn gexi_System_QueryJobSize() -> u32 {
    value("gex_System_QueryJobSize", 0, || state::open().map(|state| state.size))
}

macro_rules! rank_sets {
    ($($name:ident, $ranks:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            info_p: *mut *const u32,
            count_p: *mut u32,
            my_index_p: *mut u32,
        ) {
            value(stringify!($name), (), || {
                let state = state::open()?;
                let list = || state.client.$ranks().iter().map(|rank| rank.0).collect();
                let ranks = state.$ranks.get_or_init(list);
                let mine = ranks.iter().position(|rank| *rank == state.rank).unwrap_or(0);
                answer(info_p, ranks.as_ptr());
                answer(count_p, u32::try_from(ranks.len()).unwrap_or(0));
                answer(my_index_p, u32::try_from(mine).unwrap_or(0));
                Ok(())
            });
        }
    )*};
}

rank_sets! {
    gex_System_QueryNbrhdInfo, neighbours;
    gex_System_QueryHostInfo, host_ranks;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_System_QueryMyPosition(
    nbrhd_set_size: *mut u32,
    nbrhd_set_rank: *mut u32,
    host_set_size: *mut u32,
    host_set_rank: *mut u32,
) {
    value("gex_System_QueryMyPosition", (), || {
        let position = state::open()?.client.position();
        answer(nbrhd_set_size, position.neighbourhoods);
        answer(nbrhd_set_rank, position.neighbourhood);
        answer(host_set_size, position.hosts);
        answer(host_set_rank, position.host);
        Ok(())
    });
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

/// `gex_ProgressThreadInfo_t`.
#[repr(C)]
struct ProgressThreadInfo {
    device_list: *const c_char,
    roles: c_uint,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

impl ProgressThreadInfo {
    fn of(thread: DeferredThread) -> Self {
        let device = CString::new(thread.device.as_str()).unwrap_or_default();
        let [receives, sends] = THREAD_ROLES;
        Self {
            device_list: device.into_raw(),
            roles: if thread.receives { receives } else { sends },
            run: run_progress_thread,
            argument: Box::into_raw(Box::new(thread)).cast(),
        }
    }
}

/// Runs one thread of the network; does not return, since the program may not look for its end.
extern "C" fn run_progress_thread(argument: *mut c_void) -> *mut c_void {
    // SAFETY: the argument of its row, which a program gives once, by its promise.
    unsafe { Box::from_raw(argument.cast::<DeferredThread>()) }.run();
    loop {
        std::thread::park();
    }
}

/// The threads that the settings ask for, usually none. The list lives as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gex_System_QueryProgressThreads(
    handle: Handle,
    count_p: *mut c_uint,
    info_p: *mut *const c_void,
    flags: Flags,
) -> c_int {
    code("gex_System_QueryProgressThreads", || {
        let state = state::client(handle)?;
        no_flags(flags)?;
        check_place(count_p)?;
        check_place(info_p)?;
        if state.flags & DEFER_THREADS == 0 {
            let text = "gex_Client_Init was called without GEX_FLAG_DEFER_THREADS";
            return Err(Fail::new(RESOURCE, text));
        }
        if state.threads_asked.swap(true, Ordering::Relaxed) {
            return Err(Fail::new(RESOURCE, "it was called before"));
        }
        let threads = state.inner.deferred_threads().into_iter().map(ProgressThreadInfo::of);
        let list: &'static [ProgressThreadInfo] = Box::leak(threads.collect());
        answer(count_p, c_uint::try_from(list.len()).unwrap_or(0));
        answer(info_p, list.as_ptr().cast());
        Ok(())
    })
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
fn table<'a, T>(state: &State, rows: *mut T, count: c_int) -> Result<&'a mut [T], Fail> {
    let count =
        usize::try_from(count).map_err(|_| Fail::bad(format!("a table of {count} rows")))?;
    array_mut("the table", rows, count.min(state.size as usize))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_getSegmentInfo(rows: *mut SegInfo, count: c_int) -> c_int {
    code("gasnet_getSegmentInfo", || {
        let state = state::open()?;
        for (rank, row) in (0..).zip(table(state, rows, count)?) {
            let seen = state.bound(rank, 0);
            let (addr, size) = seen.map_or((0, 0), |segment| (segment.address, segment.size));
            *row = SegInfo { addr, size };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_getNodeInfo(rows: *mut NodeInfo, count: c_int) -> c_int {
    code("gasnet_getNodeInfo", || {
        let state = state::open()?;
        let rows = (0..).zip(table(state, rows, count)?).zip(state.inner.places());
        for ((rank, row), (host, supernode)) in rows {
            let peer = state.inner.local_of(Rank(rank)).and_then(|local| state.peers.get(local));
            let offset = peer.map_or(0, |peer| {
                let (here, there) = (&peer.local_base, &peer.owner_base);
                here.load(Ordering::Relaxed).wrapping_sub(there.load(Ordering::Relaxed))
            });
            *row = NodeInfo { host, supernode, offset, reserved: 0 };
        }
        Ok(())
    })
}

fn largest_segment(call: &str, of: fn(&Client<M>) -> u64) -> usize {
    let bytes = value(call, 0, || state::open().map(|state| of(&state.client)));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxLocalSegmentSize() -> usize {
    largest_segment("gasnet_getMaxLocalSegmentSize", Client::max_local_segment)
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_getMaxGlobalSegmentSize() -> usize {
    largest_segment("gasnet_getMaxGlobalSegmentSize", Client::max_global_segment)
}

/// What tools find in the file of a program.
static IDENTIFICATION: [&str; 7] = [
    concat!(
        "$GASNetConfig: (libgasnet) RELEASE=2025.8.0,SPEC=0.19,CONDUIT=IBV(IBV-2.17/IBV-2.17),",
        "THREADMODEL=",
        mode!(),
        ",SEGMENT=FAST,PTR=64bit,CACHE_LINE_BYTES=64,noalign,pshm,",
        build!(),
        ",notrace,",
        "nostats,nodebugmalloc,nosrclines,timers_native,membars_native,atomics_native,atomic32_native,",
        "atomic64_native,notiopt $\0"
    ),
    concat!("$GASNetThreadModel: GASNET_", mode!(), " $\0"),
    "$GASNetAPIVersion: 1 $\0",
    "$GASNetEXAPIVersion: 0.19 $\0",
    "$GASNetSegment: GASNET_SEGMENT_FAST $\0",
    "$GASNetCoreLibraryVersion: 2.17 $\0",
    "$GASNetCoreLibraryName: IBV $\0",
];
