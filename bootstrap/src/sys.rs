//! The crate's only unsafe code: shared mappings, futexes, and a send that is safe in signal handlers.
#![allow(unsafe_code, reason = "the module that owns this crate's system calls")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, SealFlag, fcntl};
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
        let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        nix::unistd::ftruncate(&fd, i64::try_from(len).map_err(io::Error::other)?)?;
        // A page that cannot shrink cannot take a process down that reads it.
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW))?;
        Self::open(fd)
    }

    pub(crate) fn open(fd: OwnedFd) -> io::Result<Self> {
        let len = usize::try_from(nix::sys::stat::fstat(&fd)?.st_size).map_err(io::Error::other)?;
        let base = map(fd.as_fd(), len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)?;
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
        // SAFETY: the offset lies inside the mapping (asserted above).
        let target = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: the range lies inside the mapping (asserted above), source and destination cannot overlap because the
        // mapping is not reachable as a Rust slice, and `T: Plain` allows the copy as bytes.
        unsafe { target.copy_from_nonoverlapping(values.as_ptr().cast(), bytes) };
    }

    pub(crate) fn get<T: Plain>(&self, at: usize) -> T {
        assert!(
            at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len),
            "get outside the mapping"
        );
        // SAFETY: the offset lies inside the mapping (asserted above).
        let source = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: in bounds (asserted above); `T: Plain` accepts any bits; unaligned reads are asked for.
        unsafe { source.cast::<T>().read_unaligned() }
    }

    #[inline(always)]
    pub(crate) fn at<T: SharedLayout>(&self, at: usize) -> &T {
        let fits = at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        assert!(
            fits && at.is_multiple_of(align_of::<T>()),
            "object outside the mapping or misaligned"
        );
        // SAFETY: the offset lies inside the mapping (asserted above).
        let object = unsafe { self.base.add(at) };
        // SAFETY: in bounds and aligned (asserted above; the base is page aligned), and `SharedLayout` promises that
        // concurrent changes touch atomics only.
        unsafe { object.cast::<T>().as_ref() }
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
        // Private: older kernels refuse a shared mapping of memory that is sealed against writing, even a read-only one.
        // Pages that are never written are the same physical pages either way.
        Ok(Self { base: map(fd.as_fd(), len, libc::PROT_READ, libc::MAP_PRIVATE)?, len })
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

fn map(fd: BorrowedFd<'_>, len: usize, protection: i32, flags: i32) -> io::Result<NonNull<u8>> {
    if len == 0 {
        return Ok(NonNull::dangling());
    }
    // SAFETY: a fresh mapping at an address of the kernel's choice affects no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), 0) };
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

/// Sends one packet; when there is no room, waits for it for at most `bound`. Errors are dropped because the caller is on
/// its way out. Async-signal-safe.
pub(crate) fn send_best_effort(socket: i32, bytes: &[u8], bound: Duration) {
    const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let tries = bound.as_millis() / ANNOUNCE_SLICE_MS as u128 + 1;
    for _ in 0..tries {
        // SAFETY: `bytes` is a live slice; a bad descriptor yields an error, nothing else.
        let sent = unsafe { libc::send(socket, bytes.as_ptr().cast(), bytes.len(), FLAGS) };
        let error = io::Error::last_os_error().raw_os_error();
        match error {
            _ if sent >= 0 => return,
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => {
                let mut entry = libc::pollfd { fd: socket, events: libc::POLLOUT, revents: 0 };
                // SAFETY: `entry` is one live entry.
                unsafe { libc::poll(&raw mut entry, 1, ANNOUNCE_SLICE_MS) };
            }
            _ => return,
        }
    }
}

/// Longest single wait for room, so that a wait cut short by signals is not prolonged without end.
const ANNOUNCE_SLICE_MS: i32 = 50;

/// Ends this process at once with `code`: no exit handlers, no flushing.
pub(crate) fn end_process(code: i32) -> ! {
    // SAFETY: `_exit` is always allowed; nothing runs after it.
    unsafe { libc::_exit(code) }
}

/// Inherited descriptor numbers that have an owner in this process.
static ADOPTED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// An entry of [`ADOPTED`].
#[derive(Debug)]
struct Adopted(RawFd);

impl Adopted {
    fn enter(number: RawFd) -> io::Result<Self> {
        let mut adopted = ADOPTED.lock().unwrap_or_else(PoisonError::into_inner);
        if adopted.contains(&number) {
            return Err(io::Error::other(format!(
                "descriptor {number} is already in use by this process"
            )));
        }
        adopted.push(number);
        Ok(Self(number))
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        ADOPTED.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != self.0);
    }
}

/// The rank's end of its socket pair with the agent.
#[derive(Debug)]
pub(crate) struct AgentSocket {
    // Dropped in this order: the number is free again only after it is closed.
    fd: OwnedFd,
    _adopted: Adopted,
}

impl AgentSocket {
    /// Takes over an inherited descriptor after a look at what it is, and marks it close-on-exec.
    ///
    /// # Errors
    /// Not an open Unix packet socket, a standard stream, or already taken over.
    pub(crate) fn adopt(number: RawFd) -> io::Result<Self> {
        if number <= libc::STDERR_FILENO {
            return Err(io::Error::other(format!("descriptor {number} is a standard stream")));
        }
        let adopted = Adopted::enter(number)?;
        // SAFETY: the look below fails on a closed descriptor, and this borrow ends before the ownership begins.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let kind = nix::sys::socket::getsockopt(&fd, nix::sys::socket::sockopt::SockType);
        if kind != Ok(nix::sys::socket::SockType::SeqPacket) {
            let text = "is not a packet socket: this program was probably started by a rank of a job, not by the \
                        launcher; unset GASNETRUN_AGENT_FD to run it on its own";
            return Err(io::Error::other(format!("descriptor {number} {text}")));
        }
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        // SAFETY: the launcher made this descriptor for this process and named it to nobody else; the entry in the list
        // keeps a second owner out until this one has closed it.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Self { fd, _adopted: adopted })
    }
}

impl AsFd for AgentSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sends one packet made of two parts, without waiting.
///
/// # Errors
/// `WouldBlock` when there is no room now; else as `sendmsg(2)`.
pub(crate) fn send_packet(socket: BorrowedFd<'_>, head: &[u8], tail: &[u8]) -> io::Result<()> {
    use nix::sys::socket::{MsgFlags, sendmsg};
    let parts = [io::IoSlice::new(head), io::IoSlice::new(tail)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    // A packet socket takes a packet whole or not at all.
    sendmsg::<()>(socket.as_raw_fd(), &parts, &[], flags, None)?;
    Ok(())
}

/// Receives one packet without waiting: its length (0: the peer has closed) and the descriptor that came along.
/// What comes along in excess is closed.
///
/// # Errors
/// `WouldBlock` when there is none now; else as `recvmsg(2)`.
pub(crate) fn receive_packet(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut parts = [io::IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    if message.flags.contains(MsgFlags::MSG_CTRUNC) {
        // There is room for more than the one descriptor that comes; the kernel drops it where the process may have no more.
        return Err(io::Error::from(nix::errno::Errno::EMFILE));
    }
    let mut first = None;
    for control in message.cmsgs().map_err(io::Error::from)? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                // SAFETY: the kernel has just installed this descriptor for this call and nobody else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(number) };
                first.get_or_insert(fd);
            }
        }
    }
    Ok((message.bytes, first))
}
