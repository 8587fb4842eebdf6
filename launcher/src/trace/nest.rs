//! Slices of a thread as a viewer draws them, one inside the other or apart. Clocks are rounded and
//! moments have no length, so records may stand over each other's end by a nanosecond; readers of
//! the format drop such slices.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::merge::Slice;

/// What rounding makes of times that are one: so many nanoseconds at most.
const ROUNDING: u64 = 4;

/// Sorts slices by time and ends each with the one that it begins in, at the latest. One that a later
/// slice only touches ends where that begins. Each takes a nanosecond at least: arrows need a slice
/// around their ends.
pub(super) fn nest(slices: &mut [Slice]) {
    for slice in slices.iter_mut().filter(|slice| !slice.instant) {
        slice.span = slice.span.max(1);
    }
    // Of those that begin together, the longest is around the others.
    slices.sort_by_key(|slice| (slice.at, Reverse(slice.span)));
    // Slices around a moment of a thread, and where they end, the innermost last.
    let mut around: HashMap<(u32, u8), Vec<(usize, u64)>> = HashMap::new();
    for number in 0..slices.len() {
        let Slice { rank, thread, at, span, instant, .. } = slices[number];
        if instant {
            continue;
        }
        let outer = around.entry((rank, thread)).or_default();
        while outer.pop_if(|(_, end)| *end <= at).is_some() {}
        let end = at.saturating_add(span);
        while let Some((touched, _)) =
            outer.pop_if(|(_, last)| *last < end && *last - at <= ROUNDING)
        {
            slices[touched].span = at - slices[touched].at;
        }
        let end = outer.last().map_or(end, |(_, last)| end.min(*last));
        slices[number].span = end - at;
        outer.push((number, end));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slice((thread, at, span, instant): (u8, u64, u64, bool)) -> Slice {
        let (category, name, about) = ("send", String::new(), Vec::new());
        Slice { rank: 0, thread, at, span, instant, category, name, about }
    }

    fn nested(of: &[(u8, u64, u64, bool)]) -> Vec<(u64, u64)> {
        let mut slices: Vec<Slice> = of.iter().copied().map(slice).collect();
        nest(&mut slices);
        slices.iter().map(|slice| (slice.at, slice.span)).collect()
    }

    #[test]
    fn a_slice_ends_with_the_one_around_it() {
        let one = |at, span| (0, at, span, false);
        assert_eq!(nested(&[one(10, 0), one(10, 5)]), [(10, 5), (10, 1)], "the longer is around");
        assert_eq!(nested(&[one(10, 9), one(14, 9)]), [(10, 9), (14, 5)], "over the end");
        assert_eq!(nested(&[one(10, 6), one(15, 5)]), [(10, 5), (15, 5)], "by rounding");
        let inside = [one(10, 9), one(12, 7), one(17, 5)];
        assert_eq!(nested(&inside), [(10, 7), (12, 5), (17, 5)], "by rounding, both");
        assert_eq!(nested(&[one(10, 5), one(15, 5)]), [(10, 5), (15, 5)], "apart");
        assert_eq!(nested(&[one(10, 6), (1, 15, 5, false)]), [(10, 6), (15, 5)], "two threads");
        assert_eq!(nested(&[one(10, 5), (0, 12, 0, true)]), [(10, 5), (12, 0)], "a moment");
    }

    proptest! {
        #[test]
        fn no_two_slices_of_a_thread_overlap(
            of in proptest::collection::vec((0_u8..2, 0_u64..60, 0_u64..12, any::<bool>()), 0..40),
        ) {
            let mut slices: Vec<Slice> = of.iter().copied().map(slice).collect();
            nest(&mut slices);
            prop_assert_eq!(slices.len(), of.len());
            prop_assert!(slices.is_sorted_by_key(|slice| slice.at));
            let longest = of.iter().map(|(_, _, span, _)| (*span).max(1)).max().unwrap_or(0);
            let drawn: Vec<&Slice> = slices.iter().filter(|slice| !slice.instant).collect();
            for (number, before) in drawn.iter().enumerate() {
                prop_assert!((1..=longest).contains(&before.span));
                let end = before.at + before.span;
                for after in &drawn[number + 1..] {
                    let apart = after.thread != before.thread || end <= after.at;
                    prop_assert!(apart || after.at + after.span <= end, "{:?} {:?}", before, after);
                }
            }
        }

        #[test]
        fn what_is_nested_stays(
            outer in 2_u64..50, cut in 1_u64..50, inner in 1_u64..50,
        ) {
            let (cut, inner) = (cut.min(outer), inner.min(outer));
            let at = outer - inner;
            let mut expected = vec![(0, outer), (at, inner), (outer, cut)];
            expected.sort_by_key(|(at, span)| (*at, Reverse(*span)));
            prop_assert_eq!(
                nested(&[(0, at, inner, false), (0, 0, outer, false), (0, outer, cut, false)]),
                expected
            );
        }
    }
}
