//! Any bytes sent to an open device by a program without the key, over a stream and as a datagram:
//! the device goes on working.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/device.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
