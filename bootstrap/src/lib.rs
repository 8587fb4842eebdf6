//! Bootstrap services of a parallel job: what a rank needs before it has a network.
//!
//! A *provider* (node agent, in-memory peer, solo; later PMI and MPI) tells a rank who it is and offers the nine
//! collective services of [`Bootstrap`]. The conduit never knows which provider it talks to.
//!
//! * [`service`]: the trait, the place of a rank in its job, the announcer used on exit paths.
//! * [`frame`]: the versioned codec spoken between a rank and its agent (and between agents).
//! * [`page`]: the page of shared memory that a host's ranks and agent share: doorbells and the exit notice.
//! * [`collective`]: the pure machine that matches the ranks' calls; every provider is driven by it.
//! * [`memfd`]: memory made by a provider for its ranks.
//! * [`vars`]: the one table of `GASNET_*` variables, its parsers and what is folded out of it.
//! * [`agent`], [`solo`], [`memory`]: the providers.
//!
//! This crate does *not* start processes and does not know the fabric.

pub mod collective;
pub mod frame;
pub mod memfd;
pub mod page;
pub mod service;
mod sys;

pub use service::{Announcer, Bootstrap, Error, ExitPath, HostId, Place, Rank, Shared};
pub use sys::Mapping;
