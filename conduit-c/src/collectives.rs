//! Barriers and the broadcast over the team of all ranks, by events.
//!
//! Events of collectives are numbers: a sequence number and a kind. Barriers complete in order, so
//! a count says which are complete. Only one of them is under way between the ranks: the next one
//! arrives when it has passed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gasnet_ibv::inner::{AmMessage, AmPayload, Arrival, Inner, MessageClass, RawToken, Waiter};
use gasnet_ibv::{Flags as Options, LUB_MEDIUM, Mode, Rank};

use crate::fail::{Fail, ensure};
use crate::types::EventValue;
use crate::{M, events};

const BARRIER: usize = 0x80;
const BROADCAST: usize = 0x40;
/// Handler index of a broadcast's parts; below the client's range.
pub const PART: u8 = 64;
/// Arguments of a part.
pub const PART_ARGS: usize = 4;

/// A broadcast between the first word of it here and its completion.
enum Broadcast {
    /// Parts that came before the call: place and bytes.
    Early(Vec<(usize, Vec<u8>)>),
    /// Waits for this many more of its bytes.
    Begun { dst: usize, len: usize, missing: usize },
}

/// The collectives of this rank.
pub struct Collectives {
    inner: Inner,
    advancing: Mutex<()>,
    begun: AtomicU64,
    arrived: AtomicU64,
    done: AtomicU64,
    broadcasts: Mutex<HashMap<u64, Broadcast>>,
    broadcasts_begun: AtomicU64,
}

impl Collectives {
    pub fn new(inner: Inner) -> Self {
        Self {
            inner,
            advancing: Mutex::new(()),
            begun: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            done: AtomicU64::new(0),
            broadcasts: Mutex::new(HashMap::new()),
            broadcasts_begun: AtomicU64::new(0),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Broadcast>> {
        self.broadcasts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a barrier with an event has begun and is not complete.
    #[inline]
    pub fn barriers_under_way(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != self.done.load(Ordering::Acquire)
    }

    /// Moves the barriers on as far as the other ranks let it.
    #[inline]
    pub fn advance(&self) {
        if self.barriers_under_way() && (!<M as Mode>::THREADED || self.may_move()) {
            let _alone = self.alone();
            self.advance_barriers();
        }
    }

    /// Only one thread moves barriers on.
    #[inline]
    fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        <M as Mode>::THREADED.then(|| self.advancing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there may be something to do for who takes the lock: threads that wait ask this
    /// first. A hint, as another thread may be about to do it.
    #[inline]
    fn may_move(&self) -> bool {
        let arrived = self.arrived.load(Ordering::Relaxed);
        if arrived > self.done.load(Ordering::Relaxed) {
            return self.inner.barrier_is_open();
        }
        self.begun.load(Ordering::Relaxed) > arrived
    }

    /// The caller is `alone`.
    #[inline]
    fn advance_barriers(&self) {
        let mut passed = false;
        loop {
            let (arrived, done) =
                (self.arrived.load(Ordering::Relaxed), self.done.load(Ordering::Relaxed));
            if arrived > done {
                if !self.inner.try_pass() {
                    break;
                }
                self.done.store(done + 1, Ordering::Release);
                passed = true;
            } else if self.begun.load(Ordering::Relaxed) > arrived
                && !self.inner.barrier_under_way()
            {
                self.inner.arrive();
                self.arrived.store(arrived + 1, Ordering::Relaxed);
            } else {
                break;
            }
        }
        if <M as Mode>::THREADED && passed {
            // Another thread of this rank may sleep for it.
            self.inner.wake_own();
        }
    }

    /// Begins a barrier: its event.
    #[inline]
    pub fn begin_barrier(&self) -> Result<EventValue, Fail> {
        let _alone = self.alone();
        let under_way = self.barriers_under_way();
        ensure!(
            under_way || !self.inner.barrier_under_way(),
            "gasnet_barrier_notify was called and not waited for"
        );
        let number = self.begun.load(Ordering::Relaxed) + 1;
        self.begun.store(number, Ordering::Relaxed);
        if under_way {
            self.advance_barriers();
        } else {
            self.inner.arrive();
            self.arrived.store(number, Ordering::Relaxed);
            if self.inner.try_pass() {
                self.done.store(number, Ordering::Release);
            }
        }
        Ok(event(number, BARRIER))
    }

    /// Whether an event, not 0, is complete.
    #[inline]
    pub fn is_complete(&self, event: EventValue) -> Result<bool, Fail> {
        if !events::is_operation(event) {
            self.advance();
        }
        self.seen_complete(event)
    }

    /// The same without a check whether the other ranks have arrived.
    #[inline]
    fn seen_complete(&self, event: EventValue) -> Result<bool, Fail> {
        if events::is_operation(event) {
            return events::finish(self.inner, event);
        }
        let (number, kind) = parts(event);
        if kind == BARRIER && number >= 1 && number <= self.begun.load(Ordering::Relaxed) {
            return Ok(self.done.load(Ordering::Acquire) >= number);
        }
        self.broadcast_complete(event)
    }

    #[inline(never)]
    fn broadcast_complete(&self, event: EventValue) -> Result<bool, Fail> {
        let (number, kind) = parts(event);
        let begun = self.broadcasts_begun.load(Ordering::Relaxed);
        if kind == BROADCAST && number >= 1 && number <= begun {
            return Ok(!self.open().contains_key(&number));
        }
        Err(Fail::bad(format!("{event:#x} is not an event")))
    }

    /// Polls the network for an event that a program tests again and again.
    pub fn poll_network(&self, call: &'static str) -> Result<(), Fail> {
        if self.inner.networked() && !self.inner.in_handler::<M>() {
            self.inner.poll::<M>(call)?;
            self.advance();
        }
        Ok(())
    }

    /// Waits (and polls) for an event.
    #[inline]
    pub fn wait_for(&self, call: &'static str, event: EventValue) -> Result<(), Fail> {
        if <M as Mode>::THREADED || !self.is_last_barrier(event) || self.inner.in_handler::<M>() {
            return self.wait_for_any(call, event);
        }
        // Nobody else moves it on.
        self.inner.pass::<M>(call)?;
        self.done.store(parts(event).0, Ordering::Release);
        Ok(())
    }

    #[inline(never)]
    fn wait_for_any(&self, call: &'static str, event: EventValue) -> Result<(), Fail> {
        if event == 0 || self.is_complete(event)? {
            return Ok(());
        }
        self.inner.check_outside::<M>(call)?;
        if event & 0xff == BARRIER && self.inner.yield_until(|| self.is_complete(event))? {
            return Ok(());
        }
        self.wait_until(call, || self.seen_complete(event))
    }

    /// Whether an event is the barrier that was begun last, this rank has arrived at it, and it was
    /// not seen complete.
    #[inline]
    fn is_last_barrier(&self, event: EventValue) -> bool {
        let (number, kind) = parts(event);
        let number_is = |word: &AtomicU64| word.load(Ordering::Relaxed) == number;
        kind == BARRIER
            && number_is(&self.begun)
            && number_is(&self.arrived)
            && self.done.load(Ordering::Relaxed) < number
    }

    /// Waits (and polls) until `done` says so, which is asked after the barriers were moved on.
    pub fn wait_until(
        &self,
        call: &'static str,
        mut done: impl FnMut() -> Result<bool, Fail>,
    ) -> Result<(), Fail> {
        let inner = self.inner;
        let mut waiter = Waiter::new();
        loop {
            let before = self.done.load(Ordering::Relaxed);
            self.advance();
            if done()? {
                return Ok(());
            }
            let delivered = inner.poll::<M>(call)?;
            if delivered > 0 || before != self.done.load(Ordering::Relaxed) {
                waiter.progressed();
            } else {
                let open = || self.barriers_under_way() && inner.barrier_is_open();
                waiter.idle(&inner, || inner.has_work() || open());
            }
        }
    }

    /// The number of a broadcast that begins here.
    pub fn begin_broadcast(&self) -> u64 {
        self.broadcasts_begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends the bytes of a broadcast to all other ranks.
    pub fn send_parts(
        &self,
        call: &'static str,
        number: u64,
        bytes: &[u8],
        others: impl Iterator<Item = u32>,
    ) -> Result<(), Fail> {
        for rank in others {
            let (class, handler) = (MessageClass::Request, PART);
            let target = self.inner.target(call, Rank(rank))?;
            for (turn, part) in bytes.chunks(LUB_MEDIUM).enumerate() {
                let at = (turn * LUB_MEDIUM) as u64;
                let args = [low(number), high(number), low(at), high(at)];
                let (args, payload) = (&args, AmPayload::Medium(part));
                let message = AmMessage { class, target, handler, args, payload };
                let _sent = self.inner.send::<M>(call, None, &message, Options::NONE, &())?;
            }
        }
        Ok(())
    }

    /// Takes a broadcast into `len` bytes at `dst`: its event, 0 when all parts have come.
    pub fn receive_parts(&self, number: u64, dst: usize, len: usize) -> Result<EventValue, Fail> {
        let mut open = self.open();
        let mut missing = len;
        if let Some(Broadcast::Early(parts)) = open.remove(&number) {
            for (at, bytes) in parts {
                let stored = store(dst, len, at, &bytes).filter(|stored| *stored <= missing);
                missing -= stored.ok_or_else(|| Fail::bad("the root broadcasts more bytes"))?;
            }
        }
        if missing == 0 {
            return Ok(0);
        }
        open.insert(number, Broadcast::Begun { dst, len, missing });
        Ok(event(number, BROADCAST))
    }

    /// A part of a broadcast has arrived.
    fn part_arrived(&self, token: &RawToken<'_>, args: &[i32], bytes: &[u8]) {
        let &[low, high, at_low, at_high] = args else { return };
        let (number, at) = (joined(low, high), joined(at_low, at_high));
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let mut open = self.open();
        let row = open.entry(number).or_insert_with(|| Broadcast::Early(Vec::new()));
        match row {
            Broadcast::Early(parts) => parts.push((at, bytes.to_vec())),
            Broadcast::Begun { dst, len, missing } => match store(*dst, *len, at, bytes) {
                Some(stored) if stored <= *missing => {
                    *missing -= stored;
                    if *missing == 0 {
                        open.remove(&number);
                    }
                }
                _ => self.inner.fatal(&format!(
                    "gex_Coll_BroadcastNB: rank {} broadcasts more bytes than this rank expects: nbytes must be the same everywhere",
                    token.source()
                )),
            },
        }
    }
}

/// The library's handler of parts; `context` is the address of the [`Collectives`], which live as
/// long as the process.
pub fn part_arrived(context: *mut (), token: &RawToken<'_>, arrival: Arrival<'_>, args: &[i32]) {
    // SAFETY: registered with that address.
    let collectives = unsafe { &*context.cast::<Collectives>() };
    if let Arrival::Medium(bytes) = arrival {
        collectives.part_arrived(token, args, bytes);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "56 bits are never counted up to")]
const fn event(number: u64, kind: usize) -> EventValue {
    (number as usize) << 8 | kind
}

/// Number and kind of an event.
const fn parts(event: EventValue) -> (u64, usize) {
    (event as u64 >> 8, event & 0xff)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half")]
const fn low(word: u64) -> i32 {
    (word as u32).cast_signed()
}

const fn high(word: u64) -> i32 {
    low(word >> 32)
}

fn joined(low: i32, high: i32) -> u64 {
    u64::from(high.cast_unsigned()) << 32 | u64::from(low.cast_unsigned())
}

/// Writes a part to its place in a buffer of the program; `None` when it does not fit.
fn store(dst: usize, len: usize, at: usize, bytes: &[u8]) -> Option<usize> {
    if at.checked_add(bytes.len())? > len {
        return None;
    }
    let to = std::ptr::with_exposed_provenance_mut::<u8>(dst + at);
    // SAFETY: inside the buffer of `len` bytes at `dst`, which the program leaves to the call until
    // it is complete.
    unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Some(bytes.len())
}
