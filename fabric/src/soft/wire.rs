//! What goes over a stream: requests one reverse_role, responses the other, and among these small
//! messages of the responder's own (`reverse_path.rs`). Nothing read here is trusted: a length is
//! checked against the largest message, an index is looked up by its user.

use super::limits::MAX_MESSAGE;

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

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A message of `len` bytes that follow.
    Send {
        /// 32 bits beside it.
        imm: Option<u32>,
        /// Messages (low bits) that the sender has had receives for so far.
        credit_limit: u32,
    },
    /// A write of `len` bytes that follow.
    Write {
        /// Where to.
        remote: u64,
        /// By which key.
        rkey: u32,
    },
    /// A read of `len` bytes; nothing follows.
    Read {
        /// Where from.
        remote: u64,
        /// By which key.
        rkey: u32,
    },
    /// An addition; 8 bytes follow.
    FetchAdd {
        /// Where.
        remote: u64,
        /// By which key.
        rkey: u32,
    },
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub verb: Verb,
    /// Bytes of the operation.
    pub len: u32,
    /// Number of the request on this connection, from 0.
    pub msn: u32,
    /// Requests of the other direction that are done.
    pub ack: Option<u32>,
    /// Whether its sender waits for the acknowledgement.
    pub want_ack: bool,
}

impl Request {
    /// Bytes that follow the header.
    #[must_use]
    pub const fn body(&self) -> usize {
        match self.verb {
            Verb::Read { .. } => 0,
            _ => self.len as usize,
        }
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST] {
        let (kind, word, remote) = match self.verb {
            Verb::Send { imm, credit_limit } => (1, imm.unwrap_or(0), u64::from(credit_limit)),
            Verb::Write { remote, rkey } => (2, rkey, remote),
            Verb::Read { remote, rkey } => (3, rkey, remote),
            Verb::FetchAdd { remote, rkey } => (4, rkey, remote),
        };
        let mut flags = if self.want_ack { WANT_ACK } else { 0 };
        if self.ack.is_some() {
            flags |= HAS_ACK;
        }
        if matches!(self.verb, Verb::Send { imm: Some(_), .. }) {
            flags |= HAS_IMM;
        }
        let mut out = [0; REQUEST];
        out[0..2].copy_from_slice(&REQUEST_MARK.to_le_bytes());
        out[2] = kind;
        out[3] = flags;
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8..12].copy_from_slice(&self.msn.to_le_bytes());
        out[12..16].copy_from_slice(&self.ack.unwrap_or(0).to_le_bytes());
        out[16..20].copy_from_slice(&word.to_le_bytes());
        out[20..28].copy_from_slice(&remote.to_le_bytes());
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8; REQUEST]) -> Result<Self, Malformed> {
        let [m0, m1, kind, flags, l0, l1, l2, l3, s0, s1, s2, s3, a0, a1, a2, a3, rest @ ..] =
            *bytes;
        let [w0, w1, w2, w3, remote @ ..] = rest;
        if u16::from_le_bytes([m0, m1]) != REQUEST_MARK {
            return Err(Malformed::Mark);
        }
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let word = u32::from_le_bytes([w0, w1, w2, w3]);
        let remote = u64::from_le_bytes(remote);
        let imm = flags & HAS_IMM != 0;
        if flags & !(WANT_ACK | HAS_ACK | HAS_IMM) != 0 || (imm && kind != 1) {
            return Err(Malformed::Flags(flags));
        }
        let verb = match kind {
            1 => {
                let credit_limit =
                    u32::try_from(remote).map_err(|_| Malformed::CreditLimit(remote))?;
                Verb::Send { imm: imm.then_some(word), credit_limit }
            }
            2 => Verb::Write { remote, rkey: word },
            3 => Verb::Read { remote, rkey: word },
            4 => Verb::FetchAdd { remote, rkey: word },
            other => return Err(Malformed::Kind(other)),
        };
        if len > MAX_MESSAGE || (kind == 4 && len != 8) {
            return Err(Malformed::Length(len));
        }
        let ack = (flags & HAS_ACK != 0).then(|| u32::from_le_bytes([a0, a1, a2, a3]));
        let msn = u32::from_le_bytes([s0, s1, s2, s3]);
        Ok(Self { verb, len, msn, ack, want_ack: flags & WANT_ACK != 0 })
    }
}

/// Whether a header (its first bytes suffice) is a request's.
#[must_use]
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
    /// The data of a read or an addition; `len` bytes follow.
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
    #[must_use]
    pub fn encode(&self) -> [u8; RESPONSE] {
        let (kind, code, number, len) = match *self {
            Self::Ack { done } => (1, 0, done, 0),
            Self::Data { msn, len } => (2, 0, msn, len),
            Self::Nak { msn, why } => (3, why as u8, msn, 0),
        };
        let mut out = [0; RESPONSE];
        out[0..2].copy_from_slice(&RESPONSE_MARK.to_le_bytes());
        out[2] = kind;
        out[3] = code;
        out[4..8].copy_from_slice(&number.to_le_bytes());
        out[8..12].copy_from_slice(&len.to_le_bytes());
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8; RESPONSE]) -> Result<Self, Malformed> {
        let [m0, m1, kind, code, n0, n1, n2, n3, l0, l1, l2, l3, z @ ..] = *bytes;
        if u16::from_le_bytes([m0, m1]) != RESPONSE_MARK || z != [0; 4] {
            return Err(Malformed::Mark);
        }
        let number = u32::from_le_bytes([n0, n1, n2, n3]);
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
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

    fn verbs() -> impl Strategy<Value = Verb> {
        prop_oneof![
            any::<(Option<u32>, u32)>()
                .prop_map(|(imm, credit_limit)| Verb::Send { imm, credit_limit }),
            any::<(u64, u32)>().prop_map(|(remote, rkey)| Verb::Write { remote, rkey }),
            any::<(u64, u32)>().prop_map(|(remote, rkey)| Verb::Read { remote, rkey }),
            any::<(u64, u32)>().prop_map(|(remote, rkey)| Verb::FetchAdd { remote, rkey }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_comes_back(
            verb in verbs(),
            len in 0..=MAX_MESSAGE,
            msn in any::<u32>(),
            ack in any::<Option<u32>>(),
            want_ack in any::<bool>(),
        ) {
            let len = if matches!(verb, Verb::FetchAdd { .. }) { 8 } else { len };
            let request = Request { verb, len, msn, ack, want_ack };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        }

        #[test]
        fn what_is_decoded_encodes_to_itself(mut bytes in any::<[u8; REQUEST]>(), kind in 0..6_u8) {
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
