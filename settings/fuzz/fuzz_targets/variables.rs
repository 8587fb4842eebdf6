//! Lines `NAME=value` as an environment: no parser and no rendering panics.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/variables.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
