//! The functions that extended reliable connections need.

use std::ffi::c_void;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::context::Opened;
use super::ffi;

/// Functions of the library's table that only these connections need; older providers leave them
/// out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub(super) open_domain: ffi::OpenXrcd,
    pub(super) close_domain: ffi::CloseXrcd,
    pub(super) create_srq: ffi::CreateSrqEx,
    pub(super) srq_number: ffi::GetSrqNum,
    pub(super) create_qp: ffi::CreateQpEx,
    pub(super) open_qp: ffi::OpenQp,
}

impl Functions {
    /// All of them, or what is missing, in words that go behind "the device has no".
    pub(super) fn of(opened: &Opened) -> Result<Self, &'static str> {
        const NO_TABLE: &str = "table of functions for extended reliable connections (XRC)";
        let offset = offset_of!(ffi::VerbsContextTail, xrc);
        let tail = opened.extension(offset).ok_or(NO_TABLE)?;
        // SAFETY: the table reaches down to these entries, which do not change once the device is
        // open.
        let entries = unsafe { (*tail.as_ptr()).xrc };
        Ok(Self {
            open_domain: entries.open_xrcd.ok_or("function open_xrcd, which XRC needs")?,
            close_domain: entries.close_xrcd.ok_or("function close_xrcd, which XRC needs")?,
            create_srq: entries.create_srq_ex.ok_or("function create_srq_ex, which XRC needs")?,
            srq_number: entries.get_srq_num.ok_or("function get_srq_num, which XRC needs")?,
            create_qp: entries.create_qp_ex.ok_or("function create_qp_ex, which XRC needs")?,
            open_qp: entries.open_qp.ok_or("function open_qp, which XRC needs")?,
        })
    }

    pub(super) fn open(&self, opened: &Opened, file: Option<BorrowedFd<'_>>) -> *mut c_void {
        let mut wanted = ffi::XrcdInitAttr {
            comp_mask: ffi::XRCD_FD_AND_FLAGS,
            fd: file.map_or(-1, |file| file.as_raw_fd()),
            oflags: libc::O_CREAT,
        };
        // SAFETY: an open context; descriptor -1 asks for a domain without a file.
        unsafe { (self.open_domain)(opened.context.as_ptr(), &raw mut wanted) }
    }

    /// Whether a domain can really be opened: some drivers have the bit and the functions without
    /// it.
    pub(super) fn work(&self, opened: &Opened) -> bool {
        let domain = self.open(opened, None);
        // SAFETY: the domain that was just opened, closed once.
        !domain.is_null() && unsafe { (self.close_domain)(domain) } == 0
    }
}
