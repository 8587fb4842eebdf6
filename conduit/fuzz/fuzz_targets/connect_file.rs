//! Any text as a connect file: no panic, and what is accepted means the same when it is written again.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The module uses nothing of its crate.
#[path = "../../src/net/connect/file.rs"]
mod file;

fuzz_target!(|input: (u32, u32, u8, &[u8])| {
    let (me, size, base, text) = input;
    let size = size % 5_000 + 1;
    let (me, base) = (me % size, u32::from(base) % 35 + 2);
    match file::parse("file", text, me, size) {
        Ok(chosen) => {
            let peers = chosen.iter().zip(0..).filter(|(on, _)| **on).map(|(_, rank)| rank);
            let again = file::header(size, base) + &file::lines(me, peers, base);
            assert_eq!(file::parse("again", again.as_bytes(), me, size).ok(), Some(chosen));
        }
        Err(error) => assert!(error.to_string().starts_with("file:"), "{error}"),
    }
});
