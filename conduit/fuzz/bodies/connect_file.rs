//! Any text as a connect file: no panic, and what is accepted means the same when it is written
//! again.
//!
//! An input is the rank, the size of the job (both 4 bytes, little-endian), the base of the numbers
//! (1 byte), the text.

use super::file;

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((head, text)) = bytes.split_first_chunk::<9>() else { return };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let size = word(4) % 5_000 + 1;
    let (me, base) = (word(0) % size, u32::from(head[8]) % 35 + 2);
    match file::parse("file", text, me, size) {
        Ok(chosen) => {
            let peers = chosen.iter().zip(0..).filter(|(on, _)| **on).map(|(_, rank)| rank);
            let again = file::header(size, base) + &file::lines(me, peers, base);
            assert_eq!(file::parse("again", again.as_bytes(), me, size).ok(), Some(chosen));
        }
        Err(error) => assert!(error.to_string().starts_with("file:"), "{error}"),
    }
}
