//! What a rank lends to its neighbours: bytes of its segment where they are, others after a copy to
//! its *stage*, memory of the library that neighbours read.

use super::machine::LENT;
use crate::transport::shm::STAGE;

/// Bytes that a bit of [`Stage`] stands for.
const UNIT: usize = STAGE / 32;
/// Marks places in the stage; others are in the segment.
pub(super) const STAGED: u64 = 1 << 63;

const _: () = assert!(LENT <= STAGE / 4);

/// Which parts of this rank's stage are lent.
#[derive(Debug, Default)]
pub(super) struct Stage {
    used: u32,
}

impl Stage {
    /// The units of so many bytes, were they the first ones.
    fn mask(len: usize) -> Option<u32> {
        let units = u32::try_from(len.div_ceil(UNIT).max(1)).ok().filter(|units| *units <= 32)?;
        Some(u32::MAX >> (32 - units))
    }

    /// Takes room for `len` bytes; where it begins.
    pub(super) fn reserve(&mut self, len: usize) -> Option<usize> {
        let mask = Self::mask(len)?;
        let at = (0..=mask.leading_zeros()).find(|at| self.used & mask << at == 0)?;
        self.used |= mask << at;
        Some(at as usize * UNIT)
    }

    pub(super) fn give_back(&mut self, at: usize, len: usize) {
        if let (Some(mask), Ok(first)) = (Self::mask(len), u32::try_from(at / UNIT)) {
            self.used &= !mask.checked_shl(first).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_lent_does_not_overlap(steps in proptest::collection::vec(0_usize..2 * LENT, 0..200)) {
            let (mut stage, mut lent) = (Stage::default(), Vec::<(usize, usize)>::new());
            for len in steps {
                if len % 3 == 0 && !lent.is_empty() {
                    let (at, len) = lent.swap_remove(len % lent.len());
                    stage.give_back(at, len);
                } else if let Some(at) = stage.reserve(len) {
                    prop_assert!(at + len <= STAGE);
                    prop_assert!(lent.iter().all(|(other, l)| at >= other + l.max(&1) || *other >= at + len.max(1)));
                    lent.push((at, len));
                } else {
                    prop_assert!(!lent.is_empty());
                }
            }
            for (at, len) in lent {
                stage.give_back(at, len);
            }
            prop_assert_eq!(stage.used, 0);
        }
    }

    #[test]
    fn a_window_of_lanes_fits() {
        let mut stage = Stage::default();
        assert!((0..4).all(|_| stage.reserve(LENT).is_some()));
        assert_eq!(
            (stage.reserve(1), Stage::mask(STAGE), Stage::mask(STAGE + 1)),
            (None, Some(!0), None)
        );
    }
}
