//! Registered memory: the table of regions, and everything that touches their bytes.
//!
//! Looking a key up takes no lock: a slot of the table is a handful of atomics. Whoever touches a
//! region's bytes holds a [`Span`] (or a vector of fragments) that counts as a user of the slot;
//! the end of a registration waits for the users.
#![expect(
    unsafe_code,
    reason = "the bytes of a region are reached by address; its owner promised that they stay mapped"
)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicU64 as RegionWord;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};

use super::slots::Chunks;
use crate::sync::{AtomicU32, AtomicU64, Ordering, order_in_models, yield_now};
use crate::{Access, Data, Sge};

/// Regions of one device.
pub(super) const MAX_REGIONS: u32 = 1 << 16;
/// Few in a model.
const ROOM: u32 = if cfg!(loom) { 2 } else { MAX_REGIONS };

#[derive(Debug, Default)]
struct Slot {
    lkey: AtomicU32,
    rkey: AtomicU32,
    base: AtomicU64,
    len: AtomicU64,
    access: AtomicU32,
    users: AtomicU32,
}

#[derive(Debug, Default)]
struct Book {
    used: u32,
    free: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Table {
    slots: Chunks<Slot>,
    book: Mutex<Book>,
}

/// Keys of a new region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// Bytes of a region that may be touched as long as this lives.
#[derive(Debug)]
pub(super) struct Span<'a> {
    slot: Option<&'a Slot>,
    addr: u64,
    len: usize,
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.users.fetch_sub(1, Ordering::Release);
        }
    }
}

impl Table {
    pub(super) fn new() -> Self {
        Self { slots: Chunks::new(ROOM), book: Mutex::default() }
    }

    /// Enters a region. `random` release the high halves of its keys. `None`: the table is full.
    pub(super) fn enter(
        &self,
        base: u64,
        len: u64,
        access: Access,
        mut random: impl FnMut() -> u32,
    ) -> Option<Keys> {
        let index = {
            let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
            match book.free.pop() {
                Some(index) => index,
                None if book.used < MAX_REGIONS => {
                    book.used += 1;
                    book.used - 1
                }
                None => return None,
            }
        };
        let slot = self.slots.make(index)?;
        // High halves are never 0 and never those of the slot's region before, so that an old key
        // is always a wrong one.
        let mut key = |old: u32| loop {
            let high = random() & 0xffff_0000;
            if high != 0 && high != old & 0xffff_0000 {
                return high | index;
            }
        };
        let keys = Keys {
            lkey: key(slot.lkey.load(Ordering::Relaxed)),
            rkey: key(slot.rkey.load(Ordering::Relaxed)),
        };
        slot.base.store(base, Ordering::Relaxed);
        slot.len.store(len, Ordering::Relaxed);
        slot.rkey.store(keys.rkey, Ordering::Relaxed);
        slot.lkey.store(keys.lkey, Ordering::Relaxed);
        slot.access.store(access.0 | LIVE, Ordering::SeqCst);
        Some(keys)
    }

    /// Ends a registration: no new user finds the region, and those that are in it have left when
    /// this returns. They stay for one copy or one system call that does not block.
    pub(super) fn leave(&self, keys: Keys) {
        let index = keys.lkey & 0xffff;
        let Some(slot) = self.slots.get(index) else { return };
        slot.access.store(0, Ordering::SeqCst);
        order_in_models();
        while slot.users.load(Ordering::SeqCst) != 0 {
            yield_now();
        }
        self.book.lock().unwrap_or_else(PoisonError::into_inner).free.push(index);
    }

    fn span(
        &self,
        key: u32,
        remote: bool,
        addr: u64,
        len: usize,
        need: Access,
    ) -> Option<Span<'_>> {
        if len == 0 {
            return Some(Span { slot: None, addr: 0, len: 0 });
        }
        let slot = self.slots.get(key & 0xffff)?;
        slot.users.fetch_add(1, Ordering::SeqCst);
        order_in_models();
        let span = Span { slot: Some(slot), addr, len };
        let access = slot.access.load(Ordering::SeqCst);
        let own = if remote { &slot.rkey } else { &slot.lkey }.load(Ordering::Relaxed);
        let base = slot.base.load(Ordering::Relaxed);
        let size = slot.len.load(Ordering::Relaxed);
        // No sum here: addresses come from peers, and a sum could wrap.
        let inside = addr >= base && addr - base <= size && len as u64 <= size - (addr - base);
        (access & LIVE != 0 && own == key && inside && Access(access).has(need)).then_some(span)
    }

    /// Local memory of a request. `write`: data goes into it.
    pub(super) fn local(&self, sge: &Sge, write: bool) -> Option<Span<'_>> {
        self.local_from(sge, 0, write)
    }

    /// Part of local memory, from `from` bytes on.
    pub(super) fn local_from(&self, sge: &Sge, from: usize, write: bool) -> Option<Span<'_>> {
        let rest = (sge.len as usize).checked_sub(from)?;
        let need = if write { Access::LOCAL_WRITE } else { Access::NONE };
        self.span(sge.lkey, false, sge.addr.checked_add(from as u64)?, rest, need)
    }

    /// Copies the data of a send as far as there is room; the number of bytes. `None`: a key does
    /// not cover it.
    pub(super) fn copy(&self, data: &Data<'_>, into: &mut [u8]) -> Option<usize> {
        let mut used = 0;
        match data {
            Data::Gather(list) => {
                for sge in *list {
                    used += self.local(sge, false)?.read(into.get_mut(used..)?);
                }
            }
            Data::Inline(list) => {
                for bytes in *list {
                    into.get_mut(used..used + bytes.len())?.copy_from_slice(bytes);
                    used += bytes.len();
                }
            }
        }
        Some(used)
    }

    /// Memory that a peer names.
    pub(super) fn remote(
        &self,
        rkey: u32,
        addr: u64,
        len: usize,
        need: Access,
    ) -> Option<Span<'_>> {
        self.span(rkey, true, addr, len, need)
    }
}

/// Bit beside the access rights: the slot holds a region.
const LIVE: u32 = 1 << 31;

impl Span<'_> {
    /// Writes at most as many bytes as fit from the start; returns how many.
    pub(super) fn fill(&self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len);
        if len != 0 {
            // SAFETY: addr..addr+len lies inside a live region that may be written (checked when
            // the span was made, kept by its use count), and the owner of the region promised that
            // it is mapped. Others may change the bytes at the same time; that is what registered
            // memory is for, and no reference to them exists here.
            unsafe { std::ptr::copy(bytes.as_ptr(), self.addr as *mut u8, len) };
        }
        len
    }

    /// Reads bytes from the start; returns how many.
    pub(super) fn read(&self, into: &mut [u8]) -> usize {
        let len = into.len().min(self.len);
        if len != 0 {
            // SAFETY: as in `fill`, for reading.
            unsafe { std::ptr::copy(self.addr as *const u8, into.as_mut_ptr(), len) };
        }
        len
    }

    /// Adds to the word here and returns what was there. `None`: not 8 aligned bytes.
    pub(super) fn fetch_add(&self, add: u64) -> Option<u64> {
        Some(self.word()?.fetch_add(add, Ordering::SeqCst))
    }

    /// Puts `swap` into the word here if it is `compare`, and returns what was there. `None`: not 8
    /// aligned bytes.
    pub(super) fn compare_swap(&self, compare: u64, swap: u64) -> Option<u64> {
        let done = self.word()?.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
        Some(done.unwrap_or_else(|seen| seen))
    }

    fn word(&self) -> Option<&RegionWord> {
        if self.len != 8 || !self.addr.is_multiple_of(8) {
            return None;
        }
        // SAFETY: eight aligned bytes of a live region as in `fill`, which the span keeps; all
        // atomics of devices here reach them atomically.
        Some(unsafe { RegionWord::from_ptr(self.addr as *mut u64) })
    }
}

/// Bytes that are rather copied together than sent as a list.
const JOINED: usize = 256;
/// Fragments in one system call.
pub(super) const MAX_FRAGMENTS: usize = 32;

/// A list of memory fragments for one system call: bytes of this program and spans of regions.
#[derive(Debug)]
pub(super) struct Fragments<'a, D> {
    list: heapless::Vec<libc::iovec, MAX_FRAGMENTS>,
    pins: heapless::Vec<Option<&'a Slot>, MAX_FRAGMENTS>,
    total: usize,
    direction: PhantomData<(D, &'a mut [u8])>,
}

/// Fragments to send in one call.
pub(super) type Gather<'a> = Fragments<'a, Out>;
/// Fragments to receive into in one call.
pub(super) type Scatter<'a> = Fragments<'a, In>;

/// Fragments are only read.
#[derive(Debug)]
pub(super) enum Out {}
/// Fragments are written: spans must have been made for that.
#[derive(Debug)]
pub(super) enum In {}

impl<'a, D> Fragments<'a, D> {
    pub(super) const fn new() -> Self {
        let list = heapless::Vec::new();
        let pins = heapless::Vec::new();
        Self { list, pins, total: 0, direction: PhantomData }
    }

    pub(super) const fn total(&self) -> usize {
        self.total
    }

    pub(super) fn room(&self) -> usize {
        MAX_FRAGMENTS - self.list.len()
    }

    fn push(&mut self, base: u64, len: usize, pin: Option<&'a Slot>) -> bool {
        let fragment = libc::iovec { iov_base: base as *mut libc::c_void, iov_len: len };
        let taken = self.list.push(fragment).is_ok() && self.pins.push(pin).is_ok();
        self.total += if taken { len } else { 0 };
        taken
    }

    /// Adds memory of a region; false: no room.
    pub(super) fn span(&mut self, span: Span<'a>) -> bool {
        if span.len == 0 {
            return true;
        }
        let taken = self.push(span.addr, span.len, span.slot);
        if taken {
            // The use count moves into the list.
            std::mem::forget(span);
        }
        taken
    }

    /// Where bytes from `from` on are, up to `len` of them.
    fn parts(&self, mut from: usize, mut len: usize) -> impl Iterator<Item = (*mut u8, usize)> {
        self.list.iter().filter_map(move |fragment| {
            let skip = from.min(fragment.iov_len);
            from -= skip;
            let part = (fragment.iov_len - skip).min(len);
            len -= part;
            let base = fragment.iov_base.cast::<u8>().wrapping_add(skip);
            (part != 0).then_some((base, part))
        })
    }

    fn header(&mut self) -> libc::msghdr {
        // SAFETY: a msghdr of zeros is valid: no name, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.list.as_mut_ptr();
        message.msg_iovlen = self.list.len() as _;
        message
    }
}

impl<D> Drop for Fragments<'_, D> {
    fn drop(&mut self) {
        for slot in self.pins.iter().flatten() {
            slot.users.fetch_sub(1, Ordering::Release);
        }
    }
}

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// What a call that does not wait did; `None`: it would have to wait.
pub(super) fn without_waiting(
    mut call: impl FnMut() -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends what the socket takes of some bytes. By rustix, whose calls of the system are no points where
/// a thread may be cancelled, as those of the C library are, which costs two atomics each.
fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    without_waiting(|| Ok(rustix::net::send(socket, bytes, flags)?))
}

/// Receives what is there into some bytes; `None`: nothing now.
pub(super) fn receive_bytes(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    without_waiting(|| Ok(rustix::net::recv(socket, &mut *bytes, RecvFlags::DONTWAIT)?.0))
}

impl<'a> Gather<'a> {
    /// Adds bytes; false: no room.
    pub(super) fn bytes(&mut self, bytes: &'a [u8]) -> bool {
        bytes.is_empty() || self.push(bytes.as_ptr() as u64, bytes.len(), None)
    }

    /// Copies bytes from `from` on; how many there were.
    pub(super) fn copy(&self, from: usize, into: &mut [u8]) -> usize {
        let mut used = 0;
        for (base, len) in self.parts(from, into.len()) {
            let Some(place) = into.get_mut(used..used + len) else { break };
            // SAFETY: the fragment is live (borrowed bytes or a counted span), `base..base+len` lies
            // inside it (`parts`), `place` is as long and is no registered memory.
            unsafe { std::ptr::copy_nonoverlapping(base.cast_const(), place.as_mut_ptr(), len) };
            used += len;
        }
        used
    }

    /// Sends what the socket takes; `None`: nothing now.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        if let ([one], [None]) = (&self.list[..], &self.pins[..]) {
            // SAFETY: a fragment that keeps no region is of bytes that are borrowed for `'a`.
            let bytes = unsafe { std::slice::from_raw_parts(one.iov_base.cast(), one.iov_len) };
            return send_bytes(socket, bytes);
        }
        if self.total() <= JOINED {
            // The system takes longer over a list.
            let mut bytes = [0_u8; JOINED];
            let used = self.copy(0, &mut bytes);
            return send_bytes(socket, bytes.get(..used).unwrap_or_default());
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        let message = self.header();
        without_waiting(|| {
            // SAFETY: the fragments are live (borrowed bytes and counted spans) and are only read
            // by the call.
            count(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
        })
    }
}

impl<'a> Scatter<'a> {
    /// Adds a buffer; false: no room.
    pub(super) fn buffer(&mut self, buffer: &'a mut [u8]) -> bool {
        buffer.is_empty() || self.push(buffer.as_mut_ptr() as u64, buffer.len(), None)
    }

    /// Puts bytes into their places from `from` on; how many had one.
    pub(super) fn fill(&self, from: usize, bytes: &[u8]) -> usize {
        let mut used = 0;
        for (base, len) in self.parts(from, bytes.len()) {
            let Some(part) = bytes.get(used..used + len) else { break };
            // SAFETY: the fragment is live (a buffer borrowed mutably or a counted span of a region
            // that may be written), `base..base+len` lies inside it (`parts`), `part` is as long.
            unsafe { std::ptr::copy(part.as_ptr(), base, len) };
            used += len;
        }
        used
    }

    /// Receives what is there; `None`: nothing now.
    pub(super) fn receive(mut self, socket: BorrowedFd<'_>) -> io::Result<Option<usize>> {
        let mut message = self.header();
        without_waiting(|| {
            // SAFETY: the fragments are live (buffers borrowed mutably and counted spans of
            // writable regions).
            count(unsafe {
                libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
            })
        })
    }
}

/// How long the peer's host has acknowledged nothing; `None` when nothing is unacknowledged. (The
/// host of a peer that is stopped or busy still acknowledges.)
pub(super) fn silence(socket: BorrowedFd<'_>) -> Option<Duration> {
    // SAFETY: a tcp_info of zeros is valid: it has numbers only.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
    // SAFETY: the buffer is live, and its length is given.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    (result == 0 && info.tcpi_unacked != 0)
        .then(|| Duration::from_millis(u64::from(info.tcpi_last_ack_recv)))
}

/// Registers memory of a test, which keeps it as long as the region.
#[cfg(test)]
pub(super) fn tests_register(
    device: &dyn crate::Device,
    base: std::ptr::NonNull<u8>,
    len: usize,
    access: Access,
) -> std::sync::Arc<dyn crate::Region> {
    // SAFETY: the test drops the region before the memory.
    unsafe { device.register(base, len, access) }.unwrap()
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::AtomicBool;
    use loom::sync::Arc;

    /// Who got a span uses the region's memory before `leave` returns, never after.
    #[test]
    fn loom_a_region_ends_after_its_users() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let (table, unmapped) = (Arc::new(Table::new()), Arc::new(AtomicBool::new(false)));
            let keys = table.enter(4096, 64, Access::ALL, || 0x1234_0000).unwrap();
            let users: Vec<_> = (0..2)
                .map(|_| {
                    let (table, unmapped) = (Arc::clone(&table), Arc::clone(&unmapped));
                    loom::thread::spawn(move || {
                        if let Some(span) = table.remote(keys.rkey, 4096, 8, Access::REMOTE_READ) {
                            assert!(!unmapped.load(Ordering::Relaxed));
                            drop(span);
                        }
                    })
                })
                .collect();
            table.leave(keys);
            unmapped.store(true, Ordering::Relaxed);
            assert!(table.remote(keys.rkey, 4096, 8, Access::REMOTE_READ).is_none());
            users.into_iter().for_each(|user| user.join().unwrap());
        });
    }
}
