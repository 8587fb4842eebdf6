//! How elements are combined: the types and operations that every program has, and functions of
//! programs. Pure; elements are bytes at any address.

pub use crate::data_type::DataType;

/// How two elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceOp {
    /// Sum; of integers it wraps.
    Add,
    /// Product; of integers it wraps.
    Mult,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// Bits of both; integers only.
    And,
    /// Bits of either; integers only.
    Or,
    /// Bits of one of the two; integers only.
    Xor,
}

/// Combines one for one what is here with what came; the flag says that what came is on the left.
type Builtin = fn(&mut [u8], &[u8], bool);

/// Combines elements of the left operand with those of the right one, which become the result.
#[allow(unreachable_pub, reason = "part of `Combine`")]
pub type Function = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

/// How a reduction combines.
pub enum Combine {
    /// An operation of the library.
    Builtin(Builtin),
    /// A function of the program.
    Function(Box<Function>),
}

impl std::fmt::Debug for Combine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Builtin(_) => "Builtin",
            Self::Function(_) => "Function",
        })
    }
}

impl Combine {
    /// The operation for a type; `None` when the type does not have it.
    #[must_use]
    pub fn builtin(data: DataType, op: ReduceOp) -> Option<Self> {
        let builtin = match data {
            DataType::I32 => integers::i32(op),
            DataType::U32 => integers::u32(op),
            DataType::I64 => integers::i64(op),
            DataType::U64 => integers::u64(op),
            DataType::F32 => floats::f32(op)?,
            DataType::F64 => floats::f64(op)?,
        };
        Some(Self::Builtin(builtin))
    }

    /// Combines `mine` with `other`, which may be changed; `left`: `other` is the left operand.
    pub(super) fn apply(&self, mine: &mut [u8], other: &mut [u8], left: bool) {
        match self {
            Self::Builtin(builtin) => builtin(mine, other, left),
            Self::Function(function) if left => function(other, mine),
            Self::Function(function) => {
                function(mine, other);
                mine.copy_from_slice(other);
            }
        }
    }
}

/// Applies an operation to elements of `N` bytes.
#[inline(always)]
fn each<const N: usize>(
    mine: &mut [u8],
    other: &[u8],
    left: bool,
    op: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let pairs = mine.as_chunks_mut::<N>().0.iter_mut().zip(other.as_chunks::<N>().0);
    if left {
        pairs.for_each(|(mine, other)| *mine = op(*other, *mine));
    } else {
        pairs.for_each(|(mine, other)| *mine = op(*mine, *other));
    }
}

/// A function for each of some operations on a type.
macro_rules! operations {
    ($type:ty, $op:ident, { $($name:ident => |$a:ident, $b:ident| $result:expr;)* }, $other:expr) => {
        match $op {
            $(ReduceOp::$name => |mine, other, left| {
                each(mine, other, left, |a, b| {
                    let ($a, $b) = (<$type>::from_ne_bytes(a), <$type>::from_ne_bytes(b));
                    <$type>::to_ne_bytes($result)
                });
            },)*
            #[allow(unreachable_patterns, reason = "integers have them all")]
            _ => $other,
        }
    };
}

mod integers {
    use super::{Builtin, ReduceOp, each};

    macro_rules! integers {
        ($($type:ident)*) => {$(
            pub(super) fn $type(op: ReduceOp) -> Builtin {
                operations!($type, op, {
                    Add => |a, b| a.wrapping_add(b);
                    Mult => |a, b| a.wrapping_mul(b);
                    Min => |a, b| a.min(b);
                    Max => |a, b| a.max(b);
                    And => |a, b| a & b;
                    Or => |a, b| a | b;
                    Xor => |a, b| a ^ b;
                }, unreachable!())
            }
        )*};
    }

    integers!(i32 u32 i64 u64);
}

mod floats {
    use super::{Builtin, ReduceOp, each};

    macro_rules! floats {
        ($($type:ident)*) => {$(
            pub(super) fn $type(op: ReduceOp) -> Option<Builtin> {
                let builtin: Builtin = operations!($type, op, {
                    Add => |a, b| a + b;
                    Mult => |a, b| a * b;
                    Min => |a, b| if a < b { a } else { b };
                    Max => |a, b| if a > b { a } else { b };
                }, return None);
                Some(builtin)
            }
        )*};
    }

    floats!(f32 f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(data: DataType, op: ReduceOp, a: [u8; N], mut b: [u8; N]) -> [u8; N] {
        let combine = Combine::builtin(data, op).expect("an operation");
        let (mut right, mut left) = (a, b);
        combine.apply(&mut left, &mut a.clone(), true);
        combine.apply(&mut right, &mut b, false);
        assert_eq!(left, right);
        left
    }

    #[test]
    fn operations_do_what_they_say() {
        let i = |op, a: i32, b: i32| {
            i32::from_ne_bytes(of(DataType::I32, op, a.to_ne_bytes(), b.to_ne_bytes()))
        };
        assert_eq!(i(ReduceOp::Add, i32::MAX, 1), i32::MIN);
        assert_eq!(i(ReduceOp::Mult, 3, -5), -15);
        assert_eq!((i(ReduceOp::Min, -1, 1), i(ReduceOp::Max, -1, 1)), (-1, 1));
        assert_eq!(
            (i(ReduceOp::And, 6, 3), i(ReduceOp::Or, 6, 3), i(ReduceOp::Xor, 6, 3)),
            (2, 7, 5)
        );
        let u = |op, a: u64, b: u64| {
            u64::from_ne_bytes(of(DataType::U64, op, a.to_ne_bytes(), b.to_ne_bytes()))
        };
        assert_eq!((u(ReduceOp::Min, u64::MAX, 1), u(ReduceOp::Max, u64::MAX, 1)), (1, u64::MAX));
        assert_eq!(u(ReduceOp::Mult, 1 << 63, 3), 1 << 63);
        let f = |op, a: f32, b: f32| {
            f32::from_ne_bytes(of(DataType::F32, op, a.to_ne_bytes(), b.to_ne_bytes()))
        };
        assert_eq!((f(ReduceOp::Add, 1.5, 2.0), f(ReduceOp::Mult, 1.5, 2.0)), (3.5, 3.0));
        assert_eq!((f(ReduceOp::Min, -1.5, 2.0), f(ReduceOp::Max, -1.5, 2.0)), (-1.5, 2.0));
        for op in [ReduceOp::And, ReduceOp::Or, ReduceOp::Xor] {
            assert!(Combine::builtin(DataType::F64, op).is_none());
        }
    }

    #[test]
    fn functions_get_their_operands_in_order() {
        let minus = |left: &[u8], right: &mut [u8]| right[0] = left[0] - right[0];
        let combine = Combine::Function(Box::new(minus));
        let mut mine = [10];
        combine.apply(&mut mine, &mut [3], false);
        assert_eq!(mine, [7]);
        combine.apply(&mut mine, &mut [9], true);
        assert_eq!(mine, [2]);
    }
}
