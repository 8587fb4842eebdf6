//! The network below the conduit: devices with queue pairs, completion queues, shared receive
//! queues and registered memory, in the terms of InfiniBand verbs.
//!
//! The traits of [`device`] are all that the conduit sees. What a device lacks it says in its
//! [`Caps`]; nobody assumes. This crate knows no ranks and no jobs.

mod checks;
// For tests only.
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod device;
mod error;
mod sleep;
pub mod soft;
mod sync;
mod types;
pub mod verbs;

pub use device::{
    AddressHandle, Channel, CompletionQueue, Device, Fabric, Look, QueuePair, Region, Ringer,
    SharedReceiveQueue, XrcDomain,
};
pub use error::{Error, PostError};
pub use sleep::Sleep;
pub use types::connection::{Address, QpSpec, QpState, QpType, RcPeer, Retry};
pub use types::device::{
    Access, AsyncEvent, AtomicCap, Caps, DeviceInfo, Gid, GidEntry, GidKind, LinkLayer, Mtu,
    PortInfo, PortState,
};
pub use types::work::{Completion, Data, Opcode, Operation, RecvWr, SendWr, Sge, Status, UdTarget};
