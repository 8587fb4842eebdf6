//! Any bytes as the messages of a link, from below and from above.
#![no_main]

use libfuzzer_sys::fuzz_target;
use supervisor::tree::fuzz::messages;

fuzz_target!(|bytes: &[u8]| messages(bytes));
