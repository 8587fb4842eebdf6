//! Any bytes as a datagram: none is taken without the key's tag; with it, what is taken is what was
//! sent.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/datagram.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
