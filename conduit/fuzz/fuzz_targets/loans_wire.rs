//! Any bytes as the messages of loans: no panic, and what was lent comes back once.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

// The modules use nothing else of their crate.
#[path = "."]
mod transport {
    #[path = "."]
    pub(super) mod net {
        pub(crate) use self::loan_parts::{LentPart, LentParts, MOST_KEYS};

        #[path = "../../src/transport/net/memory/loan_parts.rs"]
        mod loan_parts;
    }
}

#[path = "."]
mod vis {
    #[path = "../../src/vis/ticket.rs"]
    pub(super) mod ticket;
}

#[path = "."]
mod loans {
    #[path = "../../src/loans/ledger.rs"]
    pub(super) mod ledger;
    #[path = "../../src/loans/wire.rs"]
    pub(super) mod wire;

    #[path = "../bodies/loans_wire.rs"]
    pub(super) mod body;
}

fuzz_target!(|bytes: &[u8]| loans::body::run(bytes));
