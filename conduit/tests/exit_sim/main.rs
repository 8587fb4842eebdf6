//! The exit machine without anything around it: its state table, random histories under a virtual clock, every
//! interleaving of small jobs, and one job of a million ranks.

#[expect(
    dead_code,
    unreachable_pub,
    reason = "the library's own files, of which this test uses a part"
)]
#[path = "../../src/exit"]
mod exit {
    pub mod machine;
    pub mod timeouts;
}

mod counts;
mod exhaustive;
mod histories;
mod million;
mod table;
mod world;
