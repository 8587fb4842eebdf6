//! Paths to ports, and address handles.

use std::any::Any;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Address, AddressHandle, Error};

use super::domain::Domain;
use super::{diagnose, ffi, port};

/// Hops that a routed packet may make.
const HOP_LIMIT: u8 = 64;

/// The path to a port.
pub(super) fn path(port: u8, to: &Address) -> ffi::AhAttr {
    let mut attr = ffi::AhAttr { dlid: to.lid, port_num: port, ..ffi::AhAttr::NONE };
    if to.global {
        attr.is_global = 1;
        attr.grh = ffi::GlobalRoute {
            dgid: ffi::Gid(to.gid.0),
            flow_label: 0,
            sgid_index: to.sgid_index,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
        };
    }
    attr
}

/// A port to send datagrams to.
#[derive(Debug)]
pub(super) struct VerbsAh {
    domain: Arc<Domain>,
    pub(super) ah: NonNull<ffi::Ah>,
}

// SAFETY: the library's calls may come from any thread.
unsafe impl Send for VerbsAh {}
// SAFETY: as above.
unsafe impl Sync for VerbsAh {}

impl VerbsAh {
    pub(super) fn new(domain: &Arc<Domain>, port: u8, to: &Address) -> Result<Self, Error> {
        const MAKE: &str = "make an address handle";
        let opened = &domain.opened;
        if port == 0 || port > opened.info.ports {
            let problem = format!("there is no port {port}, only 1 to {}", opened.info.ports);
            return Err(opened.argument(MAKE, problem));
        }
        let mut attr = path(port, to);
        // SAFETY: a living domain; the attributes are only read.
        let made = unsafe { (opened.library.create_ah)(domain.pd.as_ptr(), &raw mut attr) };
        if let Some(ah) = NonNull::new(made) {
            return Ok(Self { domain: Arc::clone(domain), ah });
        }
        let said = io::Error::last_os_error();
        let mut found = Vec::new();
        if let Ok(port) = port::query(opened, port) {
            diagnose::path(&attr, &port, &mut found);
        }
        let source = if found.is_empty() {
            said
        } else {
            io::Error::new(said.kind(), format!("{said}: {}", found.join("; ")))
        };
        let peer = if to.global { to.gid.ip().to_string() } else { format!("LID {}", to.lid) };
        Err(opened.os(format!("{MAKE} for {peer} from port {port}"), source))
    }

    #[inline]
    pub(super) fn is_of(&self, domain: &Arc<Domain>) -> bool {
        Arc::ptr_eq(&self.domain, domain)
    }
}

impl AddressHandle for VerbsAh {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for VerbsAh {
    fn drop(&mut self) {
        // SAFETY: made by the library, destroyed once.
        unsafe { (self.domain.opened.library.destroy_ah)(self.ah.as_ptr()) };
    }
}
