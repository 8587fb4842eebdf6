//! Any bytes as what the launcher and its supervisor say to each other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use supervisor::tree::fuzz::launcher_link;

fuzz_target!(|bytes: &[u8]| launcher_link(bytes));
