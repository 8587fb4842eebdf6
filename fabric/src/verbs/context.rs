//! An open device: its context, and what its calls return.

use std::ffi::c_int;
use std::io;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{DeviceInfo, Error};

use super::ffi;
use super::library::Library;

/// An open device. Everything made from it holds it.
pub(super) struct Opened {
    pub(super) library: Arc<Library>,
    pub(super) context: NonNull<ffi::Context>,
    pub(super) info: DeviceInfo,
    /// Its place in sysfs.
    pub(super) directory: PathBuf,
}

// SAFETY: libibverbs promises that its calls may come from any thread on any object; the context
// itself is only read here.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Opened {
    pub(super) fn open(
        library: &Arc<Library>,
        device: NonNull<ffi::Device>,
        directory: PathBuf,
        info: DeviceInfo,
    ) -> Result<Self, Error> {
        // SAFETY: a device of the library's list, which the caller holds.
        let context = unsafe { (library.open_device)(device.as_ptr()) };
        let Some(context) = NonNull::new(context) else {
            let said = io::Error::last_os_error();
            let source = match said.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => {
                    explained(&said, "see the permissions of /dev/infiniband/uverbs*")
                }
                _ => said,
            };
            return Err(Error::os(&info.name, "open the device", source));
        };
        Ok(Self { library: Arc::clone(library), context, info, directory })
    }

    /// An error of the system with its subject.
    pub(super) fn os(&self, operation: impl Into<String>, source: io::Error) -> Error {
        Error::os(&self.info.name, operation, source)
    }

    pub(super) fn argument(&self, operation: &'static str, problem: impl Into<String>) -> Error {
        Error::argument(&self.info.name, operation, problem)
    }

    pub(super) fn unsupported(&self, what: &'static str) -> Error {
        Error::unsupported(&self.info.name, what)
    }

    /// Calls that return 0 or an error number (some: -1 with errno).
    pub(super) fn check(&self, result: c_int, operation: &str) -> Result<(), Error> {
        if result == 0 { Ok(()) } else { Err(self.os(operation, failure(result))) }
    }

    /// A pointer that is null on failure, with the reason in errno.
    pub(super) fn made<T>(&self, made: *mut T, operation: &str) -> Result<NonNull<T>, Error> {
        NonNull::new(made).ok_or_else(|| self.os(operation, io::Error::last_os_error()))
    }

    pub(super) fn attributes(&self) -> Result<ffi::DeviceAttr, Error> {
        let mut seen = ffi::DeviceAttr::ZERO;
        // SAFETY: an open context and room for the answer.
        let result = unsafe { (self.library.query_device)(self.context.as_ptr(), &raw mut seen) };
        self.check(result, "query the device")?;
        Ok(seen)
    }

    /// The table of newer functions before the context, if it reaches down to `offset` of the part
    /// that is known here.
    pub(super) fn extension(&self, offset: usize) -> Option<NonNull<ffi::VerbsContextTail>> {
        let context = self.context.as_ptr();
        // SAFETY: an open context.
        let abi = unsafe { (*context).abi_compat };
        if abi.addr() != usize::MAX {
            return None;
        }
        // SAFETY: that mark says that the context is the end of the greater structure.
        let tail = unsafe { context.byte_sub(offset_of!(ffi::VerbsContextTail, context)) };
        let tail = tail.cast::<ffi::VerbsContextTail>();
        // SAFETY: the size stands directly before the context in every version.
        let size = unsafe { (*tail).size };
        let needed = size_of::<ffi::VerbsContextTail>() - offset;
        NonNull::new(tail).filter(|_| size >= needed)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Nothing can be done about a refusal: the device is gone, and the kernel cleans up when
        // the process ends. SAFETY: the last holder; nothing made from the context is left.
        unsafe { (self.library.close_device)(self.context.as_ptr()) };
    }
}

/// The error of a call that returned `result`: an error number, its negative, or -1 with errno.
pub(super) fn failure(result: c_int) -> io::Error {
    match result {
        -1 => io::Error::last_os_error(),
        number => io::Error::from_raw_os_error(number.saturating_abs()),
    }
}

pub(super) fn explained(said: &io::Error, advice: &str) -> io::Error {
    io::Error::new(said.kind(), format!("{said}: {advice}"))
}

/// Reads of a descriptor of the library then fail instead of waiting.
pub(super) fn make_nonblocking(fd: c_int) -> io::Result<()> {
    // SAFETY: the descriptor belongs to an object of the library that the caller holds.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL)?;
    let flags = nix::fcntl::OFlag::from_bits_retain(flags) | nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(flags))?;
    Ok(())
}
