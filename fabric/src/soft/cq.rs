//! Completion queues and channels.
//!
//! The ring takes no lock: a thread that is interrupted for ever inside a push hides the entries behind its own, and one inside a
//! pop hinders nobody.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::device::Dev;
use crate::{AsyncEvent, Channel, Completion, CompletionQueue, Error, Opcode, Status};

/// Where armed queues report: one eventfd.
#[derive(Debug)]
pub(super) struct SoftChannel {
    event: Arc<EventFd>,
    device: String,
}

impl SoftChannel {
    pub(super) fn new(device: &str) -> Result<Self, Error> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(
            |errno| Error::Os {
                device: device.to_owned(),
                operation: "make a completion channel".to_owned(),
                source: errno.into(),
            },
        )?;
        Ok(Self { event: Arc::new(event), device: device.to_owned() })
    }

    /// The same channel, for a queue that reports to it.
    pub(super) fn again(&self) -> Self {
        Self { event: Arc::clone(&self.event), device: self.device.clone() }
    }

    fn ring(&self) {
        // Full means that 2^64 - 2 events wait: it is readable then.
        let _ = self.event.write(1);
    }
}

impl Channel for SoftChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn consume(&self) -> Result<u32, Error> {
        match self.event.read() {
            Ok(count) => Ok(u32::try_from(count).unwrap_or(u32::MAX)),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(0),
            Err(errno) => Err(Error::Os {
                device: self.device.clone(),
                operation: "read a completion channel".to_owned(),
                source: errno.into(),
            }),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Which slot of which queue a completion gives back when it is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gives {
    /// None (shared receive queues give back when they are taken from).
    Nothing,
    /// All sends before this number.
    Sends(u64),
    /// All receives before this number.
    Receives(u64),
}

#[derive(Debug, Default)]
struct Slot {
    /// The position behind that of the entry that was written last; zero at first.
    published: AtomicU64,
    words: [AtomicU64; 5],
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct Cq {
    slots: Box<[Slot]>,
    head: AtomicU64,
    tail: AtomicU64,
    overflown: AtomicBool,
    armed: AtomicBool,
    channel: Option<SoftChannel>,
    dev: Arc<Dev>,
}

fn status_number(status: Status) -> u64 {
    match status {
        Status::Success => 0,
        Status::LocalLength => 1,
        Status::LocalQp => 2,
        Status::LocalProtection => 3,
        Status::Flushed => 4,
        Status::RemoteInvalid => 5,
        Status::RemoteAccess => 6,
        Status::RemoteOperation => 7,
        Status::RetryExceeded => 8,
        Status::RnrRetryExceeded => 9,
        Status::Other(_) => 10,
    }
}

const STATUSES: [Status; 11] = [
    Status::Success,
    Status::LocalLength,
    Status::LocalQp,
    Status::LocalProtection,
    Status::Flushed,
    Status::RemoteInvalid,
    Status::RemoteAccess,
    Status::RemoteOperation,
    Status::RetryExceeded,
    Status::RnrRetryExceeded,
    Status::Other(0),
];
const OPCODES: [Opcode; 5] =
    [Opcode::Send, Opcode::Write, Opcode::Read, Opcode::FetchAdd, Opcode::Receive];

const IMM: u64 = 1 << 16;
const SENDS: u64 = 1 << 17;
const RECEIVES: u64 = 1 << 18;

#[expect(clippy::cast_possible_truncation, reason = "takes one half of a word")]
const fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn pack(entry: &Completion, gives: Gives) -> [u64; 5] {
    let (flag, number) = match gives {
        Gives::Nothing => (0, 0),
        Gives::Sends(number) => (SENDS, number),
        Gives::Receives(number) => (RECEIVES, number),
    };
    let opcode = OPCODES.iter().position(|one| *one == entry.opcode).unwrap_or(0) as u64;
    let imm = if entry.imm.is_some() { IMM } else { 0 };
    let first = status_number(entry.status) | opcode << 8 | imm | flag | u64::from(entry.len) << 32;
    [
        entry.id,
        first,
        u64::from(entry.imm.unwrap_or(0)) | u64::from(entry.qpn) << 32,
        u64::from(entry.source_qpn) | u64::from(entry.vendor) << 32,
        number,
    ]
}

fn unpack(words: [u64; 5]) -> (Completion, Gives) {
    let [id, first, second, third, number] = words;
    let (imm, qpn) = halves(second);
    let (source_qpn, vendor) = halves(third);
    let entry = Completion {
        id,
        status: STATUSES.get((first & 0xff) as usize).copied().unwrap_or(Status::Other(0)),
        opcode: OPCODES.get((first >> 8 & 0xff) as usize).copied().unwrap_or(Opcode::Send),
        len: halves(first).1,
        imm: (first & IMM != 0).then_some(imm),
        qpn,
        source_qpn,
        vendor,
    };
    let gives = match first & (SENDS | RECEIVES) {
        0 => Gives::Nothing,
        SENDS => Gives::Sends(number),
        _ => Gives::Receives(number),
    };
    (entry, gives)
}

impl Cq {
    pub(super) fn new(dev: &Arc<Dev>, depth: u32, channel: Option<SoftChannel>) -> Self {
        let size = depth.max(2).next_power_of_two();
        Self {
            slots: (0..size).map(|_| Slot::default()).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            overflown: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            channel,
            dev: Arc::clone(dev),
        }
    }

    pub(super) const fn dev(&self) -> &Arc<Dev> {
        &self.dev
    }

    fn slot(&self, position: u64) -> Option<&Slot> {
        #[expect(clippy::cast_possible_truncation, reason = "the mask is below the ring's size")]
        self.slots.get((position & (self.slots.len() as u64 - 1)) as usize)
    }

    /// Adds an entry and reports it if armed. When there is no room the queue is broken for good.
    pub(super) fn push(&self, entry: &Completion, gives: Gives) {
        if !self.place(entry, gives) && !self.overflown.swap(true, Ordering::SeqCst) {
            self.dev.report(AsyncEvent::CqError);
        }
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst) {
            self.dev.disarmed();
            if let Some(channel) = &self.channel {
                channel.ring();
            }
        }
    }

    /// False when the queue is full.
    fn place(&self, entry: &Completion, gives: Gives) -> bool {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            // After the tail, so that what this thread has seen polled counts. It may be beyond a tail that is out of date;
            // the exchange fails then.
            if position >= self.head.load(Ordering::Acquire) + self.slots.len() as u64 {
                return false;
            }
            let Some(slot) = self.slot(position) else { return false };
            let next = position + 1;
            let (done, missed) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.tail.compare_exchange_weak(position, next, done, missed) {
                Ok(_) => {
                    for (word, value) in slot.words.iter().zip(pack(entry, gives)) {
                        word.store(value, Ordering::Relaxed);
                    }
                    slot.published.store(next, Ordering::Release);
                    return true;
                }
                Err(seen) => position = seen,
            }
        }
    }

    /// Copies the next entry first and claims it then: a slot is free from its claim on, so that a thread that loses its
    /// processor here keeps no slot.
    fn take(&self) -> Option<(Completion, Gives)> {
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position)?;
            let next = position + 1;
            let published = slot.published.load(Ordering::Acquire);
            if published < next {
                return None;
            }
            let words = slot.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            // Release: who finds the slot free writes it after it was read here. It fails if another thread took the entry,
            // and what was read may be of several.
            let (done, missed) = (Ordering::Release, Ordering::Relaxed);
            match self.head.compare_exchange_weak(position, next, done, missed) {
                Ok(_) => return Some(unpack(words)),
                Err(seen) => position = seen,
            }
        }
    }

    fn drain(&self, into: &mut [Completion]) -> usize {
        let mut count = 0;
        for place in into {
            let Some((entry, gives)) = self.take() else { break };
            self.dev.give_back(entry.qpn, gives);
            *place = entry;
            count += 1;
        }
        count
    }
}

impl CompletionQueue for Cq {
    fn depth(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    fn poll(&self, into: &mut [Completion]) -> Result<usize, Error> {
        if self.overflown.load(Ordering::Relaxed) {
            return Err(Error::Os {
                device: self.dev.name().to_owned(),
                operation: format!("poll a completion queue of {} entries", self.slots.len()),
                source: std::io::Error::other("it overflowed: more ended than was polled"),
            });
        }
        self.dev.polled();
        let count = self.drain(into);
        if count != 0 || into.is_empty() {
            return Ok(count);
        }
        self.dev.progress();
        Ok(self.drain(into))
    }

    fn arm(&self) -> Result<(), Error> {
        if self.channel.is_none() {
            return Err(Error::Argument {
                device: self.dev.name().to_owned(),
                operation: "arm a completion queue",
                problem: "it was made without a channel".to_owned(),
            });
        }
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.dev.armed();
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if *self.armed.get_mut() {
            self.dev.disarmed();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use proptest::prelude::*;

    use super::*;
    use crate::soft::tests::{End, Failure, fabric};

    const ENTRIES: u32 = 400_000;

    /// Each thread pushes one entry and takes one, so that the queue has room for all of them always. A thread that lost its
    /// processor while it took one used to keep its slot, and the others met it when they had gone around the ring.
    #[test]
    fn a_queue_that_has_room_is_never_full() {
        let end = End::with(fabric(), 1);
        let cq = end.soft_cq();
        let next = AtomicU32::new(0);
        let times = (0..ENTRIES).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let failed = AtomicBool::new(false);
        let push_and_take = || {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= ENTRIES {
                return false;
            }
            let entry = Completion { id: u64::from(number), len: !number, ..Completion::EMPTY };
            assert!(cq.place(&entry, Gives::Nothing), "full at entry {number}");
            loop {
                if let Some((one, _)) = cq.take() {
                    assert_eq!(one.id, u64::from(!one.len));
                    times[usize::try_from(one.id).unwrap()].fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                // The entry that is there is behind one that another thread is writing.
                std::thread::yield_now();
                if failed.load(Ordering::Relaxed) {
                    return false;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..cq.depth() {
                scope.spawn(|| {
                    let _failure = Failure(&failed);
                    while push_and_take() {}
                });
            }
        });
        assert!(times.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        assert!(cq.take().is_none());
    }

    proptest! {
        #[test]
        fn an_entry_comes_back(
            id in any::<u64>(),
            (status, opcode) in (0_usize..10, 0_usize..5),
            numbers in any::<[u32; 4]>(),
            imm in any::<Option<u32>>(),
            number in any::<u64>(),
            which in 0..3,
        ) {
            let [len, qpn, source_qpn, vendor] = numbers;
            let (status, opcode) = (STATUSES[status], OPCODES[opcode]);
            let entry = Completion { id, status, opcode, len, imm, qpn, source_qpn, vendor };
            let gives = match which {
                0 => Gives::Nothing,
                1 => Gives::Sends(number),
                _ => Gives::Receives(number),
            };
            prop_assert_eq!(unpack(pack(&entry, gives)), (entry, gives));
        }
    }
}
