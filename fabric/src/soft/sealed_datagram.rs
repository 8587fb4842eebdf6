//! Datagrams that are encrypted (`GASNET_IBV_SOFT_SECURE`): around a packet of `datagram`. Pure.
//!
//! ```text
//! ┌──────────┬─────────────────────────────────┬────────────────────────┬───────────┐
//! │ magic 4B │ nonce: sender 16 B, number  8 B │ packet, as ciphertext  │ tag  16 B │
//! └──────────┴─────────────────────────────────┴────────────────────────┴───────────┘
//! ```
//!
//! XChaCha20-Poly1305 with one key for the job (HKDF-SHA256 of the job key). Each device draws its
//! sender's number and counts its packets, so no nonce comes twice. Datagrams may be lost, repeated or
//! late, as datagrams may be; who uses them knows.

use std::sync::atomic::{AtomicU64, Ordering};

use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;

use super::datagram::PACKET;
use super::handshake::messages::{JobKey, Nonce};

const MAGIC: [u8; 4] = *b"sUDs";
const NONCE: usize = 24;
const TAG: usize = 16;
const INFO: &[u8] = b"gasnet-ibv software adapter, datagrams, 1";

/// Bytes before the packet.
pub const BEFORE: usize = MAGIC.len() + NONCE;
/// Bytes of the largest encrypted packet.
pub const SEALED: usize = BEFORE + PACKET + TAG;

/// Encrypts the datagrams of a device, and decrypts those that it gets.
pub struct DatagramCipher {
    cipher: XChaCha20Poly1305,
    sender: Nonce,
    next: AtomicU64,
}

impl std::fmt::Debug for DatagramCipher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DatagramCipher").field("next", &self.next).finish_non_exhaustive()
    }
}

impl DatagramCipher {
    /// Of a device of the job that has `key`. `sender`: random, no other device's.
    pub fn new(key: &JobKey, sender: Nonce) -> Self {
        let mut secret = [0; 32];
        let expanded = Hkdf::<Sha256>::new(None, key).expand(INFO, &mut secret);
        // 255 blocks of 32 bytes are possible.
        expanded.expect("the length is possible");
        let cipher = XChaCha20Poly1305::new(&secret.into());
        Self { cipher, sender, next: AtomicU64::new(0) }
    }

    /// The encrypted form of a packet, in `room`. `None`: it is longer than any packet.
    pub fn seal<'a>(&self, packet: &[u8], room: &'a mut [u8; SEALED]) -> Option<&'a [u8]> {
        let mut nonce = [0; NONCE];
        nonce[..16].copy_from_slice(&self.sender);
        nonce[16..].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        room[..4].copy_from_slice(&MAGIC);
        room[4..BEFORE].copy_from_slice(&nonce);
        let end = BEFORE + packet.len();
        let text = room.get_mut(BEFORE..end)?;
        text.copy_from_slice(packet);
        let tag = self.cipher.encrypt_inout_detached(&nonce.into(), &[], text.into()).ok()?;
        room.get_mut(end..end + TAG)?.copy_from_slice(&tag);
        room.get(..end + TAG)
    }

    /// Decrypts in place: the packet, which begins after `BEFORE` bytes. `None`: it is not from a
    /// member of this job, or was changed on its way.
    pub fn open<'a>(&self, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let (magic, rest) = bytes.split_first_chunk_mut::<4>()?;
        let (nonce, rest) = rest.split_first_chunk_mut::<NONCE>()?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG>()?;
        let nonce: &XNonce = (&*nonce).into();
        let opened =
            self.cipher.decrypt_inout_detached(nonce, &[], (&mut *text).into(), (&*tag).into());
        (*magic == MAGIC && opened.is_ok()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: JobKey = [7; 16];

    proptest! {
        #[test]
        fn a_packet_comes_back_and_its_text_does_not_travel(
            packet in prop::collection::vec(any::<u8>(), 8..PACKET),
        ) {
            let mut room = [0; SEALED];
            let own = DatagramCipher::new(&KEY, [1; 16]);
            let mut sealed = own.seal(&packet, &mut room).unwrap().to_vec();
            prop_assert!(!sealed.windows(8).any(|part| part == &packet[..8]));
            let mut other = sealed.clone();
            prop_assert_eq!(DatagramCipher::new(&KEY, [2; 16]).open(&mut sealed), Some(&packet[..]));
            prop_assert_eq!(DatagramCipher::new(&[8; 16], [1; 16]).open(&mut other), None);
        }

        #[test]
        fn a_changed_bit_is_refused_and_so_is_a_part(
            packet in prop::collection::vec(any::<u8>(), 1..100),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let mut room = [0; SEALED];
            let own = DatagramCipher::new(&KEY, [1; 16]);
            let sealed = own.seal(&packet, &mut room).unwrap().to_vec();
            let at = at.index(sealed.len());
            let mut part = sealed[..at].to_vec();
            prop_assert_eq!(own.open(&mut part), None);
            let mut changed = sealed;
            changed[at] ^= 1 << bit;
            prop_assert_eq!(own.open(&mut changed), None);
        }
    }

    #[test]
    fn no_nonce_comes_twice_and_no_packet_is_too_long() {
        let own = DatagramCipher::new(&KEY, [1; 16]);
        let (mut one, mut two) = ([0; SEALED], [0; SEALED]);
        let (one, two) = (own.seal(&[5; 9], &mut one), own.seal(&[5; 9], &mut two));
        assert_ne!(one.unwrap()[BEFORE..], two.unwrap()[BEFORE..]);
        assert!(own.seal(&[0; PACKET], &mut [0; SEALED]).is_some());
        assert!(own.seal(&[0; PACKET + 1], &mut [0; SEALED]).is_none());
    }
}
