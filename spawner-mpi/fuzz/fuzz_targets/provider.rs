//! Lines `NAME=value` as an environment: the choice of a provider never panics, and says how it was
//! made.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/provider.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
