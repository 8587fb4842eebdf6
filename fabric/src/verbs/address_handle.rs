//! Paths to ports, and address handles.

use std::io;
use std::sync::Arc;

use crate::{Address, AddressHandle, Error, checks};

use super::domain::{Domain, Object};
use super::{diagnose, ffi, port};

/// Hops that a routed packet may make.
const HOP_LIMIT: u8 = 64;

pub(super) fn path(port: u8, to: &Address) -> ffi::AhAttr {
    let mut attr = ffi::AhAttr { dlid: to.lid, port_num: port, ..ffi::AhAttr::ZERO };
    if to.global {
        attr.is_global = 1;
        attr.grh.dgid = ffi::Gid(to.gid.0);
        attr.grh.sgid_index = to.sgid_index;
        attr.grh.hop_limit = HOP_LIMIT;
    }
    attr
}

/// A port to send datagrams to.
#[derive(Debug)]
pub(super) struct VerbsAh(pub(super) Object<ffi::Ah>);

impl VerbsAh {
    pub(super) fn new(domain: &Arc<Domain>, port: u8, to: &Address) -> Result<Self, Error> {
        const MAKE: &str = "make an address handle";
        let opened = &domain.opened;
        checks::port(&opened.info, MAKE, port)?;
        let mut attr = path(port, to);
        // SAFETY: a living domain; the attributes are only read.
        let made = unsafe { (opened.library.create_ah)(domain.pd.as_ptr(), &raw mut attr) };
        if made.is_null() {
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
            return Err(opened.os(format!("{MAKE} for {peer} from port {port}"), source));
        }
        Object::new(domain, made, opened.library.destroy_ah, MAKE).map(Self)
    }
}

impl AddressHandle for VerbsAh {}
