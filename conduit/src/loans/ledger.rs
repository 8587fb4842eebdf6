//! What a rank has lent, and to whom: by number, each of which is given back once. Pure.

/// Most loans at a time. A rank that never gives back costs no more than these.
const MOST: usize = 4096;

/// Number of a loan. An old number is never taken for a later loan's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoanId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Loans with what is held for each.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    slots: Vec<(u32, Option<(usize, T)>)>,
    free: Vec<u32>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Ledger<T> {
    /// Loans that are not back.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Notes what was lent to a rank. It comes back where there is no number for it.
    pub(crate) fn lend(&mut self, holder: usize, held: T) -> Result<LoanId, T> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < MOST => {
                self.slots.push((0, None));
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
            None => return Err(held),
        };
        match self.slots.get_mut(slot as usize) {
            Some((generation, place)) => {
                *place = Some((holder, held));
                Ok(LoanId { slot, generation: *generation })
            }
            None => Err(held),
        }
    }

    /// What a rank gives back; `None`: it has no such loan.
    pub(crate) fn give_back(&mut self, holder: usize, loan: LoanId) -> Option<T> {
        let (generation, place) = self.slots.get_mut(loan.slot as usize)?;
        if *generation != loan.generation {
            return None;
        }
        let (_, held) = place.take_if(|(one, _)| *one == holder)?;
        *generation = generation.wrapping_add(1);
        self.free.push(loan.slot);
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_is_given_back_once_by_its_holder() {
        let mut ledger = Ledger::default();
        let first = ledger.lend(3, "a").expect("room");
        let second = ledger.lend(4, "b").expect("room");
        assert_eq!(ledger.give_back(4, first), None, "another rank's");
        assert_eq!(ledger.give_back(3, LoanId { slot: 9, ..first }), None, "never lent");
        assert_eq!(ledger.give_back(3, first), Some("a"));
        assert_eq!(ledger.give_back(3, first), None, "twice");
        let third = ledger.lend(3, "c").expect("room");
        assert_eq!((third.slot, third.generation), (first.slot, first.generation + 1));
        assert_eq!(ledger.give_back(3, first), None, "an old number");
        assert_eq!(ledger.len(), 2);
        assert_eq!(ledger.give_back(4, second), Some("b"));
        assert_eq!(ledger.give_back(3, third), Some("c"));
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn who_never_gives_back_costs_no_more_than_the_ledger() {
        let mut ledger = Ledger::default();
        assert!((0..MOST).all(|_| ledger.lend(1, ()).is_ok()));
        assert_eq!(ledger.lend(2, ()), Err(()));
        assert_eq!(ledger.give_back(1, LoanId { slot: 7, generation: 0 }), Some(()));
        assert!(ledger.lend(2, ()).is_ok() && ledger.lend(2, ()).is_err());
    }
}
