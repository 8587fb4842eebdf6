//! The C interface of PMI-1 over the server that the agents of `gasnetrun_ibv` offer (`PMI_FD`).
//!
//! Open MPI 4 opens such a library when it is told to (`FLUX_PMI_LIBRARY_PATH`): so its ranks are served
//! although they do not speak the wire themselves. The launcher names this file to them. What goes wrong
//! is said on standard error; the caller gets `PMI_FAIL`.
#![allow(unsafe_code, reason = "a C interface")]

use std::ffi::{CStr, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bootstrap::service::Error;
use settings::Env;
use spawner_pmi::client::c_interface::{Connection, KEY_LIMIT};

const SUCCESS: c_int = 0;
const FAIL: c_int = -1;
const ERR_INIT: c_int = 1;
const ERR_INVALID_ARG: c_int = 3;
/// Longest name of a space of keys, as the standard header has it.
const NAME_LIMIT: usize = 256;

static CONNECTION: Mutex<Option<Connection>> = Mutex::new(None);

fn connection() -> MutexGuard<'static, Option<Connection>> {
    CONNECTION.lock().unwrap_or_else(PoisonError::into_inner)
}

fn status(outcome: Result<(), Error>) -> c_int {
    match outcome {
        Ok(()) => SUCCESS,
        Err(error) => {
            eprintln!("gasnetrun_ibv: PMI: {error}");
            FAIL
        }
    }
}

/// What a call does with the connection, once there is one.
fn with(call: impl FnOnce(&mut Connection) -> Result<(), Error>) -> c_int {
    connection().as_mut().map_or(ERR_INIT, |connection| status(call(connection)))
}

/// Writes a number where the caller wants it.
///
/// # Safety
/// `place` is null or a live int.
unsafe fn answer(place: *mut c_int, number: impl TryInto<c_int>) -> c_int {
    match number.try_into() {
        Ok(number) if !place.is_null() => {
            // SAFETY: not null, and a live int by the caller's promise.
            unsafe { place.write(number) };
            SUCCESS
        }
        _ => ERR_INVALID_ARG,
    }
}

/// Writes a text with a zero at its end where the caller wants it.
///
/// # Safety
/// `place` is null or has room for `room` bytes.
unsafe fn answer_text(place: *mut c_char, room: c_int, text: &str) -> c_int {
    let room = usize::try_from(room).unwrap_or(0);
    if place.is_null() || text.len() >= room {
        return ERR_INVALID_ARG;
    }
    // SAFETY: not null, and the text with its zero fits into the room that the caller promised.
    let place = unsafe { std::slice::from_raw_parts_mut(place.cast::<u8>(), text.len() + 1) };
    place[..text.len()].copy_from_slice(text.as_bytes());
    place[text.len()] = 0;
    SUCCESS
}

/// A text of the caller.
///
/// # Safety
/// `text` is null or has a zero at its end.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: by the caller's promise, where it is not null.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?.to_str().ok()
}

/// A number that the connection knows.
///
/// # Safety
/// `place` is null or a live int.
unsafe fn number(place: *mut c_int, of: impl FnOnce(&Connection) -> u32) -> c_int {
    let number = connection().as_ref().map(of);
    // SAFETY: the caller's promise.
    number.map_or(ERR_INIT, |number| unsafe { answer(place, number) })
}

/// Connects; `spawned` is always false.
///
/// # Safety
/// `spawned` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Init(spawned: *mut c_int) -> c_int {
    let mut connection = connection();
    if connection.is_none() {
        match Connection::open(&Env::from_process()) {
            Ok(opened) => *connection = Some(opened),
            Err(error) => return status(Err(error)),
        }
    }
    // SAFETY: the caller's promise.
    unsafe { answer(spawned, 0) }
}

/// Whether [`PMI_Init`] was called.
///
/// # Safety
/// `initialized` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Initialized(initialized: *mut c_int) -> c_int {
    let is = connection().is_some();
    // SAFETY: the caller's promise.
    unsafe { answer(initialized, c_int::from(is)) }
}

/// Takes leave.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_Finalize() -> c_int {
    let taken = connection().take();
    taken.map_or(ERR_INIT, |mut connection| status(connection.finalize()))
}

/// Ranks of the job.
///
/// # Safety
/// `size` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_size(size: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { number(size, Connection::size) }
}

/// This rank.
///
/// # Safety
/// `rank` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_rank(rank: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { number(rank, Connection::rank) }
}

/// As [`PMI_Get_size`]: no further ranks can be started.
///
/// # Safety
/// `size` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_universe_size(size: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { number(size, Connection::size) }
}

/// Number of this rank's program in the job.
///
/// # Safety
/// `program` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_appnum(program: *mut c_int) -> c_int {
    let mut found = 0;
    match with(|connection| connection.program().map(|number| found = number)) {
        // SAFETY: the caller's promise.
        SUCCESS => unsafe { answer(program, found) },
        failed => failed,
    }
}

/// Ranks of this host.
///
/// # Safety
/// `size` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_size(size: *mut c_int) -> c_int {
    let mut found = 0;
    match with(|connection| connection.neighbours().map(|all| found = all.len())) {
        // SAFETY: the caller's promise.
        SUCCESS => unsafe { answer(size, found) },
        failed => failed,
    }
}

/// Which ranks those are.
///
/// # Safety
/// `ranks` is null or has room for `length` ints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) -> c_int {
    let mut found = Vec::new();
    let outcome = with(|connection| connection.neighbours().map(|all| found = all));
    if outcome != SUCCESS {
        return outcome;
    }
    if ranks.is_null() || usize::try_from(length).unwrap_or(0) < found.len() {
        return ERR_INVALID_ARG;
    }
    // SAFETY: not null, and room for as many by the caller's promise.
    let place = unsafe { std::slice::from_raw_parts_mut(ranks, found.len()) };
    for (place, rank) in place.iter_mut().zip(found) {
        *place = c_int::try_from(rank).unwrap_or(c_int::MAX);
    }
    SUCCESS
}

/// Waits for all ranks; what was put before can be read then.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_Barrier() -> c_int {
    with(Connection::fence)
}

/// Ends the job. Does not return.
///
/// # Safety
/// `message` is null or has a zero at its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Abort(code: c_int, message: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    if let Some(message) = unsafe { text(message) }.filter(|message| !message.is_empty()) {
        eprintln!("{}", message.trim_end());
    }
    // Another thread may be inside a call, which ends with the process.
    if let Ok(connection) = CONNECTION.try_lock()
        && let Some(connection) = &*connection
    {
        connection.abort(code);
    }
    bootstrap::sys::end_process(code)
}

/// Name of the space of keys.
///
/// # Safety
/// `name` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_my_name(name: *mut c_char, length: c_int) -> c_int {
    let connection = connection();
    // SAFETY: the caller's promise.
    connection.as_ref().map_or(ERR_INIT, |one| unsafe { answer_text(name, length, one.space()) })
}

/// Longest name of a space of keys.
///
/// # Safety
/// `length` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_name_length_max(length: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(length, NAME_LIMIT) }
}

/// Longest key.
///
/// # Safety
/// `length` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_key_length_max(length: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { answer(length, KEY_LIMIT) }
}

/// Longest value.
///
/// # Safety
/// `length` is null or a live int.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_value_length_max(length: *mut c_int) -> c_int {
    let limit = connection().as_ref().map(Connection::value_limit);
    // SAFETY: the caller's promise.
    limit.map_or(ERR_INIT, |limit| unsafe { answer(length, limit) })
}

/// Puts a value into the only space there is.
///
/// # Safety
/// All texts are null or have a zero at their ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Put(
    _space: *const c_char,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let key = unsafe { text(key) };
    // SAFETY: as above.
    let value = unsafe { text(value) };
    let (Some(key), Some(value)) = (key, value) else { return ERR_INVALID_ARG };
    with(|connection| connection.put(key, value))
}

/// Nothing to be done: the server has what was put.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_KVS_Commit(_space: *const c_char) -> c_int {
    SUCCESS
}

/// The value of a key.
///
/// # Safety
/// Texts are null or have a zero at their ends; `value` is null or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get(
    _space: *const c_char,
    key: *const c_char,
    value: *mut c_char,
    length: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(key) = (unsafe { text(key) }) else { return ERR_INVALID_ARG };
    let mut found = None;
    match with(|connection| connection.get(key).map(|value| found = value)) {
        SUCCESS => {}
        failed => return failed,
    }
    // A key that is not there is no failure that people must hear of.
    // SAFETY: the caller's promise.
    found.map_or(FAIL, |found| unsafe { answer_text(value, length, &found) })
}
