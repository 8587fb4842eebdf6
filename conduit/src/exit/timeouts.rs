//! The bounds of the exit for one exit time-out T, out of the table of deadlines.

use std::time::Duration;

use bootstrap::wait::slice_among;
use settings::deadlines::{Deadline, exit};

/// A point or a length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Sum; stays at the largest value.
    #[must_use]
    pub const fn plus(self, length: Self) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    fn of(row: Deadline, t: Self) -> Self {
        let limit = row.after(Duration::from_millis(t.0)).as_millis();
        Self(u64::try_from(limit).unwrap_or(u64::MAX))
    }
}

/// How long each phase of the machine may last: the rows `exit.*` of the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// The reduction of the codes. T.
    pub reduce: Millis,
    /// The same with code 0 under a control tree. An agent knows more: who of the others still
    /// writes to a slow reader. So it decides, and ranks never outlive it.
    pub patience: Millis,
    /// The same of a code that is not 0. T; shorter where no agent watches, see
    /// [`Timeouts::deciding`].
    pub non_collective: Millis,
    /// The answer of rank 0. T.
    pub elect: Millis,
    /// Replies of all ranks (leader), the leader's request (member). T.
    pub coordinate: Millis,
    /// Flushing the streams and sending what is still queued.
    pub drain: Millis,
    /// An incomplete reduction waits this long for the control tree before the rank decides alone.
    pub stall: Millis,
}

impl Timeouts {
    /// The table for the exit time-out `t`.
    #[must_use]
    pub fn new(t: Millis) -> Self {
        Self {
            reduce: Millis::of(exit::REDUCE, t),
            patience: Millis(u64::MAX),
            non_collective: Millis::of(exit::REDUCE, t),
            elect: Millis::of(exit::ELECT, t),
            coordinate: Millis::of(exit::COORDINATE, t),
            drain: Millis::of(exit::DRAIN, t),
            stall: Millis::of(exit::STALL, t),
        }
    }

    /// The table where no agent decides. On one host a rank's decision in the node memory reaches
    /// the whole job: a reduction with a failure that stays incomplete for `exit.stall-alone` is a
    /// non-collective exit. On several hosts it is after `exit.non-collective`.
    #[must_use]
    pub fn deciding(self) -> Self {
        let [stall, non_collective] =
            [exit::STALL_ALONE, exit::NON_COLLECTIVE].map(|row| Millis(row.ms()));
        Self {
            patience: self.reduce.plus(stall.min(self.stall)),
            stall: stall.min(self.stall),
            non_collective: non_collective.min(self.reduce),
            ..self
        }
    }
}

/// How long a rank that exits, one of so many of its host, sleeps at a time: at most what is `left`
/// until its deadline. Most of what it waits for wakes it. Nobody does when there is room for messages
/// that could not be sent.
pub(super) fn slice(ranks: u32, left: Option<Millis>, all_sent: bool) -> Duration {
    let slice = if all_sent { slice_among(ranks, exit::SLICE) } else { exit::SLICE.limit };
    left.map_or(slice, |left| slice.min(Duration::from_millis(left.0.max(1))))
}

/// A row in whole seconds for the exit time-out `t`, for `alarm`, in case a step blocks where no
/// deadline is looked at.
pub(super) fn seconds(row: Deadline, t: Millis) -> u32 {
    u32::try_from(Millis::of(row, t).0.div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_crowded_host_look_less_often() {
        for (ranks, times) in [(1, 1), (255, 1), (256, 2), (4096, 17)] {
            let whole = exit::SLICE.limit * times;
            assert_eq!(slice(ranks, None, true), whole, "{ranks} ranks");
            assert_eq!(slice(ranks, Some(Millis(u64::MAX)), true), whole);
            assert_eq!(slice(ranks, None, false), exit::SLICE.limit, "who has messages to send");
            for (left, bound) in [(0, 1), (7, 7)] {
                assert_eq!(slice(ranks, Some(Millis(left)), true), Duration::from_millis(bound));
            }
        }
    }
}
