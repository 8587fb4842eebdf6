//! System calls of the providers, in this crate and in others: shared mappings, futexes, packets,
//! and what is safe in signal handlers. The crate's only unsafe code.
#![allow(unsafe_code, reason = "the module that owns this crate's system calls")]

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, accept4, bind, connect, getsockopt, listen, recv, recvmsg, sendmsg, socket, sockopt,
};

/// Types that live in shared memory and are changed by other processes through atomics only.
///
/// # Safety
/// Every field is an atomic or padding.
pub(crate) unsafe trait SharedLayout {}

/// A mapping of a memfd, unmapped when it is dropped.
#[derive(Debug)]
struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping lives as long as the value, and access goes through atomics, or reads what
// the provider does not write any more (`Mapping`).
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new(
        fd: BorrowedFd<'_>,
        at: usize,
        len: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Self> {
        let at = i64::try_from(at).map_err(io::Error::other)?;
        let Some(whole) = NonZeroUsize::new(len) else {
            return Ok(Self { base: NonNull::dangling(), len });
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice affects no existing memory.
        let base = unsafe { mmap(None, whole, protection, flags, fd, at) }?.cast();
        Ok(Self { base, len })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.len != 0 {
            // SAFETY: `base..base+len` is exactly one mapping made by `new`, and its owner is being
            // dropped. A failure leaves it there.
            let _ = unsafe { munmap(self.base.cast(), self.len) };
        }
    }
}

/// Objects of a mapping, whose place in it was checked once.
pub(crate) struct SharedArray<T> {
    first: NonNull<T>,
    count: usize,
    _map: Arc<SharedMap>,
}

impl<T> fmt::Debug for SharedArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedArray({} at {:?})", self.count, self.first)
    }
}

// SAFETY: as for `Map`, which it keeps: access goes through atomics.
unsafe impl<T: SharedLayout> Send for SharedArray<T> {}
// SAFETY: as above.
unsafe impl<T: SharedLayout> Sync for SharedArray<T> {}

impl<T: SharedLayout> SharedArray<T> {
    /// `count` objects from `at` on.
    pub(crate) fn new(map: &Arc<SharedMap>, at: usize, count: usize) -> Self {
        let first = map.range(at, count * size_of::<T>()).cast::<T>();
        assert!(first.is_aligned(), "misaligned objects");
        Self { first, count, _map: Arc::clone(map) }
    }
}

impl<T: SharedLayout> Deref for SharedArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: in bounds and aligned (`new`), mapped as long as `_map`, and `SharedLayout`
        // promises that concurrent changes touch atomics only.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// A shared read-write mapping of a whole memfd.
#[derive(Debug)]
pub(crate) struct SharedMap {
    map: Map,
    fd: OwnedFd,
}

impl SharedMap {
    pub(crate) fn open(fd: OwnedFd) -> io::Result<Self> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let map = Map::new(fd.as_fd(), 0, size_of_file(&fd)?, protection, MapFlags::MAP_SHARED)?;
        Ok(Self { map, fd })
    }

    pub(crate) const fn len(&self) -> usize {
        self.map.len
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Where `len` bytes from `at` on lie.
    #[inline(always)]
    fn range(&self, at: usize, len: usize) -> NonNull<u8> {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.map.len);
        assert!(fits, "{len} bytes at {at} of a mapping of {}", self.map.len);
        // SAFETY: the offset lies inside the mapping (asserted above).
        unsafe { self.map.base.add(at) }
    }

    /// `count` words from `at` on.
    pub(crate) fn words(&self, at: usize, count: usize) -> &[AtomicU32] {
        let first = self.range(at, count * size_of::<AtomicU32>()).cast::<AtomicU32>();
        assert!(first.is_aligned(), "misaligned words");
        // SAFETY: in bounds (`range`) and aligned (asserted above), and atomics.
        unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
    }

    #[inline(always)]
    pub(crate) fn at<T: SharedLayout>(&self, at: usize) -> &T {
        let object = self.range(at, size_of::<T>()).cast::<T>();
        assert!(object.is_aligned(), "misaligned object");
        // SAFETY: in bounds (`range`) and aligned (asserted above), and `SharedLayout` promises
        // that concurrent changes touch atomics only.
        unsafe { object.as_ref() }
    }
}

/// `len` bytes from `at` on of the memory behind an inherited descriptor, as words that other
/// processes may read at any time. Mapped until the process ends; the descriptor is closed.
///
/// # Errors
/// No such memory, or less than that.
pub fn words_of(fd: RawFd, at: u64, len: u64) -> io::Result<&'static [AtomicU64]> {
    // SAFETY: the starter of this process gave it the descriptor for this alone, and says so once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let [at, len] = [at, len].map(|number| usize::try_from(number).map_err(io::Error::other));
    let (at, len) = (at?, len?);
    if at.checked_add(len).is_none_or(|end| size_of_file(&fd).is_ok_and(|size| end > size)) {
        return Err(io::Error::other("the memory is too small"));
    }
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let map = ManuallyDrop::new(Map::new(fd.as_fd(), at, len, protection, MapFlags::MAP_SHARED)?);
    let first = map.base.cast::<AtomicU64>();
    assert!(first.is_aligned(), "misaligned words");
    // SAFETY: so many words are mapped and never unmapped (`ManuallyDrop`); memory that is mapped
    // from a file is initialised; atomics may change at any time.
    Ok(unsafe { std::slice::from_raw_parts(first.as_ptr(), len / size_of::<AtomicU64>()) })
}

fn size_of_file(fd: &OwnedFd) -> io::Result<usize> {
    usize::try_from(nix::sys::stat::fstat(fd)?.st_size).map_err(io::Error::other)
}

/// A read-only mapping of an exchange result, which the provider does not write any more.
#[derive(Debug)]
pub struct Mapping(Map);

impl Mapping {
    /// Maps the first `len` bytes of `fd` for reading.
    ///
    /// # Errors
    /// The memory is shorter than `len`, or cannot be mapped.
    pub fn read_only(fd: &OwnedFd, len: usize) -> io::Result<Self> {
        let there = size_of_file(fd)?;
        if there < len {
            return Err(io::Error::other(format!("memory of {there} bytes, {len} announced")));
        }
        // Private: older kernels refuse a shared mapping of memory that is sealed against writing,
        // even a read-only one. Pages that are never written are the same physical pages either
        // way.
        Map::new(fd.as_fd(), 0, len, ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE).map(Self)
    }

    /// Maps `len` bytes of `fd` from `at` on for reading; what is written there later shows. The
    /// provider does not write what anybody looks at.
    pub(crate) fn shared(fd: BorrowedFd<'_>, at: usize, len: usize) -> io::Result<Self> {
        Map::new(fd, at, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED).map(Self)
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: `base` is a live mapping of `len` bytes (constructor), and nobody writes what is
        // looked at (provider's contract).
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.len) }
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

/// Longest single wait on exit paths, so that a wait cut short by signals is not prolonged without
/// end.
pub const ANNOUNCE_SLICE_MS: i32 = 50;

/// What of `events` has come to a socket, or its end, within some milliseconds. Without a socket
/// (-1) it sleeps so long. Async-signal-safe.
pub fn poll_one(socket: i32, events: i16, milliseconds: i32) -> i16 {
    let mut entry = libc::pollfd { fd: socket, events, revents: 0 };
    // SAFETY: `entry` is one live entry.
    let ready = unsafe { libc::poll(&raw mut entry, 1, milliseconds) };
    if ready > 0 { entry.revents } else { 0 }
}

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

/// A socket to whoever serves this rank: inherited with the environment, or made by this process.
#[derive(Debug)]
pub struct PeerSocket {
    fd: ManuallyDrop<OwnedFd>,
}

impl Drop for PeerSocket {
    /// Closes the descriptor and strikes its number off the list as one step: a new descriptor that
    /// gets the number at once must not be taken for this one.
    fn drop(&mut self) {
        let mut adopted = adopted();
        adopted.retain(|known| *known != self.fd.as_raw_fd());
        // SAFETY: this value is never looked at again.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
    }
}

impl From<OwnedFd> for PeerSocket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: ManuallyDrop::new(fd) }
    }
}

impl PeerSocket {
    /// Takes over an inherited descriptor after a look at what it is, and marks it close-on-exec.
    /// `variable` named it.
    ///
    /// # Errors
    /// Not an open socket of this kind, a standard stream, or already taken over.
    pub fn adopt(number: RawFd, kind: SockType, variable: &str) -> io::Result<Self> {
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
        if getsockopt(&fd, sockopt::SockType) != Ok(kind) {
            let kind = if kind == SockType::Stream { "stream" } else { "packet" };
            return Err(io::Error::other(format!(
                "descriptor {number} is not a {kind} socket: this program was probably started by a rank of a job, not by \
                 the launcher; unset {variable} to run it on its own"
            )));
        }
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        adopted.push(number);
        // SAFETY: the launcher made this descriptor for this process and named it to nobody else;
        // the entry in the list keeps a second owner out until this one has closed it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) }.into())
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Which of some sockets are ready for `events` within `slice`; none when a signal came first.
///
/// # Errors
/// As `poll(2)`.
pub fn ready(
    sockets: &[BorrowedFd<'_>],
    events: PollFlags,
    slice: Duration,
) -> io::Result<Vec<usize>> {
    let mut entries: Vec<_> = sockets.iter().map(|fd| PollFd::new(*fd, events)).collect();
    let slice = PollTimeout::from(u16::try_from(slice.as_millis().max(1)).unwrap_or(u16::MAX));
    match poll(&mut entries, slice) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let ready = entries.iter().enumerate().filter(|(_, entry)| entry.any() == Some(true));
    Ok(ready.map(|(at, _)| at).collect())
}

/// A packet socket without a peer, not blocking.
fn packet_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?)
}

/// Listens under a name that is no file and ends with the process.
pub fn listen_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    let fd = packet_socket()?;
    bind(fd.as_raw_fd(), &UnixAddr::new_abstract(name)?)?;
    listen(&fd, Backlog::MAXALLOWABLE)?;
    Ok(fd)
}

/// Connects to such a name.
pub fn connect_abstract(name: &[u8]) -> io::Result<OwnedFd> {
    let fd = packet_socket()?;
    connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name)?)?;
    Ok(fd)
}

/// Takes one connection, without waiting.
pub fn accept_packet(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let number = accept4(listener.as_raw_fd(), flags)?;
    // SAFETY: the kernel has just made this descriptor for this call and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// User that the peer of a Unix socket had when it connected.
pub fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(getsockopt(&socket, sockopt::PeerCredentials)?.uid())
}

/// Whether the peer of a socket has closed it. Async-signal-safe; never waits.
pub fn has_hung_up(socket: i32) -> bool {
    poll_one(socket, libc::POLLRDHUP, 0) & (libc::POLLRDHUP | libc::POLLHUP) != 0
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
    poll_one(-1, 0, milliseconds);
}

/// The start of the packet that would be received next, without taking it; `None` when there is
/// none.
pub fn peek_packet(socket: BorrowedFd<'_>, into: &mut [u8]) -> Option<usize> {
    recv(socket.as_raw_fd(), into, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK).ok()
}

/// Sends one packet made of two parts, and a descriptor, without waiting.
///
/// # Errors
/// `WouldBlock` when there is no room now; else as `sendmsg(2)`.
pub fn send_packet(
    socket: BorrowedFd<'_>,
    head: &[u8],
    tail: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let parts = [io::IoSlice::new(head), io::IoSlice::new(tail)];
    let number = fd.map(|fd| [fd.as_raw_fd()]);
    let rights = number.as_ref().map(|number| ControlMessage::ScmRights(number));
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    // A packet socket takes a packet whole or not at all.
    sendmsg::<()>(socket.as_raw_fd(), &parts, rights.as_slice(), flags, None)?;
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
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut parts = [io::IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    if message.flags.contains(MsgFlags::MSG_CTRUNC) {
        // There is room for more than the one descriptor that comes; the kernel drops it where the
        // process may have no more.
        return Err(io::Error::from(Errno::EMFILE));
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
        use nix::sys::socket::socketpair;
        let round = || {
            let pair =
                socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC);
            let number = pair.unwrap().0.into_raw_fd();
            drop(PeerSocket::adopt(number, SockType::SeqPacket, "X").unwrap());
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5000).for_each(|_| round()));
            }
        });
    }
}
