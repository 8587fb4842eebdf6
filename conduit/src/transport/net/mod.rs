//! The network: messages, puts and gets between ranks that share no memory.
//!
//! [`NetTransport`] is there only when some rank of the job is outside the neighbourhood. It never
//! runs a handler itself: arrived messages go to a [`Sink`](crate::transport::message::Sink). It
//! never waits for a peer's program, only (where a method says so) for the device to finish what
//! was posted. `docs/design/am.md` has the protocol.
//!
//! From bottom to top: `credits`, `lockfree`, `am/header`, `memory`, `settings`, `connect` (it
//! knows nothing of the rest); `plan`, `rail`, `xrc`, `peer`, `pending_ops`, `segments`; `context`,
//! which holds all of them; the paths `post`, `completions`, `rma`, `atomics`, `small`, `am`;
//! `qp_setup` and `links`; `threads`, `setup`; `transport`.

mod am;
mod atomics;
mod completions;
mod connect;
mod connect_queue;
mod context;
mod credits;
mod device_events;
mod error;
mod failure;
mod fence;
mod flow;
mod lent;
mod links;
mod lockfree;
mod members;
mod memory;
mod numbered_counters;
mod parts;
mod peer;
mod peer_addresses;
mod pending_ops;
mod plan;
mod ports;
mod post;
mod qp_setup;
mod rail;
mod records;
mod recv_buffers;
mod rma;
mod rows;
mod segments;
mod settings;
mod setup;
mod signal;
mod silent;
mod single;
mod small;
mod stripes;
mod threads;
mod topology;
mod transport;
mod xrc;

pub(crate) use fabric::AtomicCap;

pub(crate) use self::am::polls::Poll;
pub(crate) use self::atomics::WordOp;
pub(crate) use self::error::Error;
pub(crate) use self::members::{Common, Members};
pub(crate) use self::memory::buffers::SendBuffer;
pub(crate) use self::memory::cache::Held;
pub(crate) use self::memory::loan_parts::{LentPart, LentParts, MOST_KEYS};
pub(crate) use self::memory::pool::{Inbox, RawTarget, RemoteInbox, SegmentMemory};
pub(crate) use self::memory::refusals::Refusals;
pub(crate) use self::parts::{OwnPart, PartLimits};
pub(crate) use self::pending_ops::{Fetched, FetchedBy};
pub(crate) use self::post::{MOST_TOGETHER, Sent, Via};
pub(crate) use self::rma::RawSource;
pub(crate) use self::settings::NetSettings;
pub(crate) use self::small::{MOST_SMALL, OneCall, Small, SmallSent};
pub use self::threads::DeferredThread;
pub(crate) use self::threads::SharedSink;
pub(crate) use self::transport::{Mark, NetTransport};

#[cfg(test)]
pub(crate) use self::memory::{
    regions as regions_for_tests, uses as uses_for_tests, watch as watch_for_tests,
};

#[cfg(test)]
pub(crate) mod fuzz_seeds;
#[cfg(test)]
mod tests;
