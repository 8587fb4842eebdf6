//! Whether others want the processor of a rank that waits: a pure machine.
//!
//! What counts is how long the rank was kept from running while it wanted to: by a yield that comes
//! back late, while it spins, or between two sleeps though it waited for nothing. All of that is seen
//! from inside a container, whoever the others are. Ranks of this job are others, too.
//!
//! Where somebody runs in a yield the processor is *shared*: a spin only keeps the other from
//! running, so it is halved, and yields come sooner. A yield in which nobody runs ends that.
//!
//! Where a yield comes back after a slice ([`takes_turns`]), somebody computes, and the processor is
//! *wanted*: each yield would cost a slice again, while one who sleeps is let run soon after it was
//! woken. So there are no yields then, and shorter spins, for a calm time. Whether the way back was
//! right only a yield tells, and a wrong one costs a slice of each of the others: so the calm time
//! doubles when the next sign comes soon.

use std::time::Duration;

use settings::deadlines::wait::{CALM_FIRST, CALM_MOST};

/// A yield that takes so long has let somebody run.
pub(crate) const SHARED: Duration = Duration::from_micros(5);
/// So long nobody is kept from running by processes that only pass the processor on. The system
/// lets one that computes run for longer (a tick, or its least slice).
pub(crate) const LATE: Duration = Duration::from_micros(800);
/// So long between two polls of a spin: somebody else runs meanwhile, as a slice of the system's is
/// at least that, and nobody was asked to.
pub(crate) const PREEMPTED: Duration = Duration::from_micros(500);
/// Times that the longest spin is halved at most. What is left covers an answer of a peer that runs.
pub(crate) const STEPS: u8 = 6;
/// After so many yields that came back soon a late one is the others' share of the time: the system
/// schedules by groups, as by sessions, and a yield lets ranks of the same group run first.
const QUICK: u32 = 100;

/// Where ranks take turns by yields: whether one that took `kept`, after `quick` that came back soon,
/// is a sign of somebody who computes, and how many came back soon after it.
pub(crate) fn takes_turns(quick: u32, kept: Duration) -> (bool, u32) {
    if kept < LATE {
        return (false, quick.saturating_add(1));
    }
    (quick < QUICK, 0)
}

/// What a rank knows of its processor. Times are since any moment, and grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Processor {
    step: u8,
    wanted: bool,
    /// The last sign, or the last way back; none: there was no sign yet.
    changed: Option<Duration>,
    /// How long it is calm before the way back.
    calm: Duration,
}

impl Processor {
    pub(crate) const fn new() -> Self {
        let calm = CALM_FIRST.limit;
        Self { step: 0, wanted: false, changed: None, calm }
    }

    /// How often the spin is halved.
    pub(crate) const fn step(&self) -> u8 {
        self.step
    }

    /// Whether somebody computes as soon as this rank yields.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The rank was kept from running for `kept`, up to `now`.
    pub(crate) fn kept(&mut self, now: Duration, kept: Duration) {
        if kept >= LATE {
            self.late(now);
        } else if self.wanted {
            if !self.is_fresh(now) {
                (self.wanted, self.step, self.changed) = (false, 0, Some(now));
            }
        } else if kept >= SHARED {
            self.shorten();
        } else {
            self.step = 0;
        }
    }

    /// Somebody computes as soon as he can.
    pub(crate) fn late(&mut self, now: Duration) {
        if !self.wanted {
            let next = if self.is_fresh(now) { self.calm * 2 } else { CALM_FIRST.limit };
            self.calm = next.min(CALM_MOST.limit);
        }
        self.shorten();
        (self.wanted, self.changed) = (true, Some(now));
    }

    /// Whether the calm time since the last change is not over.
    fn is_fresh(&self, now: Duration) -> bool {
        self.changed.is_some_and(|changed| now.saturating_sub(changed) < self.calm)
    }

    fn shorten(&mut self) {
        self.step = (self.step + 1).min(STEPS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SHORT: Duration = Duration::from_micros(1);

    /// Calm for so long, looked at each millisecond.
    fn rest(processor: &mut Processor, now: &mut Duration, time: Duration) {
        let end = *now + time;
        while *now < end {
            *now += Duration::from_millis(1);
            processor.kept(*now, SHORT);
        }
    }

    #[test]
    fn who_shares_spins_shorter_until_nobody_does() {
        let mut processor = Processor::new();
        for step in [1, 2, 3, 4, 5, 6, 6] {
            processor.kept(Duration::ZERO, SHARED);
            assert_eq!((processor.step(), processor.is_wanted()), (step, false));
        }
        processor.kept(Duration::ZERO, SHORT);
        assert_eq!(processor.step(), 0);
    }

    /// Signs of yields of which every `each`th is late.
    fn signs(each: u32) -> u32 {
        let mut quick = 0;
        let yields = (1..=10 * each).map(|count| if count % each == 0 { LATE } else { SHORT });
        yields.fold(0, |signs, kept| {
            let (sign, after) = takes_turns(quick, kept);
            quick = after;
            signs + u32::from(sign)
        })
    }

    #[test]
    fn a_late_yield_after_many_quick_ones_is_no_sign() {
        assert_eq!([1, 2, QUICK, QUICK + 1, 10 * QUICK].map(signs), [10, 10, 10, 0, 0]);
        assert_eq!(takes_turns(u32::MAX, SHORT), (false, u32::MAX));
    }

    #[test]
    fn a_late_return_is_a_sign_for_a_calm_time() {
        let (mut processor, mut now) = (Processor::new(), Duration::ZERO);
        processor.kept(now, LATE);
        // Others that run for a moment are no further sign.
        now += CALM_FIRST.limit / 2;
        processor.kept(now, SHARED);
        assert_eq!((processor.step(), processor.is_wanted()), (1, true));
        now += CALM_FIRST.limit / 2;
        processor.kept(now, SHORT);
        assert!(!processor.is_wanted());
    }

    #[test]
    fn a_way_back_that_was_wrong_comes_later_the_next_time() {
        let (mut processor, mut now) = (Processor::new(), Duration::from_secs(1));
        let mut last = Duration::ZERO;
        for round in 0..16 {
            processor.kept(now, LATE);
            let begin = now;
            while processor.is_wanted() {
                rest(&mut processor, &mut now, Duration::from_millis(1));
            }
            let took = now - begin;
            assert!(took > last || round > 0 && took == CALM_MOST.limit, "{round}: {took:?}");
            last = took;
        }
        // Once it was right for as long, all begins anew.
        rest(&mut processor, &mut now, CALM_MOST.limit);
        processor.kept(now, LATE);
        rest(&mut processor, &mut now, CALM_FIRST.limit);
        assert!(!processor.is_wanted());
    }

    proptest! {
        #[test]
        fn whatever_comes_it_stays_in_bounds_and_comes_back(
            events in vec((0_u64..100_000, 0_u64..4_000), 0..200),
        ) {
            let (mut processor, mut now) = (Processor::new(), Duration::ZERO);
            for (passed, kept) in events {
                let before = processor.clone();
                now += Duration::from_micros(passed);
                let kept = Duration::from_micros(kept);
                processor.kept(now, kept);
                prop_assert!((CALM_FIRST.limit..=CALM_MOST.limit).contains(&processor.calm));
                prop_assert!(processor.step() <= STEPS);
                if kept >= LATE {
                    prop_assert!(processor.is_wanted());
                } else {
                    prop_assert!(before.is_wanted() || !processor.is_wanted());
                    prop_assert_eq!(processor.calm, before.calm);
                }
            }
            rest(&mut processor, &mut now, CALM_MOST.limit + LATE);
            processor.kept(now, SHORT);
            prop_assert_eq!((processor.step(), processor.is_wanted()), (0, false));
        }
    }
}
