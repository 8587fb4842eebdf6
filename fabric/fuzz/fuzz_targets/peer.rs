//! Any bytes from a peer that has the key: its queue pair may fail, and nothing else.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/peer.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
