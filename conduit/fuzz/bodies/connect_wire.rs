//! Any datagram as a packet of the handshake: no panic, and what is accepted encodes to the same
//! bytes.
//!
//! An input is flags (bit 0: there is immediate data; bit 1: marks are put where they belong), the
//! number of queue pairs (1 byte), the immediate data (4 bytes, little-endian), the payload.

use super::wire;

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&[flags, count, a, b, c, d], payload)) = bytes.split_first_chunk::<6>() else {
        return;
    };
    let immediate = (flags & 1 == 1).then_some(u32::from_le_bytes([a, b, c, d]));
    let context =
        wire::Context { me: 7, size: 70_000, job: 0x0102_0304, count: usize::from(count % 64) };
    let mut bytes = payload.to_vec();
    if flags & 2 == 2 && bytes.len() >= 16 {
        // Past the checks that a fuzzer meets only by luck.
        bytes[..3].copy_from_slice(b"GC\x01");
        bytes[4..8].copy_from_slice(&context.job.to_le_bytes());
        bytes[12..16].copy_from_slice(&context.me.to_le_bytes());
    }
    if let Ok(packet) = wire::Packet::decode(immediate, &bytes, &context) {
        assert!(packet.from < context.size && packet.from != context.me);
        let expected = if packet.kind.has_numbers() { context.count } else { 0 };
        assert_eq!(packet.numbers.as_slice().len(), expected);
        let mut again = [0; wire::MAX_PAYLOAD];
        let (immediate_again, len) = packet.encode(context.job, &mut again);
        assert_eq!(&again[..len], &bytes[..]);
        assert_eq!(immediate.map(|word| word & 0xffff_001f), Some(immediate_again));
    }
}
