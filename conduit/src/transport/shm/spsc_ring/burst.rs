//! Taking a row of like messages out of a lane.

use std::sync::atomic::Ordering;

use super::{LAP_AT, SLOTS, SpscRing, Tag, WORDS, advanced, high, lap, low, slots_of_short};
use crate::sys;
use crate::transport::message::MAX_ARGS;

/// Pauses of the processor that a consumer makes when it was faster than a flood.
const REST: u32 = 8;
/// Slots whose lines the consumer asks for together, and after which it says how far it is; a
/// divisor of a lap.
const BURST: u32 = 32;
/// Slots of a line.
const LINE: usize = 4;
/// Room for the arguments of any Short, in whole slots.
pub(crate) const BURST_ARGS: usize = slots_of_short(MAX_ARGS) * WORDS;

/// A row of like messages that a consumer takes out of a lane. It says how far it is only now and
/// then, because the producer may be looking: the line would go to and fro for every message. A row
/// that a signal handler cuts off for good leaves `head` behind, so that who takes over sees some
/// messages again; it only throws them away.
pub(crate) struct BurstReader<'a> {
    lane: SpscRing<'a>,
    next: u32,
    /// Tag of all messages of the row, without the lap.
    like: u32,
    /// Slots of each.
    slots: usize,
    backlog: bool,
}

impl<'a> BurstReader<'a> {
    /// The row that begins with the next message, if that is a Short with no more arguments than
    /// there are; nothing is taken.
    #[inline(always)]
    pub(crate) fn begin(lane: SpscRing<'a>) -> Option<Self> {
        let next = lane.head.0.load(Ordering::Relaxed);
        let word = low(lane.slot(next).first());
        let tag = Tag(word);
        if (word ^ lap(next)) >> LAP_AT != 0 || !tag.is_short() || tag.nargs() > MAX_ARGS {
            return None;
        }
        let like = word & ((1 << LAP_AT) - 1);
        Some(Self { lane, next, like, slots: slots_of_short(tag.nargs()), backlog: false })
    }

    /// Handler of all messages of the row.
    #[inline(always)]
    pub(crate) const fn handler(&self) -> u8 {
        Tag(self.like).handler()
    }

    /// Number of arguments of all messages of the row.
    #[inline(always)]
    pub(crate) const fn nargs(&self) -> usize {
        Tag(self.like).nargs()
    }

    /// Takes messages like the first, of one slot each, as long as there are some, at most `most`,
    /// and runs `handle` for each until that says no; how many. Only one consumer at a time. In a
    /// `flood` the consumer lets some messages come together when it was faster: to look at one
    /// line again and again would take it away from the producer, once for every message.
    #[inline(always)]
    pub(crate) fn serve(
        &mut self,
        most: usize,
        flood: impl Fn() -> bool,
        mut handle: impl FnMut([i32; WORDS]) -> bool,
    ) -> usize {
        let mut count = 0;
        while count < most {
            let at = self.next;
            if at.is_multiple_of(BURST) {
                self.begin_burst(&flood);
            }
            // A burst does not end in another lap than it began.
            let (index, awaited) = (at as usize % SLOTS, self.like | lap(at));
            let length = (BURST - at % BURST) as usize;
            let Some(slots) = self.lane.slots.get(index..index + length.min(most - count)) else {
                return count;
            };
            for slot in slots {
                let mut first = slot.first();
                if low(first) != awaited {
                    if slot.holds(at) || !flood() {
                        return count;
                    }
                    rest();
                    first = slot.first();
                    if low(first) != awaited {
                        return count;
                    }
                }
                let [second, third] = slot.rest();
                count += 1;
                self.next = self.next.wrapping_add(1);
                if !handle([high(first), second, third].map(u32::cast_signed)) {
                    return count;
                }
            }
        }
        count
    }

    /// Takes the next message if it is like the first; for messages of several slots.
    #[inline(always)]
    pub(crate) fn take(&mut self, words: &mut [i32; BURST_ARGS]) -> bool {
        let at = self.next;
        if low(self.lane.slot(at).first()) != self.like | lap(at) {
            return false;
        }
        if ((at % BURST) as usize) < self.slots {
            self.lane.head.0.store(at, Ordering::Release);
        }
        let (words, _) = words.as_chunks_mut();
        for (more, words) in words.iter_mut().enumerate().take(self.slots) {
            *words = self.lane.words(advanced(at, more)).map(u32::cast_signed);
        }
        self.next = advanced(at, self.slots);
        true
    }

    /// Says how far this consumer is; in a flood asks for the lines of the burst.
    #[inline(always)]
    fn begin_burst(&mut self, flood: impl Fn() -> bool) {
        self.lane.head.0.store(self.next, Ordering::Release);
        if flood() {
            self.expect(self.next);
        }
    }

    /// When some messages are waiting, asks for all their lines at once: each would take longer to
    /// come than to serve. Once that was so without a rest, asks for the group after them.
    #[inline(always)]
    fn expect(&mut self, next: u32) {
        let there = |position: u32| self.lane.slot(position).holds(position);
        let from = if self.backlog { next.wrapping_add(BURST) } else { next };
        let last = from.wrapping_add(BURST - 1);
        if there(last) {
            self.backlog = true;
        } else if self.backlog {
            self.backlog = false;
            return;
        } else {
            rest();
            if !there(last) {
                return;
            }
        }
        for more in (0..BURST - 1).step_by(LINE) {
            sys::ask_to_read(self.lane.slot(from.wrapping_add(more)));
        }
    }
}

impl Drop for BurstReader<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lane.head.0.store(self.next, Ordering::Release);
    }
}

/// Spends about 200 ns.
#[cold]
fn rest() {
    for _ in 0..REST {
        std::hint::spin_loop();
    }
}
