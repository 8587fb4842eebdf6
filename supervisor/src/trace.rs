//! The memory that ranks leave their traces and counters in (`bootstrap::trace`), from its making
//! to the launcher, which reads it when the job is over.
//!
//! The launcher makes one memory for the job before it forks the supervisor. Ranks on this host
//! write into their slots of it. An agent of another host makes one for its ranks; when they are
//! gone it sends what is used of each slot up the tree, and the root puts that into the launcher's.
//! So what a rank has recorded is there however it ended, and nothing is left when the last process
//! is gone.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bootstrap::memfd;
use bootstrap::trace::{Place, RING, slot_len, used_len};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Bytes of a slot that travel at a time.
const PIECE: usize = 48 * 1024;

/// What is wanted of the ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Events that each rank can keep, a power of two; 0: none.
    pub capacity: u64,
    /// Whether events are recorded.
    pub events: bool,
    /// Whether things are counted.
    pub counts: bool,
}

/// Memory for the slots of some ranks.
#[derive(Clone, Debug)]
pub struct Memory {
    file: Arc<File>,
    /// What is in it.
    pub wanted: Wanted,
    slots: u32,
}

impl Memory {
    /// Makes memory for so many ranks. It is taken when ranks write.
    ///
    /// # Errors
    /// More than the system can address, or no descriptors.
    pub fn new(wanted: Wanted, slots: u32) -> io::Result<Self> {
        let len = slot_len(wanted.capacity).checked_mul(u64::from(slots));
        let fd = memfd::zeroed(len.ok_or_else(|| io::Error::other("more than can be named"))?)?;
        Ok(Self { file: Arc::new(File::from(fd)), wanted, slots })
    }

    /// Lets programs that are executed from now on have it; what they are told of it.
    pub(crate) fn hand_on(&self) -> io::Result<String> {
        fcntl(&*self.file, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let Wanted { capacity, events, counts } = self.wanted;
        Ok(Place { fd: self.file.as_raw_fd(), capacity, wants: (events, counts) }.text())
    }

    /// Its descriptor in this process, and device and inode of it: how others find it on this host.
    ///
    /// # Errors
    /// The system does not say.
    pub fn place(&self) -> io::Result<(i32, (u64, u64))> {
        let status = nix::sys::stat::fstat(&*self.file)?;
        Ok((self.file.as_raw_fd(), (status.st_dev, status.st_ino)))
    }

    fn slot_len(&self) -> u64 {
        slot_len(self.wanted.capacity)
    }

    /// What is used of a slot.
    fn used(&self, slot: u32) -> io::Result<u64> {
        let mut head = [0; 4096];
        self.file.read_exact_at(&mut head, u64::from(slot) * self.slot_len())?;
        Ok(used_len(&head).min(self.slot_len()))
    }

    /// The used part of a slot.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self, slot: u32) -> io::Result<Vec<u8>> {
        let len = self.used(slot)?;
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, u64::from(slot) * self.slot_len())?;
        Ok(bytes)
    }

    /// Puts a piece of a slot where it belongs; `false` when it does not fit there.
    #[must_use]
    pub fn put(&self, slot: u32, at: u64, bytes: &[u8]) -> bool {
        let fits = slot < self.slots
            && at.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.slot_len());
        fits && self.file.write_all_at(bytes, u64::from(slot) * self.slot_len() + at).is_ok()
    }
}

/// Sends the slots of a host's ranks, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    memory: Option<Memory>,
    /// Slot that is being sent, what was sent of it, what is used of it.
    slot: u32,
    at: u64,
    used: Option<u64>,
}

impl Upload {
    pub(crate) const fn new(memory: Option<Memory>) -> Self {
        Self { memory, slot: 0, at: 0, used: None }
    }

    /// The next piece: its slot, where it belongs there, its bytes. `None`: all is sent. A slot
    /// that cannot be read is left out.
    pub(crate) fn next(&mut self) -> Option<(u32, u64, Vec<u8>)> {
        let memory = self.memory.as_ref()?;
        while self.slot < memory.slots {
            let used = match self.used {
                Some(used) => used,
                None => *self.used.insert(memory.used(self.slot).unwrap_or(0)),
            };
            let left = usize::try_from(used - self.at).unwrap_or(0).min(PIECE);
            let mut bytes = vec![0; left];
            let from = u64::from(self.slot) * memory.slot_len() + self.at;
            if left > 0 && memory.file.read_exact_at(&mut bytes, from).is_ok() {
                let at = self.at;
                self.at += left as u64;
                return Some((self.slot, at, bytes));
            }
            (self.slot, self.at, self.used) = (self.slot + 1, 0, None);
        }
        None
    }
}

/// One look at the clock of another host: when it was asked for and answered here, and the time
/// there, all nanoseconds of monotonic clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSample {
    /// The host's number in the job.
    pub host: u32,
    /// When it was asked.
    pub sent: u64,
    /// Its time.
    pub there: u64,
    /// When the answer was here.
    pub received: u64,
}

/// Nanoseconds of this host's monotonic clock.
#[must_use]
pub fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

const _: () = assert!(RING * 8 >= 4096, "the header is in the first page");

#[cfg(test)]
mod tests {
    use bootstrap::trace::{MAGIC, RECORD, Word};

    use super::*;

    /// Fills the header of a slot that has so many records, and its last word.
    fn fill(memory: &Memory, slot: u32, next: u64) {
        let word = |at: usize, value: u64| {
            assert!(memory.put(slot, at as u64 * 8, &value.to_ne_bytes()));
        };
        word(Word::Next as usize, next);
        word(Word::Capacity as usize, memory.wanted.capacity);
        let last = RING + usize::try_from(next.min(memory.wanted.capacity)).unwrap() * RECORD;
        word(last - 1, 77);
        word(Word::Magic as usize, MAGIC);
    }

    #[test]
    fn what_is_used_of_each_slot_arrives() {
        let wanted = Wanted { capacity: 4096, events: true, counts: true };
        let (here, there) = (Memory::new(wanted, 5).unwrap(), Memory::new(wanted, 3).unwrap());
        fill(&there, 0, 3000);
        // Slot 1: a rank that never opened it.
        fill(&there, 2, 1 << 20);
        let ranks = [4, 1, 3];
        let mut upload = Upload::new(Some(there.clone()));
        while let Some((slot, at, bytes)) = upload.next() {
            assert!(bytes.len() <= PIECE);
            assert!(here.put(ranks[slot as usize], at, &bytes));
        }
        for (slot, rank) in (0..).zip(ranks) {
            assert_eq!(here.read(rank).unwrap(), there.read(slot).unwrap(), "{rank}");
        }
        assert!(here.read(1).unwrap().is_empty() && here.read(0).unwrap().is_empty());
        assert_eq!(here.read(3).unwrap().len() as u64, slot_len(4096));
        assert!(here.read(4).unwrap().len() as u64 == slot_len(3000));
    }

    #[test]
    fn pieces_for_other_places_are_refused() {
        let wanted = Wanted { capacity: 0, events: false, counts: true };
        let memory = Memory::new(wanted, 2).unwrap();
        let len = slot_len(0);
        assert!(memory.put(1, len - 1, &[1]) && !memory.put(1, len, &[1]));
        assert!(!memory.put(2, 0, &[1]) && !memory.put(0, u64::MAX, &[1, 2]));
        assert!(Upload::default().next().is_none());
    }
}
