//! Anonymous memory that a provider makes and hands to ranks as descriptors. A killed job leaves no
//! file behind.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

const FLAGS: MFdFlags = MFdFlags::MFD_CLOEXEC.union(MFdFlags::MFD_ALLOW_SEALING);
/// Memory that cannot shrink cannot take a process down that reads it.
const FIXED_SIZE: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

/// Memory that holds `bytes` and that nobody can change or resize any more: the result of an
/// exchange.
///
/// # Errors
/// No memory or no descriptors.
pub fn result(bytes: &[u8]) -> io::Result<OwnedFd> {
    result_in_pieces(&[bytes]).map(|(fd, _)| fd)
}

/// As [`result`], of what stands in several places; with its length.
///
/// # Errors
/// As [`result`].
pub fn result_in_pieces(pieces: &[impl AsRef<[u8]>]) -> io::Result<(OwnedFd, usize)> {
    let mut file = File::from(memfd_create(c"gasnet-exchange", FLAGS)?);
    let mut len = 0;
    for piece in pieces.iter().map(AsRef::as_ref) {
        file.write_all(piece)?;
        len += piece.len();
    }
    fcntl(&file, FcntlArg::F_ADD_SEALS(FIXED_SIZE | SealFlag::F_SEAL_WRITE))?;
    Ok((file.into(), len))
}

/// Zeroed memory of `len` bytes whose size cannot change any more: the ranks of a host share it
/// read-write. Pages are taken when they are touched first.
///
/// # Errors
/// No descriptors, or `len` is beyond what the system can address.
pub fn zeroed(len: u64) -> io::Result<OwnedFd> {
    named(c"gasnet-host-memory", len)
}

/// As [`zeroed`], with a name for people.
pub(crate) fn named(name: &CStr, len: u64) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, FLAGS)?;
    nix::unistd::ftruncate(&fd, i64::try_from(len).map_err(io::Error::other)?)?;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(FIXED_SIZE))?;
    Ok(fd)
}

/// Whether the contents of `fd` can neither change nor shrink: then a mapping of it is an ordinary
/// byte slice.
pub(crate) fn is_frozen(fd: &OwnedFd) -> io::Result<bool> {
    let seals = SealFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GET_SEALS)?);
    Ok(seals.contains(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK))
}
