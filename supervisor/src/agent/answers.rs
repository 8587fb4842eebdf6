//! Whether a process that is asked now and then answers. Pure.

use settings::deadlines::agent::PMIX_ASK;

/// What is to be done about the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing yet.
    Early,
    /// It is to be asked.
    Ask,
    /// It has said nothing for too long.
    Silent,
}

/// Counts looks instead of time: after we have been stopped ourselves, the others need theirs to answer.
#[derive(Debug)]
pub(super) struct Answers {
    due: u64,
    /// Looks since it last said anything.
    silent: u64,
}

impl Answers {
    pub(super) fn new(now: u64) -> Self {
        Self { due: now.saturating_add(PMIX_ASK.ms()), silent: 0 }
    }

    /// When the next look is due.
    pub(super) const fn due(&self) -> u64 {
        self.due
    }

    /// It has said something.
    pub(super) const fn heard(&mut self) {
        self.silent = 0;
    }

    /// One look, if it is due. So many milliseconds of silence after a question are too long.
    pub(super) fn look(&mut self, now: u64, limit: u64) -> Look {
        if now < self.due {
            return Look::Early;
        }
        self.due = now.saturating_add(PMIX_ASK.ms());
        if self.silent.saturating_mul(PMIX_ASK.ms()) >= limit {
            return Look::Silent;
        }
        self.silent += 1;
        Look::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_noticed_after_its_time_and_not_before() {
        let (step, limit) = (PMIX_ASK.ms(), 6 * PMIX_ASK.ms());
        let mut answers = Answers::new(0);
        assert_eq!(answers.look(step - 1, limit), Look::Early);
        let mut now = 0;
        // Whoever answers is asked for ever.
        for _ in 0..100 {
            now = answers.due();
            assert_eq!(answers.look(now, limit), Look::Ask);
            answers.heard();
        }
        let last = now;
        loop {
            now = answers.due();
            match answers.look(now, limit) {
                Look::Ask => {}
                seen => break assert_eq!(seen, Look::Silent),
            }
        }
        // From the first question without an answer.
        assert_eq!(now, last + step + limit);
    }

    #[test]
    fn nobody_is_silent_because_we_were_stopped() {
        let limit = 6 * PMIX_ASK.ms();
        let mut answers = Answers::new(0);
        assert_eq!(answers.look(PMIX_ASK.ms(), limit), Look::Ask);
        let later = 1000 * limit;
        assert_eq!(answers.look(later, limit), Look::Ask);
        assert_eq!(answers.look(later + 1, limit), Look::Early);
    }
}
