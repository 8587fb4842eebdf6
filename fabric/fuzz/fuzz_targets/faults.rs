//! Any text as a fault script: refused with a column inside the text, or it works without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/faults.rs"]
mod body;

fuzz_target!(|text: &str| body::run(text));
