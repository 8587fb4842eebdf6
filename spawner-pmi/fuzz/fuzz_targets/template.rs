//! Any bytes as a template for the call of another launcher. It must be understood or refused
//! without a panic; one that is understood names a launcher, and its words carry the arguments
//! unchanged at least once, whole or quoted for a shell.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/template.rs"]
mod body;

fuzz_target!(|data: &[u8]| body::run(data));
