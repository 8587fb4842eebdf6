//! Types of words that the library computes with: those of atomics and of reductions.

use std::fmt;

/// Type of the words of an atomic domain, and of the elements of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataType {
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
    /// Binary floating point, 32 bits.
    F32,
    /// Binary floating point, 64 bits.
    F64,
}

impl DataType {
    /// Every type, at the place of its number.
    pub const ALL: [Self; 6] = [Self::I32, Self::U32, Self::I64, Self::U64, Self::F32, Self::F64];

    /// The type that one bit stands for (bit number as in [`DataType::ALL`]).
    #[must_use]
    pub fn from_bit(bit: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.bit() == bit)
    }

    /// The bit that stands for the type.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Bytes of a word.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::I32 => "I32",
            Self::U32 => "U32",
            Self::I64 => "I64",
            Self::U64 => "U64",
            Self::F32 => "FLT",
            Self::F64 => "DBL",
        })
    }
}
