//! Any bytes as a message of a peer: no panic, and what is accepted covers the message to the byte.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The modules use nothing else of their crate.
mod segment_mode {
    /// Headers are the same in all modes; limits of payload ask for it.
    #[derive(Clone, Copy)]
    pub(crate) struct SegmentMode;

    impl SegmentMode {
        pub(crate) const fn is_fast(self) -> bool {
            true
        }
    }
}

#[path = "."]
mod sys {
    #[path = "../../src/sys/atomic.rs"]
    pub(super) mod atomic;
    #[path = "../../src/sys/tally.rs"]
    pub(super) mod tally;
}

#[path = "."]
mod transport {
    #[path = "../../src/transport/limits.rs"]
    pub(super) mod limits;

    #[path = "."]
    pub(super) mod net {
        #[path = "../../src/transport/net/credits.rs"]
        pub(crate) mod credits;
        #[path = "../../src/transport/net/am/header.rs"]
        pub(super) mod header;

        #[path = "../bodies/am_header.rs"]
        pub(crate) mod body;
    }
}

fuzz_target!(|bytes: &[u8]| transport::net::body::run(bytes));
