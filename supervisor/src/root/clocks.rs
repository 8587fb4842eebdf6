//! Looks at the clocks of the hosts, for traces: often at the start of a job, then now and then.

use settings::deadlines::tree::{CLOCK, CLOCK_FIRST};

use crate::trace::ClockSample;

/// Looks that come shortly after each other.
const FIRST: u32 = 16;
/// Answers that are kept; of more every other one goes.
const MOST: usize = 1 << 16;

/// When to look, and what was seen.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    looks: u32,
    /// When the next look is due.
    due: u64,
    samples: Vec<ClockSample>,
}

impl Clocks {
    /// Whether a look is due; if so, the next one is later.
    pub(super) fn is_due(&mut self, now: u64) -> bool {
        if now < self.due {
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        let pause = if self.looks < FIRST { CLOCK_FIRST } else { CLOCK };
        self.due = now + pause.ms();
        true
    }

    pub(super) const fn due(&self) -> u64 {
        self.due
    }

    pub(super) fn answered(&mut self, sample: ClockSample) {
        if self.samples.len() >= MOST {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.samples.push(sample);
    }

    pub(super) fn into_samples(self) -> Vec<ClockSample> {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_and_memory_stays_bounded() {
        let mut clocks = Clocks::default();
        let looks = (0..10_000).filter(|now| clocks.is_due(*now)).count();
        let rare = usize::try_from(10_000 / CLOCK.ms()).unwrap();
        assert!((FIRST as usize..=FIRST as usize + rare + 1).contains(&looks), "{looks}");
        for sent in 0..3 * MOST as u64 {
            clocks.answered(ClockSample { host: 0, sent, there: 0, received: 0 });
        }
        let samples = clocks.into_samples();
        assert!(samples.len() <= MOST && samples[0].sent == 0);
        assert_eq!(samples.last().unwrap().sent, 3 * MOST as u64 - 1);
    }
}
