//! Messages of other agents, and frames of ranks between them, into a node of the tree.
#![no_main]

#[path = "messages/play.rs"]
mod play;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    play::play(bytes);
});
