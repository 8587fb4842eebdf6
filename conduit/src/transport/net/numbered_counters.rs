//! Counters that the number of a request names, so that what it counts needs no row among the
//! operations in flight: the first ones that are asked for, of those that are used again and again.

use std::num::NonZeroU8;
use std::sync::{Arc, OnceLock};

use crate::sys::atomic::{AtomicU32, Ordering};
use crate::transport::op_counter::OpCounter;

#[derive(Debug)]
pub(super) struct NumberedCounters {
    /// Kept for good.
    all: [OnceLock<Arc<OpCounter>>; Self::MOST],
    used: AtomicU32,
}

impl Default for NumberedCounters {
    fn default() -> Self {
        Self { all: [const { OnceLock::new() }; Self::MOST], used: AtomicU32::new(0) }
    }
}

impl NumberedCounters {
    /// So many have numbers, 1 and up: seven bits of a request's number.
    pub(super) const MOST: usize = 127;

    /// The counter of a number; `None` for 0 and for those that nobody has.
    #[inline(always)]
    pub(super) fn get(&self, number: usize) -> Option<&OpCounter> {
        Some(self.all.get(number.checked_sub(1)?)?.get()?)
    }

    /// The number of a counter; `None`: it has none.
    #[inline(always)]
    pub(super) fn number_of(&self, counter: &Arc<OpCounter>) -> Option<NonZeroU8> {
        let number = NonZeroU8::new(counter.number())?;
        if number.get() == OpCounter::UNNUMBERED {
            return self.assign(counter);
        }
        // It may be one of another network.
        let own = self.get(number.get().into())?;
        std::ptr::eq(own, &raw const **counter).then_some(number)
    }

    /// Gives a counter its number. Two threads may give it two, which does no harm.
    #[cold]
    fn assign(&self, counter: &Arc<OpCounter>) -> Option<NonZeroU8> {
        let next = |used: u32| ((used as usize) < Self::MOST).then_some(used + 1);
        let place = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        let number = place.ok().and_then(|place| {
            self.all.get(place as usize)?.set(Arc::clone(counter)).ok()?;
            NonZeroU8::new(u8::try_from(place + 1).ok()?)
        });
        counter.set_number(number.map_or(0, NonZeroU8::get));
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_counters_have_numbers_and_keep_them() {
        let numbers = NumberedCounters::default();
        let lasting = || Arc::new(OpCounter::lasting());
        let counters: Vec<_> = (0..130).map(|_| lasting()).collect();
        for _ in 0..2 {
            for (index, counter) in counters.iter().enumerate() {
                let number = numbers.number_of(counter).map(|number| usize::from(number.get()));
                let expected = (index < NumberedCounters::MOST).then_some(index + 1);
                assert_eq!(number, expected);
                if let Some(number) = number {
                    assert!(std::ptr::eq(numbers.get(number).expect("set"), &raw const **counter));
                }
            }
        }
        assert!([0, 128, 255].iter().all(|number| numbers.get(*number).is_none()));
    }

    /// Bad input: a counter that has its number in another network.
    #[test]
    fn a_counter_of_another_network_has_no_number_here() {
        let [here, there] = [(); 2].map(|()| NumberedCounters::default());
        let [own, other, passing] =
            [OpCounter::lasting(), OpCounter::lasting(), OpCounter::default()].map(Arc::new);
        assert_eq!(here.number_of(&passing), None, "one that is used once");
        assert!(there.number_of(&other).is_some());
        assert_eq!(here.number_of(&other), None);
        assert!(here.number_of(&own).is_some());
        assert_eq!(here.number_of(&other), None);
    }
}
