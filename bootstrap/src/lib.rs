//! Bootstrap services of a parallel job: what a rank needs before it has a network.
//!
//! A *provider* (here: node agent, in-memory peer, solo; PMI and MPI have crates of their own)
//! tells a rank who it is and offers the nine collective services of [`Bootstrap`]. The conduit
//! never knows which provider it talks to.
//!
//! * [`rank`]: who a rank is.
//! * [`service`]: the trait, the exit notifier used on exit paths.
//! * [`frame`]: the versioned codec spoken between a rank and its agent (and between agents).
//! * [`node_shm`]: the page of shared memory that a host's ranks and agent share: doorbells and the
//!   exit decision.
//! * [`collective`]: the pure machine that matches the ranks' calls, one node of the tree of
//!   agents; every provider is driven by it.
//! * `conformance`: what every provider must do, as a suite to run over it (feature `testing`).
//! * [`memfd`]: memory made by a provider for its ranks.
//! * [`provider`], [`connect()`]: chooses between providers that the caller names. [`agent`],
//!   [`solo`], [`memory`]: those of this crate. [`client`]: a rank's half of the services over any
//!   channel.
//! * [`program_identity`]: whether hosts have the same program.
//! * [`self_start`]: a program that becomes the launcher of itself, if it is asked to.
//! * [`trace`]: records and counters of a rank, in memory that its starter reads.
//! * [`wait`]: bounded waits.
//!
//! This crate does *not* start processes and does not know the fabric.

pub mod agent;
pub mod client;
pub mod collective;
#[cfg(feature = "testing")]
pub mod conformance;
mod foreign;
pub mod frame;
pub mod memfd;
pub mod memory;
pub mod node_shm;
pub mod program_identity;
pub mod provider;
pub mod rank;
pub mod self_start;
pub mod service;
pub mod solo;
pub mod sys;
pub mod trace;
pub mod wait;

pub use frame::BUILD_ID;
pub use provider::{
    Announced, Choice, Provider, choose, connect, connect_from, names, provider_trace,
};
pub use service::{Bootstrap, Error, ExitNotifier, ExitPath, HostId, Rank, RankInfo, Shared};
pub use sys::Mapping;

/// The providers of this crate: those of a rank that our own launcher started, or nobody.
pub const PROVIDERS: [Provider; 2] = [agent::PROVIDER, solo::PROVIDER];
