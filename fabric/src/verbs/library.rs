//! libibverbs, opened at run time: a program starts and works without it.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::NonNull;

use crate::Error;

use super::ffi;

const DEFAULT: &str = "libibverbs.so.1";

/// What to do about a library that is not there.
const INSTALL: &str = "install the package libibverbs1 (Debian) or libibverbs (Red Hat) of rdma-core, with the \
                       providers of the adapter (ibverbs-providers)";

/// Declares the table of functions and the code that fills it.
macro_rules! functions {
    ($($field:ident = $symbol:literal ($version:literal): $kind:ty;)*) => {
        /// The functions of the library that are called by name.
        pub(crate) struct Library {
            /// Name or path, for messages.
            pub(crate) name: String,
            $(pub(crate) $field: $kind,)*
            /// All used GID entries of a device in one call; since version 1.11 of the interface.
            pub(crate) query_gid_table: Option<QueryGidTable>,
            /// What has to be done for children; since version 1.13 of the interface.
            pub(crate) is_fork_initialized: Option<IsForkInitialized>,
        }

        impl Library {
            fn load(name: String, handle: &Handle) -> Result<Self, Error> {
                Ok(Self {
                    $($field: {
                        let found = handle.symbol(&name, $symbol, $version)?;
                        // SAFETY: the symbol of this name and version has this type in the
                        // library's stable interface.
                        unsafe { std::mem::transmute::<NonNull<c_void>, $kind>(found) }
                    },)*
                    query_gid_table: handle.symbol(&name, c"_ibv_query_gid_table", c"IBVERBS_1.11").ok().map(|found| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<NonNull<c_void>, QueryGidTable>(found) }
                    }),
                    is_fork_initialized: handle.symbol(&name, c"ibv_is_fork_initialized", c"IBVERBS_1.13").ok().map(|found| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<NonNull<c_void>, IsForkInitialized>(found) }
                    }),
                    name,
                })
            }
        }
    };
}

pub(crate) type QueryGidTable =
    unsafe extern "C" fn(*mut ffi::Context, *mut ffi::GidEntry, usize, u32, usize) -> isize;

pub(crate) type IsForkInitialized = unsafe extern "C" fn() -> c_int;

functions! {
    fork_init = c"ibv_fork_init" (c"IBVERBS_1.1"): unsafe extern "C" fn() -> c_int;
    get_device_list = c"ibv_get_device_list" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut c_int) -> *mut *mut ffi::Device;
    free_device_list = c"ibv_free_device_list" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut *mut ffi::Device);
    open_device = c"ibv_open_device" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Device) -> *mut ffi::Context;
    close_device = c"ibv_close_device" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context) -> c_int;
    query_device = c"ibv_query_device" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context, *mut ffi::DeviceAttr) -> c_int;
    query_port = c"ibv_query_port" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context, u8, *mut ffi::PortAttr) -> c_int;
    query_gid = c"ibv_query_gid" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context, u8, c_int, *mut ffi::Gid) -> c_int;
    query_pkey = c"ibv_query_pkey" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context, u8, c_int, *mut u16) -> c_int;
    alloc_pd = c"ibv_alloc_pd" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context) -> *mut ffi::Pd;
    dealloc_pd = c"ibv_dealloc_pd" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Pd) -> c_int;
    reg_mr = c"ibv_reg_mr" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Pd, *mut c_void, usize, c_int) -> *mut ffi::Mr;
    dereg_mr = c"ibv_dereg_mr" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Mr) -> c_int;
    create_comp_channel = c"ibv_create_comp_channel" (c"IBVERBS_1.0"): unsafe extern "C" fn(*mut ffi::Context) -> *mut ffi::CompChannel;
    destroy_comp_channel = c"ibv_destroy_comp_channel" (c"IBVERBS_1.0"): unsafe extern "C" fn(*mut ffi::CompChannel) -> c_int;
    create_cq = c"ibv_create_cq" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context, c_int, *mut c_void, *mut ffi::CompChannel, c_int) -> *mut ffi::Cq;
    destroy_cq = c"ibv_destroy_cq" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Cq) -> c_int;
    get_cq_event = c"ibv_get_cq_event" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::CompChannel, *mut *mut ffi::Cq, *mut *mut c_void) -> c_int;
    ack_cq_events = c"ibv_ack_cq_events" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Cq, c_uint);
    create_srq = c"ibv_create_srq" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Pd, *mut ffi::SrqInitAttr) -> *mut ffi::Srq;
    destroy_srq = c"ibv_destroy_srq" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Srq) -> c_int;
    create_qp = c"ibv_create_qp" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Pd, *mut ffi::QpInitAttr) -> *mut ffi::Qp;
    modify_qp = c"ibv_modify_qp" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Qp, *mut ffi::QpAttr, c_int) -> c_int;
    query_qp = c"ibv_query_qp" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Qp, *mut ffi::QpAttr, c_int, *mut ffi::QpInitAttr) -> c_int;
    destroy_qp = c"ibv_destroy_qp" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Qp) -> c_int;
    create_ah = c"ibv_create_ah" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Pd, *mut ffi::AhAttr) -> *mut ffi::Ah;
    destroy_ah = c"ibv_destroy_ah" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Ah) -> c_int;
    get_async_event = c"ibv_get_async_event" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::Context, *mut ffi::AsyncEvent) -> c_int;
    ack_async_event = c"ibv_ack_async_event" (c"IBVERBS_1.1"): unsafe extern "C" fn(*mut ffi::AsyncEvent);
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Library").field(&self.name).finish()
    }
}

impl Library {
    /// Opens `path`, or the system's library.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Error> {
        let name = path.map_or_else(|| DEFAULT.to_owned(), |path| path.display().to_string());
        let handle = Handle::open(&name)?;
        Self::load(name, &handle)
    }
}

/// What the loader gave. The library stays loaded until the process ends: providers leave handlers
/// and mappings behind.
struct Handle(NonNull<c_void>);

impl Handle {
    fn open(name: &str) -> Result<Self, Error> {
        let missing = |said: &str| Error::Library {
            library: name.to_owned(),
            problem: format!("{said}; {INSTALL}"),
        };
        let file = CString::new(name).map_err(|_| missing("the name has a zero byte"))?;
        // SAFETY: a name with a zero at its end; what the library's constructors do is its affair.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(|| missing(&loader_error()))
    }

    /// The address of a function, by preference of exactly this version.
    fn symbol(
        &self,
        library: &str,
        symbol: &CStr,
        version: &CStr,
    ) -> Result<NonNull<c_void>, Error> {
        let handle = self.0.as_ptr();
        // SAFETY: an open handle and texts with a zero at their end.
        let versioned = unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) };
        NonNull::new(versioned)
            .or_else(|| {
                // SAFETY: as above.
                NonNull::new(unsafe { libc::dlsym(handle, symbol.as_ptr()) })
            })
            .ok_or_else(|| Error::Library {
                library: library.to_owned(),
                problem: format!(
                    "it lacks the function {}@{} ({}); a libibverbs of rdma-core 17 or later is needed",
                    symbol.to_string_lossy(),
                    version.to_string_lossy(),
                    loader_error(),
                ),
            })
    }
}

fn loader_error() -> String {
    // SAFETY: no arguments.
    let text: *const c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not null; the text stays until this thread's next call of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
