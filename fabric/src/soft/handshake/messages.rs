//! Messages of the handshake on a new stream: both sides prove that they know the job key, then the
//! requester names its queue pairs. Pure: bytes and values, no sockets.
//!
//! Each side says and proves its [`Mode`], so that a mode that differs is known from a wrong key.
//!
//! ```text
//! requester                                       responder
//!   Hello      magic, version, mode, nonce a      ─────►
//!              ◄─────  Challenge  nonce b, HMAC(key, "responder" mode a b)
//!   Proof      target, HMAC(key, "requester" mode a b target)  ─────►
//!              ◄─────  Verdict    go on | no such connection
//!   requests …, as they are or in records   ─────►
//! ```

use hmac::{Hmac, KeyInit as _, Mac as _};
use settings::deadlines::soft::HELLO as HELLO_LIMIT;
use sha2::Sha256;

use crate::soft::wire;

/// Bytes of the first packet.
pub const HELLO: usize = 28;
/// Bytes of the answer.
pub const CHALLENGE: usize = 48;
/// Bytes of the proof.
pub const PROOF: usize = 48;
/// Bytes of the verdict.
pub const VERDICT: usize = 4;

const MAGIC: [u8; 8] = *b"softhca\x01";
const VERSION: u16 = 2;
const GO: [u8; VERDICT] = *b"go\r\n";
const NO: [u8; VERDICT] = *b"no\r\n";

/// The key of a job.
pub type JobKey = [u8; 16];
/// A number that is used once.
pub type Nonce = [u8; 16];

/// How the bytes of a stream travel after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As they are.
    Plain,
    /// In encrypted records.
    Encrypted,
}

impl Mode {
    /// That of a device with this setting.
    pub const fn of(secure: bool) -> Self {
        if secure { Self::Encrypted } else { Self::Plain }
    }

    const fn other(self) -> Self {
        match self {
            Self::Plain => Self::Encrypted,
            Self::Encrypted => Self::Plain,
        }
    }

    /// What the variable has for it.
    const fn value(self) -> u8 {
        match self {
            Self::Plain => 0,
            Self::Encrypted => 1,
        }
    }

    const fn responder(self) -> &'static [u8] {
        match self {
            Self::Plain => b"responder",
            Self::Encrypted => b"responder, encrypted",
        }
    }

    const fn requester(self) -> &'static [u8] {
        match self {
            Self::Plain => b"requester",
            Self::Encrypted => b"requester, encrypted",
        }
    }
}

/// Why a handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Rejection {
    /// Not this protocol.
    #[error("it does not speak the protocol of the software adapter")]
    Magic,
    /// Another version.
    #[error("it speaks another version of the protocol ({0}, here {VERSION})")]
    Version(u16),
    /// The other mode.
    #[error("it has GASNET_IBV_SOFT_SECURE={}, here it is {}; set it to the same on all ranks", .0.other().value(), .0.value())]
    Mode(Mode),
    /// Wrong proof.
    #[error("it does not have the job key")]
    WrongKey,
    /// Neither yes nor no.
    #[error("its verdict is malformed")]
    Verdict,
    /// Said nothing, or not all of its first packet.
    #[error("it said nothing for {} s; whoever it is, a rank of this job would come again", HELLO_LIMIT.limit.as_secs())]
    Silent,
    /// Began well, but did not go on.
    #[error("it began, but did not go on for {} s: a process that is slow or stopped; it comes again", HELLO_LIMIT.limit.as_secs())]
    Slow,
    /// Went away before its proof.
    #[error("it closed the connection before it proved the job key")]
    Closed,
    /// Too many others wait.
    #[error("too many unfinished handshakes at once")]
    TooMany,
}

impl Rejection {
    /// What this does to a connection. Who is slow is not accused of anything.
    pub(in crate::soft) const fn outcome(self) -> &'static str {
        match self {
            Self::Silent | Self::Slow | Self::TooMany => "gave up",
            _ => "refused",
        }
    }
}

/// What a requester wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Queue pair at the responder.
    pub to: u32,
    /// Queue pair of the requester.
    pub from: u32,
    /// Its first packet sequence number.
    pub psn: u32,
    /// Its count of tries while the receiver has no buffer; 7: for ever.
    pub rnr: u8,
}

impl Target {
    fn encode(self) -> [u8; 16] {
        wire::bytes([self.to, self.from, self.psn, self.rnr.into()])
    }

    fn decode(bytes: &[u8; 16]) -> Self {
        let [to, from, psn, last] = wire::words(bytes);
        Self { to, from, psn, rnr: last.to_le_bytes()[0] & 7 }
    }
}

fn mac(key: &JobKey, parts: [&[u8]; 4]) -> Hmac<Sha256> {
    // The block of SHA-256 is longer than the key, so the padded key is the same key.
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in parts {
        mac.update(part);
    }
    mac
}

/// The first packet.
pub fn hello(mode: Mode, nonce: &Nonce) -> [u8; HELLO] {
    let mut out = [0; HELLO];
    out[0..8].copy_from_slice(&MAGIC);
    out[8..10].copy_from_slice(&VERSION.to_le_bytes());
    out[10] = mode.value();
    out[12..28].copy_from_slice(nonce);
    out
}

/// Reads the first packet: the nonce, and the requester's mode.
///
/// # Errors
/// Not ours.
pub fn read_hello(bytes: &[u8; HELLO]) -> Result<(Nonce, Mode), Rejection> {
    let (head, nonce) = bytes.split_last_chunk().ok_or(Rejection::Magic)?;
    if head[0..8] != MAGIC {
        return Err(Rejection::Magic);
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(Rejection::Version(version));
    }
    Ok((*nonce, Mode::of(head[10] != 0)))
}

/// The answer to `theirs`.
pub fn challenge(key: &JobKey, mode: Mode, theirs: &Nonce, own: &Nonce) -> [u8; CHALLENGE] {
    let mut out = [0; CHALLENGE];
    out[0..16].copy_from_slice(own);
    let tag = mac(key, [mode.responder(), theirs, own, b""]).finalize().into_bytes();
    out[16..48].copy_from_slice(&tag);
    out
}

/// The responder's nonce in an answer.
pub fn nonce_of(answer: &[u8; CHALLENGE]) -> Nonce {
    answer.first_chunk().copied().unwrap_or_default()
}

/// Checks the answer to `own` and makes the proof.
///
/// # Errors
/// The other side does not have the key, or another mode.
pub fn prove(
    key: &JobKey,
    mode: Mode,
    own: &Nonce,
    answer: &[u8; CHALLENGE],
    target: Target,
) -> Result<[u8; PROOF], Rejection> {
    let (theirs, tag) = answer.split_at(16);
    let says =
        |mode: Mode| mac(key, [mode.responder(), own, theirs, b""]).verify_slice(tag).is_ok();
    if !says(mode) {
        let other = says(mode.other());
        return Err(if other { Rejection::Mode(mode) } else { Rejection::WrongKey });
    }
    let mut out = [0; PROOF];
    let target = target.encode();
    out[0..16].copy_from_slice(&target);
    let tag = mac(key, [mode.requester(), own, theirs, &target]).finalize().into_bytes();
    out[16..48].copy_from_slice(&tag);
    Ok(out)
}

/// Checks a proof. `theirs` is the requester's nonce, `own` the responder's.
///
/// # Errors
/// The requester does not have the key.
pub fn check(
    key: &JobKey,
    mode: Mode,
    theirs: &Nonce,
    own: &Nonce,
    proof: &[u8; PROOF],
) -> Result<Target, Rejection> {
    let (body, tag) = proof.split_first_chunk().ok_or(Rejection::WrongKey)?;
    mac(key, [mode.requester(), theirs, own, body])
        .verify_slice(tag)
        .map_err(|_| Rejection::WrongKey)?;
    Ok(Target::decode(body))
}

/// The verdict.
pub const fn verdict(go: bool) -> [u8; VERDICT] {
    if go { GO } else { NO }
}

/// Reads the verdict: whether to go on.
///
/// # Errors
/// Neither yes nor no.
pub fn read_verdict(bytes: [u8; VERDICT]) -> Result<bool, Rejection> {
    match bytes {
        GO => Ok(true),
        NO => Ok(false),
        _ => Err(Rejection::Verdict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MODES: [Mode; 2] = [Mode::Plain, Mode::Encrypted];
    const TARGET: Target = Target { to: 7, from: 9, psn: 0xabcdef, rnr: 7 };

    #[test]
    fn two_with_the_key_agree() {
        let (key, a, b) = ([3; 16], [1; 16], [2; 16]);
        for mode in MODES {
            assert_eq!(read_hello(&hello(mode, &a)), Ok((a, mode)));
            let answer = challenge(&key, mode, &a, &b);
            let proof = prove(&key, mode, &a, &answer, TARGET).unwrap();
            assert_eq!(check(&key, mode, &a, &b, &proof), Ok(TARGET));
        }
        assert_eq!(read_verdict(verdict(true)), Ok(true));
        assert_eq!(read_verdict(verdict(false)), Ok(false));
        assert_eq!(read_verdict(*b"what"), Err(Rejection::Verdict));
    }

    /// Nobody can make one side believe that the other has another mode.
    #[test]
    fn another_mode_is_told_from_a_wrong_key() {
        let (key, a, b) = ([3; 16], [1; 16], [2; 16]);
        for mode in MODES {
            let answer = challenge(&key, mode.other(), &a, &b);
            assert_eq!(prove(&key, mode, &a, &answer, TARGET), Err(Rejection::Mode(mode)));
            let wrong = challenge(&[4; 16], mode.other(), &a, &b);
            assert_eq!(prove(&key, mode, &a, &wrong, TARGET), Err(Rejection::WrongKey));
            let answer = challenge(&key, mode, &a, &b);
            let proof = prove(&key, mode, &a, &answer, TARGET).unwrap();
            assert_eq!(check(&key, mode.other(), &a, &b, &proof), Err(Rejection::WrongKey));
        }
        let text = Rejection::Mode(Mode::Encrypted).to_string();
        assert!(text.starts_with("it has GASNET_IBV_SOFT_SECURE=0, here it is 1;"), "{text}");
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = hello(Mode::Plain, &[0; 16]);
        bytes[8] = 9;
        assert_eq!(read_hello(&bytes), Err(Rejection::Version(9)));
    }

    proptest! {
        #[test]
        fn one_wrong_bit_anywhere_is_refused(bit in 0_usize..48 * 8) {
            let (key, a, b) = ([3; 16], [1; 16], [2; 16]);
            let flip = |mut bytes: [u8; 48]| { bytes[bit / 8] ^= 1 << (bit % 8); bytes };
            let answer = challenge(&key, Mode::Plain, &a, &b);
            prop_assert_eq!(prove(&key, Mode::Plain, &a, &flip(answer), TARGET), Err(Rejection::WrongKey));
            let proof = prove(&key, Mode::Plain, &a, &answer, TARGET).unwrap();
            prop_assert_eq!(check(&key, Mode::Plain, &a, &b, &flip(proof)), Err(Rejection::WrongKey));
        }

        #[test]
        fn another_key_is_refused(key in any::<JobKey>(), other in any::<JobKey>()) {
            prop_assume!(key != other);
            let (a, b) = ([1; 16], [2; 16]);
            let answer = challenge(&key, Mode::Plain, &a, &b);
            prop_assert_eq!(prove(&other, Mode::Plain, &a, &answer, TARGET), Err(Rejection::WrongKey));
            let proof = prove(&key, Mode::Plain, &a, &answer, TARGET).unwrap();
            prop_assert_eq!(check(&other, Mode::Plain, &a, &b, &proof), Err(Rejection::WrongKey));
        }

        #[test]
        fn any_bytes_are_judged(bytes in any::<[u8; HELLO]>()) {
            prop_assert!(read_hello(&bytes).is_err() || bytes[0..8] == MAGIC);
        }
    }
}
