//! Limits of active messages: arguments and payload.

use crate::segment_mode::SegmentMode;

/// Most arguments of a message.
pub const MAX_ARGS: usize = 16;
/// Bytes of the largest buffer for a Medium with its header, which the build may lower
/// (`scripts/install --max-medium`).
pub(crate) const BUFFER: usize = match option_env!("GASNET_IBV_MAX_MEDIUM") {
    Some(text) => number(text),
    None => MOST_BUFFER,
};
/// Blocks of payload in shared memory are not larger.
const MOST_BUFFER: usize = 65_536;
const _: () = assert!(
    BUFFER.is_power_of_two() && BUFFER >= 1024 && BUFFER <= MOST_BUFFER,
    "GASNET_IBV_MAX_MEDIUM is no power of two from 1024 to 65536"
);

/// A decimal number; 0 for what is none.
const fn number(text: &str) -> usize {
    match usize::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// Most payload bytes of a Long.
pub const MAX_LONG: usize = 0x7fff_ffff;

/// Bytes before the payload of a Long in a message of the library: handler, number of arguments and
/// whether a payload follows; destination; bytes; arguments.
pub(crate) const CARRIED_HEAD: usize = 24 + 4 * MAX_ARGS;

/// Payload that such a message carries, whatever its arguments.
pub const MAX_CARRIED: usize = max_medium(0) - CARRIED_HEAD;

/// Most payload bytes of a Long reply: a handler cannot wait for a put that goes ahead.
pub(crate) const fn max_reply_long(mode: SegmentMode) -> usize {
    if mode.is_fast() { MAX_LONG } else { MAX_CARRIED }
}

/// Payload that every Medium may carry, whatever its arguments: the least of all maxima.
pub const LUB_MEDIUM: usize = max_medium(MAX_ARGS);
/// Payload that every Long may carry.
pub const LUB_LONG: usize = MAX_LONG;

/// Most payload bytes of a Medium with `nargs` arguments.
#[must_use]
pub const fn max_medium(nargs: usize) -> usize {
    BUFFER - (4 + 4 * (1 + nargs)).next_multiple_of(8)
}

/// Most bytes of a library buffer prepared for a Long with `nargs` arguments.
#[must_use]
pub const fn max_long_alloc(nargs: usize) -> usize {
    BUFFER - (12 + 4 * (1 + nargs)).next_multiple_of(8)
}

/// As [`max_medium`] for a count that comes from the client: 0 when no message carries that many.
pub(crate) const fn medium_limit(nargs: usize) -> usize {
    if nargs > MAX_ARGS { 0 } else { max_medium(nargs) }
}

/// As [`max_long_alloc`] for a count that comes from the client.
pub(crate) const fn long_alloc_limit(nargs: usize) -> usize {
    if nargs > MAX_ARGS { 0 } else { max_long_alloc(nargs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_original() {
        if BUFFER < MOST_BUFFER {
            assert_eq!(max_medium(0), BUFFER - 8);
            return;
        }
        assert_eq!(max_medium(0), 65_528);
        assert_eq!(LUB_MEDIUM, 65_464);
        assert_eq!(max_long_alloc(16), 65_456);
        assert_eq!(LUB_LONG, 0x7fff_ffff);
        assert!((1..=MAX_ARGS).all(|n| max_medium(n) <= max_medium(n - 1)));
        assert_eq!(medium_limit(MAX_ARGS + 1), 0);
    }
}
