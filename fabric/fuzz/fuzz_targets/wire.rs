//! Any bytes as headers of a stream: no panic, no length over the limit, and nothing that is
//! accepted is overlooked.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/wire.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
