//! Slots of send and receive queues. A slot comes free when its completion is polled, as with
//! verbs.

use std::sync::OnceLock;

use super::limits::MAX_QP;
use crate::PostError;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Entries that are made at once; few in a model.
const CHUNK: usize = if cfg!(loom) { 2 } else { 256 };

/// A long list of which the parts that are used exist. Reading takes no lock.
#[derive(Debug)]
pub(super) struct Chunks<T>(Vec<OnceLock<Box<[T]>>>);

impl<T: Default> Chunks<T> {
    pub(super) fn new(len: u32) -> Self {
        Self((0..(len as usize).div_ceil(CHUNK)).map(|_| OnceLock::new()).collect())
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let index = index as usize;
        self.0.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }

    /// Makes the entry when it does not exist.
    pub(super) fn make(&self, index: u32) -> Option<&T> {
        let chunk = self.0.get(index as usize / CHUNK)?;
        chunk.get_or_init(|| (0..CHUNK).map(|_| T::default()).collect());
        self.get(index)
    }
}

/// The place of a number in a ring of `size`, a power of two.
#[expect(clippy::cast_possible_truncation, reason = "the mask is below the ring's size")]
pub(super) const fn ring_index(number: u64, size: usize) -> usize {
    (number & (size as u64 - 1)) as usize
}

/// Which slots come free when a completion is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRelease {
    /// None (a shared receive queue frees its slots when receives are taken).
    None,
    /// Those of all sends before this number.
    Sends(u64),
    /// Those of all receives before this number.
    Receives(u64),
}

/// Queues whose releases a list of completions has room for.
const QUEUES: usize = 8;

/// What a list of completions frees: those of a queue that follow each other are one release.
#[derive(Debug)]
pub(super) struct Releases {
    list: [(u32, SlotRelease); QUEUES],
    count: usize,
}

impl Releases {
    pub(super) const fn new() -> Self {
        Self { list: [(0, SlotRelease::None); QUEUES], count: 0 }
    }

    pub(super) const fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds one of queue pair `qpn`. False: no room.
    pub(super) fn add(&mut self, qpn: u32, release: SlotRelease) -> bool {
        let last = self.count.checked_sub(1).and_then(|last| self.list.get_mut(last));
        match (last, release) {
            (_, SlotRelease::None) => return true,
            (Some((known, SlotRelease::Sends(most))), SlotRelease::Sends(number))
            | (Some((known, SlotRelease::Receives(most))), SlotRelease::Receives(number))
                if *known == qpn =>
            {
                *most = number.max(*most);
                return true;
            }
            _ => {}
        }
        let Some(place) = self.list.get_mut(self.count) else { return false };
        *place = (qpn, release);
        self.count += 1;
        true
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, SlotRelease)> {
        self.list.iter().take(self.count).copied()
    }
}

#[derive(Debug, Default)]
struct Released {
    number: AtomicU32,
    sends: AtomicU64,
    receives: AtomicU64,
}

/// Slots that came free, of all queue pairs of a device, by the low bits of their numbers.
#[derive(Debug)]
pub(super) struct SlotTable(Chunks<Released>);

impl SlotTable {
    pub(super) fn new() -> Self {
        Self(Chunks::new(MAX_QP))
    }

    fn find(&self, qpn: u32) -> Option<&Released> {
        let one = self.0.get(qpn & (MAX_QP - 1))?;
        (one.number.load(Ordering::Relaxed) == qpn).then_some(one)
    }

    pub(super) fn enter(&self, qpn: u32) {
        if let Some(one) = self.0.make(qpn & (MAX_QP - 1)) {
            one.sends.store(0, Ordering::SeqCst);
            one.receives.store(0, Ordering::SeqCst);
            one.number.store(qpn, Ordering::SeqCst);
        }
    }

    pub(super) fn remove(&self, qpn: u32) {
        if let Some(one) = self.find(qpn) {
            one.number.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn release(&self, qpn: u32, release: SlotRelease) {
        let (sends, number) = match release {
            SlotRelease::None => return,
            SlotRelease::Sends(number) => (true, number),
            SlotRelease::Receives(number) => (false, number),
        };
        if let Some(one) = self.find(qpn) {
            let counter = if sends { &one.sends } else { &one.receives };
            counter.fetch_max(number, Ordering::SeqCst);
        }
    }

    /// The slots of sends before this number are free.
    pub(super) fn sends(&self, qpn: u32) -> u64 {
        self.find(qpn).map_or(0, |one| one.sends.load(Ordering::SeqCst))
    }

    /// The slots of receives before this number are free.
    pub(super) fn receives(&self, qpn: u32) -> u64 {
        self.find(qpn).map_or(0, |one| one.receives.load(Ordering::SeqCst))
    }
}

/// The send queue of a datagram queue pair: a send is done when it is posted, so only its
/// completion takes a slot.
#[derive(Debug)]
pub(super) struct DatagramSlots {
    posted: AtomicU64,
    max: u64,
}

impl DatagramSlots {
    pub(super) fn new(max: u32) -> Self {
        Self { posted: AtomicU64::new(0), max: max.into() }
    }

    /// The number of the next send, if it has a slot. `released`: the slots of sends before this
    /// number are free.
    pub(super) fn take(&self, released: u64) -> Result<u64, PostError> {
        let more = |posted: u64| (posted.saturating_sub(released) < self.max).then_some(posted + 1);
        let order = Ordering::SeqCst;
        self.posted.fetch_update(order, order, more).map_err(|_| PostError::Full)
    }
}
