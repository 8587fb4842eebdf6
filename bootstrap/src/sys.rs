//! The crate's only unsafe code: shared mappings, futexes, and a send that is safe in signal handlers.
#![allow(unsafe_code, reason = "the module that owns this crate's system calls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Types that may be read from or written to shared memory as plain bytes.
///
/// # Safety
/// Any bit pattern is a value of the type and it has no padding.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: integers have no padding and no invalid bit patterns.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

/// Types that live in shared memory and are changed by other processes through atomics only.
///
/// # Safety
/// Every field is an atomic, padding, or an integer that is written only before the memory is shared.
pub(crate) unsafe trait SharedLayout {}

/// A shared read-write mapping of a whole memfd.
pub(crate) struct SharedMap {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping lives as long as the value, and access goes through atomics or copies of `Plain` values that are
// written only before the memory is shared (`put`'s contract).
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl std::fmt::Debug for SharedMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedMap({} bytes)", self.len)
    }
}

impl SharedMap {
    pub(crate) fn create(name: &std::ffi::CStr, len: usize) -> io::Result<Self> {
        let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&fd, i64::try_from(len).map_err(io::Error::other)?)?;
        Self::open(fd)
    }

    pub(crate) fn open(fd: OwnedFd) -> io::Result<Self> {
        let len = usize::try_from(nix::sys::stat::fstat(&fd)?.st_size).map_err(io::Error::other)?;
        let base = map(fd.as_fd(), len, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(Self { base, len, fd })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Writes plain values; only before the memory is given to anyone else.
    pub(crate) fn put<T: Plain>(&self, at: usize, values: &[T]) {
        let bytes = size_of_val(values);
        assert!(
            at.checked_add(bytes).is_some_and(|end| end <= self.len),
            "put outside the mapping"
        );
        // SAFETY: the range lies inside the mapping (asserted above), source and destination cannot overlap because the
        // mapping is not reachable as a Rust slice, and `T: Plain` allows the copy as bytes.
        unsafe {
            self.base.as_ptr().add(at).copy_from_nonoverlapping(values.as_ptr().cast(), bytes)
        };
    }

    pub(crate) fn get<T: Plain>(&self, at: usize) -> T {
        assert!(
            at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len),
            "get outside the mapping"
        );
        // SAFETY: in bounds (asserted above); `T: Plain` accepts any bits; unaligned reads are asked for.
        unsafe { self.base.as_ptr().add(at).cast::<T>().read_unaligned() }
    }

    pub(crate) fn at<T: SharedLayout>(&self, at: usize) -> &T {
        let fits = at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        assert!(
            fits && at.is_multiple_of(align_of::<T>()),
            "object outside the mapping or misaligned"
        );
        // SAFETY: in bounds and aligned (asserted above; the base is page aligned), and `SharedLayout` promises that
        // concurrent changes touch atomics only.
        unsafe { self.base.add(at).cast::<T>().as_ref() }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

/// A read-only mapping of an exchange result.
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: read-only memory that lives as long as the value; the provider does not write it after it hands it out.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd` for reading.
    ///
    /// # Errors
    /// The memory is shorter than `len`, or cannot be mapped.
    pub fn read_only(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        let there =
            usize::try_from(nix::sys::stat::fstat(fd)?.st_size).map_err(io::Error::other)?;
        if there < len {
            return Err(io::Error::other(format!("memory of {there} bytes, {len} announced")));
        }
        Ok(Self { base: map(fd.as_fd(), len, libc::PROT_READ)?, len })
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: `base` is a live mapping of `len` bytes (constructor) that nobody writes (provider's contract).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

fn map(fd: BorrowedFd<'_>, len: usize, protection: i32) -> io::Result<NonNull<u8>> {
    if len == 0 {
        return Ok(NonNull::dangling());
    }
    // SAFETY: a fresh shared mapping at an address of the kernel's choice affects no existing memory.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

fn unmap(base: NonNull<u8>, len: usize) {
    if len != 0 {
        // SAFETY: `base..base+len` is exactly one mapping made by `map` and its owner is being dropped.
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    }
}

/// Sleeps while `*word == seen`, at most `timeout`. Spurious returns are allowed.
pub(crate) fn futex_wait(word: &AtomicU32, seen: u32, timeout: Duration) {
    let spec = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // SAFETY: `word` is a live aligned u32 and `spec` outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const spec)
    };
}

/// Wakes at most `count` sleepers. Async-signal-safe.
pub(crate) fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: `word` is a live aligned u32; waking has no effect on memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Sends one packet, waiting for room; errors are dropped because the caller is on its way out. Async-signal-safe.
pub(crate) fn send_best_effort(socket: i32, bytes: &[u8]) {
    loop {
        // SAFETY: `bytes` is a live slice; a bad descriptor yields an error, nothing else.
        let sent =
            unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
        if sent >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}
