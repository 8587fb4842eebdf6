//! Hears from the kernel which memory of this process was unmapped, moved or emptied: a userfaultfd
//! whose pages never fault.
//!
//! The thread that unmaps watched memory waits in its system call until the event has been read.
//! Between the unmapping and that moment another thread may already have mapped, and filled, the
//! same place again. The kernel knows: it counts such changes before the pages go, and any request
//! to change the watched range is refused (EAGAIN) until the count is 0. [`Watch::is_quiet`] asks
//! with a request that can do nothing.
#![allow(unsafe_code, reason = "system calls that no library wraps")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use super::regions::Span;

/// Only faults of the program's own code would be reported, so that no privilege is needed.
const USER_MODE_ONLY: libc::c_int = 1;
const VERSION: u64 = 0xaa;
/// Write protection, and events of `mremap`, `madvise` and `munmap`.
const FEATURES: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 6;
const WRITE_PROTECT: u64 = 1 << 1;
const REMAP: u8 = 0x14;
const REMOVE: u8 = 0x15;
const UNMAP: u8 = 0x16;

/// `_IOC` of Linux on all processors that are supported.
const fn request(direction: u64, number: u64, size: usize) -> libc::Ioctl {
    (direction << 30 | (size as u64) << 16 | VERSION << 8 | number) as libc::Ioctl
}

const UFFDIO_API: libc::Ioctl = request(3, 0x3f, 24);
const UFFDIO_REGISTER: libc::Ioctl = request(3, 0, 32);
const UFFDIO_UNREGISTER: libc::Ioctl = request(2, 1, 16);
const UFFDIO_WRITEPROTECT: libc::Ioctl = request(3, 6, 24);

/// `struct uffd_msg`, all eights.
type Message = [u64; 4];
/// Events that one read takes.
const EVENTS: usize = 16;

#[derive(Debug)]
pub(crate) struct Watch {
    events: OwnedFd,
    /// `/proc/self/pagemap`.
    pages: File,
}

impl Watch {
    /// Starts to listen; nothing is watched yet.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: makes a descriptor; touches no memory.
        let result = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0);
        let fd = fd.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: just made, and nobody else has it.
        let events = unsafe { OwnedFd::from_raw_fd(fd) };
        let watch = Self { events, pages: File::open("/proc/self/pagemap")? };
        watch.ask(UFFDIO_API, &mut [VERSION, FEATURES, 0])?;
        Ok(watch)
    }

    fn ask<const N: usize>(&self, request: libc::Ioctl, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: the descriptor is a userfaultfd; each request here is given as many words as the
        // kernel reads and writes (its number holds the size). No mode is asked for in which pages
        // fault, so the program's memory stays as it is.
        match unsafe { libc::ioctl(self.events.as_raw_fd(), request, words.as_mut_ptr()) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Watches pages from now on. An error for memory that is no anonymous memory, or that somebody
    /// else watches.
    pub(crate) fn add(&self, span: Span) -> io::Result<()> {
        self.ask(UFFDIO_REGISTER, &mut [span.from, span.len(), WRITE_PROTECT, 0])
    }

    /// No longer watches pages. Parts that were unmapped meanwhile do not matter.
    pub(crate) fn remove(&self, span: Span) {
        let _ = self.ask(UFFDIO_UNREGISTER, &mut [span.from, span.len()]);
    }

    /// Whether every change of watched memory that has begun is known: its event was read.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        // Of no bytes, and of no page either, so it is refused in any case: as invalid when nothing
        // changes. The kernel looks for a change before it looks at the range.
        let mut nothing = [1_u64, 0, 0];
        refusal(self.events.as_raw_fd(), UFFDIO_WRITEPROTECT, &mut nothing) == libc::EINVAL
    }

    /// Reads events that wait, which lets their causes go on, and calls `gone` with their pages.
    /// Allocates nothing. Returns how many there were.
    pub(crate) fn read(&self, mut gone: impl FnMut(Span)) -> usize {
        let mut messages = [Message::default(); EVENTS];
        let size = size_of_val(&messages);
        // SAFETY: the buffer is live and of that size; any bytes are valid numbers.
        let read =
            unsafe { libc::read(self.events.as_raw_fd(), messages.as_mut_ptr().cast(), size) };
        let count = usize::try_from(read).unwrap_or(0) / size_of::<Message>();
        for [event, first, second, third] in messages.iter().take(count) {
            match event.to_ne_bytes()[0] {
                REMAP => gone(Span { from: *first, to: first.saturating_add(*third) }),
                REMOVE | UNMAP => gone(Span { from: *first, to: *second }),
                _ => {}
            }
        }
        count
    }

    /// Whether all pages of a span that are in memory belong to this process alone: others could
    /// exchange those of a file or of shared memory, which no event tells.
    pub(crate) fn is_private(&self, span: Span, page: u64) -> bool {
        const FILE_OR_SHARED: u64 = 1 << 61;
        let mut bytes = [0_u8; 64 * 8];
        let (mut at, end) = (span.from / page * 8, span.to / page * 8);
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(bytes.len());
            let Some(part) = bytes.get_mut(..len) else { return false };
            if self.pages.read_exact_at(part, at).is_err() {
                return false;
            }
            let mut words = part.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
            if words.any(|entry| entry & FILE_OR_SHARED != 0) {
                return false;
            }
            at += len as u64;
        }
        true
    }
}

/// The error of a request that cannot succeed. Not by way of the C library, which takes 4 ns for
/// its error number.
#[cfg(target_arch = "x86_64")]
#[inline]
fn refusal(fd: libc::c_int, request: libc::Ioctl, words: &mut [u64; 3]) -> libc::c_int {
    let result: i64;
    // SAFETY: ioctl as in `Watch::ask`, by the rules of Linux on this processor: number and answer
    // in rax, arguments in rdi, rsi, rdx; rcx and r11 are lost.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_ioctl => result,
            in("rdi") i64::from(fd),
            in("rsi") request,
            in("rdx") words.as_mut_ptr(),
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    libc::c_int::try_from(-result).unwrap_or(0)
}

/// The error of a request that cannot succeed.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn refusal(fd: libc::c_int, request: libc::Ioctl, words: &mut [u64; 3]) -> libc::c_int {
    // SAFETY: as in `Watch::ask`.
    match unsafe { libc::ioctl(fd, request, words.as_mut_ptr()) } {
        0.. => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(0),
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Memory for tests that comes and goes, and a device that has pinned some of it.
#[cfg(test)]
pub(crate) mod testing {
    use std::os::fd::BorrowedFd;

    use super::*;

    const ANONYMOUS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

    fn mapped(at: u64, len: usize, flags: libc::c_int) -> Option<u64> {
        let (rights, at) = (libc::PROT_READ | libc::PROT_WRITE, at as *mut libc::c_void);
        // SAFETY: without MAP_FIXED nothing is replaced; with it, what callers of `replace` mapped.
        let base = unsafe { libc::mmap(at, len, rights, flags, -1, 0) };
        (base != libc::MAP_FAILED).then_some(base as u64)
    }

    /// New memory anywhere.
    pub(crate) fn map(len: usize) -> u64 {
        mapped(0, len, ANONYMOUS).expect("memory")
    }

    /// New memory at a place, if nothing is there.
    pub(crate) fn map_at(at: u64, len: usize) -> bool {
        mapped(at, len, ANONYMOUS | libc::MAP_FIXED_NOREPLACE) == Some(at)
    }

    /// New memory in place of what a test has mapped.
    pub(crate) fn replace(at: u64, len: usize) {
        assert_eq!(mapped(at, len, ANONYMOUS | libc::MAP_FIXED), Some(at));
    }

    /// Memory that a file descriptor stands for too.
    pub(crate) fn map_shared(len: usize) -> u64 {
        mapped(0, len, libc::MAP_SHARED | libc::MAP_ANONYMOUS).expect("memory")
    }

    pub(crate) fn unmap(at: u64, len: usize) {
        // SAFETY: what a test has mapped and no longer uses.
        assert_eq!(unsafe { libc::munmap(at as *mut _, len) }, 0);
    }

    /// Only reading is allowed from now on.
    pub(crate) fn protect(at: u64, len: usize) {
        // SAFETY: what a test has mapped and only reads from now on.
        assert_eq!(unsafe { libc::mprotect(at as *mut _, len, libc::PROT_READ) }, 0);
    }

    /// What a test has mapped and filled, as long as it does not unmap it.
    pub(crate) fn bytes(at: u64, len: usize) -> &'static [u8] {
        // SAFETY: mapped and initialised; the test does not use the bytes after it has unmapped them,
        // and changes them only between transfers.
        unsafe { std::slice::from_raw_parts(at as *const u8, len) }
    }

    /// Empties pages.
    pub(crate) fn discard(at: u64, len: usize) {
        // SAFETY: what a test has mapped.
        assert_eq!(unsafe { libc::madvise(at as *mut _, len, libc::MADV_DONTNEED) }, 0);
    }

    /// Moves pages away and back.
    pub(crate) fn swap(at: u64, other: u64, len: usize) {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let third = map(len);
        for (from, to) in [(at, third), (other, at), (third, other)] {
            // SAFETY: what a test has mapped, moved to where it has mapped or just moved away.
            let moved =
                unsafe { libc::mremap(from as *mut _, len, len, flags, to as *mut libc::c_void) };
            assert_eq!(moved as u64, to);
        }
    }

    /// Each word becomes `word`.
    pub(crate) fn fill(at: u64, len: usize, word: u64) {
        for at in (at..at + len as u64).step_by(8) {
            // SAFETY: aligned, in memory that a test has mapped and no other thread uses.
            unsafe { (at as *mut u64).write_volatile(word) };
        }
    }

    /// Pages as one sees them who has pinned them: those that were there, whatever is there now.
    #[derive(Debug)]
    pub(crate) struct Pinned {
        from: u64,
        len: usize,
        pages: (OwnedFd, OwnedFd),
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)
            .expect("pipe")
    }

    impl Pinned {
        /// At most 16 pages.
        pub(crate) fn new(span: Span) -> Option<Self> {
            let pages = pipe();
            let len = usize::try_from(span.len()).ok()?;
            let part = libc::iovec { iov_base: span.from as *mut _, iov_len: len };
            // SAFETY: the pipe takes references to the pages, as a device that pins them does; the
            // kernel checks that they are mapped.
            let taken = unsafe { libc::vmsplice(pages.1.as_raw_fd(), &raw const part, 1, 0) };
            (usize::try_from(taken).ok()? == len).then_some(Self { from: span.from, len, pages })
        }

        /// The first word of each page from `at` on, for `len` bytes.
        pub(crate) fn words(&self, at: u64, len: usize) -> Vec<u64> {
            let (read, write) = pipe();
            let tee = |to: BorrowedFd<'_>| {
                let (from, to) = (self.pages.0.as_raw_fd(), to.as_raw_fd());
                // SAFETY: two pipes; touches no memory of the program.
                unsafe { libc::tee(from, to, self.len, 0) }
            };
            assert_eq!(usize::try_from(tee(write.as_fd())), Ok(self.len));
            let mut bytes = vec![0; self.len];
            let mut done = 0;
            while done < self.len {
                done += nix::unistd::read(&read, &mut bytes[done..]).expect("pages");
            }
            let from = usize::try_from(at - self.from).expect("inside");
            let first = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("word"));
            (from..from + len).step_by(4096).map(first).collect()
        }
    }
}
