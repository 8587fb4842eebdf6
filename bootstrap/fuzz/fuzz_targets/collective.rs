//! A stream of frames from any senders into the machine that matches collective calls.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/collective.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
