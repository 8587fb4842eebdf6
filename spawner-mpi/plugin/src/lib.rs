//! What a rank under an MPI launcher needs of MPI, behind a C interface: one library per flavour of
//! MPI, found and opened at run time by `spawner_mpi::client` (`docs/design/process-managers.md`).
//! Built by `scripts/build-mpi-plugin`.
//!
//! The one exported symbol is `gasnetrun_mpi_plugin`, which returns a [`Table`]. Version and length
//! come first; later versions may only add functions behind the last. No memory is given away in
//! either direction and nothing unwinds across the border: there is no code here that panics. All
//! functions are called by one thread at a time. They return 0, or a code for [`Table::explain`].

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use mpi::ffi;

/// Version of the interface; `bootstrap` has the same number.
const VERSION: u32 = 1;
/// Our own code: a function was called at the wrong time.
const MISUSED: c_int = -1;
/// Our own code: the program has finalised MPI behind our back.
const FINALIZED: c_int = -2;

/// What [`Table::init`] finds out.
#[repr(C)]
pub struct Job {
    rank: u32,
    size: u32,
    /// Thread level that MPI grants, 0 to 3.
    level: u32,
    /// 1 when the program had initialised MPI already.
    before: u32,
}

/// The interface.
#[repr(C)]
pub struct Table {
    /// [`VERSION`].
    version: u32,
    /// Bytes of this table.
    length: u32,
    /// What the MPI library says of itself, at most `length` bytes with a zero at the end.
    library: extern "C" fn(text: *mut c_char, length: usize),
    /// Initialises MPI with thread level 0 to 3, unless the program has, and makes a communicator
    /// of our own.
    init: extern "C" fn(level: c_int, job: *mut Job) -> c_int,
    /// Begins a gather: `counts[r]` bytes of rank `r` come to `displacements[r]` of `to` on all
    /// ranks. All memory must live until [`Table::test`] says that it is done.
    begin: extern "C" fn(
        from: *const c_void,
        count: c_int,
        to: *mut c_void,
        counts: *const c_int,
        displacements: *const c_int,
    ) -> c_int,
    /// Whether the gather is done.
    test: extern "C" fn(done: *mut c_int) -> c_int,
    /// Frees our communicator; finalises MPI when `end` is not 0 and this library initialised it.
    finalize: extern "C" fn(end: c_int) -> c_int,
    /// Ends the job.
    abort: extern "C" fn(code: c_int),
    /// Words for a code, at most `length` bytes with a zero at the end.
    explain: extern "C" fn(code: c_int, text: *mut c_char, length: usize),
}

struct State {
    comm: ffi::MPI_Comm,
    request: Option<ffi::MPI_Request>,
}

// SAFETY: handles of MPI are names; that one thread at a time uses them is the caller's promise.
unsafe impl Send for State {}

static STATE: Mutex<Option<State>> = Mutex::new(None);
static OURS: AtomicBool = AtomicBool::new(false);

static TABLE: Table = Table {
    version: VERSION,
    length: size_of::<Table>() as u32,
    library,
    init,
    begin,
    test,
    finalize,
    abort,
    explain,
};

/// The interface of this library.
#[unsafe(no_mangle)]
pub extern "C" fn gasnetrun_mpi_plugin() -> *const Table {
    &raw const TABLE
}

fn with(call: impl FnOnce(&mut State) -> c_int) -> c_int {
    if is_over() {
        return FINALIZED;
    }
    match STATE.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        Some(state) => call(state),
        None => MISUSED,
    }
}

fn is_over() -> bool {
    let mut over = 0;
    // SAFETY: allowed at any time; a place for the answer.
    unsafe { ffi::MPI_Finalized(&raw mut over) };
    over != 0
}

/// Writes a text with a zero at its end.
fn give(words: &[u8], text: *mut c_char, length: usize) {
    let count = words.len().min(length.saturating_sub(1));
    if length == 0 || text.is_null() {
        return;
    }
    // SAFETY: the caller's buffer has `length` bytes, more than `count`.
    unsafe { text.cast::<u8>().copy_from_nonoverlapping(words.as_ptr(), count) };
    // SAFETY: as above, `count` is below `length`.
    let end = unsafe { text.add(count) };
    // SAFETY: inside the buffer.
    unsafe { end.write(0) };
}

extern "C" fn library(text: *mut c_char, length: usize) {
    let mut words = [0u8; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
    let mut count = 0;
    // SAFETY: a buffer of the length that MPI asks for; allowed before initialisation.
    let code = unsafe { ffi::MPI_Get_library_version(words.as_mut_ptr().cast(), &raw mut count) };
    let count = usize::try_from(count).unwrap_or(0).min(words.len());
    give(if code == 0 { &words[..count] } else { b"unknown" }, text, length);
}

extern "C" fn init(level: c_int, job: *mut Job) -> c_int {
    if job.is_null() || is_over() {
        return if job.is_null() { MISUSED } else { FINALIZED };
    }
    let (mut before, mut granted) = (0, 0);
    // SAFETY: allowed at any time; a place for the answer.
    let mut code = unsafe { ffi::MPI_Initialized(&raw mut before) };
    if code == 0 && before == 0 {
        let (none, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: no arguments, a place for the answer.
        code = unsafe { ffi::MPI_Init_thread(none, nothing, level, &raw mut granted) };
        OURS.store(code == 0, Ordering::SeqCst);
    } else if code == 0 {
        // SAFETY: MPI is initialised; a place for the answer.
        code = unsafe { ffi::MPI_Query_thread(&raw mut granted) };
    }
    if code != 0 {
        return code;
    }
    // SAFETY: a constant of the MPI library.
    let world = unsafe { ffi::RSMPI_COMM_WORLD };
    // SAFETY: a constant of the MPI library.
    let mut comm = unsafe { ffi::RSMPI_COMM_NULL };
    // SAFETY: MPI is initialised; a place for the answer.
    code = unsafe { ffi::MPI_Comm_dup(world, &raw mut comm) };
    if code != 0 {
        return code;
    }
    let (mut rank, mut size) = (0, 0);
    // SAFETY: a live communicator; a place for the answer.
    code = unsafe { ffi::MPI_Comm_rank(comm, &raw mut rank) };
    if code != 0 {
        return code;
    }
    // SAFETY: as above.
    code = unsafe { ffi::MPI_Comm_size(comm, &raw mut size) };
    if code != 0 {
        return code;
    }
    *STATE.lock().unwrap_or_else(PoisonError::into_inner) = Some(State { comm, request: None });
    let word = |number: c_int| u32::try_from(number).unwrap_or(u32::MAX);
    let answer =
        Job { rank: word(rank), size: word(size), level: word(granted), before: word(before) };
    // SAFETY: not null, and the caller's place for one.
    unsafe { job.write(answer) };
    0
}

extern "C" fn begin(
    from: *const c_void,
    count: c_int,
    to: *mut c_void,
    counts: *const c_int,
    displacements: *const c_int,
) -> c_int {
    with(|state| {
        if state.request.is_some() {
            return MISUSED;
        }
        // SAFETY: a constant of the MPI library.
        let byte = unsafe { ffi::RSMPI_UINT8_T };
        let mut request = std::mem::MaybeUninit::uninit();
        // SAFETY: the caller promises the memory, as `Table::begin` says; a live communicator; a
        // place for the answer.
        let code = unsafe {
            ffi::MPI_Iallgatherv(
                from,
                count,
                byte,
                to,
                counts,
                displacements,
                byte,
                state.comm,
                request.as_mut_ptr(),
            )
        };
        if code == 0 {
            // SAFETY: MPI has written it.
            state.request = Some(unsafe { request.assume_init() });
        }
        code
    })
}

extern "C" fn test(done: *mut c_int) -> c_int {
    with(|state| {
        let Some(request) = state.request.as_mut() else { return MISUSED };
        if done.is_null() {
            return MISUSED;
        }
        let mut status = std::mem::MaybeUninit::<ffi::MPI_Status>::uninit();
        // SAFETY: the request under way and places for the answers.
        let code = unsafe { ffi::MPI_Test(request, done, status.as_mut_ptr()) };
        // SAFETY: written by MPI.
        if code != 0 || unsafe { done.read() } != 0 {
            state.request = None;
        }
        code
    })
}

extern "C" fn finalize(end: c_int) -> c_int {
    if is_over() {
        return FINALIZED;
    }
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut state) = state else { return MISUSED };
    if state.request.is_none() {
        // SAFETY: our own communicator, which nothing uses any more.
        unsafe { ffi::MPI_Comm_free(&raw mut state.comm) };
    }
    if end == 0 || !OURS.load(Ordering::SeqCst) {
        return 0;
    }
    // SAFETY: initialised by this library and not finalised.
    unsafe { ffi::MPI_Finalize() }
}

extern "C" fn abort(code: c_int) {
    if is_over() {
        return;
    }
    // SAFETY: a constant of the MPI library.
    let world = unsafe { ffi::RSMPI_COMM_WORLD };
    // SAFETY: MPI is initialised.
    unsafe { ffi::MPI_Abort(world, code) };
}

extern "C" fn explain(code: c_int, text: *mut c_char, length: usize) {
    match code {
        MISUSED => give(b"called at the wrong time", text, length),
        FINALIZED => give(b"the program has finalised MPI", text, length),
        _ => {
            let mut words = [0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
            let mut count = 0;
            // SAFETY: a buffer of the length that MPI asks for.
            unsafe { ffi::MPI_Error_string(code, words.as_mut_ptr().cast(), &raw mut count) };
            let count = usize::try_from(count).unwrap_or(0).min(words.len());
            give(&words[..count], text, length);
        }
    }
}
