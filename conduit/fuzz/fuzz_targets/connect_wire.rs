//! Any datagram as a packet of the handshake: no panic, and what is accepted encodes to the same
//! bytes.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The module uses nothing of its crate.
#[path = "../../src/transport/net/connect/wire.rs"]
mod wire;

#[path = "../bodies/connect_wire.rs"]
mod body;

fuzz_target!(|bytes: &[u8]| body::run(bytes));
