//! One mapping: of host memory, or of memory of this process that exists where it was touched.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// Types that live in shared memory.
///
/// # Safety
/// All-zero bytes are a value, and every part that is reachable through a shared reference is an
/// atomic or an `UnsafeCell` whose users say why access is exclusive.
pub(crate) unsafe trait SharedLayout {}

// SAFETY: what holds for one holds for several.
unsafe impl<T: SharedLayout, const N: usize> SharedLayout for [T; N] {}

/// A read-write mapping, unmapped on drop.
#[repr(C)]
pub(crate) struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping lives as long as the value; what is in it is accessed through `SharedLayout`
// types and through raw pointers whose users say why that is sound.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `len` bytes of `memory` from `first` on, a multiple of the page size, checking that
    /// they are there.
    pub(crate) fn map_at(memory: &OwnedFd, first: usize, len: usize) -> io::Result<Self> {
        let there =
            usize::try_from(nix::sys::stat::fstat(memory)?.st_size).map_err(io::Error::other)?;
        let needed = first.saturating_add(len);
        if there < needed {
            return Err(io::Error::other(format!(
                "host memory has {there} bytes, {needed} are needed"
            )));
        }
        let offset = libc::off_t::try_from(first).map_err(io::Error::other)?;
        Self::map(len, libc::MAP_SHARED, memory.as_raw_fd(), offset)
    }

    /// `len` zero bytes of this process alone. A page of them takes memory once it was written to.
    pub(crate) fn private(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let map = Self::map(len, flags, -1, 0)?;
        // SAFETY: advice about the mapping that was just made; a system without huge pages refuses
        // it, and needs none.
        unsafe { libc::madvise(map.base.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
        Ok(map)
    }

    fn map(len: usize, flags: c_int, fd: RawFd, offset: libc::off_t) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { base: NonNull::<u128>::dangling().cast(), len });
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice affects no existing memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { base, len })
    }

    #[inline]
    pub(super) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Address of `len` bytes at `offset`, `None` when they are not all inside.
    #[inline]
    pub(crate) fn range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // SAFETY: the result is inside the mapping or one past its end.
        (end <= self.len).then(|| unsafe { self.base.add(offset) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: exactly the mapping made by `map`; references into it cannot outlive the
            // value.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}
