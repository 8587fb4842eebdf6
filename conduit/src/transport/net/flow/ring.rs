//! What a connection has where requests are written into rings: its own, which the peer writes, and
//! how to write the peer's. The drivers are `am/send.rs` and `am/ring.rs`.
//!
//! Writing has a lock, which is only tried: a thread that finds it taken has no room, as without a
//! credit. So the order of places is that of posts, and a request that was not posted gives its place
//! back.

use std::sync::OnceLock;

use fabric::Device;

use super::volume::{Geometry, NUMBERS, Owner, Place, Writer, Wrong};
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::spin_lock::{SpinGuard, SpinLock};
use crate::transport::net::credits::Account;
use crate::transport::net::error::Error;
use crate::transport::net::memory::ring::RingMemory;

/// In each number that a rank tells a peer of a ring, so that none is 0, and bits beside it.
const MARK: u32 = 1 << 23;
const BITS: u32 = 23;
/// Rings begin at pages.
const PAGE: u64 = 4096;

/// The ring of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteRing {
    base: u64,
    pub(crate) key: u32,
}

#[expect(clippy::cast_possible_truncation, reason = "parts of a number")]
const fn part(number: u64, at: u32) -> u32 {
    MARK | (number >> (at * BITS)) as u32 & (MARK - 1)
}

impl RemoteRing {
    /// As numbers that the handshake carries.
    const fn numbers(self) -> [u32; NUMBERS] {
        let (page, key) = (self.base / PAGE, self.key as u64);
        [part(page, 0), part(page, 1), part(key, 0), part(key, 1)]
    }

    /// What [`RemoteRing::numbers`] said; `None` for anything else.
    fn of(numbers: &[u32]) -> Option<Self> {
        let numbers: [u32; NUMBERS] = numbers.try_into().ok()?;
        if numbers.iter().any(|number| number & MARK == 0) {
            return None;
        }
        let [low, high, key, rest] = numbers.map(|number| u64::from(number & (MARK - 1)));
        let key = u32::try_from(key | rest << BITS).ok()?;
        let base = (low | high << BITS).checked_mul(PAGE)?;
        (base != 0).then_some(Self { base, key })
    }
}

/// A place of the peer's ring that was taken, until its request is posted.
pub(crate) struct Taken<'a> {
    rings: &'a Rings,
    writer: SpinGuard<'a, Writer>,
    pub(crate) place: Place,
    /// Address at the peer.
    pub(crate) remote: u64,
    pub(crate) key: u32,
}

impl Taken<'_> {
    /// Its request was not posted.
    pub(crate) fn undo(mut self) {
        self.writer.untake();
        self.rings.written.store(self.writer.written(), Ordering::Release);
    }
}

/// More places came back than are out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} places of its ring given back where {out} are out")]
pub(crate) struct TooMany {
    count: u32,
    out: u32,
}

#[derive(Debug)]
pub(crate) struct Rings {
    ring: Geometry,
    memory: RingMemory,
    owner: Owner,
    peer: OnceLock<RemoteRing>,
    writer: SpinLock<Writer>,
    /// Requests written, and of those how many are done, both modulo the numbers: the writer's own
    /// books, for those who do not have its lock.
    written: AtomicU32,
    back: AtomicU32,
}

impl Rings {
    /// For at most `credits` requests without a reply. Twice as many may be out: the place of one
    /// that was answered is free only when its handler has ended.
    pub(crate) fn new(device: &dyn Device, ring: Geometry, credits: u32) -> Result<Self, Error> {
        let most = 2 * credits.max(1);
        Ok(Self {
            ring,
            memory: RingMemory::new(device, ring.bytes() as usize)?,
            owner: Owner::new(ring, most),
            peer: OnceLock::new(),
            writer: SpinLock::new(Writer::new(ring, most)),
            written: AtomicU32::new(0),
            back: AtomicU32::new(0),
        })
    }

    /// What the peer is told.
    pub(crate) fn numbers(&self) -> [u32; NUMBERS] {
        let (base, key) = self.memory.remote();
        RemoteRing { base, key }.numbers()
    }

    /// What the peer has told. `false`: that is no ring.
    pub(crate) fn learn(&self, numbers: &[u32]) -> bool {
        let peer = RemoteRing::of(numbers);
        peer.is_some_and(|peer| *self.peer.get_or_init(|| peer) == peer)
    }

    /// The writer, who knows of all that came back. `None`: somebody is at it.
    #[inline]
    fn try_writer(&self) -> Option<SpinGuard<'_, Writer>> {
        let mut writer = self.writer.try_lock()?;
        writer.freed_until(self.back.load(Ordering::Acquire));
        Some(writer)
    }

    /// Whether a request of `len` bytes has room now, before work is done for it.
    pub(crate) fn fits(&self, len: u32) -> bool {
        self.try_writer().is_some_and(|writer| writer.fits(len))
    }

    /// A place for a request of `len` bytes; `None`: not now.
    #[inline(always)]
    pub(crate) fn take(&self, len: u32) -> Option<Taken<'_>> {
        let peer = self.peer.get()?;
        let mut writer = self.try_writer()?;
        let place = writer.take(len)?;
        self.written.store(writer.written(), Ordering::Release);
        let remote = peer.base + self.ring.offset(place.start);
        Some(Taken { rings: self, writer, place, remote, key: peer.key })
    }

    /// The peer's oldest `count` requests of this rank are done.
    #[inline]
    pub(crate) fn came_back(&self, count: u32) -> Result<(), TooMany> {
        let back = self.back.fetch_add(count, Ordering::AcqRel).wrapping_add(count);
        let left = self.written.load(Ordering::Acquire).wrapping_sub(back);
        // Never more than half of the numbers are out, so this is less than none.
        if left.cast_signed() < 0 {
            return Err(TooMany { count, out: left.wrapping_add(count) });
        }
        Ok(())
    }

    /// The bytes of a request of the peer; `None` when they are not inside the ring.
    #[inline]
    pub(crate) fn bytes(&self, start: u32, len: u32) -> Option<&mut [u8]> {
        let (from, longest) = (self.ring.offset(start), self.ring.offset(self.ring.longest));
        let from = usize::try_from(from).ok().filter(|_| u64::from(len) <= longest)?;
        self.memory.bytes(from, len as usize)
    }

    /// A request of the peer has come.
    #[inline(always)]
    pub(crate) fn arrived(&self, number: u32, start: u32, len: u32) -> Result<Place, Wrong> {
        self.owner.arrived(number)?;
        Ok(Place { number, start, units: self.ring.units_of(len) })
    }

    /// A request of the peer is done; its place is given back with the next message, when all before
    /// it are.
    #[inline(always)]
    pub(crate) fn ended(&self, place: Place, account: &Account) -> Result<(), Wrong> {
        let freed = self.owner.ended(place)?;
        if freed > 0 {
            account.free_places(freed);
        }
        Ok(())
    }

    /// Whether the peer must be told of free places.
    #[inline(always)]
    pub(crate) fn is_due(&self, account: &Account) -> bool {
        self.owner.is_due(account.free())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_ring_comes_back(page in 1u64..1 << 46, key: u32) {
            let ring = RemoteRing { base: page * PAGE, key };
            let numbers = ring.numbers();
            prop_assert!(numbers.iter().all(|number| (1..1 << 24).contains(number)));
            prop_assert_eq!(RemoteRing::of(&numbers), Some(ring));
            prop_assert_eq!(RemoteRing::of(&numbers[1..]), None);
        }

        #[test]
        fn other_numbers_are_none(numbers: [u32; NUMBERS]) {
            if let Some(ring) = RemoteRing::of(&numbers) {
                prop_assert_eq!(ring.base % PAGE, 0);
            }
        }
    }

    #[test]
    fn numbers_without_their_mark_are_none() {
        let ring = RemoteRing { base: 7 * PAGE, key: 9 };
        for at in 0..NUMBERS {
            let mut numbers = ring.numbers();
            numbers[at] &= MARK - 1;
            assert_eq!(RemoteRing::of(&numbers), None);
        }
        assert_eq!(RemoteRing::of(&RemoteRing { base: 0, key: 9 }.numbers()), None);
        assert_eq!(RemoteRing::of(&[MARK | 1, MARK, MARK, MARK | 1 << 9]), None);
    }
}
