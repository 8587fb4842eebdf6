//! Which queue pairs have deferred requests, so that a pass need not look at all connections.

use crate::sync::{AtomicU32, Flag, Ordering};

/// Queue pairs that are noted by number; with more than these, all are looked at.
const FEW: usize = 8;

/// Any thread marks, one at a time takes.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    any: Flag,
    /// 0: free, which no queue pair has as its number.
    numbers: [AtomicU32; FEW],
    more: Flag,
}

/// What [`Deferred::take`] found.
#[derive(Debug)]
pub(super) struct Marked {
    numbers: [u32; FEW],
    /// There may be others.
    pub(super) more: bool,
}

impl Marked {
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.numbers.into_iter().filter(|number| *number != 0)
    }
}

impl Deferred {
    /// A queue pair has deferred something.
    pub(super) fn mark(&self, number: u32) {
        let free = |place: &AtomicU32| {
            place.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if !self.numbers.iter().any(free) {
            self.more.store(true);
        }
        // Last: who takes this mark finds the number.
        self.any.store(true);
    }

    pub(super) fn is_any(&self) -> bool {
        self.any.is_set()
    }

    /// Takes all marks. One that is set meanwhile is found now or next time.
    pub(super) fn take(&self) -> Marked {
        self.any.take();
        let numbers = self.numbers.each_ref().map(|place| place.swap(0, Ordering::AcqRel));
        Marked { numbers, more: self.more.take() }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn few_queue_pairs_are_noted_and_more_are_looked_for() {
        let marks = Deferred::default();
        assert!(!marks.is_any());
        for number in [7, 9, 7] {
            marks.mark(number);
        }
        assert!(marks.is_any());
        let marked = marks.take();
        assert_eq!((marked.numbers().collect::<Vec<_>>(), marked.more), (vec![7, 9, 7], false));
        assert!(!marks.is_any() && marks.take().numbers().count() == 0);
        (1..=9).for_each(|number| marks.mark(number));
        let marked = marks.take();
        assert_eq!((marked.numbers().count(), marked.more), (FEW, true));
        assert!(!marks.take().more);
    }

    /// Each thread waits until its mark was taken, so there is always room.
    #[test]
    fn no_mark_is_lost_between_threads() {
        const THREADS: u32 = 3;
        const ROUNDS: u32 = 2_000;
        let marks = Deferred::default();
        let seen = [const { AtomicU32::new(0) }; THREADS as usize];
        std::thread::scope(|scope| {
            for (number, seen) in (1..).zip(&seen) {
                let marks = &marks;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        marks.mark(number);
                        while seen.load(Ordering::Acquire) == round {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut left = THREADS * ROUNDS;
            while left > 0 {
                if !marks.is_any() {
                    std::thread::yield_now();
                    continue;
                }
                let marked = marks.take();
                assert!(!marked.more);
                for number in marked.numbers() {
                    seen[number as usize - 1].fetch_add(1, Ordering::Release);
                    left -= 1;
                }
            }
        });
        assert_eq!(seen.map(AtomicU32::into_inner), [ROUNDS; THREADS as usize]);
    }
}
