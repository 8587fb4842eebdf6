//! The form of datagrams.
//!
//! Each packet carries a tag under the job key. A packet without tag, with a wrong one, or
//! malformed is dropped.

use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use super::handshake::messages::JobKey;
use super::wire;
use crate::Gid;

/// Bytes before the payload.
pub const HEADER: usize = 36;
/// Bytes of the global route header that a receive begins with.
pub const GRH: usize = 40;
/// Largest payload of any MTU.
pub const MAX_PAYLOAD: usize = 4096;
/// Largest packet.
pub const PACKET: usize = HEADER + MAX_PAYLOAD;

const MAGIC: [u8; 4] = *b"sUDp";
const VERSION: u8 = 1;
const HAS_IMM: u8 = 1;

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its header, or not as long as it says.
    #[error("{0} bytes do not fit the header")]
    Length(usize),
    /// Not this protocol, or another version.
    #[error("no header of this protocol")]
    Header,
    /// Not from this job, or changed on the reverse_role.
    #[error("wrong tag")]
    Tag,
}

/// What stands before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Queue pair it is for.
    pub to: u32,
    /// Queue pair it is from.
    pub from: u32,
    /// Key that the receiver must have.
    pub qkey: u32,
    /// 32 bits beside the payload.
    pub imm: Option<u32>,
}

fn tag(key: &JobKey, header: &[u8], payload: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(header);
    hasher.write(payload);
    hasher.finish().to_le_bytes()
}

impl Header {
    /// The packet in `packet`, whose payload of `len` bytes stands behind [`HEADER`] already;
    /// `None` when it does not fit.
    pub fn seal<'a>(&self, key: &JobKey, packet: &'a mut [u8], len: usize) -> Option<&'a [u8]> {
        let whole = packet.get_mut(..HEADER.checked_add(len)?)?;
        let (head, payload) = whole.split_at_mut(HEADER);
        let length = u32::try_from(len).ok().filter(|_| len <= MAX_PAYLOAD)?;
        let flags = u8::from(self.imm.is_some()) * HAS_IMM;
        let (magic, flags) =
            (u32::from_le_bytes(MAGIC), u32::from_le_bytes([VERSION, flags, 0, 0]));
        let words = [magic, flags, self.to, self.from, self.qkey, self.imm.unwrap_or(0), length];
        head[..28].copy_from_slice(&wire::bytes::<7, 28>(words));
        let tag = tag(key, &head[..28], payload);
        head[28..36].copy_from_slice(&tag);
        Some(whole)
    }

    /// Reads a packet: its header and payload.
    ///
    /// # Errors
    /// It is not from a member of this job.
    pub fn open<'a>(key: &JobKey, packet: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let short = Malformed::Length(packet.len());
        let (head, payload) = packet.split_first_chunk::<HEADER>().ok_or(short)?;
        let [magic, flags, to, from, qkey, imm, length, ..] = wire::words::<HEADER, 9>(head);
        let [version, flags, zero, none] = flags.to_le_bytes();
        let known = version == VERSION && flags & !HAS_IMM == 0 && (zero, none) == (0, 0);
        if magic.to_le_bytes() != MAGIC || !known {
            return Err(Malformed::Header);
        }
        if payload.len() > MAX_PAYLOAD || length as usize != payload.len() {
            return Err(short);
        }
        if tag(key, &head[..28], payload) != head[28..36] {
            return Err(Malformed::Tag);
        }
        let imm = (flags & HAS_IMM != 0).then_some(imm);
        Ok((Self { to, from, qkey, imm }, payload))
    }
}

/// The first bytes of a receive, as the global route header of a real datagram: lengths, then both
/// addresses.
pub(super) fn route_header(from: IpAddr, to: IpAddr, payload: usize) -> [u8; GRH] {
    let mut out = [0; GRH];
    out[0] = 0x60;
    out[4..6].copy_from_slice(&u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes());
    out[6..8].copy_from_slice(&[0x1b, 64]);
    out[8..24].copy_from_slice(&Gid::of(from).0);
    out[24..40].copy_from_slice(&Gid::of(to).0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = Header> {
        any::<(u32, u32, u32, Option<u32>)>().prop_map(|(to, from, qkey, imm)| Header {
            to,
            from,
            qkey,
            imm,
        })
    }

    proptest! {
        #[test]
        fn a_packet_comes_back(
            header in headers(),
            payload in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut packet = [vec![0; HEADER], payload.clone()].concat();
            let whole = header.seal(&[7; 16], &mut packet, payload.len()).unwrap();
            prop_assert_eq!(Header::open(&[7; 16], whole), Ok((header, &payload[..])));
            prop_assert_eq!(Header::open(&[8; 16], whole), Err(Malformed::Tag));
        }

        #[test]
        fn one_wrong_bit_anywhere_is_refused(bit in 0_usize..(HEADER + 20) * 8) {
            let header = Header { to: 1, from: 2, qkey: 3, imm: Some(4) };
            let mut packet = [5; HEADER + 20];
            let mut whole = header.seal(&[7; 16], &mut packet, 20).unwrap().to_vec();
            whole[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::open(&[7; 16], &whole).is_err());
        }

        #[test]
        fn any_bytes_are_judged(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cut in 0_usize..HEADER + 20,
        ) {
            prop_assert!(Header::open(&[7; 16], &bytes).is_err());
            let mut packet = [5; HEADER + 20];
            let header = Header { to: 1, from: 2, qkey: 3, imm: None };
            let whole = header.seal(&[7; 16], &mut packet, 20).unwrap();
            prop_assert!(Header::open(&[7; 16], &whole[..cut]).is_err());
        }
    }

    #[test]
    fn a_payload_that_fits_nowhere_is_not_sealed() {
        let header = Header { to: 1, from: 2, qkey: 3, imm: None };
        assert!(header.seal(&[0; 16], &mut [0; HEADER + 4], 5).is_none());
        assert!(header.seal(&[0; 16], &mut [0; HEADER + 4], usize::MAX).is_none());
        assert!(header.seal(&[0; 16], &mut [0; PACKET + 1], MAX_PAYLOAD + 1).is_none());
        assert!(header.seal(&[0; 16], &mut [0; PACKET], MAX_PAYLOAD).is_some());
    }
}
