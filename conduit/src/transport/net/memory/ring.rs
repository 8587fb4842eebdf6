//! Memory that a peer writes its requests into.

#![allow(unsafe_code, reason = "memory that a peer writes")]

use std::sync::Arc;

use fabric::{Access, Device, Region};

use super::pool::Mapping;
use crate::trace;
use crate::transport::net::error::Error;

/// One connection's.
#[derive(Debug)]
pub(crate) struct RingMemory {
    // Dropped before the memory that it is of.
    region: Arc<dyn Region>,
    memory: Mapping,
}

impl RingMemory {
    pub(crate) fn new(device: &dyn Device, len: usize) -> Result<Self, Error> {
        let memory = Mapping::new(len)?;
        let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
        let _span = trace::registers(memory.len);
        // SAFETY: mapped and writable until it is dropped, after the region; `bytes` says who looks
        // at which part of it.
        let region = unsafe { device.register(memory.base, memory.len, access) }?;
        Ok(Self { region, memory })
    }

    /// Address and key for the peer.
    pub(crate) fn remote(&self) -> (u64, u32) {
        (self.memory.base.as_ptr().addr() as u64, self.region.rkey())
    }

    /// A request that has come; `None` when it is not inside.
    ///
    /// The caller is the only one with these bytes: requests have places of their own, and the peer
    /// writes nothing to a place until it is told that the request there is done. (A peer that does
    /// not keep this changes bytes of its own requests while they are handled.)
    #[expect(clippy::mut_from_ref, reason = "each request is its handler's alone")]
    pub(crate) fn bytes(&self, from: usize, len: usize) -> Option<&mut [u8]> {
        if from > self.memory.len || len > self.memory.len - from {
            return None;
        }
        // SAFETY: at most the length of the mapping (checked above).
        let at = unsafe { self.memory.base.as_ptr().add(from) };
        // SAFETY: `len` bytes from there are inside (checked above), mapped as long as `self`,
        // initialised (anonymous memory), and by the protocol nobody else's.
        Some(unsafe { std::slice::from_raw_parts_mut(at, len) })
    }
}
