//! Lanes from the core's side: when a message takes one, and looking at those of this rank.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::consumer;
use crate::core::Core;
use crate::foreign::ShortRow;
use crate::handler::Function;
use crate::mode::Mode;
use crate::progress::keeps_promise;
use crate::token::RawToken;
use crate::transport::message::MessageClass;
use crate::transport::shm::Row;
use crate::transport::shm::{Lane, Packet, Post, Tail, lanes_of};

/// Most messages of one lane that one poll delivers.
const BATCH: usize = 64;

/// Messages without an answer that make a flood.
const FLOOD: u32 = 16;

/// Requests without a poll between them that make a row.
const ROW: u32 = 4;
/// In a row, a rank looks for messages to itself before each of so many requests.
const LOOK_EVERY: u32 = 32;
/// Looks of a row after which a rank with a network polls, because a look does not see what the network has.
const LOOKS: u32 = 5;

/// The thread that a [`Tail`] belongs to, where only one at a time is in the library.
const ANY_THREAD: usize = 1;

#[inline(always)]
fn me<M: Mode>() -> usize {
    if M::THREADED { consumer::me() } else { ANY_THREAD }
}

/// Requests that may pass before the next look for messages and for the end of communication, and the thread that has looked:
/// its number above the last [`BITS`] bits. A thread inside a handler has none: the poll that runs the handler ended the row, and
/// inside of it there are no looks.
#[derive(Debug)]
pub(crate) struct Passes(AtomicUsize);

const BITS: u32 = 8;
const _: () = assert!(LOOK_EVERY >> BITS == 0);

impl Passes {
    pub(crate) const fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    #[inline(always)]
    fn grant(&self, me: usize, count: u32) {
        self.0.store((me << BITS) + count as usize, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Uses one up, if this thread has any. Another thread's look at the same time may be lost, which costs it a look.
    #[inline(always)]
    fn take_one(&self, me: usize) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        let has = word.wrapping_sub(me << BITS).wrapping_sub(1) < (1 << BITS) - 1;
        if has {
            self.0.store(word - 1, Ordering::Relaxed);
        }
        has
    }
}

impl Core {
    /// This thread's lane to a rank.
    #[inline(always)]
    fn lane_to<M: Mode>(&self, target: usize, class: MessageClass) -> Option<(&Tail, Lane<'_>)> {
        let tail = self.tail(target, class)?;
        let lane = tail.lane()?;
        if M::THREADED && !tail.is_of(me::<M>()) {
            return None;
        }
        Some((tail, self.memory().lane(target, lane)))
    }

    /// Puts a message into this thread's lane to the target, or into the queue that all senders share, and rings; `false` when
    /// it is full. The ways may be mixed: nothing promises an order of messages.
    #[inline(always)]
    pub(crate) fn send<M: Mode>(
        &self,
        target: usize,
        class: MessageClass,
        post: &Post<'_>,
    ) -> bool {
        self.answered();
        let sent = match self.lane_to::<M>(target, class) {
            Some((tail, lane)) => lane.send(tail, post),
            None => self.send_shared::<M>(target, class, post),
        };
        if sent {
            self.wake(target);
        }
        sent
    }

    #[inline(never)]
    fn send_shared<M: Mode>(&self, target: usize, class: MessageClass, post: &Post<'_>) -> bool {
        self.memory().approach(target, class as usize, me::<M>(), self.span().local);
        self.ring_of(target, class).send(post)
    }

    /// Whether a message with `nargs` arguments, its payload elsewhere, would find room now. A hint.
    #[inline]
    pub(crate) fn has_room<M: Mode>(
        &self,
        target: usize,
        class: MessageClass,
        nargs: usize,
    ) -> bool {
        if !self.is_near(target) {
            // The network says so when it is tried.
            return true;
        }
        match self.lane_to::<M>(target, class) {
            Some((tail, lane)) => lane.has_room(tail, nargs),
            None => self.ring_of(target, class).has_room(),
        }
    }

    /// Numbers of the lanes to this rank that are in use.
    #[inline(always)]
    fn lanes_in_use(&self, mask: u32) -> impl Iterator<Item = usize> {
        let mut left = self.member(self.local()).lanes.used() & mask;
        std::iter::from_fn(move || {
            let lane = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(lane)
        })
    }

    /// Whether a message waits in a lane of one kind.
    #[inline(always)]
    pub(crate) fn lane_ready(&self, class: MessageClass) -> bool {
        self.any_ready(lanes_of(class as usize))
    }

    #[inline(always)]
    fn any_ready(&self, mask: u32) -> bool {
        self.lanes_in_use(mask).any(|lane| self.memory().own_lane(lane).ready())
    }

    /// Delivers messages of all lanes; returns how many. Replies first.
    #[inline(always)]
    pub(crate) fn drain_all_lanes<M: Mode>(&self) -> usize {
        self.drain_some::<M>(MessageClass::Reply) + self.drain_some::<M>(MessageClass::Request)
    }

    #[inline(always)]
    fn drain_some<M: Mode>(&self, class: MessageClass) -> usize {
        let ready = |lane: &usize| self.memory().own_lane(*lane).ready();
        let lanes = self.lanes_in_use(lanes_of(class as usize)).filter(ready);
        lanes.map(|lane| self.drain_lane::<M>(class, lane)).sum()
    }

    /// Delivers messages of the lanes of one kind; returns how many.
    #[inline(never)]
    pub(crate) fn drain_lanes<M: Mode>(&self, class: MessageClass) -> usize {
        self.drain_some::<M>(class)
    }

    /// In threaded modes this thread keeps the lane while it runs the handlers of a batch: other threads serve other lanes.
    #[inline(never)]
    fn drain_lane<M: Mode>(&self, class: MessageClass, number: usize) -> usize {
        let turn = if M::THREADED { self.lane_consumers[number].try_take() } else { None };
        if M::THREADED && turn.is_none() {
            return 0;
        }
        let (mut count, rows) = (0, self.c_face());
        loop {
            let served = if rows { self.serve_row::<M>(class, number, BATCH - count) } else { 0 };
            if served == 0 && !self.deliver_next::<M>(class, number) {
                return count;
            }
            count += served.max(1);
            if count >= BATCH || self.is_closed() || !self.memory().own_lane(number).ready() {
                return count;
            }
        }
    }

    /// Takes the next message out of a lane and delivers it, whatever it is.
    #[inline(never)]
    fn deliver_next<M: Mode>(&self, class: MessageClass, number: usize) -> bool {
        let (lane, source) = (self.memory().own_lane(number), self.memory().lane_source(number));
        let mut packet = Packet::empty();
        let received = lane.receive(source, &mut packet);
        if received {
            self.deliver::<M>(class, &mut packet);
        }
        received
    }

    /// Runs a foreign function for the Short that is next in a lane and for those after it that are alike, at most `most`. What was checked
    /// for the first holds for all. Returns how many; 0 when there is none or it needs the way that all others go.
    #[inline]
    fn serve_row<M: Mode>(&self, class: MessageClass, number: usize, most: usize) -> usize {
        let Some(row) = Row::begin(self.memory().own_lane(number)) else { return 0 };
        let (source, nargs) = (self.memory().lane_source(number) as usize, row.nargs());
        let Some(entry) = self.handlers.get(row.handler()) else { return 0 };
        let Function::Foreign(function) = &entry.function else { return 0 };
        if source >= self.layout().locals || !function.takes_shorts() {
            return 0;
        }
        if !keeps_promise(entry, class, nargs) {
            self.check_promise(entry, class, self.rank_of(source), nargs);
        }
        let token = RawToken::new(self, source, class, false, entry);
        let mut row = ShortRow::new(self, &token, row, most);
        self.run_handler::<M>(|| function.run_row(&mut row));
        let (count, answered) = row.taken();
        drop(row);
        if !answered {
            self.count_taken(count);
        }
        if let Some(deferred) = token.take_deferred() {
            self.flush::<M>(&deferred);
        }
        count
    }

    /// Whether communication is open and this thread outside handlers.
    #[inline(always)]
    pub(crate) fn is_running<M: Mode>(&self) -> bool {
        !self.is_closed() && !self.in_handler::<M>() && self.node_shm().notice().is_none()
    }

    /// Sends a Short request of a row whose last look was not long ago, through this thread's lane; `false` when that is not so.
    #[inline(always)]
    pub(crate) fn pass_short<M: Mode>(&self, target: usize, handler: u8, args: &[i32]) -> bool {
        let Some(tail) = self.tail(target, MessageClass::Request) else { return false };
        if M::THREADED && !tail.is_of(me::<M>()) || !self.passes().take_one(me::<M>()) {
            return false;
        }
        self.answered();
        tail.send_short(handler, args)
    }

    /// A poll was a look: the next request passes.
    #[inline(always)]
    pub(crate) fn pass_next<M: Mode>(&self) {
        self.passes().grant(me::<M>(), 1);
    }

    /// As [`Core::pass_short`] after a look: nothing forbids the request and nothing has arrived.
    #[inline(always)]
    pub(crate) fn look_and_pass<M: Mode>(&self, target: usize, handler: u8, args: &[i32]) -> bool {
        let Some(tail) = self.tail(target, MessageClass::Request) else { return false };
        if !self.light() || M::THREADED && !tail.is_of(me::<M>()) || !self.may_send::<M>() {
            return false;
        }
        self.answered();
        tail.send_short(handler, args)
    }

    /// This rank sends: it is not one that only takes.
    #[inline(always)]
    fn answered(&self) {
        // A load is cheaper than a store that waits in line behind those to other ranks.
        if self.taken().load(Ordering::Relaxed) != 0 {
            self.taken().store(0, Ordering::Relaxed);
        }
    }

    /// Sends a Short reply through this thread's lane; `false` when it has to go another way.
    #[inline(always)]
    pub(crate) fn pass_reply<M: Mode>(&self, target: usize, handler: u8, args: &[i32]) -> bool {
        let Some(tail) = self.tail(target, MessageClass::Reply) else { return false };
        if !self.light() || M::THREADED && !tail.is_of(me::<M>()) {
            return false;
        }
        self.answered();
        tail.send_short(handler, args)
    }

    /// Counts messages that this rank took since it last sent one.
    #[inline(always)]
    fn count_taken(&self, more: usize) {
        let sum = self.taken().load(Ordering::Relaxed) as usize + more;
        self.taken().store(u32::try_from(sum).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Whether messages arrive that this rank does not answer: who sends them goes on meanwhile.
    #[inline(always)]
    pub(crate) fn is_flooded(&self) -> bool {
        self.taken().load(Ordering::Relaxed) >= FLOOD
    }

    /// Whether a request may go out at once: nothing forbids it and nothing has arrived. In a row of requests without a poll
    /// between them, a few more may then pass without a look. (A handler is never inside a row: polls end it.)
    #[inline(always)]
    pub(crate) fn may_send<M: Mode>(&self) -> bool {
        if !self.is_running::<M>() || self.has_arrivals() {
            return false;
        }
        let row = self.row_of_requests().load(Ordering::Relaxed);
        if self.networked() && row >= LOOKS {
            return false;
        }
        self.row_of_requests().store(row.saturating_add(1), Ordering::Relaxed);
        if row >= ROW && self.light() {
            self.passes().grant(me::<M>(), LOOK_EVERY - 1);
        }
        true
    }

    /// Takes messages out of the lanes of one kind without running handlers.
    pub(crate) fn discard_lanes(&self, class: MessageClass) {
        let mut packet = Packet::empty();
        for number in self.lanes_in_use(lanes_of(class as usize)) {
            let (lane, source) =
                (self.memory().own_lane(number), self.memory().lane_source(number));
            while lane.ready() {
                let Some(turn) = self.lane_consumers[number].take_over() else { break };
                if !lane.receive(source, &mut packet) {
                    break;
                }
                drop(turn);
                self.release_block(class, &packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_belong_to_the_thread_that_looked() {
        let passes = Passes::none();
        assert!(!passes.take_one(1) && !passes.take_one(ANY_THREAD << 20));
        passes.grant(7, 2);
        assert!(!passes.take_one(6) && !passes.take_one(8));
        assert!(passes.take_one(7) && passes.take_one(7) && !passes.take_one(7));
        passes.grant(7, LOOK_EVERY - 1);
        passes.end();
        assert!(!passes.take_one(7));
    }
}
