//! Any bytes as what ranks say to the PMI server of their agent.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/pmi_server.rs"]
mod body;

fuzz_target!(|said: &[u8]| body::run(said));
