//! Datagram queue pairs: UDP packets between the ports of the devices' listeners.
//!
//! Each packet carries a tag under the job key. What has none, a wrong one, or no form is dropped and counted; so is what
//! names a queue pair that is not there, has another `Q_Key`, or has no receive posted. Nothing here is ever answered.

use std::hash::Hasher as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use siphasher::sip::SipHasher24;

use super::cq::Gives;
use super::device::{Dev, SoftAddress};
use super::fault_script::Fate;
use super::hello::JobKey;
use super::hold;
use super::limits::{DATAGRAMS_PER_TURN, MAX_LATE};
use super::qp::Qp;
use super::queue::Taken;
use crate::{
    Completion, Data, Gid, Opcode, Operation, PostError, QpState, QpType, RecvWr, SendWr, Status,
};

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
pub enum Garbage {
    /// Shorter than its header, or not as long as it says.
    #[error("{0} bytes do not fit the header")]
    Length(usize),
    /// Not this protocol, or another version.
    #[error("no header of this protocol")]
    Header,
    /// Not from this job, or changed on the way.
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
    /// The packet in `packet`, whose payload of `len` bytes stands behind [`HEADER`] already; `None` when it does not fit.
    #[must_use]
    pub fn seal<'a>(&self, key: &JobKey, packet: &'a mut [u8], len: usize) -> Option<&'a [u8]> {
        let whole = packet.get_mut(..HEADER.checked_add(len)?)?;
        let (head, payload) = whole.split_at_mut(HEADER);
        let length = u32::try_from(len).ok().filter(|_| len <= MAX_PAYLOAD)?;
        head[0..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&[VERSION, u8::from(self.imm.is_some()) * HAS_IMM, 0, 0]);
        head[8..12].copy_from_slice(&self.to.to_le_bytes());
        head[12..16].copy_from_slice(&self.from.to_le_bytes());
        head[16..20].copy_from_slice(&self.qkey.to_le_bytes());
        head[20..24].copy_from_slice(&self.imm.unwrap_or(0).to_le_bytes());
        head[24..28].copy_from_slice(&length.to_le_bytes());
        let tag = tag(key, &head[..28], payload);
        head[28..36].copy_from_slice(&tag);
        Some(whole)
    }

    /// Reads a packet: its header and payload.
    ///
    /// # Errors
    /// It is not from a member of this job.
    pub fn open<'a>(key: &JobKey, packet: &'a [u8]) -> Result<(Self, &'a [u8]), Garbage> {
        let short = Garbage::Length(packet.len());
        let (head, payload) = packet.split_first_chunk::<HEADER>().ok_or(short)?;
        let word = |at: usize| {
            let bytes = head.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_le_bytes)
        };
        let [version, flags, zero, none] = word(4).to_le_bytes();
        let known = version == VERSION && flags & !HAS_IMM == 0 && (zero, none) == (0, 0);
        if head[0..4] != MAGIC || !known {
            return Err(Garbage::Header);
        }
        if payload.len() > MAX_PAYLOAD || word(24) as usize != payload.len() {
            return Err(short);
        }
        if tag(key, &head[..28], payload) != head[28..36] {
            return Err(Garbage::Tag);
        }
        let imm = (flags & HAS_IMM != 0).then(|| word(20));
        Ok((Self { to: word(8), from: word(12), qkey: word(16), imm }, payload))
    }
}

/// The first bytes of a receive, as the global route header of a real datagram: lengths, then both addresses.
#[must_use]
fn route_header(from: IpAddr, to: IpAddr, payload: usize) -> [u8; GRH] {
    let mut out = [0; GRH];
    out[0] = 0x60;
    out[4..6].copy_from_slice(&u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes());
    out[6..8].copy_from_slice(&[0x1b, 64]);
    out[8..24].copy_from_slice(&Gid::of(from).0);
    out[24..40].copy_from_slice(&Gid::of(to).0);
    out
}

/// Sends of one queue pair: they are done when they are posted, so only their completions take room.
#[derive(Debug)]
pub(super) struct Sent {
    posted: AtomicU64,
    max: u64,
}

impl Sent {
    pub(super) fn new(max: u32) -> Self {
        Self { posted: AtomicU64::new(0), max: max.into() }
    }
}

#[derive(Debug)]
struct Packet {
    when: Instant,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// Packets that a fault script holds back.
#[derive(Debug, Default)]
pub(super) struct Late {
    packets: Mutex<Vec<Packet>>,
    count: AtomicUsize,
}

impl Late {
    fn keep(&self, packet: Packet) {
        if let Some(mut packets) = hold(&self.packets)
            && packets.len() < MAX_LATE
        {
            packets.push(packet);
            self.count.store(packets.len(), Ordering::Release);
        }
    }

    /// Hands over what has waited long enough; whether more waits.
    pub(super) fn due(&self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8])) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(mut packets) = hold(&self.packets) else { return true };
        packets.retain(|one| {
            if one.when <= now {
                send(one.to, &one.bytes);
            }
            one.when > now
        });
        self.count.store(packets.len(), Ordering::Release);
        !packets.is_empty()
    }
}

/// Copies the data of a send behind the header; its length. `Err`: a key does not cover it.
fn collect(qp: &Qp, data: &Data<'_>, packet: &mut [u8; PACKET]) -> Result<usize, PostError> {
    let mtu = qp.dev().mtu().bytes() as usize;
    let total: usize = match data {
        Data::Gather(list) => list.iter().map(|sge| sge.len as usize).sum(),
        Data::Inline(list) => list.iter().map(|bytes| bytes.len()).sum(),
    };
    if total > mtu {
        return Err(PostError::Invalid("a datagram longer than the MTU"));
    }
    if matches!(data, Data::Inline(_)) && total > qp.inline_limit() {
        return Err(PostError::Invalid("more inline bytes than the limit"));
    }
    let mut at = HEADER;
    match data {
        Data::Gather(list) => {
            for sge in *list {
                let span = qp.dev().table().local(sge, false);
                let span = span.ok_or(PostError::Invalid("a local key does not cover the data"))?;
                let place = packet.get_mut(at..at + sge.len as usize).unwrap_or_default();
                at += span.read(place);
            }
        }
        Data::Inline(list) => {
            for bytes in *list {
                packet.get_mut(at..at + bytes.len()).unwrap_or_default().copy_from_slice(bytes);
                at += bytes.len();
            }
        }
    }
    Ok(total)
}

/// Sends a datagram.
pub(super) fn post(qp: &Qp, sent: &Sent, send: &SendWr<'_>) -> Result<(), PostError> {
    let Operation::Send { imm } = send.operation else {
        return Err(PostError::Invalid("a datagram queue pair only sends"));
    };
    let target = send.to.ok_or(PostError::Invalid("a datagram without a target"))?;
    let to = target.handle.as_any().downcast_ref::<SoftAddress>();
    let to = to.ok_or(PostError::Invalid("the target is of another fabric"))?.to;
    let mut packet = [0; PACKET];
    let len = collect(qp, &send.data, &mut packet)?;
    let number = take_slot(qp, sent)?;
    let flushed = qp.state() != QpState::Rts;
    if !flushed {
        let header = Header { to: target.qpn, from: qp.number(), qkey: target.qkey, imm };
        transmit(qp, to, &header, &mut packet, len);
    }
    if flushed || send.signaled {
        let status = if flushed { Status::Flushed } else { Status::Success };
        qp.sent(send.id, status, Opcode::Send, super::narrow(len), Gives::Sends(number + 1));
    }
    Ok(())
}

fn take_slot(qp: &Qp, sent: &Sent) -> Result<u64, PostError> {
    let freed = qp.dev().sends_freed(qp.number());
    let more = |posted: u64| (posted.saturating_sub(freed) < sent.max).then_some(posted + 1);
    let order = Ordering::SeqCst;
    sent.posted.fetch_update(order, order, more).map_err(|_| PostError::Full)
}

/// Losing a packet is no error.
fn transmit(qp: &Qp, to: SocketAddr, header: &Header, packet: &mut [u8; PACKET], len: usize) {
    let dev = qp.dev();
    let Some(whole) = header.seal(dev.key(), packet, len) else { return };
    let up = qp.setup().is_some_and(|setup| dev.is_up(setup.port));
    if !up || dev.is_cut(to.ip()) {
        return;
    }
    let Fate { copies, delay } = dev.mishaps().faults().datagram();
    for _ in 0..copies {
        if delay.is_zero() {
            let _ = dev.udp().send_to(whole, to);
        } else {
            let when = Instant::now() + delay;
            dev.mishaps().late().keep(Packet { when, to, bytes: whole.to_vec() });
            dev.wake();
        }
    }
}

/// Sends what a fault script held back until now; whether more waits.
pub(super) fn send_late(dev: &Dev, now: Instant) -> bool {
    dev.mishaps().late().due(now, |to, bytes| {
        let _ = dev.udp().send_to(bytes, to);
    })
}

/// Takes packets that wait on the device's socket, at most so many that other streams get their turn; true: there were some.
pub(super) fn receive(dev: &Arc<Dev>, scratch: &mut [u8]) -> bool {
    // The route header of the receive takes the place of the packet's own, so that it is one piece with the payload.
    let shift = GRH - HEADER;
    for turn in 0..DATAGRAMS_PER_TURN {
        let Some(room) = scratch.get_mut(shift..=shift + PACKET) else { return false };
        let (len, from) = match dev.udp().recv_from(room) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return turn > 0,
            // What a host answered to an earlier packet of ours; the next one may be fine.
            Err(_) => continue,
        };
        let opened = Header::open(dev.key(), room.get(..len).unwrap_or_default());
        let Ok((header, payload)) = opened else {
            dev.dropped();
            continue;
        };
        let len = payload.len();
        let route = route_header(from.ip(), dev.ip(), len);
        if let Some(place) = scratch.get_mut(..GRH) {
            place.copy_from_slice(&route);
        }
        let bytes = scratch.get(..GRH + len).unwrap_or_default();
        if dev.is_cut(from.ip()) || !deliver(dev, &header, bytes) {
            dev.dropped();
        }
    }
    true
}

/// Puts a datagram into the receive that waits for it. False: there is none.
fn deliver(dev: &Arc<Dev>, header: &Header, bytes: &[u8]) -> bool {
    let Some(qp) = dev.qp(header.to).filter(|qp| qp.qp_type() == QpType::Ud && qp.answers()) else {
        return false;
    };
    if !qp.setup().is_some_and(|setup| setup.qkey == header.qkey && dev.is_up(setup.port)) {
        return false;
    }
    let Taken::One(RecvWr { id, buffer }, number) = qp.receives().take() else { return false };
    let status = if (buffer.len as usize) < bytes.len() {
        Status::LocalLength
    } else {
        let span = dev.table().local(&buffer, true);
        span.map_or(Status::LocalProtection, |span| {
            span.fill(bytes);
            Status::Success
        })
    };
    let entry = Completion {
        id,
        status,
        len: super::narrow(bytes.len()),
        imm: header.imm,
        source_qpn: header.from,
        ..Completion::EMPTY
    };
    qp.received(&entry, qp.gives(number));
    true
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
            prop_assert_eq!(Header::open(&[8; 16], whole), Err(Garbage::Tag));
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

    #[test]
    fn late_packets_come_when_they_are_due() {
        let (late, now) = (Late::default(), Instant::now());
        let after = |ms| now + std::time::Duration::from_millis(ms);
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        for ms in [30, 10, 20] {
            late.keep(Packet { when: after(ms), to, bytes: vec![u8::try_from(ms).unwrap()] });
        }
        let mut seen = Vec::new();
        assert!(late.due(after(9), |_, _| panic!("too early")));
        assert!(late.due(after(20), |_, bytes| seen.extend_from_slice(bytes)));
        assert!(!late.due(after(99), |_, bytes| seen.extend_from_slice(bytes)));
        assert_eq!(seen, [10, 20, 30]);
        assert!(!late.due(after(99), |_, _| panic!("twice")));
    }
}
