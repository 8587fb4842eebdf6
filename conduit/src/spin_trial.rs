//! Whether a wait spins before it sleeps, where others want the processor: a pure machine.
//!
//! A spin finds the answer of a peer that runs meanwhile, on another processor or host. A peer that
//! waits for this very processor answers only once it is given away: there a spin is lost, and the
//! sleep after it is short. Then the next waits sleep at once, and after a while one spins on trial.
//! The while doubles when that was in vain, too.

use std::time::Duration;

/// A sleep that was no longer was for something that a spin kept from coming.
const SOON: Duration = Duration::from_micros(50);
/// Waits that sleep at once after a spin in vain, first and most.
const SKIP_FIRST: u32 = 8;
const SKIP_MOST: u32 = 256;
/// A spin in vain so soon after the last trial began says that nothing has changed.
const SAME: Duration = Duration::from_micros(500);

/// What a rank knows of its spins. Times are since any moment, and grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpinTrial {
    /// Waits that sleep at once before the next that spins.
    left: u32,
    skip: u32,
    /// When the last trial began.
    tried: Duration,
}

impl SpinTrial {
    pub(crate) const fn new() -> Self {
        Self { left: 0, skip: SKIP_FIRST, tried: Duration::ZERO }
    }

    /// Whether the next wait spins.
    pub(crate) const fn spins(&self) -> bool {
        self.left == 0
    }

    /// A wait has slept for `slept`, up to `now`, with or without a spin before ([`Self::spins`]).
    pub(crate) fn slept(&mut self, now: Duration, slept: Duration) {
        if self.left > 0 {
            self.left -= 1;
            if self.left == 0 {
                self.tried = now;
            }
        } else if slept < SOON {
            let same = now.saturating_sub(self.tried) < SAME;
            self.skip = if same { (self.skip * 2).min(SKIP_MOST) } else { SKIP_FIRST };
            self.left = self.skip;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SHORT: Duration = Duration::from_micros(8);
    const LONG: Duration = Duration::from_millis(1);

    /// Waits until the next spins.
    fn skipped(trial: &mut SpinTrial, now: Duration) -> u32 {
        let mut count = 0;
        while !trial.spins() {
            trial.slept(now, SHORT);
            count += 1;
        }
        count
    }

    #[test]
    fn a_peer_on_another_processor_is_awaited_by_spins() {
        let mut trial = SpinTrial::new();
        for millis in 1..100 {
            // It was kept from running, or had nothing to say.
            trial.slept(Duration::from_millis(millis), LONG);
            assert!(trial.spins());
        }
    }

    #[test]
    fn spins_in_vain_come_more_and_more_seldom() {
        let (mut trial, mut now, mut expected) = (SpinTrial::new(), LONG, SKIP_FIRST);
        for _ in 0..10 {
            trial.slept(now, SHORT);
            assert_eq!(skipped(&mut trial, now), expected);
            now += SHORT;
            expected = (expected * 2).min(SKIP_MOST);
        }
        // A trial that was worth it: the next one in vain is a new story.
        now += LONG;
        trial.slept(now, SHORT);
        assert_eq!(skipped(&mut trial, now), SKIP_FIRST);
    }

    proptest! {
        #[test]
        fn whatever_comes_it_spins_again(events in vec((0_u64..2000, 0_u64..200), 0..400)) {
            let (mut trial, mut now) = (SpinTrial::new(), Duration::ZERO);
            for (passed, slept) in events {
                now += Duration::from_micros(passed);
                trial.slept(now, Duration::from_micros(slept));
                prop_assert!((SKIP_FIRST..=SKIP_MOST).contains(&trial.skip));
                prop_assert!(trial.left <= trial.skip);
            }
            prop_assert!(skipped(&mut trial, now) <= SKIP_MOST);
        }
    }
}
