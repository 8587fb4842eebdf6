//! Flow control by bytes (`GASNET_AM_FLOW_CONTROL=volume`): each connection has a ring of memory at
//! either end, which the other end writes its requests into. Pure; `docs/design/flow.md` has the
//! rules.
//!
//! The [`Writer`] gives each request a number and the next place of the ring; one that does not fit
//! before the end goes to the start. The [`Owner`] finds number and place in the request, so it may
//! take requests in any order. Places are free again in the order of the numbers: when a handler has
//! ended, the owner counts how many from the oldest on are done, and says no more than that count,
//! of some at once. It finds the places by the writer's rule then, so a writer that does not keep it
//! is found.

use crate::sys::atomic::{AtomicU64, Ordering, fence};

/// Most units of a ring: messages name their place by 12 bits.
pub(crate) const MOST_UNITS: u32 = 1 << 12;
/// Least bytes of a unit: a line of the cache.
const LEAST_UNIT: u64 = 64;
/// Most of the longest requests that a ring holds, and least: with two, one fits whatever the
/// position, once all are done.
pub(crate) const MOST_LONGEST: u64 = 64;
pub(crate) const LEAST_LONGEST: u64 = 2;
/// Most places that are given back at once, and of what may be out one in so many at most.
const MOST_GROUP: u32 = 16;
const GROUP_OF: u32 = 8;

/// Numbers of 24 bits that a rank tells a peer of a ring: two for the page of its address, two for
/// its key.
pub(crate) const NUMBERS: usize = 4;

/// A ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of a unit, a power of two, and which one.
    pub(crate) unit: u32,
    shift: u32,
    pub(crate) units: u32,
    /// Units of the longest request.
    pub(crate) longest: u32,
}

impl Geometry {
    /// For about `space` bytes and requests of at most `longest`.
    pub(crate) fn of(space: u64, longest: u64) -> Self {
        let longest = longest.max(1);
        let space = space.clamp(LEAST_LONGEST * longest, MOST_LONGEST * longest);
        let unit = space.div_ceil(MOST_UNITS.into()).max(LEAST_UNIT).next_power_of_two();
        let each = longest.div_ceil(unit);
        let units = (space / unit).max(LEAST_LONGEST * each);
        let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let (unit, shift) = (narrow(unit), unit.trailing_zeros());
        Self { unit, shift, units: narrow(units), longest: narrow(each) }
    }

    pub(crate) const fn bytes(self) -> u32 {
        self.unit.saturating_mul(self.units)
    }

    /// Units that a request of `len` bytes takes.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "at most as many as bytes, or one")]
    pub(crate) const fn units_of(self, len: u32) -> u32 {
        // A division by a number that is not known takes longer than what surrounds it.
        ((len as u64 + (self.unit - 1) as u64) >> self.shift) as u32
    }

    /// Bytes before a unit.
    #[inline(always)]
    pub(crate) const fn offset(self, start: u32) -> u64 {
        (start as u64) << self.shift
    }

    /// The place of the next request when the last one ends at `at`, and what it takes with the rest
    /// of the ring that is left out.
    const fn next(self, at: u32, units: u32) -> (u32, u32) {
        if at + units <= self.units { (at, units) } else { (0, self.units - at + units) }
    }
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Requests are numbered in the order of their places.
    pub(crate) number: u32,
    /// First unit.
    pub(crate) start: u32,
    pub(crate) units: u32,
}

/// Who writes requests into a ring of the peer. One thread at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    ring: Geometry,
    at: u32,
    /// Units that requests so far have taken, and may have taken until some are done; both wrap.
    taken: u32,
    full: u32,
    /// Of the next request, of the oldest that is not known to be done, and of the one that would be
    /// too many.
    number: u32,
    oldest: u32,
    stop: u32,
    /// What requests up to each of these, and the one before, have taken, by its number modulo the
    /// length.
    ends: Box<[u32]>,
    most: u32,
}

impl Writer {
    /// At most `most` requests are out at once.
    pub(crate) fn new(ring: Geometry, most: u32) -> Self {
        let ends = vec![0; (most + 1).next_power_of_two() as usize].into_boxed_slice();
        let (full, stop) = (ring.units, most);
        Self { ring, at: 0, taken: 0, full, number: 0, oldest: 0, stop, ends, most }
    }

    const fn out(&self) -> u32 {
        self.number.wrapping_sub(self.oldest)
    }

    /// Requests written so far, modulo the numbers.
    pub(crate) const fn written(&self) -> u32 {
        self.number
    }

    /// What was taken up to a request.
    #[inline]
    fn end(&mut self, number: u32) -> &mut u32 {
        &mut self.ends[number as usize & (self.ends.len() - 1)]
    }

    /// Units that are in use.
    #[cfg(test)]
    const fn used(&self) -> u32 {
        self.ring.units - self.full.wrapping_sub(self.taken)
    }

    /// Whether so many units can be taken now.
    #[inline(always)]
    const fn has_room(&self, span: u32) -> bool {
        self.full.wrapping_sub(self.taken) >= span && self.number != self.stop
    }

    /// Whether a request of `len` bytes has room now.
    pub(crate) fn fits(&self, len: u32) -> bool {
        self.has_room(self.ring.next(self.at, self.ring.units_of(len)).1)
    }

    /// A place for a request of `len` bytes; `None`: not now.
    #[inline(always)]
    pub(crate) fn take(&mut self, len: u32) -> Option<Place> {
        let units = self.ring.units_of(len);
        if self.at + units > self.ring.units {
            return self.take_at_start(units);
        }
        self.take_at(self.at, units, units)
    }

    /// The request does not fit before the end, whose rest is left out.
    #[cold]
    fn take_at_start(&mut self, units: u32) -> Option<Place> {
        let (start, span) = self.ring.next(self.at, units);
        self.take_at(start, units, span)
    }

    #[inline(always)]
    fn take_at(&mut self, start: u32, units: u32, span: u32) -> Option<Place> {
        if !self.has_room(span) {
            return None;
        }
        let number = self.number;
        self.taken = self.taken.wrapping_add(span);
        *self.end(number) = self.taken;
        self.number = number.wrapping_add(1);
        self.at = start + units;
        Some(Place { number, start, units })
    }

    /// Undoes the last [`Writer::take`], whose request was not sent.
    pub(crate) fn untake(&mut self) {
        if self.out() > 0 {
            self.number = self.number.wrapping_sub(1);
            let before = *self.end(self.number.wrapping_sub(1));
            let span = self.taken.wrapping_sub(before);
            self.taken = before;
            // Before it was the end of the ring or its start, and that is the same.
            self.at = (self.at + self.ring.units - span) % self.ring.units;
        }
    }

    /// The oldest `count` requests are done.
    #[cfg(test)]
    pub(crate) fn freed(&mut self, count: u32) {
        self.freed_until(self.oldest.wrapping_add(count));
    }

    /// All requests are done that came before the one of this number, of which not more are out.
    #[inline(always)]
    pub(crate) fn freed_until(&mut self, number: u32) {
        if number != self.oldest {
            self.oldest = number;
            self.stop = number.wrapping_add(self.most);
            self.full = self.end(number.wrapping_sub(1)).wrapping_add(self.ring.units);
        }
    }
}

/// What a writer did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("request {number} came where {expected} or one of the next {most} can come")]
    Number { number: u32, expected: u32, most: u32 },
    #[error("request {number} came twice")]
    Twice { number: u32 },
    #[error("request {number} is at unit {start} of the ring, and belongs at {expected}")]
    Place { number: u32, start: u32, expected: u32 },
}

/// A place as a word: number, first unit, units.
const fn word(place: Place) -> u64 {
    (place.number as u64) << 32 | (place.start as u64 & 0xffff) << 16 | place.units as u64 & 0xffff
}

const fn number_in(word: u64) -> u32 {
    (word >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
const fn parts_in(word: u64) -> (u32, u32) {
    ((word as u32) >> 16, word as u32 & 0xffff)
}

/// Whose ring it is. Any thread, without a lock.
#[derive(Debug)]
pub(crate) struct Owner {
    ring: Geometry,
    /// Requests that are done, by their number modulo the length: twice as many as may be out, so
    /// that the one before the oldest of these is there too.
    done: Box<[AtomicU64]>,
    /// Requests that may be out at once.
    most: u32,
    /// Places are kept until there are so many, or until one ends in another part of the ring, whose
    /// length is this power of two: then all that are kept are given back.
    group: u32,
    part: u32,
    /// How many from the first on are done, how many of these are kept, and where the last ends.
    prefix: AtomicU64,
}

impl Owner {
    pub(crate) fn new(ring: Geometry, most: u32) -> Self {
        let length = (2 * most).next_power_of_two();
        // As if those before the first had taken nothing.
        let before = |at: u32| Place { number: at.wrapping_sub(length), start: 0, units: 0 };
        let done = (0..length).map(|at| AtomicU64::new(word(before(at)))).collect();
        let most = length / 2;
        // Beside what is kept the longest request has room, with the rest of the ring that it may leave
        // out.
        let spare = ring.units.saturating_sub(2 * ring.longest) / 4;
        let group = if spare == 0 { 1 } else { (most / GROUP_OF).clamp(1, MOST_GROUP) };
        let part = spare.checked_ilog2().unwrap_or(0);
        Self { ring, done, most, group, part, prefix: AtomicU64::new(0) }
    }

    #[inline]
    fn entry(&self, number: u32) -> &AtomicU64 {
        &self.done[number as usize & (self.done.len() - 1)]
    }

    /// Places that are done and kept.
    #[cfg(test)]
    fn kept(&self) -> u32 {
        parts_in(self.prefix.load(Ordering::Acquire)).0
    }

    /// A request has come.
    #[inline(always)]
    pub(crate) fn arrived(&self, number: u32) -> Result<(), Wrong> {
        let (expected, most) = (number_in(self.prefix.load(Ordering::Acquire)), self.most);
        if number.wrapping_sub(expected) < most {
            Ok(())
        } else {
            Err(Wrong::Number { number, expected, most })
        }
    }

    /// A request's place is not used any more. How many more places can be given back.
    #[inline(always)]
    pub(crate) fn ended(&self, place: Place) -> Result<u32, Wrong> {
        let before = self.entry(place.number).swap(word(place), Ordering::AcqRel);
        if number_in(before) == place.number {
            return Err(Wrong::Twice { number: place.number });
        }
        // Of two threads that end neighbours at once one sees what both have done.
        fence(Ordering::SeqCst);
        let (mut prefix, mut freed) = (self.prefix.load(Ordering::Acquire), 0);
        // Most end in the order of their numbers.
        if number_in(prefix) == place.number {
            (prefix, freed) = self.pass(prefix, (place.start, place.units))?;
        }
        let number = number_in(prefix);
        if number_in(self.entry(number).load(Ordering::Acquire)) == number {
            freed += self.pass_all(prefix)?;
        }
        Ok(freed)
    }

    /// Passes all that are done, others ended before the oldest. How many places are given back.
    #[cold]
    fn pass_all(&self, mut prefix: u64) -> Result<u32, Wrong> {
        let mut freed = 0;
        loop {
            let number = number_in(prefix);
            let oldest = self.entry(number).load(Ordering::Acquire);
            if number_in(oldest) != number {
                return Ok(freed);
            }
            let given;
            (prefix, given) = self.pass(prefix, parts_in(oldest))?;
            freed += given;
        }
    }

    /// Passes the oldest request, which begins at `start`, unless another thread has done it. What is
    /// done now, and how many places are given back.
    #[inline(always)]
    fn pass(&self, prefix: u64, (start, units): (u32, u32)) -> Result<(u64, u32), Wrong> {
        let (number, (kept, at)) = (number_in(prefix), parts_in(prefix));
        let (expected, _) = self.ring.next(at, units);
        if start != expected {
            return Err(Wrong::Place { number, start, expected });
        }
        // Where the ring ends is where it begins: the next place is the same.
        let (kept, end) = (kept + 1, start + units);
        let ends_part = (at ^ end) >> self.part != 0;
        let given = if kept >= self.group || ends_part { kept } else { 0 };
        let next = word(Place { number: number.wrapping_add(1), start: kept - given, units: end });
        let passed =
            self.prefix.compare_exchange(prefix, next, Ordering::AcqRel, Ordering::Acquire);
        Ok(passed.map_or_else(|now| (now, 0), |_| (next, given)))
    }

    /// Whether the peer must be told of places that can be given back, `banked` by now: otherwise it
    /// might have no room for the longest request although all are done. Those that are kept are never
    /// much alone.
    #[inline(always)]
    pub(crate) fn is_due(&self, banked: u32) -> bool {
        banked > 0 && self.is_much(banked)
    }

    #[cold]
    fn is_much(&self, banked: u32) -> bool {
        let prefix = self.prefix.load(Ordering::Acquire);
        let (number, (kept, at)) = (number_in(prefix), parts_in(prefix));
        let count = banked + kept;
        if 2 * count >= self.most {
            return true;
        }
        let last = self.entry(number.wrapping_sub(count + 1)).load(Ordering::Acquire);
        let (start, units) = parts_in(last);
        let from = start + units;
        // All of the ring, if they are equal.
        let more = if at > from { 0 } else { self.ring.units };
        let held = (at + more).wrapping_sub(from);
        held.saturating_add(2 * self.ring.longest) > self.ring.units
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "volume_tests.rs"]
mod tests;
