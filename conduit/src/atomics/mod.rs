//! Remote atomics: operations on words of a type in the segments of all ranks, atomic to each other
//! whoever does them.
//!
//! * `types`, `semantics`: what there is, as tables and pure functions. `word`: on memory of this
//!   host. `domain`: what a program may do.
//! * `offload`: whether adapters do the operations of a domain (pure).
//! * `wire`, `pending`, `remote`: at ranks that share no memory with this one. Where no adapter does
//!   it, the owner of the word does the operation on its memory, so operations of its neighbours
//!   and of remote ranks mix.
//!
//! The Rust interface is in `team/atomics.rs`, its non-blocking half in `event/atomics.rs`.

pub(crate) mod domain;
pub(crate) mod offload;
pub(crate) mod pending;
pub(crate) mod remote;
pub(crate) mod semantics;
pub(crate) mod types;
pub(crate) mod wire;
pub(crate) mod word;

pub use offload::Favor;
pub use semantics::AtomicType;
pub use types::{AtomicOp, AtomicOps};
