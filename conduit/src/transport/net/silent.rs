//! Puts of a group that do not report their ends one by one (pure).
//!
//! Small puts that a group counts are posted unsignalled (`signal.rs`) once it had many that nobody
//! waited for: a run, on one queue pair. What ends a run tells of all of it, because a queue pair
//! completes in order: its last put, which is signalled, or a write of no bytes, as soon as somebody
//! waits for ends or polls for long. That write is one more request, so as many puts follow that
//! report for themselves.

use super::pending_ops::PutNumber;
use crate::sys::atomic::{AtomicU32, AtomicU64, Ordering};

/// Puts that nobody waited for before the first silent one.
const STREAK: u32 = 32;
/// Polls from the last put of a run to its end.
const POLLS: u32 = 16;

/// The run of a rank with one thread, one at a time.
#[derive(Debug, Default)]
pub(super) struct SilentPuts {
    streak: AtomicU32,
    /// 0, or what the puts of the run have in common ([`PutNumber::word`]).
    of: AtomicU64,
    count: AtomicU32,
    polls: AtomicU32,
}

impl SilentPuts {
    /// Puts of a run that its last one tells of, at most.
    pub(super) const MOST: u32 = PutNumber::MOST_BEFORE;

    /// Counts a put; whether it may be silent.
    #[inline(always)]
    pub(super) fn may_be(&self, run: PutNumber) -> bool {
        let streak = self.streak.load(Ordering::Relaxed);
        if streak < STREAK {
            self.streak.store(streak + 1, Ordering::Relaxed);
            return false;
        }
        let count = self.count.load(Ordering::Relaxed);
        let fits =
            count == 0 || count < Self::MOST && self.of.load(Ordering::Relaxed) == run.word();
        fits && run.has_room()
    }

    /// A silent put was posted.
    #[inline(always)]
    pub(super) fn posted(&self, run: PutNumber) {
        self.of.store(run.word(), Ordering::Relaxed);
        self.count.store(self.count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.polls.store(0, Ordering::Relaxed);
    }

    /// Silent puts that a signalled one tells of.
    #[inline(always)]
    pub(super) fn before(&self, run: PutNumber) -> u32 {
        let same = self.of.load(Ordering::Relaxed) == run.word();
        if same { self.count.load(Ordering::Relaxed) } else { 0 }
    }

    /// What tells of the run was posted.
    #[inline(always)]
    pub(super) fn ended(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.of.store(0, Ordering::Relaxed);
    }

    /// The run, and how many puts it has.
    pub(super) fn run(&self) -> Option<(PutNumber, u32)> {
        PutNumber::of_word(self.of.load(Ordering::Relaxed))
            .map(|run| (run, self.count.load(Ordering::Relaxed)))
    }

    /// Somebody waits: puts report for themselves for a while. Whether there is a run to be ended.
    #[inline(always)]
    pub(super) fn is_awaited(&self) -> bool {
        self.streak.store(0, Ordering::Relaxed);
        self.of.load(Ordering::Relaxed) != 0
    }

    /// Counts a poll; whether a run is to be ended that nobody has added to for long.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        if self.of.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let polls = self.polls.load(Ordering::Relaxed) + 1;
        self.polls.store(polls, Ordering::Relaxed);
        polls >= POLLS && self.is_awaited()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use bootstrap::Rank;
    use proptest::prelude::*;

    use super::*;

    fn run(peer: u32, number: u8) -> PutNumber {
        run_by(3, peer, number)
    }

    fn run_by(connection: u16, peer: u32, number: u8) -> PutNumber {
        let number = NonZeroU8::new(number).expect("a number");
        PutNumber::new(Rank(peer), connection).counted_by(number)
    }

    fn after_a_streak() -> SilentPuts {
        let silent = SilentPuts::default();
        assert!((0..STREAK).all(|_| !silent.may_be(run(1, 1))), "the first ones report");
        silent
    }

    #[test]
    fn one_that_is_waited_for_begins_a_new_streak() {
        let silent = after_a_streak();
        assert!(silent.may_be(run(1, 1)));
        silent.posted(run(1, 1));
        assert!(silent.is_awaited());
        assert_eq!(silent.run(), Some((run(1, 1), 1)));
        silent.ended();
        assert!(!silent.is_awaited() && silent.run().is_none());
        assert!(!silent.may_be(run(1, 1)));
    }

    #[test]
    fn a_run_has_one_queue_pair_and_one_counter() {
        let silent = after_a_streak();
        silent.posted(run(1, 1));
        for other in [run(2, 1), run(1, 2), run_by(4, 1, 1)] {
            assert!(!silent.may_be(other));
            assert_eq!(silent.before(other), 0);
        }
        silent.ended();
        let beyond = run_by(16, 1, 1);
        assert!(!silent.may_be(beyond), "its number has no room for it");
    }

    #[test]
    fn polls_end_a_run_that_nobody_adds_to() {
        let silent = after_a_streak();
        assert!((0..2 * POLLS).all(|_| !silent.is_due()), "there is none");
        silent.posted(run(1, 1));
        assert!((1..POLLS).all(|_| !silent.is_due()));
        silent.posted(run(1, 1));
        assert!((1..POLLS).all(|_| !silent.is_due()));
        assert!(silent.is_due());
        silent.ended();
        assert!(!silent.is_due());
    }

    proptest! {
        /// What signalled puts and the ends of runs tell of is what was posted.
        #[test]
        fn every_put_is_told_of(
            steps in proptest::collection::vec((0u32..4, 1u8..3, 0u8..40), 1..600),
        ) {
            let silent = SilentPuts::default();
            let (mut put, mut told) = ([0_u32; 3], [0_u32; 3]);
            let end = |silent: &SilentPuts, told: &mut [u32; 3]| {
                if let Some((run, count)) = silent.run() {
                    let is_of = |number| (0..4).any(|peer| run_by(3, peer, number) == run);
                    let number = [1, 2].into_iter().find(|number| is_of(*number));
                    told[usize::from(number.expect("one of them"))] += count;
                    silent.ended();
                }
            };
            for (peer, number, what) in steps {
                let (run, at) = (run(peer, number), usize::from(number));
                match what {
                    0 => if silent.is_awaited() { end(&silent, &mut told) },
                    1 => if silent.is_due() { end(&silent, &mut told) },
                    _ if silent.may_be(run) => {
                        put[at] += 1;
                        silent.posted(run);
                    }
                    _ => {
                        put[at] += 1;
                        let before = silent.before(run);
                        prop_assert!(before <= SilentPuts::MOST);
                        told[at] += 1 + before;
                        if before > 0 {
                            silent.ended();
                        }
                    }
                }
                prop_assert!(told.iter().zip(&put).all(|(told, put)| told <= put));
            }
            end(&silent, &mut told);
            prop_assert_eq!(told, put);
        }
    }
}
