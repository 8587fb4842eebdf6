//! Numbers of neighbourhoods in the order in which a team meets them. Pure.

use std::collections::HashMap;

/// Numbers parts from 0 on, in the order of their first members.
#[derive(Default)]
pub(super) struct Numbering {
    /// Neighbourhoods that were met.
    next: u32,
    /// The part of each; `None` while they came in the order of their numbers, as they do in the
    /// team of all ranks, which so takes no memory.
    other: Option<HashMap<u32, u32>>,
}

impl Numbering {
    /// The part of a neighbourhood, and whether it is new.
    pub(super) fn part_of(&mut self, number: u32) -> (u32, bool) {
        let next = self.next;
        let part = match &mut self.other {
            None if number <= next => number,
            other => {
                let known =
                    other.get_or_insert_with(|| (0..next).map(|part| (part, part)).collect());
                *known.entry(number).or_insert(next)
            }
        };
        let first = part == next;
        self.next += u32::from(first);
        (part, first)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_numbered_as_they_come(numbers in proptest::collection::vec(0_u32..9, 0..40)) {
            let (mut numbering, mut met) = (Numbering::default(), Vec::new());
            for number in numbers {
                let seen = met.iter().position(|other| *other == number);
                let expected = seen.unwrap_or(met.len());
                let (part, first) = numbering.part_of(number);
                prop_assert_eq!((part as usize, first), (expected, seen.is_none()));
                if first {
                    met.push(number);
                }
            }
            let in_order = met.iter().enumerate().all(|(at, number)| at == *number as usize);
            prop_assert_eq!(numbering.other.is_none(), in_order);
        }
    }
}
