//! Any datagram as a packet of the handshake: no panic, and what is accepted encodes to the same bytes.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The module uses nothing of its crate.
#[path = "../../src/net/connect/wire.rs"]
mod wire;

fuzz_target!(|input: (Option<u32>, u8, bool, &[u8])| {
    let (immediate, count, shape, bytes) = input;
    let context =
        wire::Context { me: 7, size: 70_000, job: 0x0102_0304, count: usize::from(count % 64) };
    let mut bytes = bytes.to_vec();
    if shape && bytes.len() >= 16 {
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
});
