//! Any bytes as a frame: no panic, and nothing that is accepted is overlooked.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/frame.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
