//! The words of a request and of its reply.
//!
//! | word of a request | |
//! |---|---|
//! | 0 | operation (8 bits), type (8), endpoint (16) |
//! | 1 | slot of the operation where it was started |
//! | 2, 3 | place in the segment |
//! | 4, 5 and 6, 7 | operands that the operation has |
//!
//! | word of a reply | |
//! |---|---|
//! | 0 | slot |
//! | 1 | 0, or why it was refused |
//! | 2, 3 | the old value, of an operation that fetches |

use super::types::AtomicOp;
use super::word::AtomicCall;
use crate::data_type::DataType;

/// Most words of a request.
const MOST: usize = 8;

/// An operation for another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) slot: u32,
    pub(super) endpoint: u16,
    pub(super) place: u64,
    pub(super) call: AtomicCall,
}

/// Words with their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    words: [i32; MOST],
    count: usize,
}

impl Words {
    fn of(values: &[u32]) -> Self {
        let mut words = [0; MOST];
        for (word, value) in words.iter_mut().zip(values) {
            *word = value.cast_signed();
        }
        Self { words, count: values.len().min(MOST) }
    }

    pub(super) fn as_slice(&self) -> &[i32] {
        self.words.get(..self.count).unwrap_or_default()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves")]
const fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

const fn joined(low: i32, high: i32) -> u64 {
    (high.cast_unsigned() as u64) << 32 | low.cast_unsigned() as u64
}

impl Request {
    pub(super) fn encode(&self) -> Words {
        let AtomicCall { data_type, op, operands: [first, second] } = self.call;
        let head = u32::from(self.endpoint) << 16 | (data_type as u32) << 8 | op as u32;
        let ([low, high], [a, b], [c, d]) = (halves(self.place), halves(first), halves(second));
        let words = [head, self.slot, low, high, a, b, c, d];
        Words::of(words.get(..4 + 2 * op.operands()).unwrap_or_default())
    }

    /// `None` for words that are no request: only operations that exist for the type come back.
    pub(super) fn decode(words: &[i32]) -> Option<Self> {
        let &[head, slot, low, high, ref operands @ ..] = words else { return None };
        let head = head.cast_unsigned();
        let op = AtomicOp::from_number(head & 0xff)?;
        let data_type = *DataType::ALL.get((head >> 8 & 0xff) as usize)?;
        if !data_type.operations().contains(op.set()) {
            return None;
        }
        let operands = match (op.operands(), operands) {
            (0, []) => [0; 2],
            (1, &[a, b]) => [joined(a, b), 0],
            (2, &[a, b, c, d]) => [joined(a, b), joined(c, d)],
            _ => return None,
        };
        let endpoint = u16::try_from(head >> 16).ok()?;
        let call = AtomicCall { data_type, op, operands };
        Some(Self { slot: slot.cast_unsigned(), endpoint, place: joined(low, high), call })
    }
}

/// Why a rank does not do an operation on its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The word is not in a segment.
    Outside,
    /// The word is not at a multiple of its size.
    Misaligned,
    /// The word is not mapped, or cannot be written.
    Unmapped,
}

impl Refusal {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Outside => "the word is not in a segment that it has bound",
            Self::Misaligned => "the word is not at a multiple of its size",
            Self::Unmapped => "the word is not mapped there, or cannot be written",
        }
    }
}

/// What became of an operation: the old value, if it fetches.
pub(super) type Outcome = Result<Option<u64>, Refusal>;

pub(super) fn encode_reply(slot: u32, outcome: Outcome) -> Words {
    match outcome {
        Ok(None) => Words::of(&[slot, 0]),
        Ok(Some(old)) => {
            let [low, high] = halves(old);
            Words::of(&[slot, 0, low, high])
        }
        Err(Refusal::Outside) => Words::of(&[slot, 1]),
        Err(Refusal::Misaligned) => Words::of(&[slot, 2]),
        Err(Refusal::Unmapped) => Words::of(&[slot, 3]),
    }
}

/// Slot and outcome; `None` for words that are no reply.
pub(super) fn decode_reply(words: &[i32]) -> Option<(u32, Outcome)> {
    let (slot, outcome) = match *words {
        [slot, 0] => (slot, Ok(None)),
        [slot, 0, low, high] => (slot, Ok(Some(joined(low, high)))),
        [slot, 1] => (slot, Err(Refusal::Outside)),
        [slot, 2] => (slot, Err(Refusal::Misaligned)),
        [slot, 3] => (slot, Err(Refusal::Unmapped)),
        _ => return None,
    };
    Some((slot.cast_unsigned(), outcome))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_survive_the_wire(
            slot: u32,
            endpoint: u16,
            place: u64,
            operands: [u64; 2],
            data_type in proptest::sample::select(&DataType::ALL[..]),
            op in proptest::sample::select(&AtomicOp::ALL[..]),
        ) {
            let mut had = operands;
            had[op.operands()..].fill(0);
            let call = AtomicCall { data_type, op, operands: had };
            let request = Request { slot, endpoint, place, call };
            let exists = data_type.operations().contains(op.set());
            prop_assert_eq!(Request::decode(request.encode().as_slice()), exists.then_some(request));
        }

        #[test]
        fn any_words_are_a_request_or_none(words in proptest::collection::vec(any::<i32>(), 0..12)) {
            if let Some(request) = Request::decode(&words) {
                let encoded = request.encode();
                prop_assert_eq!(encoded.as_slice(), &words[..]);
            }
        }

        #[test]
        fn replies_survive_the_wire(slot: u32, old: Option<u64>, outside: bool, fits: bool) {
            let why = if outside { Refusal::Outside } else { Refusal::Misaligned };
            let outcome = if fits { Ok(old) } else { Err(why) };
            let words = encode_reply(slot, outcome);
            prop_assert_eq!(decode_reply(words.as_slice()), Some((slot, outcome)));
        }
    }

    #[test]
    fn other_words_are_no_reply() {
        for words in [&[][..], &[1], &[1, 4], &[1, -1], &[1, 0, 0], &[1, 1, 0, 0]] {
            assert_eq!(decode_reply(words), None, "{words:?}");
        }
    }
}
