//! Pieces that one request takes together: they follow each other at the other rank, and devices
//! reach, or take, them on this one. Pure.

use super::list::Piece;
use crate::transport::net::PartLimits;

/// What is known of the pieces that were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    limits: PartLimits,
    parts: usize,
    /// Bytes, and the place at the other rank after them.
    len: usize,
    end: usize,
    /// Devices reach all of them.
    own: bool,
}

impl Group {
    pub(crate) const fn new(limits: PartLimits) -> Self {
        Self { limits, parts: 0, len: 0, end: 0, own: true }
    }

    /// Takes a piece; `true`: as the first of a new request. `own`: devices reach it.
    pub(crate) fn take(&mut self, piece: Piece, own: bool) -> bool {
        let Self { limits, .. } = *self;
        let (len, own_all) = (self.len.saturating_add(piece.len), self.own && own);
        let fits = len <= limits.inline || own_all && len <= limits.bytes;
        let joins = (1..limits.parts).contains(&self.parts) && fits && self.end == piece.remote;
        let end = piece.remote.wrapping_add(piece.len);
        *self = match joins {
            true => Self { limits, parts: self.parts + 1, len, end, own: own_all },
            false => Self { limits, parts: 1, len: piece.len, end, own },
        };
        !joins
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces() -> impl Strategy<Value = Vec<(Piece, bool)>> {
        let one = (1_usize..200, 0_usize..3, any::<bool>());
        proptest::collection::vec(one, 1..200).prop_map(|all| {
            let mut remote = 0;
            let piece = |(len, gap, own): (usize, usize, bool)| {
                remote += if gap == 0 { 7 } else { 0 };
                let piece = Piece { local: 0, remote, len };
                remote += len;
                (piece, own)
            };
            all.into_iter().map(piece).collect()
        })
    }

    proptest! {
        #[test]
        fn requests_keep_to_the_limits_and_are_as_few_as_can_be(
            all in pieces(),
            parts in 0_usize..17,
            bytes in 0_usize..2000,
            inline in 0_usize..500,
        ) {
            let limits = PartLimits { parts, bytes, inline };
            let fits = |some: &[(Piece, bool)]| {
                let total: usize = some.iter().map(|(piece, _)| piece.len).sum();
                let joined = some.windows(2).all(|two| {
                    two[0].0.remote + two[0].0.len == two[1].0.remote
                });
                let own = some.iter().all(|(_, own)| *own);
                joined && some.len() <= parts && (total <= inline || own && total <= bytes)
            };
            let mut group = Group::new(limits);
            let mut requests: Vec<Vec<(Piece, bool)>> = Vec::new();
            for (piece, own) in all {
                match (group.take(piece, own), requests.last_mut()) {
                    (false, Some(last)) => last.push((piece, own)),
                    (false, None) => prop_assert!(false, "the first joins nothing"),
                    (true, last) => {
                        if let Some(last) = last {
                            let mut more = last.clone();
                            more.push((piece, own));
                            prop_assert!(!fits(&more), "a request that is not full");
                        }
                        requests.push(vec![(piece, own)]);
                    }
                }
            }
            for request in requests.iter().filter(|request| request.len() > 1) {
                prop_assert!(fits(request), "{request:?}");
            }
        }
    }
}
