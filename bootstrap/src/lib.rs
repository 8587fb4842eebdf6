//! Bootstrap services of a parallel job: what a rank needs before it has a network.
//!
//! A *provider* (node agent, in-memory peer, solo; later PMI and MPI) tells a rank who it is and offers the nine
//! collective services of [`Bootstrap`]. The conduit never knows which provider it talks to.
//!
//! * [`service`]: the trait, the place of a rank in its job, the announcer used on exit paths.
//! * [`frame`]: the versioned codec spoken between a rank and its agent (and between agents).
//! * [`page`]: the page of shared memory that a host's ranks and agent share: doorbells and the exit notice.
//! * [`collective`]: the pure machine that matches the ranks' calls, one node of the tree of agents; every provider is driven
//!   by it.
//! * [`conformance`]: what every provider must do, as a suite to run over it.
//! * [`memfd`]: memory made by a provider for its ranks.
//! * [`connect()`]: chooses the provider. [`agent`], [`solo`], [`memory`]: the providers.
//! * [`self_start`]: a program that becomes the launcher of itself, if it is asked to.
//! * [`deadlines`]: the bounds of every wait.
//!
//! This crate does *not* start processes and does not know the fabric.

pub mod agent;
mod client;
pub mod collective;
pub mod conformance;
mod connect;
pub mod deadlines;
pub mod engine;
pub mod frame;
pub mod memfd;
pub mod memory;
pub mod page;
pub mod self_start;
pub mod service;
pub mod solo;
mod sys;

pub use connect::{
    Choice, PmiVersion, Provider, choose, connect, connect_from, names, provider_trace,
};
pub use service::{Announcer, Bootstrap, Error, ExitPath, HostId, Place, Rank, Shared};
pub use sys::Mapping;

/// What a rank says in its `Hello`: release and protocol of the library in the program. The agent compares it with its
/// own, because a rank and an agent of different releases must not guess.
pub const BUILD_ID: &str = concat!("gasnetrun_ibv ", env!("CARGO_PKG_VERSION"));
