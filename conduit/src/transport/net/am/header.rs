//! Layout of a message on the wire.
//!
//! 32 bits travel beside each message as immediate data: handler (bits 0-7), category (8-9), number
//! of arguments (10-14), reply flag (15), the source's rank modulo 65536 (16-31). The number 17 of arguments announces
//! a hidden word before the arguments: what the message carries of flow control (bits 0-15,
//! [`Carried`]) and the true number of arguments plus one (from bit 16). Numbers from 18 on are so many
//! arguments and 18: what is carried is 1 in bits 8-15, as with every answer to a request in a ring,
//! and there is no word for it. Before the payload stand
//!
//! | category | words | padded to |
//! |---|---|---|
//! | Short | \[hidden] arguments, or one word of 0 | - |
//! | Medium | length, \[hidden] arguments | 8 bytes |
//! | Long | offset in the target's segment (two words), length, \[hidden] arguments | 8 bytes |
//!
//! Bit 31 of a Long's length says that the payload follows. All words are in the byte order of the
//! machine: the ranks of a job run the same build. Nothing that is read here is trusted: lengths
//! must match to the byte.

use crate::transport::limits::MAX_ARGS;
use crate::transport::net::credits::Carried;

/// Bytes of a receive buffer: the largest message.
pub(crate) use crate::transport::limits::BUFFER;
/// The same in the width that devices count in.
#[expect(clippy::cast_possible_truncation, reason = "64 KiB")]
pub(crate) const BUFFER_LEN: u32 = BUFFER as u32;
/// Bytes of a send buffer: the largest message, and room for the longest header before a payload
/// whose place was chosen before its arguments were known.
pub(crate) const SEND_BUFFER: usize = BUFFER + PAYLOAD_AT;
/// Where such a payload begins.
pub(crate) const PAYLOAD_AT: usize = PREFIX + MAX_HEADER;
/// Bytes before the header of a request that is written into a ring (`flow/volume.rs`): its
/// immediate data as that of another message, and its number. In send buffers there is room for it
/// before every header.
pub(crate) const PREFIX: usize = 8;
/// As [`SOURCES`], of requests that are written into a ring.
pub(crate) const RING_SOURCES: u32 = if SOURCES < 1 << 12 { SOURCES } else { 1 << 12 };
/// Bytes of the longest header: a Long with the hidden word and all arguments.
pub(crate) const MAX_HEADER: usize = round_up_8(12 + 4 * (1 + MAX_ARGS));
/// Ranks that the immediate data tells apart: it has the source's number modulo this one. Which of
/// those that it may be is told by the queue pair (`receive.rs`). Few in unit tests, so that each of
/// them finds ranks which the number alone does not tell apart.
pub(crate) const SOURCES: u32 = if cfg!(test) { 2 } else { 1 << 16 };
/// Handler numbers below this one are the library's own.
pub(crate) const FIRST_CLIENT_HANDLER: u8 = 64;
/// Handler of the message that only returns credits.
pub(crate) const ACK: u8 = 0;

const HIDDEN: u32 = 17;
/// What is carried without a hidden word, and what is added to the number of arguments then.
const ONE: Carried = Carried(1 << 8);
const WITH_ONE: u32 = HIDDEN + 1;
/// Most arguments beside it.
const MOST_WITH_ONE: u32 = 31 - WITH_ONE;
const PACKED: u32 = 1 << 31;
const _: () = assert!(MAX_ARGS < HIDDEN as usize);

const fn round_up_8(n: usize) -> usize {
    n.next_multiple_of(8)
}

/// The category of a message with what its header says about the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Short,
    Medium {
        len: u32,
    },
    Long {
        dest: u64,
        len: u32,
        /// The payload follows the header; otherwise it was written before.
        packed: bool,
    },
}

impl Shape {
    const fn category(self) -> u32 {
        match self {
            Self::Short => 0,
            Self::Medium { .. } => 1,
            Self::Long { .. } => 2,
        }
    }

    /// Bytes before the (hidden word and the) arguments.
    const fn fixed(self) -> usize {
        match self {
            Self::Short => 0,
            Self::Medium { .. } => 4,
            Self::Long { .. } => 12,
        }
    }

    /// Payload bytes in the message itself.
    pub(crate) const fn carried(self) -> usize {
        match self {
            Self::Medium { len } | Self::Long { len, packed: true, .. } => len as usize,
            Self::Short | Self::Long { .. } => 0,
        }
    }
}

/// All of a message but its arguments and payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) source: u16,
    pub(crate) handler: u8,
    pub(crate) reply: bool,
    /// Returned credits beyond the one of a reply, and credits that move.
    pub(crate) carried: Carried,
    pub(crate) shape: Shape,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    bytes: [u8; MAX_HEADER],
    len: usize,
    pub(crate) imm: u32,
}

impl Encoded {
    pub(crate) const EMPTY: Self = Self { bytes: [0; MAX_HEADER], len: 0, imm: 0 };

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Bytes of the header of a message.
pub(crate) const fn header_len(shape: Shape, nargs: usize, hidden: bool) -> usize {
    let words = shape.fixed() + 4 * (nargs + hidden as usize);
    match shape {
        Shape::Short if words == 0 => 4,
        Shape::Short => words,
        _ => round_up_8(words),
    }
}

#[cfg(test)]
pub(crate) fn encode(head: &Head, args: &[i32]) -> Encoded {
    let mut encoded = Encoded::EMPTY;
    encode_into(&mut encoded, head, args);
    encoded
}

/// Writes a header into an empty place. `args` beyond the sixteenth are not sent.
#[expect(clippy::cast_possible_truncation, reason = "at most 16 arguments")]
#[inline(always)]
pub(crate) fn encode_into(encoded: &mut Encoded, head: &Head, args: &[i32]) {
    let args = &args[..args.len().min(MAX_ARGS)];
    let bytes = &mut encoded.bytes;
    match head.shape {
        Shape::Short => {}
        Shape::Medium { len } => bytes[..4].copy_from_slice(&len.to_ne_bytes()),
        Shape::Long { dest, len, packed } => {
            let len = len | if packed { PACKED } else { 0 };
            bytes[..8].copy_from_slice(&dest.to_ne_bytes());
            bytes[8..12].copy_from_slice(&len.to_ne_bytes());
        }
    }
    let mut at = head.shape.fixed();
    let count = args.len() as u32;
    let (mut hidden, mut announced) = (false, count);
    if head.carried.0 != 0 {
        if head.carried == ONE && count <= MOST_WITH_ONE {
            announced = WITH_ONE + count;
        } else {
            (hidden, announced) = (true, HIDDEN);
            let word = u32::from(head.carried.0) | (count + 1) << 16;
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
            at += 4;
        }
    }
    for arg in args {
        bytes[at..at + 4].copy_from_slice(&arg.to_ne_bytes());
        at += 4;
    }
    encoded.len = header_len(head.shape, args.len(), hidden);
    encoded.imm = u32::from(head.handler)
        | head.shape.category() << 8
        | announced << 10
        | u32::from(head.reply) << 15
        | u32::from(head.source) << 16;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoded {
    pub(crate) head: Head,
    args: [i32; MAX_ARGS],
    nargs: usize,
    /// Where the payload begins in the message; it is `head.shape.carried()` bytes and ends the
    /// message.
    pub(crate) payload: usize,
}

impl Decoded {
    pub(crate) fn args(&self) -> &[i32] {
        &self.args[..self.nargs]
    }
}

/// What a peer may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("category 3 does not exist")]
    Category,
    #[error("{count} arguments, at most {MAX_ARGS} are possible")]
    Arguments { count: u32 },
    #[error("{seen} bytes, the header says {expected}")]
    Length { seen: usize, expected: u64 },
}

/// What a message says of its source: its rank modulo [`SOURCES`]. Read before anything else of it.
pub(crate) const fn source_of(imm: u32) -> u16 {
    (imm >> 16) as u16
}

#[expect(clippy::cast_possible_truncation, reason = "the lowest byte")]
pub(crate) const fn handler_of(imm: u32) -> u8 {
    imm as u8
}

/// Immediate data of a request that is written into a ring: handler (bits 0-7), first unit of its
/// place (8-19), the source's rank modulo 4096 (20-31). `imm`: that of another message.
pub(crate) const fn ring_imm(imm: u32, start: u32) -> u32 {
    imm & 0xff | (start & 0xfff) << 8 | (imm >> 16 & 0xfff) << 20
}

/// First unit of the place of a request in a ring.
pub(crate) const fn ring_start(imm: u32) -> u32 {
    imm >> 8 & 0xfff
}

/// As [`source_of`], modulo [`RING_SOURCES`].
pub(crate) const fn ring_source(imm: u32) -> u32 {
    imm >> 20
}

/// What stands before the header of a request in a ring.
pub(crate) fn prefix(imm: u32, number: u32) -> [u8; PREFIX] {
    let mut bytes = [0; PREFIX];
    bytes[..4].copy_from_slice(&imm.to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

/// What [`prefix`] wrote, and the message behind it.
pub(crate) fn split_prefix(bytes: &[u8]) -> Option<(u32, u32, &[u8])> {
    let (imm, rest) = bytes.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    Some((u32::from_ne_bytes(*imm), u32::from_ne_bytes(*number), rest))
}

/// Arguments of a Short that carries nothing else, by the immediate data and length of its message;
/// `None` for any other message.
#[inline(always)]
pub(crate) const fn plain_short(imm: u32, len: u32) -> Option<usize> {
    // The category, which is 0, and the number of arguments.
    let count = (imm >> 8 & 0x7f) / 4;
    let short = imm >> 8 & 3 == 0 && count as usize <= MAX_ARGS;
    let words = if count == 0 { 1 } else { count };
    if short && len == 4 * words { Some(count as usize) } else { None }
}

/// Immediate data of such a message, of at most 16 arguments.
#[expect(clippy::cast_possible_truncation, reason = "at most 16 arguments")]
#[inline(always)]
pub(crate) const fn plain_imm(source: u16, handler: u8, reply: bool, nargs: usize) -> u32 {
    handler as u32 | (nargs as u32) << 10 | (reply as u32) << 15 | (source as u32) << 16
}

/// Writes the arguments of such a message; its bytes.
#[inline(always)]
pub(crate) fn write_args<'b>(room: &'b mut [u8; 4 * MAX_ARGS], args: &[i32]) -> &'b [u8] {
    for (word, arg) in room.as_chunks_mut().0.iter_mut().zip(args) {
        *word = arg.to_ne_bytes();
    }
    &room[..4 * args.len().clamp(1, MAX_ARGS)]
}

/// Reads the arguments of such a message.
#[inline]
pub(crate) fn read_args(bytes: &[u8], args: &mut [i32]) {
    for (arg, word) in args.iter_mut().zip(bytes.as_chunks().0) {
        *arg = i32::from_ne_bytes(*word);
    }
}

pub(crate) const fn is_reply(imm: u32) -> bool {
    imm >> 15 & 1 == 1
}

fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

/// Reads a message of exactly `bytes`.
#[inline(always)]
pub(crate) fn decode(imm: u32, bytes: &[u8]) -> Result<Decoded, Wrong> {
    let short = |expected: usize| Wrong::Length { seen: bytes.len(), expected: expected as u64 };
    let number = |at: usize| word(bytes, at).map(u32::from_ne_bytes).ok_or(short(at + 4));
    let shape = match imm >> 8 & 3 {
        0 => Shape::Short,
        1 => Shape::Medium { len: number(0)? },
        2 => {
            let dest = bytes.first_chunk::<8>().map(|bytes| u64::from_ne_bytes(*bytes));
            let (dest, len) = (dest.ok_or(short(12))?, number(8)?);
            Shape::Long { dest, len: len & !PACKED, packed: len & PACKED != 0 }
        }
        _ => return Err(Wrong::Category),
    };
    let mut at = shape.fixed();
    let mut count = imm >> 10 & 31;
    let mut carried = Carried(0);
    let mut hidden = false;
    if count > HIDDEN {
        (carried, count) = (ONE, count - WITH_ONE);
    } else if count == HIDDEN {
        let word = number(at)?;
        hidden = true;
        carried = Carried((word & 0xffff) as u16);
        count = (word >> 16).wrapping_sub(1);
        at += 4;
    }
    let nargs = count as usize;
    if nargs > MAX_ARGS {
        return Err(Wrong::Arguments { count });
    }
    let payload = header_len(shape, nargs, hidden);
    let expected = payload as u64 + shape.carried() as u64;
    if expected != bytes.len() as u64 {
        return Err(Wrong::Length { seen: bytes.len(), expected });
    }
    let mut args = [0; MAX_ARGS];
    for arg in &mut args[..nargs] {
        *arg = i32::from_ne_bytes(word(bytes, at).unwrap_or_default());
        at += 4;
    }
    let head = Head {
        source: source_of(imm),
        handler: handler_of(imm),
        reply: is_reply(imm),
        carried,
        shape,
    };
    Ok(Decoded { head, args, nargs, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::limits::{max_long_alloc, max_medium};
    use proptest::prelude::*;

    fn shapes() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::Short),
            (0u32..2000).prop_map(|len| Shape::Medium { len }),
            (any::<u64>(), 0u32..2000, any::<bool>()).prop_map(|(dest, len, packed)| Shape::Long {
                dest,
                len,
                packed
            }),
        ]
    }

    fn message(head: &Head, args: &[i32]) -> (u32, Vec<u8>) {
        let encoded = encode(head, args);
        let mut bytes = encoded.bytes().to_vec();
        bytes.extend((0..head.shape.carried()).map(|at| at.to_le_bytes()[0]));
        (encoded.imm, bytes)
    }

    #[test]
    fn the_largest_messages_fill_a_buffer() {
        for nargs in 0..=MAX_ARGS {
            let medium = Shape::Medium { len: 0 };
            assert_eq!(header_len(medium, nargs, true) + max_medium(nargs), BUFFER);
            let long = Shape::Long { dest: 0, len: 0, packed: true };
            assert_eq!(header_len(long, nargs, true) + max_long_alloc(nargs), BUFFER);
        }
        assert_eq!(header_len(Shape::Short, 0, false), 4);
        assert_eq!(MAX_HEADER, 80);
    }

    /// An answer to a request in a ring is no longer than one that carries nothing.
    #[test]
    fn one_place_needs_no_word() {
        for nargs in 0..=MAX_ARGS {
            let args = vec![7; nargs];
            let head = |carried| Head {
                source: 1,
                handler: 200,
                reply: true,
                carried,
                shape: Shape::Short,
            };
            let [none, one] = [Carried(0), ONE].map(|carried| encode(&head(carried), &args));
            let more = if nargs <= 13 { 0 } else { 4 };
            assert_eq!(one.bytes().len(), none.bytes().len() + more);
            let decoded = decode(one.imm, one.bytes()).unwrap();
            assert_eq!((decoded.head.carried, decoded.args()), (ONE, &args[..]));
        }
        assert_eq!(ONE, Carried::with_places(0, 1));
    }

    proptest! {
        #[test]
        fn a_plain_short_is_read_alike(imm: u32, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let plain = plain_short(imm, u32::try_from(bytes.len()).unwrap());
            let decoded = decode(imm, &bytes).ok();
            let is_plain = |it: &Decoded| it.head.shape == Shape::Short && it.head.carried.0 == 0;
            let decoded = decoded.filter(is_plain);
            prop_assert_eq!(plain, decoded.as_ref().map(|it| it.args().len()));
            let mut args = vec![0; plain.unwrap_or(0)];
            read_args(&bytes, &mut args);
            prop_assert_eq!(&args[..], decoded.as_ref().map_or(&[][..], Decoded::args));
        }

        #[test]
        fn plain_shorts_of_all_lengths(handler: u8, reply: bool, args in proptest::collection::vec(any::<i32>(), 0..=MAX_ARGS)) {
            let head = Head { source: 3, handler, reply, carried: Carried(0), shape: Shape::Short };
            let (imm, bytes) = message(&head, &args);
            let plain = plain_short(imm, u32::try_from(bytes.len()).unwrap());
            prop_assert_eq!(plain, Some(args.len()));
            prop_assert_eq!(plain_imm(3, handler, reply, args.len()), imm);
            let mut room = [0; 4 * MAX_ARGS];
            prop_assert_eq!(write_args(&mut room, &args), &bytes[..]);
        }
    }

    #[test]
    fn an_ack_is_one_word() {
        let head =
            Head { source: 7, handler: ACK, reply: true, carried: Carried(3), shape: Shape::Short };
        let encoded = encode(&head, &[]);
        assert_eq!(encoded.bytes().len(), 4);
        let decoded = decode(encoded.imm, encoded.bytes()).unwrap();
        assert_eq!((decoded.head, decoded.args()), (head, &[][..]));
    }

    proptest! {
        #[test]
        fn what_a_ring_adds_is_read(imm: u32, number: u32, start in 0u32..1 << 12, rest: [u8; 5]) {
            let ring = ring_imm(imm, start);
            prop_assert_eq!((handler_of(ring), ring_start(ring)), (handler_of(imm), start));
            prop_assert_eq!(ring_source(ring), u32::from(source_of(imm)) % (1 << 12));
            let bytes = [&prefix(imm, number)[..], &rest].concat();
            prop_assert_eq!(split_prefix(&bytes), Some((imm, number, &rest[..])));
            prop_assert_eq!(split_prefix(&bytes[..7]), None);
        }

        #[test]
        fn what_is_written_is_read(
            source: u16, handler: u8, reply: bool,
            carried in prop_oneof![any::<u16>(), Just(ONE.0)], shape in shapes(),
            args in proptest::collection::vec(any::<i32>(), 0..=MAX_ARGS),
        ) {
            let head = Head { source, handler, reply, carried: Carried(carried), shape };
            let (imm, bytes) = message(&head, &args);
            let decoded = decode(imm, &bytes).unwrap();
            prop_assert_eq!(decoded.head, head);
            prop_assert_eq!(decoded.args(), &args[..]);
            prop_assert_eq!(bytes.len() - decoded.payload, shape.carried());
            if shape != Shape::Short {
                prop_assert!(decoded.payload.is_multiple_of(8));
            }
        }

        #[test]
        fn a_wrong_length_is_seen(
            handler: u8, carried: u16, shape in shapes(), cut in 1usize..100, longer: bool,
            args in proptest::collection::vec(any::<i32>(), 0..=MAX_ARGS),
        ) {
            let head = Head { source: 1, handler, reply: false, carried: Carried(carried), shape };
            let (imm, mut bytes) = message(&head, &args);
            let len = if longer { bytes.len() + cut } else { bytes.len().saturating_sub(cut) };
            bytes.resize(len, 0);
            prop_assert!(decode(imm, &bytes).is_err());
        }

        #[test]
        fn garbage_is_refused_or_stays_inside(
            imm: u32, bytes in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            if let Ok(decoded) = decode(imm, &bytes) {
                prop_assert_eq!(decoded.payload + decoded.head.shape.carried(), bytes.len());
                prop_assert!(decoded.args().len() <= MAX_ARGS);
            }
        }
    }
}
