//! What each operation makes of a word: pure functions over the types.

use std::fmt::Debug;

use super::types::Update;
use crate::data_type::DataType;

mod sealed {
    pub trait Sealed {}
}

/// A type of words that atomic domains can have: `i32`, `u32`, `i64`, `u64`, `f32`, `f64`.
pub trait AtomicType:
    sealed::Sealed + Copy + Debug + Default + PartialEq + Send + Sync + 'static
{
    /// Its number.
    const DATA_TYPE: DataType;

    /// The word's bits, the low ones.
    #[doc(hidden)]
    fn into_word(self) -> u64;

    /// A word of these bits; what stands above its size is dropped.
    #[doc(hidden)]
    fn from_word(word: u64) -> Self;

    /// What `update` makes of `old`; `None` when it leaves the word alone.
    #[doc(hidden)]
    fn update(update: Update, old: Self, operands: [Self; 2]) -> Option<Self>;
}

/// What all types have.
macro_rules! common {
    ($update:ident, $old:ident, $first:ident, $second:ident) => {
        match $update {
            // Written as the specification has them: floating point compares false with a NaN.
            Update::Min => Some(if $old < $first { $old } else { $first }),
            Update::Max => Some(if $old > $first { $old } else { $first }),
            Update::Set => Some($first),
            // By bits: so a value that was read can always be expected again.
            Update::Cas => ($old.into_word() == $first.into_word()).then_some($second),
            _ => None,
        }
    };
}

macro_rules! integers {
    ($($type:ident $number:ident $bits:ident;)*) => {$(
        impl sealed::Sealed for $type {}

        impl AtomicType for $type {
            const DATA_TYPE: DataType = DataType::$number;

            #[inline]
            #[allow(clippy::cast_sign_loss, reason = "the bits")]
            fn into_word(self) -> u64 {
                u64::from(self as $bits)
            }

            #[inline]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                reason = "the low bits"
            )]
            fn from_word(word: u64) -> Self {
                word as Self
            }

            #[inline]
            fn update(update: Update, old: Self, [first, second]: [Self; 2]) -> Option<Self> {
                match update {
                    Update::And => Some(old & first),
                    Update::Or => Some(old | first),
                    Update::Xor => Some(old ^ first),
                    Update::Add => Some(old.wrapping_add(first)),
                    Update::Sub => Some(old.wrapping_sub(first)),
                    Update::Mult => Some(old.wrapping_mul(first)),
                    Update::Inc => Some(old.wrapping_add(1)),
                    Update::Dec => Some(old.wrapping_sub(1)),
                    _ => common!(update, old, first, second),
                }
            }
        }
    )*};
}

integers! {
    i32 I32 u32;
    u32 U32 u32;
    i64 I64 u64;
    u64 U64 u64;
}

macro_rules! floats {
    ($($type:ident $number:ident $bits:ident;)*) => {$(
        impl sealed::Sealed for $type {}

        impl AtomicType for $type {
            const DATA_TYPE: DataType = DataType::$number;

            #[inline]
            fn into_word(self) -> u64 {
                u64::from(self.to_bits())
            }

            #[inline]
            #[allow(clippy::cast_possible_truncation, reason = "the low bits")]
            fn from_word(word: u64) -> Self {
                Self::from_bits(word as $bits)
            }

            #[inline]
            fn update(update: Update, old: Self, [first, second]: [Self; 2]) -> Option<Self> {
                match update {
                    Update::Add => Some(old + first),
                    Update::Sub => Some(old - first),
                    Update::Mult => Some(old * first),
                    Update::Inc => Some(old + 1.0),
                    Update::Dec => Some(old - 1.0),
                    _ => common!(update, old, first, second),
                }
            }
        }
    )*};
}

floats! {
    f32 F32 u32;
    f64 F64 u64;
}

/// As [`AtomicType::update`] for words of a type that is known at run time.
#[cfg(test)]
pub(crate) fn update_word(
    data_type: DataType,
    update: Update,
    old: u64,
    operands: [u64; 2],
) -> Option<u64> {
    fn typed<T: AtomicType>(update: Update, old: u64, operands: [u64; 2]) -> Option<u64> {
        T::update(update, T::from_word(old), operands.map(T::from_word)).map(T::into_word)
    }
    match data_type {
        DataType::I32 => typed::<i32>(update, old, operands),
        DataType::U32 => typed::<u32>(update, old, operands),
        DataType::I64 => typed::<i64>(update, old, operands),
        DataType::U64 => typed::<u64>(update, old, operands),
        DataType::F32 => typed::<f32>(update, old, operands),
        DataType::F64 => typed::<f64>(update, old, operands),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_wrap() {
        assert_eq!(i32::update(Update::Add, i32::MAX, [1, 0]), Some(i32::MIN));
        assert_eq!(i32::update(Update::Dec, i32::MIN, [0, 0]), Some(i32::MAX));
        assert_eq!(u32::update(Update::Sub, 0, [1, 0]), Some(u32::MAX));
        assert_eq!(u64::update(Update::Inc, u64::MAX, [7, 0]), Some(0));
        assert_eq!(u64::update(Update::Mult, 1 << 63, [3, 0]), Some(1 << 63));
        assert_eq!(i64::update(Update::Mult, i64::MIN, [-1, 0]), Some(i64::MIN));
    }

    #[test]
    fn signed_and_unsigned_order_differ() {
        assert_eq!(i32::update(Update::Min, -1, [1, 0]), Some(-1));
        assert_eq!(u32::update(Update::Min, u32::MAX, [1, 0]), Some(1));
        assert_eq!(i64::update(Update::Max, -1, [1, 0]), Some(1));
        assert_eq!(u64::update(Update::Max, u64::MAX, [1, 0]), Some(u64::MAX));
    }

    #[test]
    fn floating_point_follows_the_formula() {
        assert_eq!(f64::update(Update::Inc, 0.5, [0.0; 2]), Some(1.5));
        assert_eq!(f32::update(Update::Min, 2.0, [f32::NAN, 0.0]).map(f32::is_nan), Some(true));
        assert_eq!(f32::update(Update::Max, f32::NAN, [2.0, 0.0]), Some(2.0));
        // A NaN that was read is found again; zeros of different signs differ.
        assert_eq!(f64::update(Update::Cas, f64::NAN, [f64::NAN, 1.0]), Some(1.0));
        assert_eq!(f64::update(Update::Cas, 0.0, [-0.0, 1.0]), None);
        assert_eq!(f64::update(Update::Xor, 0.0, [1.0, 1.0]), None);
    }

    proptest! {
        #[test]
        fn words_are_those_of_the_types(word: u64, first: u64, second: u64) {
            prop_assert_eq!(i32::from_word(word).into_word(), word & 0xffff_ffff);
            prop_assert_eq!(u32::from_word(word).into_word(), word & 0xffff_ffff);
            prop_assert_eq!(i64::from_word(word).into_word(), word);
            prop_assert_eq!(f64::from_word(word).into_word(), word);
            for data_type in DataType::ALL {
                let narrow = if data_type.size() == 4 { 0xffff_ffff } else { u64::MAX };
                let set = update_word(data_type, Update::Set, word, [first, second]);
                prop_assert_eq!(set, Some(first & narrow));
                let same = update_word(data_type, Update::Cas, word, [word, second]);
                prop_assert_eq!(same, Some(second & narrow));
                prop_assert_eq!(update_word(data_type, Update::Get, word, [first, second]), None);
            }
            let sum = update_word(DataType::I32, Update::Add, word, [first, 0]);
            prop_assert_eq!(sum, update_word(DataType::U32, Update::Add, word, [first, 0]));
        }
    }
}
