//! Domains of extended reliable connections, as the library has them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use super::domain::Domain;
use super::xrc_functions::Functions;

/// What keeps a domain open.
pub(super) struct Xrcd {
    pub(super) domain: Arc<Domain>,
    pub(super) xrcd: NonNull<c_void>,
    pub(super) functions: Functions,
}

// SAFETY: libibverbs promises that its calls may come from any thread on any object.
unsafe impl Send for Xrcd {}
// SAFETY: as above.
unsafe impl Sync for Xrcd {}

impl std::fmt::Debug for Xrcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Xrcd({})", self.domain.opened.info.name)
    }
}

impl Drop for Xrcd {
    fn drop(&mut self) {
        // SAFETY: opened by the library; whatever was made in it held `self`.
        unsafe { (self.functions.close_domain)(self.xrcd.as_ptr()) };
    }
}
