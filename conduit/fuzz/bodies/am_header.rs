//! Any message as it comes from a peer: no panic, what is accepted covers the message to the byte
//! and encodes to the same header.
//!
//! An input is the immediate data (4 bytes, little-endian) and the message.

use super::header;

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&[a, b, c, d], message)) = bytes.split_first_chunk::<4>() else { return };
    let imm = u32::from_le_bytes([a, b, c, d]);
    let Ok(decoded) = header::decode(imm, message) else { return };
    let head = decoded.head;
    assert_eq!(decoded.payload + head.shape.carried(), message.len());
    assert!(decoded.payload <= header::MAX_HEADER);
    assert_eq!((header::source_of(imm), header::handler_of(imm)), (head.source, head.handler));
    assert_eq!(header::is_reply(imm), head.reply);
    let mut again = header::Encoded::EMPTY;
    header::encode_into(&mut again, &head, decoded.args());
    // A hidden word without credits is not written again, and padding may hold anything.
    let again = header::decode(again.imm, &[again.bytes(), &message[decoded.payload..]].concat());
    let again = again.expect("what was written is read");
    assert_eq!((again.head, again.args()), (head, decoded.args()));
}
