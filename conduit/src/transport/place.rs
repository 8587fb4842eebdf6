//! Where bytes of another rank are, in one word: which of its segments, and how far into it.

/// Bits of the offset. No address space holds a longer segment.
const OFFSET_BITS: u32 = 48;

/// A place in the segment bound to an endpoint. The first endpoint's are plain offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the endpoint.
    pub endpoint: u16,
    /// Bytes from the start of its segment.
    pub offset: u64,
}

impl Place {
    /// Longest segment that places can name every byte of.
    pub(crate) const MAX_LEN: u64 = 1 << OFFSET_BITS;

    /// The place as one word; `None` for an offset that no segment has.
    #[must_use]
    pub const fn word(self) -> Option<u64> {
        if self.offset >= Self::MAX_LEN {
            return None;
        }
        Some((self.endpoint as u64) << OFFSET_BITS | self.offset)
    }

    /// What a word names; every word names something, which need not be there.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        let endpoint = (word >> OFFSET_BITS) as u16;
        Self { endpoint, offset: word & (Self::MAX_LEN - 1) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_word_names_what_it_was_made_of(endpoint: u16, offset in 0..Place::MAX_LEN, word: u64) {
            let place = Place { endpoint, offset };
            prop_assert_eq!(Place::of(place.word().expect("an offset that fits")), place);
            prop_assert_eq!(Place::of(word).word(), Some(word));
        }
    }

    #[test]
    fn offsets_of_the_first_endpoint_are_themselves_and_others_too_long_are_refused() {
        assert_eq!(Place { endpoint: 0, offset: 4711 }.word(), Some(4711));
        assert_eq!(Place { endpoint: 3, offset: Place::MAX_LEN }.word(), None);
    }
}
