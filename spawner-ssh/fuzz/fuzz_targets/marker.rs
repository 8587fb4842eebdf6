//! Any bytes as the output of a login that may have an agent behind it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spawner_ssh::fuzz::marker;

fuzz_target!(|bytes: &[u8]| marker(bytes));
