//! Operations on memory of this host, by the processor's own atomics: one instruction where there
//! is one, else a loop of compare and exchange over the bits. Whoever operates on a word, on
//! whatever way it came here, does so through this module or through the same instructions in the
//! C header; so all of them are atomic to each other.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::semantics::AtomicType;
use super::types::{AtomicOp, Update};
use crate::data_type::DataType;

/// A word in a segment.
#[derive(Clone, Copy, Debug)]
pub enum AtomicWord<'a> {
    /// Of 32 bits.
    Bits32(&'a AtomicU32),
    /// Of 64 bits.
    Bits64(&'a AtomicU64),
}

/// An operation with its operands. The low bits of an operand count; those that an operation does
/// not have are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicCall {
    /// Type of the word.
    pub data_type: DataType,
    /// What is done; it exists for the type.
    pub op: AtomicOp,
    /// Bits of the operands.
    pub operands: [u64; 2],
}

const BOTH: Ordering = Ordering::AcqRel;
const READ: Ordering = Ordering::Acquire;

macro_rules! on_words {
    ($($name:ident $word:ident $bits:ident;)*) => {$(
        /// The word's old value. Of an operation that does not fetch nobody reads it, so that the
        /// compiler takes an instruction without result where there is one.
        #[inline(always)]
        fn $name<T: AtomicType>(word: &$word, op: AtomicOp, [first, second]: [T; 2]) -> T {
            #[allow(clippy::cast_possible_truncation, reason = "the bits of the type")]
            let bits = |value: T| value.into_word() as $bits;
            let integer = T::DATA_TYPE.operations().contains(AtomicOp::And.set());
            #[allow(clippy::unnecessary_cast, reason = "the same code for both sizes")]
            let value = |bits: $bits| T::from_word(bits as u64);
            let old = match op.update() {
                Update::Get => word.load(READ),
                Update::Set if op.fetches() => word.swap(bits(first), BOTH),
                Update::Set => {
                    word.store(bits(first), Ordering::Release);
                    bits(first)
                }
                Update::Cas => {
                    let done = word.compare_exchange(bits(first), bits(second), BOTH, READ);
                    done.unwrap_or_else(|seen| seen)
                }
                Update::Add if integer => word.fetch_add(bits(first), BOTH),
                Update::Sub if integer => word.fetch_sub(bits(first), BOTH),
                Update::Inc if integer => word.fetch_add(1, BOTH),
                Update::Dec if integer => word.fetch_sub(1, BOTH),
                Update::And if op.fetches() => word.fetch_and(bits(first), BOTH),
                Update::Or if op.fetches() => word.fetch_or(bits(first), BOTH),
                Update::Xor if op.fetches() => word.fetch_xor(bits(first), BOTH),
                Update::And => discard(word.fetch_and(bits(first), BOTH)),
                Update::Or => discard(word.fetch_or(bits(first), BOTH)),
                Update::Xor => discard(word.fetch_xor(bits(first), BOTH)),
                update => {
                    let next = |old| T::update(update, value(old), [first, second]).map(bits);
                    word.fetch_update(BOTH, READ, next).unwrap_or_else(|seen| seen)
                }
            };
            value(old)
        }
    )*};
}

on_words! {
    on_32 AtomicU32 u32;
    on_64 AtomicU64 u64;
}

/// Says that a result is not wanted.
#[inline(always)]
fn discard<T: Default>(_: T) -> T {
    T::default()
}

impl AtomicWord<'_> {
    /// Does the operation; what an operation that fetches gives. `None`: the type has words of
    /// another size.
    #[inline]
    #[must_use]
    pub fn operate<T: AtomicType>(self, op: AtomicOp, operands: [T; 2]) -> Option<T> {
        match self {
            Self::Bits32(word) if T::DATA_TYPE.size() == 4 => Some(on_32(word, op, operands)),
            Self::Bits64(word) if T::DATA_TYPE.size() == 8 => Some(on_64(word, op, operands)),
            _ => None,
        }
    }

    /// As [`AtomicWord::operate`] for a type that is known at run time.
    #[must_use]
    pub fn perform(self, AtomicCall { data_type, op, operands }: AtomicCall) -> Option<u64> {
        match data_type {
            DataType::I32 => self.typed::<i32>(op, operands),
            DataType::U32 => self.typed::<u32>(op, operands),
            DataType::I64 => self.typed::<i64>(op, operands),
            DataType::U64 => self.typed::<u64>(op, operands),
            DataType::F32 => self.typed::<f32>(op, operands),
            DataType::F64 => self.typed::<f64>(op, operands),
        }
    }

    fn typed<T: AtomicType>(self, op: AtomicOp, operands: [u64; 2]) -> Option<u64> {
        self.operate::<T>(op, operands.map(T::from_word)).map(T::into_word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::semantics::update_word;
    use super::*;

    /// Memory after an operation, and what it gave.
    fn operated(call: AtomicCall, before: u64) -> (u64, u64) {
        if call.data_type.size() == 4 {
            #[expect(clippy::cast_possible_truncation, reason = "the low half")]
            let word = AtomicU32::new(before as u32);
            let gave = AtomicWord::Bits32(&word).perform(call).expect("a word of 32 bits");
            (u64::from(word.into_inner()), gave)
        } else {
            let word = AtomicU64::new(before);
            let gave = AtomicWord::Bits64(&word).perform(call).expect("a word of 64 bits");
            (word.into_inner(), gave)
        }
    }

    proptest! {
        #[test]
        fn memory_changes_as_the_pure_functions_say(
            before: u64,
            operands: [u64; 2],
            again: bool,
            data_type in proptest::sample::select(&DataType::ALL[..]),
            op in proptest::sample::select(&AtomicOp::ALL[..]),
        ) {
            prop_assume!(data_type.operations().contains(op.set()));
            let narrow = if data_type.size() == 4 { 0xffff_ffff } else { u64::MAX };
            // Else nothing would be exchanged.
            let operands = if again { [before, operands[1]] } else { operands };
            let call = AtomicCall { data_type, op, operands };
            let (after, gave) = operated(call, before);
            let expected = update_word(data_type, op.update(), before, operands);
            let expected = expected.unwrap_or(before & narrow);
            // The bits of a NaN that was computed are the processor's choice.
            let is_nan = |word: u64| match data_type {
                DataType::F32 => f32::from_word(word).is_nan(),
                DataType::F64 => f64::from_word(word).is_nan(),
                _ => false,
            };
            prop_assert!(after == expected || is_nan(after) && is_nan(expected));
            prop_assert!(!op.fetches() || gave == before & narrow);
        }
    }

    #[test]
    fn words_of_another_size_are_refused() {
        let (narrow, wide) = (AtomicU32::new(1), AtomicU64::new(1));
        assert_eq!(AtomicWord::Bits32(&narrow).operate(AtomicOp::Inc, [0_u64; 2]), None);
        assert_eq!(AtomicWord::Bits64(&wide).operate(AtomicOp::Inc, [0_f32; 2]), None);
        assert_eq!((narrow.into_inner(), wide.into_inner()), (1, 1));
    }

    /// Each thread does its operations; all of them took effect.
    #[test]
    fn nothing_is_lost_under_contention() {
        let (wide, narrow, product) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU64::new(1));
        let turns = 2000;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..turns {
                        let _ = AtomicWord::Bits64(&wide).operate(AtomicOp::Add, [0.5_f64, 0.0]);
                        let _ = AtomicWord::Bits32(&narrow).operate(AtomicOp::Inc, [0_i32; 2]);
                        let _ = AtomicWord::Bits64(&product).operate(AtomicOp::FMult, [3_u64, 0]);
                    }
                });
            }
        });
        assert_eq!(f64::from_word(wide.into_inner()), f64::from(turns) * 2.0);
        assert_eq!(narrow.into_inner().cast_signed(), turns * 4);
        assert_eq!(product.into_inner(), 3_u64.wrapping_pow(4 * turns.unsigned_abs()));
    }
}
