//! Any bytes as a frame: no panic, and nothing that is accepted is overlooked.

use bootstrap::frame::{Frame, MAX_PAYLOAD};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let _ = Frame::from_packet(bytes, 64);
    if let Ok(Some((frame, used))) = Frame::decode(bytes) {
        assert!(frame.payload.len() <= MAX_PAYLOAD && used <= bytes.len());
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, &bytes[..used]);
    }
}
