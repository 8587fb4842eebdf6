//! Flow control between two ranks, and counting permits. Pure: atomic numbers and rules, no lock,
//! so that a signal handler may use what its thread was using.
//!
//! A request takes a credit, which stands for two receive buffers: one at the target for the
//! request, one here for what answers it. Those at the target are there from the start; those here
//! are posted when so many requests are under way for the first time ([`Supply`]), so an account
//! begins with fewer credits than the target grants. A reply or an ack gives the credit back, and
//! each message may carry more that the responder had banked. A responder banks at most *slack*
//! credits; one more makes an ack due. Slack is below the number of credits: otherwise all could
//! lie banked on both sides, and nobody could send. A sender that will not have all of its credits
//! tells its *limit*, which bounds the slack.

use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::tally::{Sharing, Tally};

/// Permits for something of which there is a fixed number.
#[derive(Debug, Default)]
pub(crate) struct Permits(Tally);

impl Permits {
    pub(crate) fn new(count: u32) -> Self {
        Self::used_by(Sharing::Threads, count)
    }

    pub(crate) fn used_by(sharing: Sharing, count: u32) -> Self {
        Self(Tally::new(count, sharing))
    }

    /// Takes one if more than `reserve` are left.
    #[inline]
    pub(crate) fn take(&self, reserve: u32) -> bool {
        self.take_one(reserve).is_some()
    }

    /// As [`Permits::take`]; how many are left then.
    #[inline]
    pub(crate) fn take_one(&self, reserve: u32) -> Option<u32> {
        let less = |count: u32| (count > reserve).then(|| count - 1);
        let before = self.0.update(less);
        before.ok().map(|before| before - 1)
    }

    #[inline]
    pub(crate) fn give(&self, count: u32) {
        self.0.add(count);
    }

    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.0.get()
    }
}

/// Things of which some are made at first, and more when they are all in use.
#[derive(Debug)]
pub(crate) struct Supply {
    made: AtomicU32,
    most: AtomicU32,
}

impl Supply {
    /// `first` are there, more can be made up to `most`.
    pub(crate) fn new(first: u32, most: u32) -> Self {
        Self { made: AtomicU32::new(first.min(most)), most: AtomicU32::new(most) }
    }

    pub(crate) fn made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// How many to make now: at first few, later as many as there are. They count as made; 0: there
    /// will be no more.
    pub(crate) fn more(&self) -> u32 {
        let most = self.most.load(Ordering::Acquire);
        let step = |made: u32| made.clamp(1, MOST_AT_ONCE).min(most.saturating_sub(made));
        let more = |made: u32| (step(made) > 0).then(|| made + step(made));
        self.made.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).map_or(0, step)
    }

    /// So many were made elsewhere.
    fn grow(&self, count: u32) {
        self.made.fetch_add(count, Ordering::AcqRel);
    }

    /// So many are gone.
    fn shrink(&self, count: u32) {
        self.made.fetch_sub(count, Ordering::AcqRel);
    }

    /// So many could not be made: no more are tried.
    pub(crate) fn end(&self, missing: u32) {
        let made = self.made.fetch_sub(missing, Ordering::AcqRel) - missing;
        self.most.fetch_min(made, Ordering::AcqRel);
    }
}

/// Most that [`Supply::more`] gives.
const MOST_AT_ONCE: u32 = 64;

/// What a message carries of flow control: 16 bits of its hidden word.
///
/// | bits | what |
/// |---|---|
/// | 0-7 | credits returned |
/// | 8-10 | credits that its sender wants more |
/// | 11-13 | credits that its sender lends more |
/// | 14 | an epoch of its sender has ended |
///
/// All but the first are of `flow`. Where requests are written into rings, bits 8-15 are how many of
/// the receiver's oldest requests are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried(pub(crate) u16);

impl Carried {
    pub(crate) const fn of(returned: u8, wanted: u32, granted: u32, epoch: bool) -> Self {
        let (wanted, granted) = ((wanted & 7) as u16, (granted & 7) as u16);
        Self(returned as u16 | wanted << 8 | granted << 11 | (epoch as u16) << 14)
    }

    pub(crate) const fn returned(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    pub(crate) const fn wanted(self) -> u32 {
        (self.0 >> 8 & 7) as u32
    }

    pub(crate) const fn granted(self) -> u32 {
        (self.0 >> 11 & 7) as u32
    }

    pub(crate) const fn epoch(self) -> bool {
        self.0 >> 14 & 1 == 1
    }

    pub(crate) const fn with_places(returned: u8, places: u8) -> Self {
        Self(returned as u16 | (places as u16) << 8)
    }

    /// Of the receiver's requests, so many more that are done.
    pub(crate) const fn places(self) -> u32 {
        (self.0 >> 8) as u32
    }

    /// Whether it has nothing but what the table says of credits that move.
    pub(crate) const fn is_known(self) -> bool {
        self.0 >> 15 == 0
    }

    /// Whether there is more than returned credits.
    pub(crate) const fn moves(self) -> bool {
        self.0 >> 8 != 0
    }
}

/// What waits for the next message to a peer: credits to return (bits 0-15), to lend (16-23), to
/// ask for (24-26), and that an epoch has ended (31). Where requests are written into rings: credits
/// to return, and places to give back (16-31).
#[derive(Debug, Default)]
struct Outbox {
    word: Tally,
    /// The peer writes requests into a ring.
    places: bool,
}

impl Outbox {
    const LENT: u32 = 16;
    const WANTED: u32 = 24;
    const EPOCH: u32 = 1 << 31;

    const fn banked(word: u32) -> u32 {
        word & 0xffff
    }

    #[inline]
    fn take(&self) -> Carried {
        if self.word.peek() == 0 {
            return Carried(0);
        }
        let word = self.word.replace(0);
        if self.places {
            return self.with_places(word);
        }
        let (banked, lent) = (Self::banked(word), word >> Self::LENT & 0xff);
        let (back, granted) = (banked.min(u32::from(u8::MAX)), lent.min(7));
        let rest = (banked - back) + ((lent - granted) << Self::LENT);
        if rest != 0 {
            self.word.add(rest);
        }
        let back = u8::try_from(back).unwrap_or(u8::MAX);
        Carried::of(back, word >> Self::WANTED, granted, word & Self::EPOCH != 0)
    }

    /// As much of what waits as a message carries.
    fn with_places(&self, word: u32) -> Carried {
        const FIT: u32 = 0x00ff_00ff;
        if word & !FIT == 0 {
            #[expect(clippy::cast_possible_truncation, reason = "they fit")]
            return Carried::with_places(word as u8, (word >> Self::LENT) as u8);
        }
        let most = u32::from(u8::MAX);
        let (back, places) = (Self::banked(word).min(most), (word >> Self::LENT).min(most));
        let rest = word - (back | places << Self::LENT);
        if rest != 0 {
            self.word.add(rest);
        }
        let narrow = |number| u8::try_from(number).unwrap_or(u8::MAX);
        Carried::with_places(narrow(back), narrow(places))
    }

    fn put_back(&self, carried: Carried) {
        if self.places {
            let word = carried.returned() | carried.places() << Self::LENT;
            self.word.add(word);
            return;
        }
        self.word.add(carried.returned() + (carried.granted() << Self::LENT));
        self.want(carried.wanted());
        if carried.epoch() {
            self.word.set_bits(Self::EPOCH);
        }
    }

    fn want(&self, count: u32) {
        self.word.set_bits((count & 7) << Self::WANTED);
    }
}

/// One rank's view of the credits between it and a peer, on one pair of queue pairs.
#[derive(Debug)]
pub(crate) struct Account {
    available: Tally,
    /// Credits of the peer that wait here to be carried back, and what else goes with them.
    outbox: Outbox,
    /// Credits that there is a buffer for an answer for.
    pub(crate) supply: Supply,
    /// What every rank banks that was told no limit, and what this one does.
    usual_slack: u32,
    slack: AtomicU32,
    /// The limit that the peer is to be told; 0: none.
    limit: AtomicU32,
    /// Half of what the peer has at first, or two.
    half: u32,
}

/// A peer returned more credits than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{returned} credits returned where at most {possible} can be out")]
pub(crate) struct TooMany {
    returned: u32,
    possible: u32,
}

impl Account {
    /// All credits may be used at once.
    #[cfg(any(test, loom))]
    pub(crate) fn new(credits: u32, slack: u32) -> Self {
        Self::growing((credits, credits), slack, Sharing::Threads)
    }

    /// `first` of the credits may be used at once. `slack` is cut to what cannot block.
    pub(crate) fn growing((first, credits): (u32, u32), slack: u32, sharing: Sharing) -> Self {
        let slack = slack.min(credits.saturating_sub(1)).min(u32::from(u8::MAX));
        let supply = Supply::new(first, credits);
        let (available, half) = (Tally::new(supply.made(), sharing), (credits / 2).max(2));
        let (usual_slack, slack, limit) = (slack, AtomicU32::new(slack), AtomicU32::new(0));
        let outbox = Outbox { word: Tally::new(0, sharing), places: false };
        Self { available, outbox, supply, usual_slack, slack, limit, half }
    }

    /// The peer writes requests into a ring.
    pub(crate) fn with_ring(self) -> Self {
        Self { outbox: Outbox { places: true, ..self.outbox }, ..self }
    }

    /// So many places of the ring can be given back.
    pub(crate) fn free_places(&self, count: u32) {
        self.outbox.word.add(count << Outbox::LENT);
    }

    /// Places that wait to be given back.
    pub(crate) fn free(&self) -> u32 {
        self.outbox.word.get() >> Outbox::LENT
    }

    /// More credits may be used, which [`Supply::more`] of this account has counted.
    pub(crate) fn add(&self, count: u32) {
        self.available.add(count);
    }

    /// The peer has lent so many credits more.
    pub(crate) fn lent(&self, count: u32) {
        self.supply.grow(count);
        self.add(count);
    }

    /// Gives up to `most` credits for good that are not in use, and keeps at least `keep` with those
    /// in use. How many were given up.
    pub(crate) fn give_up(&self, keep: u32, most: u32) -> u32 {
        let spare = self.supply.made().saturating_sub(keep).min(most);
        let given = |available: u32| spare.min(available);
        let less = |available: u32| Some(available - given(available));
        let before = self.available.update(less);
        let given = before.map_or(0, given);
        self.supply.shrink(given);
        given
    }

    /// Takes the credit of a request.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.available.update(less).is_ok()
    }

    /// Undoes [`Account::take`] for a request that was not sent.
    pub(crate) fn untake(&self) {
        self.available.add(1);
    }

    /// Requests that may be sent now.
    pub(crate) fn available(&self) -> u32 {
        self.available.get()
    }

    /// Books credits that came back. Credits of a peer are not believed beyond what it can have.
    #[inline]
    pub(crate) fn returned(&self, count: u32) -> Result<(), TooMany> {
        if count == 0 {
            return Ok(());
        }
        // The supply is read after what is available: another thread may add to both meanwhile,
        // and it counts in the supply first.
        let more = |now: u32| now.checked_add(count).filter(|sum| *sum <= self.supply.made());
        match self.available.update(more) {
            Ok(_) => Ok(()),
            Err(now) => {
                let possible = self.supply.made().saturating_sub(now);
                Err(TooMany { returned: count, possible })
            }
        }
    }

    /// What goes with the next message to the peer, which must then be sent, or
    /// [`Account::uncarry`] called.
    #[inline]
    pub(crate) fn carry(&self) -> Carried {
        self.outbox.take()
    }

    /// Whether nothing waits for the next message to the peer. Another thread may add to it at once.
    #[inline]
    pub(crate) fn carries_nothing(&self) -> bool {
        self.outbox.word.peek() == 0
    }

    pub(crate) fn uncarry(&self, carried: Carried) {
        self.outbox.put_back(carried);
    }

    /// The next message lends the peer so many credits more, at most seven.
    pub(crate) fn lend(&self, count: u32) {
        self.outbox.word.add((count & 7) << Outbox::LENT);
    }

    /// Credits that the next messages lend.
    #[cfg(test)]
    pub(crate) fn lending(&self) -> u32 {
        self.outbox.word.get() >> Outbox::LENT & 0xff
    }

    /// The next message asks for so many credits more, at most seven. `false`: it does already.
    pub(crate) fn want(&self, count: u32) -> bool {
        let wants = self.outbox.word.peek() >> Outbox::WANTED & 7;
        if wants == 0 {
            self.outbox.want(count);
        }
        wants == 0
    }

    /// The next message says that an epoch has ended.
    pub(crate) fn tell_epoch(&self) {
        self.outbox.word.set_bits(Outbox::EPOCH);
    }

    /// A request was handled and not answered. Whether an ack is due.
    #[inline]
    pub(crate) fn bank(&self) -> bool {
        Outbox::banked(self.outbox.word.add(1)) >= self.slack()
    }

    #[inline]
    fn slack(&self) -> u32 {
        self.slack.load(Ordering::Relaxed)
    }

    /// Whether more is banked than may be.
    pub(crate) fn is_ack_due(&self) -> bool {
        self.banked() > self.slack()
    }

    /// There will be no more credits than there are. Whether the peer, which may bank as many, has
    /// to be told.
    pub(crate) fn ends(&self) -> bool {
        let limit = self.supply.made().max(1);
        let tells = limit <= self.usual_slack;
        if tells {
            self.limit.store(limit, Ordering::Release);
        }
        tells
    }

    /// The limit that the peer is to be told, which must then be sent, or [`Account::untold`] called.
    pub(crate) fn take_limit(&self) -> Option<u32> {
        Some(self.limit.swap(0, Ordering::AcqRel)).filter(|limit| *limit > 0)
    }

    /// Whether the peer is to be told a limit.
    pub(crate) fn has_limit(&self) -> bool {
        self.limit.load(Ordering::Acquire) > 0
    }

    pub(crate) fn untold(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
    }

    /// The peer has so many credits for good, at least one.
    pub(crate) fn peer_ends(&self, limit: u32) {
        self.slack.fetch_min(limit.saturating_sub(1), Ordering::AcqRel);
    }

    /// Whether so much is banked that the peer may soon lack credits.
    pub(crate) fn is_half_banked(&self) -> bool {
        self.banked() >= self.half
    }

    /// Credits of the peer that wait here.
    pub(crate) fn banked(&self) -> u32 {
        Outbox::banked(self.outbox.word.get())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "credits_tests.rs"]
mod tests;
