//! Letters to bits and back, and the bits of this rank.

use std::sync::atomic::{AtomicU32, Ordering};

use bootstrap::trace::LETTERS;

/// What a letter of a mask selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Category {
    Gets = 0,
    Puts = 1,
    Atomics = 2,
    Waits = 3,
    Collectives = 4,
    Barriers = 5,
    Locks = 6,
    Messages = 7,
    Exit = 8,
    Information = 9,
    Objects = 10,
    Conduit = 11,
    /// Every message on its own, instead of runs of them.
    Details = 12,
    SourceLines = 13,
    Client = 14,
    /// Cannot be switched off.
    Forced = 15,
}

/// Bits of a half.
pub(super) const HALF: u32 = 16;
const ALL: u32 = (1 << HALF) - 1;

impl Category {
    /// Its bit for records.
    #[inline(always)]
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// That, and the one for counters.
    #[inline(always)]
    pub(crate) const fn both(self) -> u32 {
        self.bit() | self.bit() << HALF
    }
}

/// What is recorded (low half) and counted (high half), a bit for each letter. In a cache line of
/// its own, because every call reads it.
#[repr(align(64))]
pub(crate) struct Mask(pub(super) AtomicU32);

/// See [`Mask`].
pub(crate) static MASK: Mask = Mask(AtomicU32::new(0));

/// Whether a category is recorded or counted.
#[inline(always)]
pub(crate) fn on(category: Category) -> bool {
    MASK.0.load(Ordering::Relaxed) & category.both() != 0
}

/// Whether nothing is recorded or counted.
#[inline(always)]
pub(crate) fn is_off() -> bool {
    MASK.0.load(Ordering::Relaxed) == 0
}

/// Whether a category is recorded.
#[inline(always)]
pub(super) fn records(category: Category) -> bool {
    MASK.0.load(Ordering::Relaxed) & category.bit() != 0
}

/// Whether a category is counted.
#[inline(always)]
pub(super) fn counts(category: Category) -> bool {
    MASK.0.load(Ordering::Relaxed) & category.both() & !category.bit() != 0
}

/// The bits of a mask: letters in either case, `^` in front for all others. Other characters are
/// ignored. What is forced is always there.
pub(crate) fn parse(text: &str) -> u32 {
    let text = text.trim_start();
    let (letters, others) = text.strip_prefix('^').map_or((text, false), |rest| (rest, true));
    let bit = |letter: char| LETTERS.find(letter.to_ascii_uppercase()).map_or(0, |at| 1 << at);
    let named = letters.chars().map(bit).fold(0, |all, bit| all | bit);
    Category::Forced.bit() | if others { ALL & !named } else { named }
}

/// The letters of bits, in the order of the table.
pub(crate) fn text(bits: u32) -> String {
    LETTERS.chars().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, c)| c).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn letters_and_their_complement() {
        assert_eq!(text(parse("GP")), "GPU");
        assert_eq!(text(parse("pg")), "GPU", "either case");
        assert_eq!(text(parse("^A")), "GPRSWBLXIOCDNHU");
        assert_eq!(text(parse(" ^AU")), "GPRSWBLXIOCDNHU", "what is forced stays");
        assert_eq!(text(parse("")), "U");
        assert_eq!(text(parse("?,1 Q")), "U", "unknown letters mean nothing");
        assert_eq!(parse("^"), ALL);
        assert_eq!(parse(LETTERS), ALL);
    }

    #[test]
    fn categories_are_the_letters() {
        for (category, letter) in [
            (Category::Gets, "G"),
            (Category::Messages, "A"),
            (Category::Conduit, "C"),
            (Category::Forced, "U"),
        ] {
            assert_eq!(text(category.bit()), letter);
        }
        assert_eq!(Category::Puts.both(), 2 | 2 << 16);
    }

    proptest! {
        #[test]
        fn a_mask_survives(bits in 0..=ALL) {
            let bits = bits | Category::Forced.bit();
            prop_assert_eq!(parse(&text(bits)), bits);
            let others = format!("^{}", text(ALL & !bits));
            prop_assert_eq!(parse(&others), bits);
        }
    }
}
