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

/// What a question to the connection finds out, or the code of a failure.
fn found<T>(of: impl FnOnce(&mut Connection) -> Result<T, Error>) -> Result<T, c_int> {
    connection()
        .as_mut()
        .ok_or(ERR_INIT)
        .and_then(|one| of(one).map_err(|error| status(Err(error))))
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

/// Takes leave.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_Finalize() -> c_int {
    let taken = connection().take();
    taken.map_or(ERR_INIT, |mut connection| status(connection.finalize()))
}

/// Calls that answer one number.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $number:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `place` is null or a live int.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(place: *mut c_int) -> c_int {
            match $number {
                // SAFETY: the caller's promise.
                Ok(number) => unsafe { answer(place, number) },
                Err(code) => code,
            }
        }
    )*};
}

numbers! {
    /// Whether [`PMI_Init`] was called.
    PMI_Initialized = Ok::<_, c_int>(connection().is_some());
    /// Ranks of the job.
    PMI_Get_size = found(|connection| Ok(connection.size()));
    /// This rank.
    PMI_Get_rank = found(|connection| Ok(connection.rank()));
    /// As [`PMI_Get_size`]: no further ranks can be started.
    PMI_Get_universe_size = found(|connection| Ok(connection.size()));
    /// Number of this rank's program in the job.
    PMI_Get_appnum = found(Connection::program);
    /// Ranks of this host.
    PMI_Get_clique_size = found(|connection| Ok(connection.neighbours()?.len()));
    /// Longest name of a space of keys.
    PMI_KVS_Get_name_length_max = Ok::<_, c_int>(NAME_LIMIT);
    /// Longest key.
    PMI_KVS_Get_key_length_max = Ok::<_, c_int>(KEY_LIMIT);
    /// Longest value.
    PMI_KVS_Get_value_length_max = found(|connection| Ok(connection.value_limit()));
}

/// Which ranks those are.
///
/// # Safety
/// `ranks` is null or has room for `length` ints.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_clique_ranks(ranks: *mut c_int, length: c_int) -> c_int {
    let neighbours = match found(Connection::neighbours) {
        Ok(neighbours) => neighbours,
        Err(code) => return code,
    };
    if ranks.is_null() || usize::try_from(length).unwrap_or(0) < neighbours.len() {
        return ERR_INVALID_ARG;
    }
    // SAFETY: not null, and room for as many by the caller's promise.
    let place = unsafe { std::slice::from_raw_parts_mut(ranks, neighbours.len()) };
    for (place, rank) in place.iter_mut().zip(neighbours) {
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
    match found(|connection| connection.get(key)) {
        // SAFETY: the caller's promise.
        Ok(Some(found)) => unsafe { answer_text(value, length, &found) },
        // A key that is not there is no failure that people must hear of.
        Ok(None) => FAIL,
        Err(code) => code,
    }
}
