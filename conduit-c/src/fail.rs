//! Errors as C programs see them: a code, and a text on the error stream unless the program
//! switched it off.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use gasnet_ibv::Error;
use gasnet_ibv::inner;

pub const OK: c_int = 0;
pub const NOT_INIT: c_int = 10001;
pub const RESOURCE: c_int = 10002;
pub const BAD_ARG: c_int = 10003;
pub const NOT_READY: c_int = 10004;
pub const BARRIER_MISMATCH: c_int = 10005;

/// `gex_System_SetVerboseErrors`.
pub static VERBOSE: AtomicBool = AtomicBool::new(true);

/// Why a call failed.
#[derive(Debug)]
pub struct Fail {
    code: c_int,
    text: String,
}

impl Fail {
    #[cold]
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    #[cold]
    pub fn bad(text: impl Into<String>) -> Self {
        Self::new(BAD_ARG, text)
    }

    #[cold]
    pub fn not_init() -> Self {
        Self::new(NOT_INIT, "called before gex_Client_Init")
    }

    /// Says what failed; the code.
    #[cold]
    pub fn report(&self, call: &str) -> c_int {
        if VERBOSE.load(Ordering::Relaxed) {
            inner::say(&self.sentence(call));
        }
        self.code
    }

    fn sentence(&self, call: &str) -> String {
        let (name, description) = (spelling(self.code), description(self.code));
        let (name, description) = (name.to_string_lossy(), description.to_string_lossy());
        format!("GASNet {call} returning an error code: {name} ({description}): {}", self.text)
    }

    /// Ends the process: the call has no way to return an error.
    #[cold]
    pub fn fatal(&self, call: &str) -> ! {
        let name = spelling(self.code).to_string_lossy();
        gasnet_ibv::fatal_error(&format!("{call}: {name}: {}", self.text))
    }
}

impl From<Error> for Fail {
    #[cold]
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Bootstrap(_)
            | Error::InitTwice
            | Error::SegmentAttached
            | Error::AfterExit { .. }
            | Error::JobEnding { .. } => NOT_INIT,
            Error::Variable(_)
            | Error::Setting { .. }
            | Error::NeedsNetwork { .. }
            | Error::Os { .. }
            | Error::LayoutMismatch { .. }
            | Error::HandlerIndexRange { .. }
            | Error::HandlerIndexTaken { .. }
            | Error::HandlerTableFull { .. } => RESOURCE,
            Error::BarrierMismatch => BARRIER_MISMATCH,
            _ => BAD_ARG,
        };
        Self { code, text: error.to_string() }
    }
}

/// The code of a result; errors are reported.
#[inline]
pub fn code(call: &str, result: Result<(), Fail>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(fail) => fail.report(call),
    }
}

/// The value of a result; an error is reported and becomes `other`.
#[inline]
pub fn value<T>(call: &str, other: T, result: Result<T, Fail>) -> T {
    result.unwrap_or_else(|fail| {
        fail.report(call);
        other
    })
}

/// The value of a result; an error ends the process.
#[inline]
pub fn must<T>(call: &str, result: Result<T, Fail>) -> T {
    result.unwrap_or_else(|fail| fail.fatal(call))
}

/// The result of a transfer whose only other answer is "not injected", so that programs do not look
/// at it: an error ends the process before the program goes on with data that never moved. Outside
/// the life of the job nothing can be wrong with data any more, so a call before init or after the
/// end is said and returns its code.
#[inline]
pub fn injected(call: &str, result: Result<(), Fail>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(fail) if fail.code == NOT_INIT => fail.report(call),
        Err(fail) => fail.fatal(call),
    }
}

pub const fn spelling(code: c_int) -> &'static CStr {
    match code {
        OK => c"GASNET_OK",
        NOT_INIT => c"GASNET_ERR_NOT_INIT",
        RESOURCE => c"GASNET_ERR_RESOURCE",
        BAD_ARG => c"GASNET_ERR_BAD_ARG",
        NOT_READY => c"GASNET_ERR_NOT_READY",
        BARRIER_MISMATCH => c"GASNET_ERR_BARRIER_MISMATCH",
        _ => c"*unknown*",
    }
}

pub const fn description(code: c_int) -> &'static CStr {
    match code {
        OK => c"No error",
        NOT_INIT => c"GASNet message layer not initialized",
        RESOURCE => c"Problem with requested resource",
        BAD_ARG => c"Invalid function parameter passed",
        NOT_READY => c"Non-blocking operation not complete",
        BARRIER_MISMATCH => c"Barrier id's mismatched",
        _ => c"no description available",
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_ErrorName(code: c_int) -> *const c_char {
    spelling(code).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_ErrorDesc(code: c_int) -> *const c_char {
    description(code).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_System_GetVerboseErrors() -> c_int {
    c_int::from(VERBOSE.load(Ordering::Relaxed))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_System_SetVerboseErrors(enable: c_int) {
    VERBOSE.store(enable != 0, Ordering::Relaxed);
}
