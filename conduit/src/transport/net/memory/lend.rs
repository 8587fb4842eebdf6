//! Memory that is lent to other ranks for their transfers: registered for them, and not deregistered
//! before they have given it back. What is not used any more stays registered as a cache does, in
//! a budget of its own.

use super::cache::{Cache, Found, Held, Parts, Users, Wanted};
use super::loan_parts::{LentPart, LentParts};
use super::registrar::Registered;

impl Parts for LentParts {
    fn is_full(&self) -> bool {
        Self::is_full(self)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn enter(&mut self, at: u64, len: u32, region: &Registered) {
        let keys = heapless::Vec::from_slice(&region.keys).unwrap_or_default();
        let _ = self.push(LentPart { at, len, keys });
    }
}

impl Cache {
    /// Registers the first of `len` bytes from `address` on for transfers of another rank, which reads
    /// them, or writes to them if `write`; what is held is theirs until it is dropped. `lasts`: the
    /// memory stays mapped as long as the network is open. `None`: it is not to be had.
    pub(crate) fn lend(
        &self,
        (address, len): (u64, u64),
        write: bool,
        lasts: bool,
    ) -> Option<(Held, LentParts)> {
        let shared = &self.shared;
        if !shared.lends() {
            return None;
        }
        let state = shared.state()?;
        let to = address.checked_add(len).filter(|to| *to > address)?;
        let wanted = Wanted { from: address, to, write, users: Users::Peers, lasts };
        let (mut held, mut parts) = (Held::default(), LentParts::new());
        let held = match shared.find(state, wanted, (&mut held, &mut parts)) {
            Found::All => Some(held),
            Found::Unsettled => None,
            Found::Missing(at) => shared.make_and_hold(state, wanted, (held, at), &mut parts),
        }?;
        let told = parts.iter().all(|part| !part.keys.is_empty());
        (told && !parts.is_empty()).then_some((held, parts))
    }
}
