//! Packets of the handshake, as datagrams carry them.
//!
//! Immediate data: bits 0-3 kind, bit 4 "original", bits 16-31 the sender's rank (low half).
//! Payload, little endian: magic `GC` (2 bytes), version, count of numbers, job tag (4), sender
//! (4), receiver (4), then `count` queue pair numbers of 4 bytes. A datagram can come from anybody
//! and from an earlier job at the same address, so nothing in it is believed: what does not fit
//! this job, this rank and the sender's queue pair count exactly is counted and dropped.

/// Rails or queue pairs that one packet can name. (XRC names three for each.)
pub(crate) const MAX_NUMBERS: usize = 48;

/// Bytes before the numbers.
const HEADER: usize = 16;

/// Longest payload. Below the smallest MTU.
pub(crate) const MAX_PAYLOAD: usize = HEADER + 4 * MAX_NUMBERS;

const MAGIC: [u8; 2] = *b"GC";
const VERSION: u8 = 1;
const ORIGINAL: u32 = 1 << 4;

/// The numbers of a rank's queue pairs towards one peer: one for each rail, in the order of the
/// rails. (What they are beyond that is the business of whoever makes the queue pairs.)
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers {
    len: u8,
    values: [u32; MAX_NUMBERS],
}

impl Numbers {
    pub(crate) const EMPTY: Self = Self { len: 0, values: [0; MAX_NUMBERS] };

    /// `None` when there are more than [`MAX_NUMBERS`].
    pub(crate) fn new(numbers: &[u32]) -> Option<Self> {
        let mut values = [0; MAX_NUMBERS];
        values.get_mut(..numbers.len())?.copy_from_slice(numbers);
        Some(Self { len: u8::try_from(numbers.len()).ok()?, values })
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.values[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Numbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Connect with me; here are my numbers.
    Req = 1,
    /// Yes; here are mine.
    Rep,
    /// I can receive.
    Rtu,
    /// I know.
    Ack,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Req, Self::Rep, Self::Rtu, Self::Ack];

    pub(crate) const fn has_numbers(self) -> bool {
        matches!(self, Self::Req | Self::Rep)
    }
}

/// One packet. Ranks are plain numbers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) kind: Kind,
    /// First transmission, or the answer to one.
    pub(crate) original: bool,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Of the sender's queue pairs; empty unless [`Kind::has_numbers`].
    pub(crate) numbers: Numbers,
}

/// What a receiver knows about the packets that are meant for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) me: u32,
    pub(crate) size: u32,
    /// The same on all ranks of a job, different in other jobs.
    pub(crate) job: u32,
    /// Queue pairs per peer, the same on all ranks.
    pub(crate) count: usize,
}

/// Why a datagram is not a packet for this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Immediate,
    Kind(u32),
    Foreign(usize),
    Version(u8),
    Job,
    /// No rank of this job, this rank itself, or not the same in both places.
    Sender(u32),
    Receiver(u32),
    /// Wrong count of numbers for this kind and job, a length that does not fit it, or a number
    /// that cannot be.
    Numbers {
        seen: u8,
        bytes: usize,
    },
}

impl Packet {
    /// The immediate data, and the payload in `into`; returns its length too.
    pub(crate) fn encode(&self, job: u32, into: &mut [u8; MAX_PAYLOAD]) -> (u32, usize) {
        let numbers = if self.kind.has_numbers() { self.numbers } else { Numbers::EMPTY };
        into[..2].copy_from_slice(&MAGIC);
        into[2] = VERSION;
        into[3] = numbers.len;
        into[4..8].copy_from_slice(&job.to_le_bytes());
        into[8..12].copy_from_slice(&self.from.to_le_bytes());
        into[12..16].copy_from_slice(&self.to.to_le_bytes());
        for (place, number) in into[HEADER..].chunks_exact_mut(4).zip(numbers.as_slice()) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let original = if self.original { ORIGINAL } else { 0 };
        let immediate = self.kind as u32 | original | (self.from & 0xffff) << 16;
        (immediate, HEADER + 4 * usize::from(numbers.len))
    }

    pub(crate) fn decode(
        immediate: Option<u32>,
        payload: &[u8],
        context: &Context,
    ) -> Result<Self, Refusal> {
        let immediate = immediate.ok_or(Refusal::Immediate)?;
        let code = immediate & 0xf;
        let kind =
            Kind::ALL.into_iter().find(|kind| *kind as u32 == code).ok_or(Refusal::Kind(code))?;
        let Some((header, rest)) = payload.split_first_chunk::<HEADER>() else {
            return Err(Refusal::Foreign(payload.len()));
        };
        let &[m0, m1, version, count, j0, j1, j2, j3, f0, f1, f2, f3, t0, t1, t2, t3] = header;
        if [m0, m1] != MAGIC {
            return Err(Refusal::Foreign(payload.len()));
        }
        if version != VERSION {
            return Err(Refusal::Version(version));
        }
        if u32::from_le_bytes([j0, j1, j2, j3]) != context.job {
            return Err(Refusal::Job);
        }
        let from = u32::from_le_bytes([f0, f1, f2, f3]);
        if from >= context.size || from == context.me || from & 0xffff != immediate >> 16 {
            return Err(Refusal::Sender(from));
        }
        let to = u32::from_le_bytes([t0, t1, t2, t3]);
        if to != context.me {
            return Err(Refusal::Receiver(to));
        }
        let original = immediate & ORIGINAL != 0;
        let numbers = decode_numbers(kind, count, rest, context.count)
            .ok_or(Refusal::Numbers { seen: count, bytes: payload.len() })?;
        Ok(Self { kind, original, from, to, numbers })
    }
}

/// Exactly `expected` numbers of 24 bits for the kinds that have them, none for the others.
fn decode_numbers(kind: Kind, count: u8, bytes: &[u8], expected: usize) -> Option<Numbers> {
    let expected = if kind.has_numbers() { expected } else { 0 };
    if usize::from(count) != expected || expected > MAX_NUMBERS || bytes.len() != 4 * expected {
        return None;
    }
    let mut numbers = Numbers { len: count, ..Numbers::EMPTY };
    for (number, bytes) in numbers.values.iter_mut().zip(bytes.chunks_exact(4)) {
        *number = u32::from_le_bytes(bytes.try_into().ok()?);
        if *number >= 1 << 24 {
            return None;
        }
    }
    Some(numbers)
}

/// Key of the datagram queue pairs of a job, from the numbers of all ranks' datagram queue pairs in
/// rank order: nothing has to be exchanged for it, and another job has another one. (FNV-1a of 64
/// bits, folded. The top bit stays clear: such keys are reserved for privileged programs.)
pub(crate) fn queue_key(numbers: impl IntoIterator<Item = u32>) -> u32 {
    let hash = fnv1a(numbers.into_iter().flat_map(u32::to_le_bytes));
    (low(hash).rotate_left(5) ^ low(hash >> 32)) & 0x7fff_ffff
}

/// FNV-1a of 64 bits.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn low(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONTEXT: Context = Context { me: 7, size: 70_000, job: 0xfeed_beef, count: 3 };

    fn packet(kind: Kind, from: u32, original: bool) -> Packet {
        let numbers = if kind.has_numbers() { &[1u32, 0xff_ffff, 17][..] } else { &[] };
        Packet { kind, original, from, to: 7, numbers: Numbers::new(numbers).unwrap() }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(kind in 0usize..4, from in 0u32..70_000, original: bool) {
            let packet = packet(Kind::ALL[kind], if from == 7 { 8 } else { from }, original);
            let mut bytes = [0; MAX_PAYLOAD];
            let (immediate, len) = packet.encode(CONTEXT.job, &mut bytes);
            prop_assert_eq!(Packet::decode(Some(immediate), &bytes[..len], &CONTEXT), Ok(packet));
            for other in (0..MAX_PAYLOAD).filter(|other| *other != len) {
                prop_assert!(Packet::decode(Some(immediate), &bytes[..other], &CONTEXT).is_err());
            }
        }

        #[test]
        fn one_wrong_byte_is_another_packet_or_none(
            kind in 0usize..4, at in 0usize..MAX_PAYLOAD, flip in 1u8..,
        ) {
            let packet = packet(Kind::ALL[kind], 300, true);
            let mut bytes = [0; MAX_PAYLOAD];
            let (immediate, len) = packet.encode(CONTEXT.job, &mut bytes);
            let at = at % len;
            bytes[at] ^= flip;
            match Packet::decode(Some(immediate), &bytes[..len], &CONTEXT) {
                Ok(other) => {
                    // Only the numbers, and the upper half of a sender that the immediate data does
                    // not repeat.
                    prop_assert!(at >= HEADER || at == 10, "byte {}", at);
                    prop_assert_ne!(other, packet);
                    prop_assert_eq!(other.kind, packet.kind);
                }
                Err(_) => prop_assert!(at < HEADER || bytes[HEADER + 3 + (at - HEADER) / 4 * 4] != 0),
            }
        }

        #[test]
        fn any_bytes_are_refused_or_encode_again(
            immediate: Option<u32>, mut bytes in proptest::collection::vec(any::<u8>(), 0..80), shape: bool,
        ) {
            if shape && bytes.len() >= HEADER {
                bytes[..3].copy_from_slice(&[b'G', b'C', VERSION]);
                bytes[4..8].copy_from_slice(&CONTEXT.job.to_le_bytes());
                bytes[12..16].copy_from_slice(&7u32.to_le_bytes());
            }
            if let Ok(packet) = Packet::decode(immediate, &bytes, &CONTEXT) {
                let mut again = [0; MAX_PAYLOAD];
                let (_, len) = packet.encode(CONTEXT.job, &mut again);
                prop_assert_eq!(&again[..len], &bytes[..]);
            }
        }
    }

    #[test]
    fn strangers_are_named() {
        let good = packet(Kind::Req, 300, true);
        let mut bytes = [0; MAX_PAYLOAD];
        let (immediate, len) = good.encode(CONTEXT.job, &mut bytes);
        let decode = |context: &Context| Packet::decode(Some(immediate), &bytes[..len], context);
        assert_eq!(decode(&Context { job: 1, ..CONTEXT }), Err(Refusal::Job));
        assert_eq!(decode(&Context { me: 8, ..CONTEXT }), Err(Refusal::Receiver(7)));
        assert_eq!(decode(&Context { size: 300, ..CONTEXT }), Err(Refusal::Sender(300)));
        assert_eq!(
            decode(&Context { count: 2, ..CONTEXT }),
            Err(Refusal::Numbers { seen: 3, bytes: 28 })
        );
        assert_eq!(Packet::decode(None, &bytes[..len], &CONTEXT), Err(Refusal::Immediate));
        assert_eq!(
            Packet::decode(Some(immediate & !0xf | 9), &bytes[..len], &CONTEXT),
            Err(Refusal::Kind(9))
        );
        assert_eq!(
            Packet::decode(Some(immediate ^ 1 << 16), &bytes[..len], &CONTEXT),
            Err(Refusal::Sender(300))
        );
        assert_eq!(Packet::decode(Some(immediate), b"hello", &CONTEXT), Err(Refusal::Foreign(5)));
    }

    #[test]
    fn a_key_depends_on_every_number_and_its_place_and_is_not_privileged() {
        let key = queue_key([17, 18, 19]);
        for other in [&[17, 18][..], &[18, 17, 19], &[17, 18, 20], &[17, 18, 19, 0], &[]] {
            assert_ne!(queue_key(other.iter().copied()), key);
        }
        assert!((0..10_000).all(|first| queue_key([first, 2]) < 1 << 31));
    }
}
