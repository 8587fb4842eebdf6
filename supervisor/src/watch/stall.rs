//! Notices a job that makes no progress (pure): every rank waits inside the library, and no message
//! comes.

use super::look::{RankLook, Run};

/// Looks between the beginning of a stall and its report.
const LOOKS: u64 = 4;
/// Bounds of the pause between two looks, milliseconds.
const PAUSES: (u64, u64) = (50, 30_000);

/// What is known of the job's progress.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: u64,
    next: u64,
    asked: bool,
    /// Messages of all ranks, and since when there have been so many while all waited.
    still: Option<(u64, u64)>,
    said: bool,
}

impl Stall {
    /// Looks for stalls of at least `limit` milliseconds.
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, next: 0, asked: false, still: None, said: false }
    }

    /// Whether the ranks are to be looked at now.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let due = !self.said && !self.asked && now >= self.next;
        self.asked |= due;
        due
    }

    /// When the next look is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        (!self.said && !self.asked).then_some(self.next)
    }

    /// What the hosts saw, `running` ranks having a process. Once, how many milliseconds nothing has
    /// moved, when that is long enough.
    pub(crate) fn looked(&mut self, now: u64, looks: &[RankLook], running: u32) -> Option<u64> {
        self.asked = false;
        self.next = now + (self.limit / LOOKS).clamp(PAUSES.0, PAUSES.1);
        let waits =
            |look: &RankLook| look.sleeps && look.waits_for.is_some() && look.run == Run::Asleep;
        let whole = running > 0 && u32::try_from(looks.len()) == Ok(running);
        if !whole || !looks.iter().all(waits) {
            self.still = None;
            return None;
        }
        let messages = looks.iter().fold(0_u64, |sum, look| sum.wrapping_add(look.messages));
        let since = match self.still {
            Some((before, since)) if before == messages => since,
            _ => now,
        };
        self.still = Some((messages, since));
        let stalled = now - since;
        (stalled >= self.limit).then(|| {
            self.said = true;
            stalled
        })
    }
}

#[cfg(test)]
mod tests {
    use bootstrap::trace::Cause;

    use super::*;

    fn look(sleeps: bool, messages: u64) -> RankLook {
        let (run, waits_for) = (Run::Asleep, Some(Cause::Barrier));
        RankLook { rank: 0, pid: 1, run, sleeps, waits_for, cpu_ms: 0, resident_kib: 0, messages }
    }

    #[test]
    fn only_a_job_whose_ranks_all_wait_without_a_message_is_stalled() {
        let mut stall = Stall::new(1000);
        assert!(stall.is_due(0) && !stall.is_due(0));
        let waiting = [look(true, 3), look(true, 4)];
        assert_eq!(stall.looked(0, &waiting, 2), None);
        assert_eq!(stall.looked(900, &waiting, 2), None);
        // One message came; then one rank computes; then one is not seen.
        assert_eq!(stall.looked(1100, &[look(true, 3), look(true, 5)], 2), None);
        assert_eq!(stall.looked(2050, &[look(true, 3), look(false, 5)], 2), None);
        assert_eq!(stall.looked(2100, &waiting, 2), None);
        assert_eq!(stall.looked(3050, &waiting[..1], 2), None);
        assert_eq!(stall.looked(3100, &waiting, 2), None);
        assert_eq!(stall.looked(4100, &waiting, 2), Some(1000));
        assert!(!stall.is_due(9000) && stall.deadline().is_none(), "it is said once");
    }

    #[test]
    fn a_job_without_ranks_is_not_stalled() {
        let mut stall = Stall::new(10);
        assert_eq!(stall.looked(0, &[], 0), None);
        assert_eq!(stall.looked(100, &[], 0), None);
    }
}
