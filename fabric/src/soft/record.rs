//! Records: how the bytes of a stream travel when they are encrypted (`GASNET_IBV_SOFT_SECURE`).
//! Pure: bytes and values, no sockets.
//!
//! ```text
//! ┌────────────┬──────────────────┬────────────────────────────┬───────────┐
//! │ length u16 │ check of it  6 B │ ciphertext, `length` bytes │ tag  16 B │
//! └────────────┴──────────────────┴────────────────────────────┴───────────┘
//! ```
//!
//! ChaCha20-Poly1305 with a key for each connection and direction (HKDF-SHA256 of the job key, salted
//! with both nonces of the handshake). The nonce is the number of the record, which does not travel:
//! a record that is repeated, left out or out of order does not open. The check (SipHash-2-4 of number
//! and length) shows a changed length at once; without it the reader would wait for bytes that never
//! come.

use std::hash::Hasher as _;

use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{ChaCha20Poly1305, Nonce as Number};
use hkdf::Hkdf;
use sha2::Sha256;
use siphasher::sip::SipHasher24;

use super::handshake::messages::{JobKey, Nonce};

/// Bytes before the ciphertext.
pub const HEAD: usize = 8;
/// Bytes after the ciphertext.
pub const TAG: usize = 16;
/// Most bytes of text in a record.
pub const MAX_TEXT: usize = 16 << 10;
/// Bytes of the longest record.
pub const MAX_RECORD: usize = HEAD + MAX_TEXT + TAG;

const CIPHER_KEY: usize = 32;
const CHECK_KEY: usize = 16;
const INFO: &[u8] = b"gasnet-ibv software adapter, streams, 1";

/// A record is not what the peer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "record {0} is not what the peer sent: bytes were changed, repeated, left out or moved on their way"
)]
pub struct Tampered(pub u64);

/// What a direction of a connection is encrypted with.
#[derive(Clone)]
pub struct Secret {
    cipher: [u8; CIPHER_KEY],
    check: [u8; CHECK_KEY],
}

/// The secrets of a connection.
#[derive(Clone)]
pub struct Secrets {
    /// From the requester to the responder.
    pub requests: Secret,
    /// From the responder to the requester.
    pub responses: Secret,
}

impl Secrets {
    /// Those of the connection whose handshake had these nonces.
    pub fn derive(key: &JobKey, requester: &Nonce, responder: &Nonce) -> Self {
        let salt: Vec<u8> = [*requester, *responder].concat();
        let mut all = [0; 2 * (CIPHER_KEY + CHECK_KEY)];
        let expanded = Hkdf::<Sha256>::new(Some(&salt), key).expand(INFO, &mut all);
        // 255 blocks of 32 bytes are possible.
        expanded.expect("the length is possible");
        let mut parts = all.as_chunks::<CHECK_KEY>().0.iter().copied();
        let mut next = || parts.next().unwrap_or_default();
        let mut secret = || {
            let mut cipher = [0; CIPHER_KEY];
            cipher[..16].copy_from_slice(&next());
            cipher[16..].copy_from_slice(&next());
            Secret { cipher, check: next() }
        };
        Self { requests: secret(), responses: secret() }
    }
}

/// One direction of a connection: its keys, and the number of the next record.
struct Direction {
    cipher: ChaCha20Poly1305,
    check: SipHasher24,
    next: u64,
}

impl Direction {
    fn new(secret: &Secret) -> Self {
        Self {
            cipher: ChaCha20Poly1305::new(&secret.cipher.into()),
            check: SipHasher24::new_with_key(&secret.check),
            next: 0,
        }
    }

    /// The nonce of the next record.
    fn number(&self) -> Number {
        let mut number = [0; 12];
        number[4..].copy_from_slice(&self.next.to_le_bytes());
        number.into()
    }

    /// The first bytes of the next record.
    fn head(&self, len: u16) -> [u8; HEAD] {
        let mut check = self.check;
        check.write_u64(self.next);
        check.write_u16(len);
        let mut head = check.finish().to_le_bytes();
        head[..2].copy_from_slice(&len.to_le_bytes());
        head
    }
}

impl std::fmt::Debug for Direction {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Direction").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Makes records.
#[derive(Debug)]
pub struct Sealer(Direction);

impl Sealer {
    /// For a new connection.
    pub fn new(secret: &Secret) -> Self {
        Self(Direction::new(secret))
    }

    /// Appends a record of `len` bytes (1 to [`MAX_TEXT`]) that `fill` writes. `None`: no such
    /// length, or `fill` did not have them all; nothing is appended.
    pub fn seal(
        &mut self,
        len: usize,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<()> {
        let length = u16::try_from(len).ok().filter(|_| (1..=MAX_TEXT).contains(&len))?;
        let start = out.len();
        out.extend_from_slice(&self.0.head(length));
        out.resize(start + HEAD + len, 0);
        let number = self.0.number();
        // A number is never used twice.
        let text = out.get_mut(start + HEAD..).filter(|_| self.0.next < u64::MAX);
        let sealed = text.and_then(|text| {
            let filled = fill(text);
            let tag =
                filled.then(|| self.0.cipher.encrypt_inout_detached(&number, &[], text.into()));
            tag?.ok()
        });
        let Some(tag) = sealed else {
            out.truncate(start);
            return None;
        };
        out.extend_from_slice(&tag);
        self.0.next += 1;
        Some(())
    }
}

/// Opens records.
#[derive(Debug)]
pub struct Opener(Direction);

impl Opener {
    /// For a new connection.
    pub fn new(secret: &Secret) -> Self {
        Self(Direction::new(secret))
    }

    /// Opens the record that `bytes` begin with, in its place: the length of its text, which begins
    /// after [`HEAD`] bytes. `None`: it is not all there.
    ///
    /// # Errors
    /// It is not the next record of the peer. Nothing of the connection can be used any more.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Option<usize>, Tampered> {
        let Direction { cipher, next, .. } = &self.0;
        let tampered = Tampered(*next);
        let Some((head, rest)) = bytes.split_first_chunk_mut::<HEAD>() else { return Ok(None) };
        let length = u16::from_le_bytes([head[0], head[1]]);
        let len = usize::from(length);
        if *head != self.0.head(length) || !(1..=MAX_TEXT).contains(&len) || *next == u64::MAX {
            return Err(tampered);
        }
        let Some((text, rest)) = rest.split_at_mut_checked(len) else { return Ok(None) };
        let Some(tag) = rest.first_chunk::<TAG>() else { return Ok(None) };
        let number = self.0.number();
        let opened = cipher.decrypt_inout_detached(&number, &[], text.into(), tag.into());
        opened.map_err(|_| tampered)?;
        self.0.next += 1;
        Ok(Some(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn both() -> (Sealer, Opener) {
        let secrets = Secrets::derive(&[3; 16], &[1; 16], &[2; 16]);
        (Sealer::new(&secrets.requests), Opener::new(&secrets.requests))
    }

    fn seal(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let fill = |place: &mut [u8]| {
            place.copy_from_slice(text);
            true
        };
        sealer.seal(text.len(), &mut out, fill).unwrap();
        out
    }

    /// What a reader gets of a stream that comes in these parts: the text, and how it ends.
    fn read<'a>(
        opener: &mut Opener,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<u8>, Result<usize, Tampered>) {
        let (mut text, mut raw) = (Vec::new(), Vec::new());
        for part in parts {
            raw.extend_from_slice(part);
            loop {
                match opener.open(&mut raw) {
                    Ok(Some(len)) => {
                        text.extend_from_slice(&raw[HEAD..HEAD + len]);
                        raw.drain(..HEAD + len + TAG);
                    }
                    Ok(None) => break,
                    Err(why) => return (text, Err(why)),
                }
            }
        }
        (text, Ok(raw.len()))
    }

    fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let length = prop_oneof![8 => 1_usize..40, 1 => 1000_usize..3000, 1 => Just(MAX_TEXT)];
        let text = length.prop_flat_map(|len| prop::collection::vec(any::<u8>(), len));
        prop::collection::vec(text, 1..8)
    }

    proptest! {
        #[test]
        fn any_split_of_a_stream_is_the_same_text(texts in texts(), part in 1_usize..20_000) {
            let (mut sealer, mut opener) = both();
            let stream: Vec<u8> = texts.iter().flat_map(|text| seal(&mut sealer, text)).collect();
            prop_assert_eq!(stream.len(), texts.iter().map(|text| HEAD + text.len() + TAG).sum());
            let (text, end) = read(&mut opener, stream.chunks(part));
            prop_assert_eq!((text, end), (texts.concat(), Ok(0)));
        }

        /// As soon as the record is there as far as it says, and nothing of it is read.
        #[test]
        fn a_changed_bit_is_seen_at_once(texts in texts(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let (mut sealer, mut opener) = both();
            let records: Vec<_> = texts.iter().map(|text| seal(&mut sealer, text)).collect();
            let mut stream = records.concat();
            let at = at.index(stream.len());
            stream[at] ^= 1 << bit;
            let mut ends = records.iter().scan(0, |end, record| { *end += record.len(); Some(*end) });
            let number = ends.position(|end| at < end).unwrap();
            let whole = records[..=number].iter().map(Vec::len).sum::<usize>();
            let (text, end) = read(&mut opener, [&stream[..whole]]);
            prop_assert_eq!(end, Err(Tampered(number as u64)));
            prop_assert_eq!(text, texts[..number].concat());
        }

        /// What is cut off is not read, and does not look like an end.
        #[test]
        fn a_cut_stream_is_a_prefix_of_whole_records(texts in texts(), cut in any::<prop::sample::Index>()) {
            let (mut sealer, mut opener) = both();
            let records: Vec<_> = texts.iter().map(|text| seal(&mut sealer, text)).collect();
            let stream = records.concat();
            let cut = cut.index(stream.len());
            let (text, end) = read(&mut opener, [&stream[..cut]]);
            let mut whole = 0;
            let count = records.iter().take_while(|one| { whole += one.len(); whole <= cut }).count();
            let rest = cut - records[..count].iter().map(Vec::len).sum::<usize>();
            prop_assert_eq!((text, end), (texts[..count].concat(), Ok(rest)));
        }

        /// Records that are repeated, left out or change places.
        #[test]
        fn the_order_of_records_is_kept(
            texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 5), 2..6),
            order in prop::collection::vec(0_usize..6, 1..8),
        ) {
            let (mut sealer, mut opener) = both();
            let records: Vec<_> = texts.iter().map(|text| seal(&mut sealer, text)).collect();
            let order: Vec<usize> = order.into_iter().map(|at| at % records.len()).collect();
            let good = order.iter().enumerate().take_while(|(at, number)| at == *number).count();
            let parts = order.iter().map(|number| &records[*number][..]);
            let (text, end) = read(&mut opener, parts);
            prop_assert_eq!(text, texts[..good].concat());
            let expected = if good < order.len() { Err(Tampered(good as u64)) } else { Ok(0) };
            prop_assert_eq!(end, expected);
        }

        #[test]
        fn any_bytes_are_judged(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (_, mut opener) = both();
            let judged = opener.open(&mut bytes);
            let expected = if bytes.len() < HEAD { Ok(None) } else { Err(Tampered(0)) };
            prop_assert_eq!(judged, expected);
        }
    }

    /// Another job, another connection, the other direction.
    #[test]
    fn only_the_same_secret_opens() {
        let (key, a, b) = ([3; 16], [1; 16], [2; 16]);
        let right = Secrets::derive(&key, &a, &b);
        let record = seal(&mut Sealer::new(&right.requests), b"text");
        let open = |secret: &Secret| Opener::new(secret).open(&mut record.clone());
        assert_eq!(open(&Secrets::derive(&key, &a, &b).requests), Ok(Some(4)));
        for wrong in [
            &right.responses,
            &Secrets::derive(&[4; 16], &a, &b).requests,
            &Secrets::derive(&key, &b, &a).requests,
            &Secrets::derive(&key, &a, &[7; 16]).requests,
        ] {
            assert_eq!(open(wrong), Err(Tampered(0)));
        }
    }

    #[test]
    fn text_does_not_stand_in_a_record_and_no_two_records_are_alike() {
        let (mut sealer, _) = both();
        let text = [b'x'; 64];
        let (one, two) = (seal(&mut sealer, &text), seal(&mut sealer, &text));
        assert!(!one.windows(4).any(|part| part == b"xxxx"));
        assert_ne!(one[2..], two[2..]);
    }

    #[test]
    fn impossible_records_are_not_made() {
        let (mut sealer, mut opener) = both();
        let mut out = vec![1];
        assert_eq!(sealer.seal(0, &mut out, |_| true), None);
        assert_eq!(sealer.seal(MAX_TEXT + 1, &mut out, |_| true), None);
        assert_eq!(sealer.seal(4, &mut out, |_| false), None);
        assert_eq!(out, [1]);
        // And no number is used up by them.
        let mut record = seal(&mut sealer, b"text");
        assert_eq!(opener.open(&mut record), Ok(Some(4)));
    }
}
