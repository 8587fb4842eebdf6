//! `loom` models of the conduit's lock-free structures: every interleaving of a few threads, with the product's own files.
#![cfg(loom)]
#![allow(dead_code, reason = "models use a part of each file")]

/// What the files import from their crate.
mod sys {
    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
    }
}

#[path = "../../src/transport/net/credits.rs"]
mod credits;
#[path = "../../src/transport/net/lockfree.rs"]
mod lockfree;

#[cfg(test)]
mod models;
