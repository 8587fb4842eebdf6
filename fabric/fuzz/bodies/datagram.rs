//! Any bytes as a datagram: none is taken without the key's tag; with it, what is taken is what was
//! sent.

use std::hash::{DefaultHasher, Hasher as _};

use fabric::soft::testing::datagram::{HEADER, Header, MAX_PAYLOAD, PACKET};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    // Another key for each input: the fuzzer sees what is compared, and would copy the tag of a key
    // that stays.
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    let key = u128::from(hasher.finish()).to_le_bytes();
    assert!(Header::open(&key, bytes).is_err());
    // The same bytes as payload of a datagram with the key, and one bit of it changed.
    let Some((&[a, b, flip], payload)) = bytes.split_first_chunk::<3>() else { return };
    let payload = payload.get(..MAX_PAYLOAD).unwrap_or(payload);
    let imm = (a & 1 == 1).then_some(u32::from(b) << 24);
    let header = Header { to: a.into(), from: b.into(), qkey: flip.into(), imm };
    let mut packet = [0; PACKET];
    packet[HEADER..HEADER + payload.len()].copy_from_slice(payload);
    let Some(whole) = header.seal(&key, &mut packet, payload.len()) else { return };
    assert_eq!(Header::open(&key, whole), Ok((header, payload)));
    let mut changed = whole.to_vec();
    let at = usize::from(flip) * 7919 % changed.len();
    changed[at] ^= 1 << (b % 8);
    assert!(Header::open(&key, &changed).is_err());
}
