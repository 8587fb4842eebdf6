//! Any bytes sent by a stranger to an open device, over a stream and as a datagram: the device goes
//! on working.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/device.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
