//! Libraries of others, opened at run time: a program that uses this crate starts where they are
//! not installed.
#![allow(unsafe_code, reason = "the module that owns the calls of the loader")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::NonNull;

/// An open library. It stays loaded until the process ends: such libraries leave threads and
/// handlers behind.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

impl Library {
    /// Opens a library by path, or by name where the loader looks for it. Its names are seen by the
    /// components that it loads itself.
    ///
    /// # Errors
    /// What the loader said.
    pub fn open(name: &str) -> Result<Self, String> {
        let file = CString::new(name).map_err(|_| "the name has a zero byte".to_owned())?;
        // SAFETY: a name with a zero at its end; what the library's constructors do is its affair.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        NonNull::new(handle).map(Self).ok_or_else(said)
    }

    /// A function as a value of type `T`.
    ///
    /// # Errors
    /// There is none of that name.
    ///
    /// # Safety
    /// The library's function of this name has that type.
    pub unsafe fn function<T: Copy>(self, name: &CStr) -> Result<T, String> {
        const { assert!(size_of::<T>() == size_of::<*mut c_void>()) };
        // SAFETY: an open handle and a text with a zero at its end.
        let found = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        if found.is_null() {
            return Err(format!("it lacks the function {} ({})", name.to_string_lossy(), said()));
        }
        // SAFETY: of the size of an address (asserted above), and of that type by the caller's
        // promise.
        Ok(unsafe { std::mem::transmute_copy(&found) })
    }
}

/// Declares the functions of a library, with the types that its documentation gives them, and how they
/// are found.
macro_rules! calls {
    ($library:expr; $($field:ident = $name:literal: $type:ty;)*) => {
        /// The functions.
        #[derive(Clone, Copy, Debug)]
        pub(super) struct Calls {
            $($field: $type,)*
        }

        impl Calls {
            /// Opens the library. Nothing is initialised.
            pub(super) fn load() -> Result<Self, String> {
                let failed = |problem| format!("cannot open {}: {problem}", $library);
                let library = $crate::shared_library::Library::open($library).map_err(failed)?;
                // SAFETY: the signatures that the library's documentation has.
                Ok(Self { $($field: unsafe { library.function($name) }.map_err(failed)?,)* })
            }
        }
    };
}
pub(crate) use calls;

/// What the loader said last.
fn said() -> String {
    // SAFETY: no arguments.
    let text: *const c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null; the text stays until this thread's next call of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
