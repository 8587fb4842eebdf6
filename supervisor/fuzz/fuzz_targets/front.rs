//! Any bytes as what front process and agent say to each other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use supervisor::tree::fuzz::front;

fuzz_target!(|bytes: &[u8]| front(bytes));
