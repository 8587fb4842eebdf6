//! Any text as a connect file: no panic, and what is accepted means the same when it is written
//! again.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The module uses nothing of its crate.
#[path = "../../src/transport/net/connect/file.rs"]
mod file;

#[path = "../bodies/connect_file.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
