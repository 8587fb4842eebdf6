//! The network below the conduit: devices with queue pairs, completion queues, shared receive queues and registered
//! memory, in the terms of InfiniBand verbs.
//!
//! The traits of [`device`] are all that the conduit sees. What a device lacks it says in its [`Caps`]; nobody assumes.
//! This crate knows no ranks and no jobs.

/// For tests only (feature `testing`).
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod device;
mod error;
pub mod soft;
mod sync;
mod types;
pub mod verbs;

pub use device::{
    AddressHandle, Channel, CompletionQueue, Device, Fabric, QueuePair, Region, SharedReceiveQueue,
    XrcDomain,
};
pub use error::{Error, PostError};
pub use types::{
    Access, Address, AsyncEvent, Caps, Completion, Data, DeviceInfo, Gid, GidEntry, GidKind,
    LinkLayer, Mtu, Opcode, Operation, PortInfo, PortState, QpSpec, QpState, QpType, RcPeer,
    RecvWr, Retry, SendWr, Sge, Status, UdTarget,
};
