//! How long somebody has been silent counts in the time in which we could hear it. Pure.
//!
//! A process that was stopped, or that its machine did not run, looks at its clock long after it wanted
//! to. What others have said meanwhile waits to be read, and where all of a machine stood still they
//! have said nothing because they could not. So the time by which we come late is nobody's silence.

/// Notices that we come late.
#[derive(Debug, Default)]
pub(crate) struct Late {
    due: Option<u64>,
}

impl Late {
    /// When somebody counts as heard last who was heard at `heard`.
    pub(crate) fn forgive(&self, heard: u64, now: u64) -> u64 {
        let late = self.due.map_or(0, |due| now.saturating_sub(due));
        heard.saturating_add(late).min(now.max(heard))
    }

    /// The next look is wanted at `due`; what is overdue, at once.
    pub(crate) fn plan(&mut self, due: Option<u64>, now: u64) {
        self.due = due.map(|due| due.max(now));
    }
}

#[cfg(test)]
mod tests {
    use settings::deadlines::tree::{CHILD_SILENT, HEARTBEAT};

    use super::*;

    /// Looks every so many milliseconds, though it wants to every `HEARTBEAT`; when somebody who says
    /// nothing is lost.
    fn lost_after(each: u64) -> u64 {
        let (mut late, mut heard, mut now) = (Late::default(), 0, 0);
        loop {
            heard = late.forgive(heard, now);
            if now >= heard + CHILD_SILENT.ms() {
                return now;
            }
            late.plan(Some(now + HEARTBEAT.ms()), now);
            now += each;
        }
    }

    #[test]
    fn silence_counts_while_we_look() {
        assert_eq!(lost_after(HEARTBEAT.ms()), CHILD_SILENT.ms());
        assert_eq!(lost_after(HEARTBEAT.ms() / 2), CHILD_SILENT.ms());
        // A look that was never planned, and one that stays overdue.
        let mut late = Late::default();
        assert_eq!(late.forgive(5, 1000), 5);
        late.plan(Some(3), 1000);
        assert_eq!(late.forgive(5, 1000), 5);
        assert_eq!(late.forgive(5, 1001), 6);
    }

    #[test]
    fn a_time_in_which_we_did_not_run_is_nobodys_silence() {
        let mut late = Late::default();
        late.plan(Some(HEARTBEAT.ms()), 0);
        let back = 1000 * CHILD_SILENT.ms();
        let heard = late.forgive(0, back);
        assert_eq!(back - heard, HEARTBEAT.ms(), "the time before it was ours");
        // Who has been heard since is not heard in the future.
        assert_eq!(late.forgive(back, back), back);
        // Whoever looks ever later still notices in the end.
        assert_eq!(lost_after(10 * HEARTBEAT.ms()), 60 * HEARTBEAT.ms());
    }
}
