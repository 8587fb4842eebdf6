//! Puts and gets to memory that another rank has lent, and memory of this rank that it lends
//! (`docs/design/memory.md`).

use std::sync::Arc;

use bootstrap::Rank;

use super::context::NetContext;
use super::error::Error;
use super::memory::cache::Held;
use super::memory::loan_parts::{LentPart, LentParts};
use super::memory::pool::RawTarget;
use super::peer::Peer;
use super::pending_ops::OpKind;
use super::post::Via;
use super::rma::{OneSided, Piece, Spot, on_some_connection};
use super::transport::NetTransport;
use crate::transport::op_counter::OpCounter;

/// A byte of a part that was lent.
#[derive(Clone, Copy)]
struct LentSpot<'p> {
    at: u64,
    /// By rail.
    keys: &'p [u32],
}

impl Spot for LentSpot<'_> {
    fn aim(self, _: &NetContext, _: Rank, rail: usize) -> Option<(u64, u32)> {
        Some((self.at, *self.keys.get(rail)?))
    }
}

/// The place `skip` bytes behind the beginning of a loan, and how many bytes follow it in its part.
fn spot(parts: &[LentPart], mut skip: usize) -> Option<(LentSpot<'_>, usize)> {
    for part in parts {
        let len = part.len as usize;
        if skip < len {
            let at = part.at.wrapping_add(skip as u64);
            return Some((LentSpot { at, keys: &part.keys }, len - skip));
        }
        skip -= len;
    }
    None
}

impl OneSided<'_> {
    /// Posts `len` bytes to or from a loan, from `skip` on, part by part; how many there was room
    /// for. `post` gets where a piece goes, how many bytes were posted before it and how many it may
    /// have.
    fn along(
        self,
        rank: Rank,
        parts: &[LentPart],
        (skip, len): (usize, usize),
        mut post: impl FnMut(Via<'_>, LentSpot<'_>, usize, usize) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        let peer: Option<&Peer> = self.0.connected(rank);
        let Some(peer) = peer else { return Ok(0) };
        let mut done = 0;
        while done < len {
            let Some((place, most)) = spot(parts, skip + done) else { break };
            let most = most.min(len - done);
            let posted = on_some_connection(peer, |via| post(via, place, done, most))?;
            if posted == 0 {
                break;
            }
            done += posted;
        }
        Ok(done)
    }
}

impl NetTransport {
    /// Posts a put of `bytes` to a loan, `skip` bytes behind its beginning; how many there was room
    /// for.
    pub(crate) fn put_lent(
        &self,
        to: Rank,
        (parts, skip): (&[LentPart], usize),
        bytes: &[u8],
        counter: &Arc<OpCounter>,
    ) -> Result<usize, Error> {
        let put = self.enter(|context| {
            let one_sided = OneSided(context);
            one_sided.along(to, parts, (skip, bytes.len()), |via, place, done, most| {
                let piece = Piece { via, kind: OpKind::Put, place, counter, list: None };
                let bytes = bytes.get(done..done + most).unwrap_or_default();
                one_sided.put_piece(piece, bytes, false)
            })
        });
        put.unwrap_or(Ok(0))
    }

    /// As [`NetTransport::put_lent`], a get.
    pub(crate) fn get_lent(
        &self,
        from: Rank,
        (parts, skip): (&[LentPart], usize),
        into: &mut RawTarget,
        counter: &Arc<OpCounter>,
    ) -> Result<usize, Error> {
        let get = self.enter(|context| {
            let one_sided = OneSided(context);
            one_sided.along(from, parts, (skip, into.left), |via, place, _, most| {
                let piece = Piece { via, kind: OpKind::Get, place, counter, list: None };
                let mut part = RawTarget { at: into.at, left: most, done: 0 };
                let posted = one_sided.get_piece(piece, &mut part)?;
                into.skip(posted);
                Ok(posted)
            })
        });
        get.unwrap_or(Ok(0))
    }

    /// Whether a put of so many bytes whose source is to be free at once is copied.
    pub(crate) fn copies(&self, len: usize) -> bool {
        len as u64 <= self.context.settings.put_bounce
    }

    /// Ports, each of which has a key of what is lent.
    pub(crate) fn rails(&self) -> usize {
        self.context.rails.len()
    }

    /// What was registered for other ranks until now.
    #[cfg(test)]
    pub(crate) fn lent_counts(&self) -> super::memory::cache::Counts {
        self.context.memory.lent_counts()
    }

    /// Whether ranks lend each other memory.
    pub(crate) fn lends(&self) -> bool {
        let registration = &self.context.settings.registration;
        registration.lends && registration.on
    }

    /// Lends the first of `len` bytes of this process from `address` on, to be written if `write`;
    /// they are held until the result is dropped. `lasts`: they stay mapped as long as the network
    /// is open. `None`: not now, or never.
    pub(crate) fn lend(
        &self,
        (address, len): (u64, u64),
        write: bool,
        lasts: bool,
    ) -> Option<(Held, LentParts)> {
        self.context.memory.lend((address, len), write, lasts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_in_its_part() {
        let part = |at, len, key| {
            let keys = heapless::Vec::from_slice(&[key]).expect("room");
            LentPart { at, len, keys }
        };
        let parts = [part(1000, 96, 1), part(1096, 4096, 2), part(5192, 8, 3)];
        let found = |skip| spot(&parts, skip).map(|(one, rest)| (one.at, one.keys[0], rest));
        assert_eq!(found(0), Some((1000, 1, 96)));
        assert_eq!(found(95), Some((1095, 1, 1)));
        assert_eq!(found(96), Some((1096, 2, 4096)));
        assert_eq!(found(4199), Some((5199, 3, 1)));
        assert_eq!(found(4200), None);
        assert_eq!(spot(&parts, 96).and_then(|(one, _)| one.keys.get(1)), None);
    }
}
