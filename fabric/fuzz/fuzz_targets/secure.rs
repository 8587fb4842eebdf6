//! Any bytes as what an encrypted connection carries: nothing opens without the key, and of what has
//! it only what the peer sent next.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/secure.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
