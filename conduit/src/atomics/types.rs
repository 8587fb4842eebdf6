//! Types and operations: their names and numbers, and which operation exists for which type.

use std::fmt;

use bitflags::bitflags;

use crate::data_type::DataType;

impl DataType {
    /// Operations that exist for words of this type.
    #[must_use]
    pub const fn operations(self) -> AtomicOps {
        match self {
            Self::F32 | Self::F64 => AtomicOps::all().difference(AtomicOps::BITWISE),
            _ => AtomicOps::all(),
        }
    }
}

/// What an operation does to a word, whether it fetches or not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    And,
    Or,
    Xor,
    Add,
    Sub,
    Mult,
    Min,
    Max,
    Inc,
    Dec,
    Set,
    Cas,
    Get,
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $op:ident $name:ident $bit:literal: $update:ident $fetches:literal;)*) => {
        /// An operation on a word. `old` is the word before it, `a` and `b` are the operands.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum AtomicOp {
            $($(#[doc = $doc])* $op = $bit,)*
        }

        bitflags! {
            /// A set of operations.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub struct AtomicOps: u32 {
                $($(#[doc = $doc])* const $name = 1 << $bit;)*
            }
        }

        impl AtomicOp {
            /// Every operation.
            pub const ALL: [Self; [$($bit),*].len()] = [$(Self::$op),*];

            const fn row(self) -> (Update, bool, &'static str) {
                match self {
                    $(Self::$op => (Update::$update, $fetches, stringify!($name)),)*
                }
            }
        }
    };
}

operations! {
    /// `old & a`.
    And AND 0: And false;
    /// `old | a`.
    Or OR 1: Or false;
    /// `old ^ a`.
    Xor XOR 2: Xor false;
    /// `old + a`, wrapping.
    Add ADD 3: Add false;
    /// `old - a`, wrapping.
    Sub SUB 4: Sub false;
    /// `old * a`, wrapping.
    Mult MULT 5: Mult false;
    /// The smaller of `old` and `a`.
    Min MIN 6: Min false;
    /// The larger of `old` and `a`.
    Max MAX 7: Max false;
    /// `old + 1`, wrapping.
    Inc INC 8: Inc false;
    /// `old - 1`, wrapping.
    Dec DEC 9: Dec false;
    /// `a`.
    Set SET 10: Set false;
    /// `b` where `old` is `a`.
    Cas CAS 11: Cas false;
    /// [`AtomicOp::And`], gives `old`.
    FAnd FAND 15: And true;
    /// [`AtomicOp::Or`], gives `old`.
    FOr FOR 16: Or true;
    /// [`AtomicOp::Xor`], gives `old`.
    FXor FXOR 17: Xor true;
    /// [`AtomicOp::Add`], gives `old`.
    FAdd FADD 18: Add true;
    /// [`AtomicOp::Sub`], gives `old`.
    FSub FSUB 19: Sub true;
    /// [`AtomicOp::Mult`], gives `old`.
    FMult FMULT 20: Mult true;
    /// [`AtomicOp::Min`], gives `old`.
    FMin FMIN 21: Min true;
    /// [`AtomicOp::Max`], gives `old`.
    FMax FMAX 22: Max true;
    /// [`AtomicOp::Inc`], gives `old`.
    FInc FINC 23: Inc true;
    /// [`AtomicOp::Dec`], gives `old`.
    FDec FDEC 24: Dec true;
    /// [`AtomicOp::Set`], gives `old`.
    Swap SWAP 25: Set true;
    /// [`AtomicOp::Cas`], gives `old`.
    FCas FCAS 26: Cas true;
    /// Gives `old`, changes nothing.
    Get GET 27: Get true;
}

impl AtomicOps {
    /// Those of bits, which only integers have.
    pub const BITWISE: Self = Self::AND
        .union(Self::OR)
        .union(Self::XOR)
        .union(Self::FAND)
        .union(Self::FOR)
        .union(Self::FXOR);
}

impl AtomicOp {
    /// The operation of a bit number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u32 == number)
    }

    /// The operation that one bit stands for.
    #[must_use]
    pub fn from_bit(bit: u32) -> Option<Self> {
        if bit.is_power_of_two() { Self::from_number(bit.trailing_zeros()) } else { None }
    }

    /// The set with this operation alone.
    #[must_use]
    pub const fn set(self) -> AtomicOps {
        AtomicOps::from_bits_truncate(1 << self as u32)
    }

    /// Whether it gives the word's old value.
    #[must_use]
    pub const fn fetches(self) -> bool {
        self.row().1
    }

    /// How many operands it has.
    #[must_use]
    pub const fn operands(self) -> usize {
        match self.row().0 {
            Update::Inc | Update::Dec | Update::Get => 0,
            Update::Cas => 2,
            _ => 1,
        }
    }

    pub(crate) const fn update(self) -> Update {
        self.row().0
    }
}

impl fmt::Display for AtomicOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetching_operation_is_its_partner_15_bits_higher() {
        assert_eq!(AtomicOp::ALL.len(), 25);
        for op in AtomicOp::ALL {
            assert_eq!(AtomicOp::from_bit(op.set().bits()), Some(op));
            if !op.fetches() {
                let partner = AtomicOp::from_number(op as u32 + 15).expect("a fetching partner");
                assert!(partner.fetches(), "{op}");
                assert_eq!(partner.update(), op.update());
                assert_eq!(partner.operands(), op.operands());
            }
        }
        assert_eq!(AtomicOp::from_bit(0), None);
        assert_eq!(AtomicOp::from_bit(3), None);
        assert_eq!(AtomicOp::from_bit(1 << 12), None);
        assert_eq!(AtomicOp::from_bit(1 << 30), None);
        assert_eq!(AtomicOp::FCas.to_string(), "FCAS");
    }

    #[test]
    fn floating_point_has_all_but_the_bitwise() {
        for each in DataType::ALL {
            assert_eq!(DataType::from_bit(each.bit()), Some(each));
            let integer = !matches!(each, DataType::F32 | DataType::F64);
            assert_eq!(each.operations().contains(AtomicOps::FXOR), integer);
            assert_eq!(each.operations().bits().count_ones(), if integer { 25 } else { 19 });
        }
        assert_eq!(DataType::from_bit(1 << 6), None);
        assert_eq!(DataType::from_bit(3), None);
    }
}
