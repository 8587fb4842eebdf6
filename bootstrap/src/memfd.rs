//! Anonymous memory that a provider makes and hands to ranks as descriptors. A killed job leaves no
//! file behind.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

fn make(name: &CStr) -> io::Result<OwnedFd> {
    Ok(memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?)
}

fn seal(fd: &OwnedFd, seals: SealFlag) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}

/// Memory that holds `bytes` and that nobody can change or resize any more: the result of an
/// exchange.
///
/// # Errors
/// No memory or no descriptors.
pub fn result(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(make(c"gasnet-exchange")?);
    file.write_all(bytes)?;
    let fd = OwnedFd::from(file);
    seal(&fd, SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)?;
    Ok(fd)
}

/// Zeroed memory of `len` bytes whose size cannot change any more: the ranks of a host share it
/// read-write. Pages are taken when they are touched first.
///
/// # Errors
/// No descriptors, or `len` is beyond what the system can address.
pub fn zeroed(len: u64) -> io::Result<OwnedFd> {
    let fd = make(c"gasnet-host-memory")?;
    let len = i64::try_from(len).map_err(io::Error::other)?;
    nix::unistd::ftruncate(&fd, len)?;
    seal(&fd, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW)?;
    Ok(fd)
}

/// Whether the contents of `fd` can neither change nor shrink: then a mapping of it is an ordinary
/// byte slice.
pub(crate) fn is_frozen(fd: &OwnedFd) -> io::Result<bool> {
    let seals = SealFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GET_SEALS)?);
    Ok(seals.contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK))
}
