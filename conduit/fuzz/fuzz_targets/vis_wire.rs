//! Any bytes as the description of a packet: no panic, and what is accepted lies in the segment.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The modules use nothing else of their crate.
#[path = "."]
mod vis {
    #[path = "../../src/vis/grid.rs"]
    pub(super) mod grid;
    #[path = "../../src/vis/list.rs"]
    pub(super) mod list;
    #[path = "../../src/vis/wire.rs"]
    pub(super) mod wire;

    #[path = "../bodies/vis_wire.rs"]
    pub(super) mod body;
}

fuzz_target!(|bytes: &[u8]| vis::body::run(bytes));
