//! What a rank lends to its neighbours: bytes of its segment where they are, others after a copy to
//! its *stage*, memory of the library that neighbours read.

use std::marker::PhantomData;

use bootstrap::Rank;

use super::group::Group;
use super::letter::{HANDLER, Head, Signature};
use super::machine::{LENT, Lent, Others, Packet};
use crate::mode::Mode;
use crate::rank::RankContext;
use crate::transport::message::{AmMessage, AmPayload, MessageClass};
use crate::transport::shm::STAGE;

/// Bytes that a bit of [`Stage`] stands for.
const UNIT: usize = STAGE / 32;
/// Marks places in the stage; others are in the segment.
const STAGED: u64 = 1 << 63;

const _: () = assert!(LENT <= STAGE / 8);

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
    fn reserve(&mut self, len: usize) -> Option<usize> {
        let mask = Self::mask(len)?;
        let at = (0..=mask.leading_zeros()).find(|at| self.used & mask << at == 0)?;
        self.used |= mask << at;
        Some(at as usize * UNIT)
    }

    fn give_back(&mut self, at: usize, len: usize) {
        if let (Some(mask), Ok(first)) = (Self::mask(len), u32::try_from(at / UNIT)) {
            self.used &= !mask.checked_shl(first).unwrap_or(0);
        }
    }
}

/// The other members of a collective, for the machine of this one.
pub(super) struct Ways<'a, M> {
    pub(super) context: &'a RankContext,
    pub(super) group: &'a Group,
    pub(super) number: u32,
    pub(super) signature: Signature,
    pub(super) stage: &'a mut Stage,
    pub(super) mode: PhantomData<M>,
}

impl<M: Mode> Others for Ways<'_, M> {
    fn send(&mut self, packet: Packet<'_>) -> bool {
        let (context, signature) = (self.context, self.signature);
        let Some(to) = self.group.job_rank(packet.to) else { return false };
        let Ok(target) = context.target("collective", Rank(to)) else { return false };
        let (team, number) = (self.group.id, self.number);
        let head = Head { team, number, signature, mark: packet.place };
        let (class, args) = (MessageClass::Request, &head.encode());
        let payload = AmPayload::Medium(packet.bytes);
        context.try_send::<M>(&AmMessage { class, target, handler: HANDLER, args, payload })
    }

    fn lend(&mut self, bytes: &[u8]) -> Option<Lent> {
        let shm = self.context.shm();
        if let Some(offset) = shm.offset_of(bytes) {
            return Some(Lent(offset));
        }
        let at = self.stage.reserve(bytes.len())?;
        shm.stage(at, bytes).then_some(Lent(STAGED | at as u64))
    }

    fn give_back(&mut self, Lent(word): Lent, len: usize) {
        if let (true, Ok(at)) = (word & STAGED != 0, usize::try_from(word & !STAGED)) {
            self.stage.give_back(at, len);
        }
    }

    fn take(&mut self, from: u32, Lent(word): Lent, into: &mut [u8]) -> bool {
        let (shm, job) = (self.context.shm(), self.group.job_rank(from));
        let Some(local) = job.and_then(|job| self.context.local_of(Rank(job))) else {
            return false;
        };
        if word & STAGED == 0 {
            return shm.read(local, word, into);
        }
        usize::try_from(word & !STAGED).is_ok_and(|at| shm.unstage(local, at, into))
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
        assert!((0..8).all(|_| stage.reserve(LENT).is_some()));
        assert_eq!(
            (stage.reserve(1), Stage::mask(STAGE), Stage::mask(STAGE + 1)),
            (None, Some(!0), None)
        );
    }
}
