//! Which memory outside segments is registered: pure, no device and no clock inside.
//!
//! Addresses are cut at the multiples of a *block*, the size of the largest region. Inside a block
//! regions are runs of whole pages that neither overlap nor touch: one that is missing is made
//! together with what it overlaps or touches, so that transfers at any alignment soon hit. Regions
//! stay, in the order in which their last uses began; of those that nobody uses the one that was
//! not used for longest gives way when there is no room (*victims*).
//!
//! Uses begin under the lock around this, and end without it ([`Use`]).
//!
//! Nothing here allocates or frees memory after `new`: whoever holds the lock must not wait for the
//! end of an `munmap` (`watch.rs`).

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whole pages: addresses from `from` up to `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Span {
    pub(crate) const fn len(self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    const fn overlaps(self, other: Self) -> bool {
        self.from < other.to && other.from < self.to
    }

    const fn covers(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// How much may be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// A power of two.
    pub(crate) page: u64,
    /// Bytes of the largest region: a power of two, at least a page.
    pub(crate) block: u64,
    pub(crate) bytes: u64,
    pub(crate) regions: u32,
}

impl Limits {
    /// The whole pages of `len` bytes from `address` on that are in the block where they begin;
    /// `None` where addresses wrap.
    pub(crate) fn first_block(&self, address: u64, len: u64) -> Option<Span> {
        let end = address.checked_add(len)?.checked_add(self.page - 1)? & !(self.page - 1);
        let from = address & !(self.page - 1);
        let block_end = (from & !(self.block - 1)).checked_add(self.block)?;
        Some(Span { from, to: end.min(block_end) })
    }
}

/// Marks the end of a list.
const NONE: u32 = u32::MAX;
/// Most places of regions that were found last: a power of two.
const MOST_RECENT: usize = 4096;

/// One use of a region, which is not deregistered before this is dropped. That takes no lock: the
/// word counts the uses of a slot that have ended, and the table knows how many have begun. The
/// words are never freed, as a transfer may outlive the table.
#[must_use]
pub(crate) struct Use(&'static AtomicU64);

impl fmt::Debug for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Use")
    }
}

impl Drop for Use {
    #[inline]
    fn drop(&mut self) {
        // Whoever sees that nobody uses the region sees all that was done with it.
        self.0.fetch_add(1, Ordering::Release);
    }
}

#[derive(Debug)]
struct Slot<T> {
    span: Span,
    write: bool,
    /// Found by look-ups; else it goes when nobody uses it.
    live: bool,
    /// Uses that have begun since the table was made, and those that have ended.
    begun: u64,
    ended: &'static AtomicU64,
    previous: u32,
    next: u32,
    value: Option<T>,
}

impl<T> Slot<T> {
    /// May be true for a moment longer than it is; never the other way round under the lock.
    fn is_used(&self) -> bool {
        self.ended.load(Ordering::Acquire) != self.begun
    }

    #[inline]
    const fn serves(&self, span: Span, write: bool) -> bool {
        self.live && self.span.covers(span) && (self.write || !write)
    }
}

/// What has to be done for a region that is missing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Plan<T> {
    /// There is room: register this, for writing or not. It has begun ([`Regions::begin`]).
    Register(Span, bool),
    /// First deregister this one.
    Evict(Span, T),
    /// Everything is in use.
    Full,
}

/// Regions with what was made of each.
#[derive(Debug)]
pub(crate) struct Regions<T> {
    limits: Limits,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Beginnings of live regions in order, with their slots.
    map: Vec<(u64, u32)>,
    /// For look-ups by block (its number's lowest bits): the slot that was found there last.
    recent: Box<[u32]>,
    /// Live regions, that whose last use began first in front.
    oldest: u32,
    newest: u32,
    /// Regions that are not live, linked by `next`.
    dead: u32,
    bytes: u64,
    /// What is being registered, and whether it was forgotten meanwhile.
    pending: Option<Span>,
    is_lost: bool,
}

impl<T> Regions<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        let count = limits.regions as usize;
        let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let slot = |ended| Slot {
            span: Span { from: 0, to: 0 },
            write: false,
            live: false,
            begun: 0,
            ended,
            previous: NONE,
            next: NONE,
            value: None,
        };
        Self {
            limits,
            slots: words.leak().iter().map(slot).collect(),
            free: (0..limits.regions).rev().collect(),
            map: Vec::with_capacity(count),
            recent: vec![NONE; count.next_power_of_two().min(MOST_RECENT)].into(),
            oldest: NONE,
            newest: NONE,
            dead: NONE,
            bytes: 0,
            pending: None,
            is_lost: false,
        }
    }

    /// Regions and bytes that are registered, used or not.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, u64) {
        (self.slots.len() - self.free.len(), self.bytes)
    }

    /// The first region that begins after `address`, as a place in the map.
    fn place(&self, address: u64) -> usize {
        self.map.partition_point(|(from, _)| *from <= address)
    }

    /// The slot of the live region that covers `span`, which is in one block.
    #[inline]
    fn find(&mut self, span: Span, write: bool) -> Option<u32> {
        let serves =
            |index: u32| self.slots.get(index as usize).is_some_and(|it| it.serves(span, write));
        let block = span.from >> self.limits.block.trailing_zeros();
        let at = usize::try_from(block & (self.recent.len() as u64 - 1)).ok()?;
        let recent = *self.recent.get(at)?;
        if serves(recent) {
            return Some(recent);
        }
        let (_, index) = *self.map.get(self.place(span.from).checked_sub(1)?)?;
        if !serves(index) {
            return None;
        }
        *self.recent.get_mut(at)? = index;
        Some(index)
    }

    /// Begins a use of the live region that covers `span`, which is in one block.
    #[inline]
    pub(crate) fn hold(&mut self, span: Span, write: bool) -> Option<(Use, &T)> {
        let index = self.find(span, write)?;
        if self.newest != index {
            self.unlink(index);
            self.append(index);
        }
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.as_ref()?;
        slot.begun += 1;
        Some((Use(slot.ended), value))
    }

    fn unlink(&mut self, index: u32) {
        let Some(slot) = self.slots.get(index as usize) else { return };
        let (previous, next) = (slot.previous, slot.next);
        match self.slots.get_mut(previous as usize) {
            Some(slot) => slot.next = next,
            None => self.oldest = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(slot) => slot.previous = previous,
            None => self.newest = previous,
        }
    }

    fn append(&mut self, index: u32) {
        let last = std::mem::replace(&mut self.newest, index);
        match self.slots.get_mut(last as usize) {
            Some(slot) => slot.next = index,
            None => self.oldest = index,
        }
        if let Some(slot) = self.slots.get_mut(index as usize) {
            (slot.previous, slot.next) = (last, NONE);
        }
    }

    /// Empties a slot that is in no list.
    fn vacate(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        self.bytes -= slot.span.len();
        self.free.push(index);
        Some(value)
    }

    /// Takes a live region out of the map; it joins the dead.
    fn remove(&mut self, at: usize) {
        let (_, index) = self.map.remove(at);
        self.unlink(index);
        let next = std::mem::replace(&mut self.dead, index);
        if let Some(slot) = self.slots.get_mut(index as usize) {
            (slot.live, slot.next) = (false, next);
        }
    }

    /// Places in the map: regions for which `is_before` holds come first.
    fn partition(&self, is_before: impl Fn(Span) -> bool) -> usize {
        self.map.partition_point(|(_, index)| {
            self.slots.get(*index as usize).is_some_and(|slot| is_before(slot.span))
        })
    }

    /// The region to make for `span`, which no region covers: together with what it overlaps or
    /// touches in its block, if so much may be registered.
    fn union(&self, span: Span, write: bool) -> (Span, bool) {
        let block = span.from & !(self.limits.block - 1);
        let from = self.partition(|one| one.to < span.from || one.from < block);
        let to = self.partition(|one| {
            one.from <= span.to && one.from < block.saturating_add(self.limits.block)
        });
        let near = self.map.get(from..to).unwrap_or_default();
        let all = near.iter().filter_map(|(_, index)| self.slots.get(*index as usize)).fold(
            (span, write),
            |(all, write), slot| {
                let (from, to) = (all.from.min(slot.span.from), all.to.max(slot.span.to));
                (Span { from, to }, write || slot.write)
            },
        );
        if all.0.len() > self.limits.bytes { (span, write) } else { all }
    }

    /// What to do next so that `span`, in one block, can be held. One caller at a time.
    pub(crate) fn plan(&mut self, span: Span, write: bool) -> Plan<T> {
        let (union, write) = self.union(span, write);
        if union.len() <= self.limits.bytes {
            if let Some(dead) = self.take_dead() {
                return Plan::Evict(dead.0, dead.1);
            }
            if !self.free.is_empty() && self.bytes + union.len() <= self.limits.bytes {
                // The neighbours may be unmapped from now on.
                self.begin(union);
                return Plan::Register(union, write);
            }
            if let Some((span, value)) = self.evict() {
                return Plan::Evict(span, value);
            }
        }
        Plan::Full
    }

    /// The first region from `index` on, along `next`, that nobody uses, and the one before it.
    fn unused_from(&self, mut index: u32) -> Option<(u32, u32)> {
        let mut before = NONE;
        loop {
            let slot = self.slots.get(index as usize)?;
            if !slot.is_used() {
                return Some((index, before));
            }
            (before, index) = (index, slot.next);
        }
    }

    fn take_dead(&mut self) -> Option<(Span, T)> {
        let (index, before) = self.unused_from(self.dead)?;
        let slot = self.slots.get(index as usize)?;
        let (span, next) = (slot.span, slot.next);
        match self.slots.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.dead = next,
        }
        // Its pages may be those of a live region.
        let empty = Span { from: span.from, to: span.from };
        self.vacate(index).map(|value| (empty, value))
    }

    /// Takes out the region that was not used for longest, with its pages.
    pub(crate) fn evict(&mut self) -> Option<(Span, T)> {
        let (index, _) = self.unused_from(self.oldest)?;
        let span = self.slots.get(index as usize)?.span;
        let at = self.place(span.from).checked_sub(1)?;
        self.map.remove(at);
        self.unlink(index);
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.live = false;
        }
        self.vacate(index).map(|value| (span, value))
    }

    /// `span` is about to be registered: [`Regions::forget`] of any of it will count.
    pub(crate) fn begin(&mut self, span: Span) {
        (self.pending, self.is_lost) = (Some(span), false);
    }

    /// Enters a region that was planned, in place of those that it overlaps. It comes back when it
    /// was forgotten since [`Regions::begin`], or when there is no room.
    pub(crate) fn insert(&mut self, span: Span, write: bool, value: T) -> Result<(), T> {
        if self.pending.take() != Some(span) || self.is_lost {
            return Err(value);
        }
        let Some(index) = self.free.pop() else { return Err(value) };
        self.forget(span);
        let at = self.place(span.from);
        self.map.insert(at, (span.from, index));
        self.bytes += span.len();
        if let Some(slot) = self.slots.get_mut(index as usize) {
            (slot.span, slot.write, slot.live) = (span, write, true);
            slot.value = Some(value);
        }
        self.append(index);
        Ok(())
    }

    /// Whether a region that look-ups find has any of these pages.
    pub(crate) fn has_any(&self, span: Span) -> bool {
        let from = self.partition(|one| one.to <= span.from);
        from < self.partition(|one| one.from < span.to)
    }

    /// Pages were unmapped, moved or emptied: no region with any of them is found again.
    pub(crate) fn forget(&mut self, span: Span) {
        self.is_lost |= self.pending.is_some_and(|pending| pending.overlaps(span));
        let from = self.partition(|one| one.to <= span.from);
        let to = self.partition(|one| one.from < span.to);
        for at in (from..to).rev() {
            self.remove(at);
        }
    }
}

#[cfg(test)]
#[path = "regions_tests.rs"]
mod tests;
