//! System calls of the providers, in this crate and in others: shared mappings, futexes, packets,
//! and what is safe in signal handlers. The crate's only unsafe code.
#![allow(unsafe_code, reason = "the module that owns this crate's system calls")]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
/// Every field is an atomic, padding, or an integer that is written only before the memory is
/// shared.
pub(crate) unsafe trait SharedLayout {}

/// A shared read-write mapping of a whole memfd.
pub(crate) struct SharedMap {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping lives as long as the value, and access goes through atomics or copies of
// `Plain` values that are written only before the memory is shared (`put`'s contract).
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
        // SAFETY: the range lies inside the mapping (asserted above), source and destination cannot
        // overlap because the mapping is not reachable as a Rust slice, and `T: Plain` allows the
        // copy as bytes.
        unsafe { target.copy_from_nonoverlapping(values.as_ptr().cast(), bytes) };
    }

    pub(crate) fn get<T: Plain>(&self, at: usize) -> T {
        assert!(
            at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len),
            "get outside the mapping"
        );
        // SAFETY: the offset lies inside the mapping (asserted above).
        let source = unsafe { self.base.as_ptr().add(at) };
        // SAFETY: in bounds (asserted above); `T: Plain` accepts any bits; unaligned reads are
        // asked for.
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
        // SAFETY: in bounds and aligned (asserted above; the base is page aligned), and
        // `SharedLayout` promises that concurrent changes touch atomics only.
        unsafe { object.cast::<T>().as_ref() }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

/// A read-only mapping of an exchange result.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: read-only memory that lives as long as the value; the provider does not write it after it
// hands it out.
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
        // Private: older kernels refuse a shared mapping of memory that is sealed against writing,
        // even a read-only one. Pages that are never written are the same physical pages either
        // way.
        Ok(Self { base: map(fd.as_fd(), len, libc::PROT_READ, libc::MAP_PRIVATE)?, len })
    }

    /// Maps `len` bytes of `fd` from `at` on for reading; what is written there later shows. The
    /// provider does not write what anybody looks at.
    pub(crate) fn shared(fd: BorrowedFd<'_>, at: usize, len: usize) -> io::Result<Self> {
        Ok(Self { base: map_at(fd, at, len, libc::PROT_READ, libc::MAP_SHARED)?, len })
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: `base` is a live mapping of `len` bytes (constructor), and nobody writes what is
        // looked at (provider's contract).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base, self.len);
    }
}

fn map(fd: BorrowedFd<'_>, len: usize, protection: i32, flags: i32) -> io::Result<NonNull<u8>> {
    map_at(fd, 0, len, protection, flags)
}

fn map_at(
    fd: BorrowedFd<'_>,
    from: usize,
    len: usize,
    protection: i32,
    flags: i32,
) -> io::Result<NonNull<u8>> {
    if len == 0 {
        return Ok(NonNull::dangling());
    }
    let (raw, from) = (fd.as_raw_fd(), i64::try_from(from).map_err(io::Error::other)?);
    // SAFETY: a fresh mapping at an address of the kernel's choice affects no existing memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, raw, from) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

fn unmap(base: NonNull<u8>, len: usize) {
    if len != 0 {
        // SAFETY: `base..base+len` is exactly one mapping made by `map` and its owner is being
        // dropped.
        unsafe { libc::munmap(base.as_ptr().cast(), len) };
    }
}

/// Sleeps while `*word == seen`, at most `timeout`. Spurious returns are allowed.
#[inline]
pub fn futex_wait(word: &AtomicU32, seen: u32, timeout: Duration) {
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
pub fn futex_wake(word: &AtomicU32, count: i32) {
    // SAFETY: `word` is a live aligned u32; waking has no effect on memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
}

/// Sends one packet; when there is no room, waits for it for at most `bound`. Errors are dropped
/// because the caller is on its way out. Async-signal-safe.
pub fn send_best_effort(socket: i32, bytes: &[u8], bound: Duration) {
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
pub const ANNOUNCE_SLICE_MS: i32 = 50;

/// Ends this process at once with `code`: no exit handlers, no flushing.
pub fn end_process(code: i32) -> ! {
    // SAFETY: `_exit` is always allowed; nothing runs after it.
    unsafe { libc::_exit(code) }
}

/// Inherited descriptor numbers that have an owner in this process.
static ADOPTED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// The list of [`ADOPTED`], locked.
fn adopted() -> MutexGuard<'static, Vec<RawFd>> {
    ADOPTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor that this process inherited with its environment.
#[derive(Debug)]
pub struct Inherited {
    fd: ManuallyDrop<OwnedFd>,
}

impl Drop for Inherited {
    /// Closes the descriptor and strikes its number off the list as one step: a new descriptor that
    /// gets the number at once must not be taken for this one.
    fn drop(&mut self) {
        let mut adopted = adopted();
        adopted.retain(|known| *known != self.fd.as_raw_fd());
        // SAFETY: this value is never looked at again.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

impl Inherited {
    /// Takes over an inherited descriptor after a look at what it is, and marks it close-on-exec.
    ///
    /// # Errors
    /// Not an open socket of this kind (then `otherwise` says more), a standard stream, or already
    /// taken over.
    fn adopt(number: RawFd, kind: nix::sys::socket::SockType, otherwise: &str) -> io::Result<Self> {
        if number <= libc::STDERR_FILENO {
            return Err(io::Error::other(format!("descriptor {number} is a standard stream")));
        }
        let mut adopted = adopted();
        if adopted.contains(&number) {
            return Err(io::Error::other(format!(
                "descriptor {number} is already in use by this process"
            )));
        }
        // SAFETY: the look below fails on a closed descriptor, and this borrow ends before the
        // ownership begins.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let seen = nix::sys::socket::getsockopt(&fd, nix::sys::socket::sockopt::SockType);
        if seen != Ok(kind) {
            return Err(io::Error::other(format!("descriptor {number} {otherwise}")));
        }
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        adopted.push(number);
        // SAFETY: the launcher made this descriptor for this process and named it to nobody else;
        // the entry in the list keeps a second owner out until this one has closed it.
        let fd = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        Ok(Self { fd })
    }

    /// The connection to the server of another launcher.
    ///
    /// # Errors
    /// As `Inherited::adopt`.
    pub fn stream(number: RawFd) -> io::Result<Self> {
        let text = "is no stream socket: this program was probably started by a rank of a job, not by the launcher; \
                    unset PMI_FD to run it on its own";
        Self::adopt(number, nix::sys::socket::SockType::Stream, text)
    }
}

impl AsFd for Inherited {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A rank's end of its packet socket to the agent, or to the first rank of its host.
#[derive(Debug)]
pub enum AgentSocket {
    /// From the launcher.
    Inherited(Inherited),
    /// Made by this process.
    Own(OwnedFd),
}

impl AgentSocket {
    /// As [`Inherited::adopt`].
    pub(crate) fn adopt(number: RawFd) -> io::Result<Self> {
        let text = "is not a packet socket: this program was probably started by a rank of a job, not by the \
                    launcher; unset GASNETRUN_AGENT_FD to run it on its own";
        Inherited::adopt(number, nix::sys::socket::SockType::SeqPacket, text).map(Self::Inherited)
    }
}

impl AsFd for AgentSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Inherited(inherited) => inherited.as_fd(),
            Self::Own(fd) => fd.as_fd(),
        }
    }
}

/// A packet socket without a peer, not blocking.
fn packet_socket() -> io::Result<OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?)
}

/// Listens under a name that is no file and ends with the process.
pub fn listen_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    use nix::sys::socket::{Backlog, UnixAddr, bind, listen};
    let fd = packet_socket()?;
    bind(fd.as_raw_fd(), &UnixAddr::new_abstract(name)?)?;
    listen(&fd, Backlog::MAXALLOWABLE)?;
    Ok(fd)
}

/// Connects to such a name.
pub fn connect_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    use nix::sys::socket::{UnixAddr, connect};
    let fd = packet_socket()?;
    connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name)?)?;
    Ok(fd)
}

/// Takes one connection, without waiting.
pub fn accept_packet(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use nix::sys::socket::{SockFlag, accept4};
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let number = accept4(listener.as_raw_fd(), flags)?;
    // SAFETY: the kernel has just made this descriptor for this call and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// User that the peer of a Unix socket had when it connected.
pub fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    Ok(getsockopt(&socket, PeerCredentials)?.uid())
}

/// Whether a socket has something to read, or its end, within some milliseconds. Async-signal-safe.
#[must_use]
pub fn is_readable(socket: i32, milliseconds: i32) -> bool {
    let mut entry = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    // SAFETY: `entry` is one live entry.
    unsafe { libc::poll(&raw mut entry, 1, milliseconds) > 0 }
}

/// Whether the peer of a socket has closed it. Async-signal-safe; never waits.
pub fn has_hung_up(socket: i32) -> bool {
    let mut entry = libc::pollfd { fd: socket, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `entry` is one live entry.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    ready > 0 && entry.revents & (libc::POLLRDHUP | libc::POLLHUP) != 0
}

/// Whether there is a process of this number. Async-signal-safe.
pub fn is_alive(pid: i32) -> bool {
    // SAFETY: signal 0 is none.
    pid > 0 && unsafe { libc::kill(pid, 0) } == 0
}

/// Sends SIGQUIT to a rank of this host. Async-signal-safe.
pub fn remind(pid: i32) {
    if pid > 0 {
        // SAFETY: the number is that of a rank of this job, whose page says that it has not left.
        unsafe { libc::kill(pid, libc::SIGQUIT) };
    }
}

/// Sleeps for some milliseconds. Async-signal-safe.
pub fn nap(milliseconds: i32) {
    // SAFETY: no entries to look at.
    unsafe { libc::poll(std::ptr::null_mut(), 0, milliseconds) };
}

/// Sends one packet with a descriptor, without waiting.
///
/// # Errors
/// As [`send_packet`].
pub fn send_packet_with(socket: BorrowedFd<'_>, head: &[u8], fd: BorrowedFd<'_>) -> io::Result<()> {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let (parts, fds) = ([io::IoSlice::new(head)], [fd.as_raw_fd()]);
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    sendmsg::<()>(socket.as_raw_fd(), &parts, &[ControlMessage::ScmRights(&fds)], flags, None)?;
    Ok(())
}

/// The start of the packet that would be received next, without taking it; `None` when there is
/// none.
pub fn peek_packet(socket: BorrowedFd<'_>, into: &mut [u8]) -> Option<usize> {
    use nix::sys::socket::{MsgFlags, recv};
    recv(socket.as_raw_fd(), into, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK).ok()
}

/// Sends one packet made of two parts, without waiting.
///
/// # Errors
/// `WouldBlock` when there is no room now; else as `sendmsg(2)`.
pub fn send_packet(socket: BorrowedFd<'_>, head: &[u8], tail: &[u8]) -> io::Result<()> {
    use nix::sys::socket::{MsgFlags, sendmsg};
    let parts = [io::IoSlice::new(head), io::IoSlice::new(tail)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    // A packet socket takes a packet whole or not at all.
    sendmsg::<()>(socket.as_raw_fd(), &parts, &[], flags, None)?;
    Ok(())
}

/// Receives one packet without waiting: its length (0: the peer has closed) and the descriptor that
/// came along. What comes along in excess is closed.
///
/// # Errors
/// `WouldBlock` when there is none now; else as `recvmsg(2)`.
pub fn receive_packet(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut parts = [io::IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    if message.flags.contains(MsgFlags::MSG_CTRUNC) {
        // There is room for more than the one descriptor that comes; the kernel drops it where the
        // process may have no more.
        return Err(io::Error::from(nix::errno::Errno::EMFILE));
    }
    let mut first = None;
    for control in message.cmsgs().map_err(io::Error::from)? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                // SAFETY: the kernel has just installed this descriptor for this call and nobody
                // else knows it.
                let fd = unsafe { OwnedFd::from_raw_fd(number) };
                first.get_or_insert(fd);
            }
        }
    }
    Ok((message.bytes, first))
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn a_number_is_free_again_when_its_descriptor_is_closed() {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
        let round = || {
            let pair =
                socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
            drop(AgentSocket::adopt(pair.unwrap().0.into_raw_fd()).unwrap());
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5000).for_each(|_| round()));
            }
        });
    }
}
