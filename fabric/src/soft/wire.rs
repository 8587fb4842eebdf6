//! What goes over a stream: requests one reverse_role, responses the other, and among these small
//! messages of the responder's own (`reverse_path.rs`). Nothing read here is trusted: a length is
//! checked against the largest message, an index is looked up by its user.

use super::limits::MAX_MESSAGE;
use crate::Operation;

/// Bytes of a request's header.
pub const REQUEST: usize = 28;
/// Bytes of a response's header.
pub const RESPONSE: usize = 16;
const REQUEST_MARK: u16 = 0x5DF1;
const RESPONSE_MARK: u16 = 0x5DF2;

const WANT_ACK: u8 = 1;
const HAS_ACK: u8 = 2;
const HAS_IMM: u8 = 4;

/// The low half, as the wire carries sequence numbers.
#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
pub(super) const fn low(number: u64) -> u32 {
    number as u32
}

/// A length that is known to fit.
pub(super) fn narrow(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Why bytes are not what a peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not our header.
    #[error("no header of this protocol")]
    Mark,
    /// A kind that does not exist.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// Flags that do not exist or do not fit the kind.
    #[error("flags {0:#x} do not fit")]
    Flags(u8),
    /// A length that no message has.
    #[error("impossible length {0}")]
    Length(u32),
    /// More receives than can be counted.
    #[error("impossible credit limit {0}")]
    CreditLimit(u64),
    /// A sequence number outside what is in flight.
    #[error("sequence number {0} is not in flight")]
    Sequence(u32),
}

/// Bytes as the numbers of a header.
pub(super) fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    let mut out = [0; WORDS];
    for (word, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    out
}

/// The numbers of a header as bytes.
pub(super) fn bytes<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut out = [0; BYTES];
    for (bytes, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    out
}

/// The first number of a header.
const fn first(mark: u16, kind: u8, flags: u8) -> u32 {
    let [low, high] = mark.to_le_bytes();
    u32::from_le_bytes([low, high, kind, flags])
}

/// What the first number of a header with this mark says: kind and flags.
fn kind_and_flags(first: u32, mark: u16) -> Result<(u8, u8), Malformed> {
    let [low, high, kind, flags] = first.to_le_bytes();
    if u16::from_le_bytes([low, high]) == mark { Ok((kind, flags)) } else { Err(Malformed::Mark) }
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What it asks for. The operands of an atomic follow, 8 bytes each, and are not in the header.
    pub operation: Operation,
    /// Of a send: messages (low bits) that the sender has had receives for so far.
    pub credit_limit: u32,
    /// Bytes of the operation.
    pub len: u32,
    /// Number of the request on this connection, from 0.
    pub msn: u32,
    /// Requests of the other direction that are done; none with a [`Operation::WriteImm`].
    pub ack: Option<u32>,
    /// Whether its sender waits for the acknowledgement.
    pub want_ack: bool,
}

impl Request {
    /// Bytes that follow the header.
    pub const fn body(&self) -> usize {
        match self.operation {
            Operation::Read { .. } => 0,
            Operation::CompareSwap { .. } => 16,
            _ => self.len as usize,
        }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; REQUEST] {
        let mut flags = if self.want_ack { WANT_ACK } else { 0 };
        if self.ack.is_some() {
            flags |= HAS_ACK;
        }
        let (kind, word, remote) = match self.operation {
            Operation::Send { imm } => {
                flags |= if imm.is_some() { HAS_IMM } else { 0 };
                (1, imm.unwrap_or(0), u64::from(self.credit_limit))
            }
            Operation::Write { remote, rkey } => (2, rkey, remote),
            Operation::WriteImm { remote, rkey, imm } => {
                // In the place of the acknowledgement, which such a request never carries.
                let first = first(REQUEST_MARK, 6, flags & !HAS_ACK);
                return bytes([
                    first,
                    self.len,
                    self.msn,
                    imm,
                    rkey,
                    low(remote),
                    low(remote >> 32),
                ]);
            }
            Operation::Read { remote, rkey } => (3, rkey, remote),
            Operation::FetchAdd { remote, rkey, .. } => (4, rkey, remote),
            Operation::CompareSwap { remote, rkey, .. } => (5, rkey, remote),
        };
        let ack = self.ack.unwrap_or(0);
        let first = first(REQUEST_MARK, kind, flags);
        bytes([first, self.len, self.msn, ack, word, low(remote), low(remote >> 32)])
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8; REQUEST]) -> Result<Self, Malformed> {
        let [first, len, msn, ack, word, low, high] = words(bytes);
        let (kind, flags) = kind_and_flags(first, REQUEST_MARK)?;
        let (rkey, remote) = (word, u64::from(low) | u64::from(high) << 32);
        let imm = flags & HAS_IMM != 0;
        if flags & !(WANT_ACK | HAS_ACK | HAS_IMM) != 0
            || (imm && kind != 1)
            || (flags & HAS_ACK != 0 && kind == 6)
        {
            return Err(Malformed::Flags(flags));
        }
        let operation = match kind {
            1 if high != 0 => return Err(Malformed::CreditLimit(remote)),
            1 => Operation::Send { imm: imm.then_some(word) },
            2 => Operation::Write { remote, rkey },
            3 => Operation::Read { remote, rkey },
            4 => Operation::FetchAdd { remote, rkey, add: 0 },
            5 => Operation::CompareSwap { remote, rkey, compare: 0, swap: 0 },
            6 => Operation::WriteImm { remote, rkey, imm: ack },
            other => return Err(Malformed::Kind(other)),
        };
        if len > MAX_MESSAGE || (operation.is_atomic() && len != 8) {
            return Err(Malformed::Length(len));
        }
        let credit_limit = if kind == 1 { low } else { 0 };
        let ack = (flags & HAS_ACK != 0).then_some(ack);
        Ok(Self { operation, credit_limit, len, msn, ack, want_ack: flags & WANT_ACK != 0 })
    }
}

/// Whether a header (its first bytes suffice) is a request's.
pub fn is_request(bytes: &[u8]) -> bool {
    bytes.get(..2) == Some(&REQUEST_MARK.to_le_bytes())
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Longer than the buffer, or malformed.
    Invalid,
    /// Key, range or right.
    Access,
    /// The responder failed.
    Operation,
    /// No buffer within the tries.
    NotReady,
}

/// A response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// So many requests are done.
    Ack {
        /// Their number (low bits).
        done: u32,
    },
    /// The data of a read or an atomic; `len` bytes follow.
    Data {
        /// Number of the request.
        msn: u32,
        /// Bytes.
        len: u32,
    },
    /// A request was refused; all before it are done, nothing after it will be.
    Nak {
        /// Number of the request.
        msn: u32,
        /// Why.
        why: Refusal,
    },
}

impl Response {
    /// As bytes.
    pub fn encode(&self) -> [u8; RESPONSE] {
        let (kind, code, number, len) = match *self {
            Self::Ack { done } => (1, 0, done, 0),
            Self::Data { msn, len } => (2, 0, msn, len),
            Self::Nak { msn, why } => (3, why as u8, msn, 0),
        };
        bytes([first(RESPONSE_MARK, kind, code), number, len, 0])
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8; RESPONSE]) -> Result<Self, Malformed> {
        let [first, number, len, zero] = words(bytes);
        let (kind, code) = kind_and_flags(first, RESPONSE_MARK)?;
        if zero != 0 {
            return Err(Malformed::Mark);
        }
        if kind != 3 && code != 0 {
            return Err(Malformed::Flags(code));
        }
        match kind {
            2 if len > MAX_MESSAGE => Err(Malformed::Length(len)),
            2 => Ok(Self::Data { msn: number, len }),
            1 | 3 if len != 0 => Err(Malformed::Length(len)),
            1 => Ok(Self::Ack { done: number }),
            3 => {
                let why = match code {
                    0 => Refusal::Invalid,
                    1 => Refusal::Access,
                    2 => Refusal::Operation,
                    3 => Refusal::NotReady,
                    other => return Err(Malformed::Flags(other)),
                };
                Ok(Self::Nak { msn: number, why })
            }
            other => Err(Malformed::Kind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operations() -> impl Strategy<Value = (Operation, u32)> {
        let memory = |operation: fn(u64, u32) -> Operation| {
            any::<(u64, u32)>().prop_map(move |(remote, rkey)| (operation(remote, rkey), 0))
        };
        prop_oneof![
            any::<(Option<u32>, u32)>()
                .prop_map(|(imm, credit_limit)| (Operation::Send { imm }, credit_limit)),
            memory(|remote, rkey| Operation::Write { remote, rkey }),
            any::<(u64, u32, u32)>()
                .prop_map(|(remote, rkey, imm)| (Operation::WriteImm { remote, rkey, imm }, 0)),
            memory(|remote, rkey| Operation::Read { remote, rkey }),
            memory(|remote, rkey| Operation::FetchAdd { remote, rkey, add: 0 }),
            memory(|remote, rkey| Operation::CompareSwap { remote, rkey, compare: 0, swap: 0 }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_comes_back(
            (operation, credit_limit) in operations(),
            len in 0..=MAX_MESSAGE,
            msn in any::<u32>(),
            ack in any::<Option<u32>>(),
            want_ack in any::<bool>(),
        ) {
            let len = if operation.is_atomic() { 8 } else { len };
            let ack = ack.filter(|_| !matches!(operation, Operation::WriteImm { .. }));
            let request = Request { operation, credit_limit, len, msn, ack, want_ack };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        }

        #[test]
        fn what_is_decoded_encodes_to_itself(mut bytes in any::<[u8; REQUEST]>(), kind in 0..8_u8) {
            bytes[0..2].copy_from_slice(&REQUEST_MARK.to_le_bytes());
            bytes[2] = kind;
            bytes[3] &= 15;
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert!(request.len <= MAX_MESSAGE);
                prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            }
        }

        #[test]
        fn any_bytes_as_a_response_are_judged(mut bytes in any::<[u8; RESPONSE]>(), kind in 0..5_u8) {
            bytes[0..2].copy_from_slice(&RESPONSE_MARK.to_le_bytes());
            bytes[2] = kind;
            bytes[3] &= 7;
            bytes[12..].fill(0);
            if let Ok(response) = Response::decode(&bytes) {
                prop_assert_eq!(Response::decode(&response.encode()), Ok(response));
            }
        }
    }
}
