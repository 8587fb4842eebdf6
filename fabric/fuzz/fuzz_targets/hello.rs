//! Any bytes as messages of the handshake: nobody gets in without the key.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/hello.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
