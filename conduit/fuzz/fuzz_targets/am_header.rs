//! Any bytes as a message of a peer: no panic, and what is accepted covers the message to the byte.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The modules use nothing else of their crate.
#[path = "."]
mod transport {
    #[path = "../../src/transport/limits.rs"]
    pub(super) mod limits;
}

#[path = "."]
mod net {
    #[path = "../../src/transport/net/am/header.rs"]
    pub(super) mod header;

    #[path = "../bodies/am_header.rs"]
    pub(super) mod body;
}

fuzz_target!(|bytes: &[u8]| net::body::run(bytes));
