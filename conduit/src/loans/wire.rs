//! What ranks say to each other about loans. Pure.

use super::ledger::LoanId;
use crate::transport::net::{LentPart, LentParts, MOST_KEYS};
use crate::vis::ticket::Ticket;

/// Handlers, below the client's indices.
pub(super) const ASK: u8 = 84;
pub(super) const LENT: u8 = 85;
pub(super) const REFUSED: u8 = 86;
pub(super) const RETURN: u8 = 87;
/// Arguments of each.
pub(super) const ASK_ARGS: usize = 8;
pub(super) const LENT_ARGS: usize = 4;
pub(super) const REFUSED_ARGS: usize = 3;
pub(super) const RETURN_ARGS: usize = 2;

/// Bits of the flags of a request.
const PUT: i32 = 1;
const RETURNS: i32 = 2;

/// A request for memory; the bytes that go with it are the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) ticket: Ticket,
    /// Where it is at the owner, and its bytes.
    pub(super) place: u64,
    pub(super) len: u32,
    /// To be written.
    pub(super) put: bool,
    /// What the request gives back.
    pub(super) returns: Option<LoanId>,
}

#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
const fn halves(word: u64) -> [i32; 2] {
    [(word as u32).cast_signed(), ((word >> 32) as u32).cast_signed()]
}

fn whole(low: i32, high: i32) -> u64 {
    u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
}

pub(super) const fn of_loan(loan: LoanId) -> [i32; 2] {
    [loan.slot.cast_signed(), loan.generation.cast_signed()]
}

pub(super) const fn loan(slot: i32, generation: i32) -> LoanId {
    LoanId { slot: slot.cast_unsigned(), generation: generation.cast_unsigned() }
}

impl Ask {
    pub(super) fn to_wire(self) -> [i32; ASK_ARGS] {
        let ([slot, generation], [at, high]) = (self.ticket.to_wire(), halves(self.place));
        let [loan, of] = self.returns.map_or([0, 0], of_loan);
        let returns = if self.returns.is_some() { RETURNS } else { 0 };
        let flags = (i32::from(self.put) * PUT) | returns;
        [slot, generation, at, high, self.len.cast_signed(), flags, loan, of]
    }

    /// `None` for what is none.
    pub(super) fn of_wire(args: &[i32]) -> Option<Self> {
        let &[slot, generation, at, high, len, flags, of, number] = args else { return None };
        if flags & !(PUT | RETURNS) != 0 {
            return None;
        }
        Some(Self {
            ticket: Ticket::of(slot, generation),
            place: whole(at, high),
            len: len.cast_unsigned(),
            put: flags & PUT != 0,
            returns: (flags & RETURNS != 0).then(|| loan(of, number)),
        })
    }
}

/// Parts of a loan as a payload: the number of keys of each, the address of the first, then bytes and
/// keys of each.
pub(super) fn encode_parts(parts: &LentParts) -> Vec<u8> {
    let keys = parts.first().map_or(0, |part| part.keys.len());
    let mut bytes = (keys as u64).to_le_bytes().to_vec();
    bytes.extend(parts.first().map_or(0, |part| part.at).to_le_bytes());
    for part in parts {
        bytes.extend(part.len.to_le_bytes());
        bytes.extend(part.keys.iter().flat_map(|key| key.to_le_bytes()));
    }
    bytes
}

/// `None` for what is none.
pub(super) fn decode_parts(bytes: &[u8]) -> Option<LentParts> {
    let (keys, rest) = bytes.split_first_chunk()?;
    let (at, rest) = rest.split_first_chunk()?;
    let keys = usize::try_from(u64::from_le_bytes(*keys)).ok()?;
    if !(1..=MOST_KEYS).contains(&keys) || rest.is_empty() {
        return None;
    }
    let mut at = u64::from_le_bytes(*at);
    let mut parts = LentParts::new();
    for part in rest.chunks(4 + 4 * keys) {
        let (len, words) = part.split_first_chunk()?;
        let len = u32::from_le_bytes(*len);
        let (words, []) = words.as_chunks() else { return None };
        let told: heapless::Vec<u32, MOST_KEYS> =
            words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        if told.len() != keys || len == 0 {
            return None;
        }
        parts.push(LentPart { at, len, keys: told }).ok()?;
        at = at.checked_add(u64::from(len))?;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(at: u64, lens: &[u32], keys: usize) -> LentParts {
        let mut at = at;
        let part = |len: &u32| {
            let keys = (0..u32::MAX).take(keys).map(|rail| rail.wrapping_mul(7) ^ len).collect();
            let part = LentPart { at, len: *len, keys };
            at += u64::from(*len);
            part
        };
        lens.iter().map(part).collect()
    }

    proptest! {
        #[test]
        fn a_request_is_read_as_it_was_written(
            (place, len, put, slot, generation) in any::<(u64, u32, bool, u32, u32)>(),
            returns in proptest::option::of(any::<(u32, u32)>()),
        ) {
            let returns = returns.map(|(slot, generation)| LoanId { slot, generation });
            let ticket = Ticket { slot, generation };
            let ask = Ask { ticket, place, len, put, returns };
            prop_assert_eq!(Ask::of_wire(&ask.to_wire()), Some(ask));
        }

        #[test]
        fn parts_come_back(
            at in 0_u64..1 << 47,
            lens in proptest::collection::vec(1_u32..1 << 20, 1..=9),
            keys in 1_usize..=MOST_KEYS,
        ) {
            let parts = parts(at, &lens, keys);
            let bytes = encode_parts(&parts);
            prop_assert_eq!(decode_parts(&bytes), Some(parts));
            prop_assert_eq!(decode_parts(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            keys in 0_u64..20,
        ) {
            let mut bytes = bytes;
            if let Some(head) = bytes.first_chunk_mut() {
                *head = keys.to_le_bytes();
            }
            if let Some(parts) = decode_parts(&bytes) {
                let next = parts.iter().skip(1).map(|part| part.at);
                let ends = parts.iter().map(|part| part.at + u64::from(part.len));
                prop_assert!(ends.zip(next).all(|(end, next)| end == next));
                prop_assert!(parts.iter().all(|part| part.keys.len() as u64 == keys));
            }
        }

        #[test]
        fn any_words_are_read_or_refused(words in proptest::collection::vec(any::<i32>(), 0..11)) {
            if let Some(ask) = Ask::of_wire(&words) {
                prop_assert_eq!(Ask::of_wire(&ask.to_wire()), Some(ask));
            }
        }
    }
}
