//! The few functions of libpmix that are needed, with the layouts that the PMIx standard froze.
#![allow(unsafe_code, reason = "the module that owns the calls into libpmix")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use crate::client::process_manager::Finalization;
use crate::pmix::{
    BOOL, Info, NAME, Proc, RANK_WILDCARD, STRING, SUCCESS, UINT32, Value, terminated,
};
use crate::shared_library::calls;
use bootstrap::sys;

const INT: u16 = 6;
const SCOPE_GLOBAL: u8 = 3;
/// Events that say that the server is gone: its name since PMIx 4, and the one before.
const LOST: [c_int; 2] = [-61, -101];
/// [`Pending::status`] before the answer. No status of PMIx is positive.
const UNDER_WAY: c_int = 1;

type OnDone = extern "C" fn(c_int, *mut c_void);
type OnHandled = extern "C" fn(c_int, *mut Info, usize, *mut c_void, *mut c_void, *mut c_void);
type OnEvent = extern "C" fn(
    usize,
    c_int,
    *const Proc,
    *mut Info,
    usize,
    *mut Info,
    usize,
    Option<OnHandled>,
    *mut c_void,
);

// The signatures of the PMIx standard since version 2.
calls! {
    NAME;
    init = c"PMIx_Init": unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
    finalize = c"PMIx_Finalize": unsafe extern "C" fn(*const Info, usize) -> c_int;
    abort = c"PMIx_Abort": unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int;
    put = c"PMIx_Put": unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
    commit = c"PMIx_Commit": unsafe extern "C" fn() -> c_int;
    fence_nb = c"PMIx_Fence_nb":
        unsafe extern "C" fn(*const Proc, usize, *const Info, usize, OnDone, *mut c_void) -> c_int;
    get = c"PMIx_Get":
        unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
    register = c"PMIx_Register_event_handler":
        unsafe extern "C" fn(*mut c_int, usize, *mut Info, usize, OnEvent, *mut c_void, *mut c_void) -> c_int;
    error_string = c"PMIx_Error_string": unsafe extern "C" fn(c_int) -> *const c_char;
}

impl Calls {
    /// Connects to the server that the environment names.
    pub(super) fn init(self) -> Result<Client, String> {
        let mut proc = Proc { nspace: [0; 256], rank: 0 };
        // SAFETY: a place for the answer, no directives.
        let code = unsafe { (self.init)(&raw mut proc, std::ptr::null_mut(), 0) };
        self.status(code)?;
        Ok(Client { calls: self, space: proc.nspace, rank: proc.rank })
    }

    /// What PMIx said no with.
    fn status(&self, code: c_int) -> Result<(), String> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: any number is allowed; the answer is a constant text.
        let text = unsafe { (self.error_string)(code) };
        let text = if text.is_null() {
            "unknown".into()
        } else {
            // SAFETY: not null, and a constant text of the library.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        Err(format!("{text} (status {code})"))
    }
}

/// A value as PMIx has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Number(u32),
    Text(String),
    /// A type that is not used here.
    Other(u16),
}

/// An initialised client. There is one in a process.
#[derive(Clone, Debug)]
pub(super) struct Client {
    calls: Calls,
    space: [u8; 256],
    /// Number of this rank.
    pub(super) rank: u32,
}

impl Client {
    /// Name of the job.
    pub(super) fn space(&self) -> String {
        let text = CStr::from_bytes_until_nul(&self.space).unwrap_or_default();
        text.to_string_lossy().into_owned()
    }

    /// What PMIx knows of `rank` (`None`: of the job) under one of its own or of a peer's keys.
    /// `optional`: only what is at hand.
    pub(super) fn get(
        &self,
        rank: Option<u32>,
        key: &str,
        optional: bool,
        seconds: i32,
    ) -> Result<Found, String> {
        let proc = Proc { nspace: self.space, rank: rank.unwrap_or(RANK_WILDCARD) };
        let key = terminated::<512>(key);
        let number = u64::from(seconds.unsigned_abs());
        let directive = if optional {
            Info::new("pmix.optional", BOOL, 1)
        } else {
            Info::new("pmix.timeout", INT, number)
        };
        let mut value: *mut Value = std::ptr::null_mut();
        // SAFETY: a process, a key with a zero at its end and one directive, all alive during the
        // call, and a place for the answer.
        let code = unsafe {
            (self.calls.get)(
                &raw const proc,
                key.as_ptr().cast(),
                &raw const directive,
                1,
                &raw mut value,
            )
        };
        self.calls.status(code)?;
        Ok(take(value))
    }

    /// Puts a text for all ranks; it is on its way after [`Client::commit`].
    pub(super) fn put(&self, key: &str, text: &str) -> Result<(), String> {
        let key = terminated::<512>(key);
        let text = CString::new(text).unwrap_or_default();
        let mut value = Value { kind: STRING, data: [text.as_ptr().addr() as u64, 0, 0] };
        // The address is a number in the union.
        text.as_ptr().expose_provenance();
        // SAFETY: key and text with a zero at their ends, alive during the call; PMIx copies both.
        let code = unsafe { (self.calls.put)(SCOPE_GLOBAL, key.as_ptr().cast(), &raw mut value) };
        self.calls.status(code)
    }

    /// Gives what was put to the server.
    pub(super) fn commit(&self) -> Result<(), String> {
        // SAFETY: no arguments.
        self.calls.status(unsafe { (self.calls.commit)() })
    }

    /// Begins a fence of all ranks of the job that collects what was put.
    pub(super) fn fence(&self) -> Result<Fence, String> {
        let proc = Proc { nspace: self.space, rank: RANK_WILDCARD };
        // PMIx may look at these until it answers; the callback frees them.
        let pending = Arc::new(Pending {
            status: AtomicI32::new(UNDER_WAY),
            bell: AtomicU32::new(0),
            proc,
            collect: Info::new("pmix.collect", BOOL, 1),
        });
        let theirs = Arc::into_raw(Arc::clone(&pending));
        let (procs, infos) = (&raw const pending.proc, &raw const pending.collect);
        // SAFETY: both arrays have one element and live until `done` has run, as does `theirs`,
        // whose count belongs to it.
        let code =
            unsafe { (self.calls.fence_nb)(procs, 1, infos, 1, done, theirs.cast_mut().cast()) };
        if code != SUCCESS {
            // SAFETY: the call failed, so `done` will not run and the count is still ours.
            drop(unsafe { Arc::from_raw(theirs) });
        }
        self.calls.status(code)?;
        Ok(Fence { pending, calls: self.calls })
    }

    /// From now on `finalization` hears when the server is gone. Once in a process.
    pub(super) fn on_lost_server(&self, finalization: &'static Finalization) -> Result<(), String> {
        LEAVING.get_or_init(|| finalization);
        let mut codes = LOST;
        let none = std::ptr::null_mut();
        // SAFETY: the codes live during the call, no directives; without a function for the answer
        // it waits for it.
        let code = unsafe {
            (self.calls.register)(
                codes.as_mut_ptr(),
                codes.len(),
                none,
                0,
                on_event,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
        // The number of the handler, or a status.
        self.calls.status(code.min(SUCCESS))
    }

    /// Orderly end. Further calls are refused by the library.
    pub(super) fn finalize(&self) {
        // SAFETY: no directives.
        unsafe { (self.calls.finalize)(std::ptr::null(), 0) };
    }

    /// Asks the server to end the job.
    pub(super) fn abort(&self, code: i32) {
        let text = c"a rank of this job asked for its end";
        // SAFETY: a text with a zero at its end; no list of processes means the whole job.
        unsafe { (self.calls.abort)(code, text.as_ptr(), std::ptr::null_mut(), 0) };
    }
}

struct Pending {
    status: AtomicI32,
    bell: AtomicU32,
    proc: Proc,
    collect: Info,
}

/// A fence under way. May be dropped before it is complete.
pub(super) struct Fence {
    pending: Arc<Pending>,
    calls: Calls,
}

impl Fence {
    /// Waits for the end, at most `slice`; `None` when it has not come.
    pub(super) fn wait(&self, slice: Duration) -> Option<Result<(), String>> {
        if self.pending.status.load(Ordering::Acquire) == UNDER_WAY {
            sys::futex_wait(&self.pending.bell, 0, slice);
        }
        match self.pending.status.load(Ordering::Acquire) {
            UNDER_WAY => None,
            code => Some(self.calls.status(code)),
        }
    }
}

/// Who hears of a lost server.
static LEAVING: std::sync::OnceLock<&'static Finalization> = std::sync::OnceLock::new();

/// Runs on a thread of the library.
extern "C" fn on_event(
    _: usize,
    _: c_int,
    _: *const Proc,
    _: *mut Info,
    _: usize,
    _: *mut Info,
    _: usize,
    handled: Option<OnHandled>,
    ours: *mut c_void,
) {
    if let Some(finalization) = LEAVING.get() {
        finalization.server_lost();
    }
    if let Some(handled) = handled {
        let none = std::ptr::null_mut();
        handled(SUCCESS, std::ptr::null_mut(), 0, none, none, ours);
    }
}

/// Runs on a thread of the library.
extern "C" fn done(code: c_int, pending: *mut c_void) {
    // SAFETY: the pointer that `Client::fence` gave away, once.
    let pending = unsafe { Arc::from_raw(pending.cast_const().cast::<Pending>()) };
    pending.status.store(code.min(SUCCESS), Ordering::Release);
    pending.bell.store(1, Ordering::Release);
    sys::futex_wake(&pending.bell, i32::MAX);
}

/// Copies and frees a value that PMIx has allocated.
fn take(value: *mut Value) -> Found {
    if value.is_null() {
        return Found::Other(0);
    }
    // SAFETY: not null, and made by PMIx for this caller.
    let Value { kind, data } = unsafe { value.read() };
    let address: *mut c_char =
        std::ptr::with_exposed_provenance_mut(usize::try_from(data[0]).unwrap_or(0));
    let found = match kind {
        #[expect(clippy::cast_possible_truncation, reason = "the union's member has 32 bits")]
        UINT32 => Found::Number(data[0] as u32),
        STRING if !address.is_null() => {
            // SAFETY: a text with a zero at its end, by the value's type.
            let text = unsafe { CStr::from_ptr(address) }.to_string_lossy().into_owned();
            // SAFETY: allocated by the library for the caller to free.
            unsafe { libc::free(address.cast()) };
            Found::Text(text)
        }
        other => Found::Other(other),
    };
    // SAFETY: as above.
    unsafe { libc::free(value.cast()) };
    found
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod layout_tests;
