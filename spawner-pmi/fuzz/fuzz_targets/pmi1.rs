//! Any bytes as what a PMI-1 server says: the rank ends with a value or an error, without panic and
//! without waiting.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/pmi1.rs"]
mod body;

fuzz_target!(|said: &[u8]| body::run(said));
