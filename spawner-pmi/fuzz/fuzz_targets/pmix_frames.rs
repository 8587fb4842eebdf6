//! Any bytes as what an agent and its helper process for PMIx say to each other.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "its seeds are made by a test")]
#[path = "../bodies/pmix_frames.rs"]
mod body;

fuzz_target!(|said: &[u8]| body::run(said));
