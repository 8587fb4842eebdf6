//! Messages between ranks: categories, limits, and the header that travels in a queue slot.

/// Most arguments of a message.
pub const MAX_ARGS: usize = 16;
/// Bytes of the largest buffer for a Medium with its header.
const BUFFER: usize = 65_536;
/// Most payload bytes of a Long.
pub(crate) const MAX_LONG: usize = 0x7fff_ffff;

/// Payload that every Medium may carry, whatever its arguments: the least of all maxima.
pub const LUB_MEDIUM: usize = max_medium(MAX_ARGS);
/// Payload that every Long may carry.
pub const LUB_LONG: usize = MAX_LONG;

const fn round_up_8(n: usize) -> usize {
    n.next_multiple_of(8)
}

/// Most payload bytes of a Medium with `nargs` arguments.
pub(crate) const fn max_medium(nargs: usize) -> usize {
    BUFFER - round_up_8(4 + 4 * (1 + nargs))
}

/// Most bytes of a library buffer prepared for a Long with `nargs` arguments.
pub(crate) const fn max_long_alloc(nargs: usize) -> usize {
    BUFFER - round_up_8(12 + 4 * (1 + nargs))
}

/// As [`max_medium`] for a count that comes from the client: 0 when no message carries that many.
pub(crate) const fn medium_limit(nargs: usize) -> usize {
    if nargs > MAX_ARGS { 0 } else { max_medium(nargs) }
}

/// As [`max_long_alloc`] for a count that comes from the client.
pub(crate) const fn long_alloc_limit(nargs: usize) -> usize {
    if nargs > MAX_ARGS { 0 } else { max_long_alloc(nargs) }
}

/// Options of communication calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Do not wait and do not poll: when something is missing that would have to be waited for, the call does nothing
    /// and says so ([`Outcome::NotSent`]).
    pub const IMMEDIATE: Self = Self(1);
    /// For limit queries: the largest legal `least` of a Prepare with the client's buffer.
    pub const LEAST_CLIENT: Self = Self(2);
    /// For limit queries: the largest legal `least` of a Prepare with a buffer of the library.
    pub const LEAST_ALLOC: Self = Self(4);

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What became of a call that may decline with [`Flags::IMMEDIATE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "with Flags::IMMEDIATE a message may not have been sent"]
pub enum Outcome {
    /// Injected; it will be delivered exactly once.
    Sent,
    /// Nothing happened; only with [`Flags::IMMEDIATE`].
    NotSent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_original() {
        assert_eq!(max_medium(0), 65_528);
        assert_eq!(LUB_MEDIUM, 65_464);
        assert_eq!(max_long_alloc(16), 65_456);
        assert_eq!(LUB_LONG, 0x7fff_ffff);
        assert!((1..=MAX_ARGS).all(|n| max_medium(n) <= max_medium(n - 1)));
        assert_eq!(medium_limit(MAX_ARGS + 1), 0);
    }
}
