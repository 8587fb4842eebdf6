//! Errors as C programs see them: a code, and a text on the error stream unless the program
//! switched it off.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use gasnet_ibv::Error;
use gasnet_ibv::inner;

use crate::checks;

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
    /// Another process of the job says it for all.
    silent: bool,
}

impl Fail {
    #[cold]
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), silent: false }
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
        if VERBOSE.load(Ordering::Relaxed) && !self.silent {
            let (name, description) = texts(self.code);
            let (name, description) = (name.to_string_lossy(), description.to_string_lossy());
            inner::say(&format!(
                "GASNet {call} returning an error code: {name} ({description}): {}",
                self.text
            ));
        }
        self.code
    }

    /// Ends the process: the call has no way to return an error.
    #[cold]
    pub fn fatal(&self, call: &str) -> ! {
        let name = texts(self.code).0.to_string_lossy();
        gasnet_ibv::fatal_error(&format!("{call}: {name}: {}", self.text))
    }
}

/// Returns an error of the program's making from the caller unless something holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::fail::Fail::bad(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;

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
            | Error::Defaults(_)
            | Error::Network(_)
            | Error::TooManyOperations { .. }
            | Error::Os { .. }
            | Error::LayoutMismatch { .. }
            | Error::HandlerIndexRange { .. }
            | Error::HandlerIndexTaken { .. }
            | Error::HandlerTableFull { .. } => RESOURCE,
            Error::BarrierMismatch => BARRIER_MISMATCH,
            _ => BAD_ARG,
        };
        let silent = matches!(&error, Error::Bootstrap(error) if error.is_said_elsewhere());
        Self { code, text: error.to_string(), silent }
    }
}

/// What a call returns that returns a code; errors are reported.
#[inline]
pub fn status(call: &str, run: impl FnOnce() -> Result<c_int, Fail>) -> c_int {
    let _inside = checks::enter(call);
    run().unwrap_or_else(|fail| fail.report(call))
}

/// As [`status`] for calls that succeed in one way.
#[inline]
pub fn code(call: &str, run: impl FnOnce() -> Result<(), Fail>) -> c_int {
    status(call, || run().map(|()| OK))
}

/// The value of a query; an error is reported and becomes `other`.
#[inline]
pub fn value<T>(call: &str, other: T, run: impl FnOnce() -> Result<T, Fail>) -> T {
    let _inside = checks::enter(call);
    run().unwrap_or_else(|fail| {
        fail.report(call);
        other
    })
}

/// The value of a call; an error ends the process.
#[inline]
pub fn must<T>(call: &str, run: impl FnOnce() -> Result<T, Fail>) -> T {
    let _inside = checks::enter(call);
    run().unwrap_or_else(|fail| fail.fatal(call))
}

/// What a transfer returns whose only other answer is "not injected", so that programs do not look
/// at it: an error ends the process before the program goes on with data that never moved. Outside
/// the life of the job nothing can be wrong with data any more, so a call before init or after the
/// end is reported and returns its code.
#[inline]
pub fn injected(call: &str, run: impl FnOnce() -> Result<c_int, Fail>) -> c_int {
    let _inside = checks::enter(call);
    run().unwrap_or_else(|fail| match fail.code {
        NOT_INIT => fail.report(call),
        _ => fail.fatal(call),
    })
}

/// Name and description of a code.
const fn texts(code: c_int) -> (&'static CStr, &'static CStr) {
    match code {
        OK => (c"GASNET_OK", c"No error"),
        NOT_INIT => (c"GASNET_ERR_NOT_INIT", c"GASNet message layer not initialized"),
        RESOURCE => (c"GASNET_ERR_RESOURCE", c"Problem with requested resource"),
        BAD_ARG => (c"GASNET_ERR_BAD_ARG", c"Invalid function parameter passed"),
        NOT_READY => (c"GASNET_ERR_NOT_READY", c"Non-blocking operation not complete"),
        BARRIER_MISMATCH => (c"GASNET_ERR_BARRIER_MISMATCH", c"Barrier id's mismatched"),
        _ => (c"*unknown*", c"no description available"),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_ErrorName(code: c_int) -> *const c_char {
    texts(code).0.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn gasnet_ErrorDesc(code: c_int) -> *const c_char {
    texts(code).1.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_System_GetVerboseErrors() -> c_int {
    c_int::from(VERBOSE.load(Ordering::Relaxed))
}

#[unsafe(no_mangle)]
pub extern "C" fn gex_System_SetVerboseErrors(enable: c_int) {
    VERBOSE.store(enable != 0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_cannot_help_is_a_lack_of_resources() {
        let lost = Error::Network("rank 3 on n2: the connection was closed".to_owned());
        assert_eq!(Fail::from(lost).code, RESOURCE);
        assert_eq!(Fail::from(Error::TooManyOperations { call: "put" }).code, RESOURCE);
        assert_eq!(Fail::from(Error::InitTwice).code, NOT_INIT);
    }
}
