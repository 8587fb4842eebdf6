//! What the network is promised about memory that it reads and writes by itself.
#![allow(unsafe_code, reason = "promises about memory that are kept in the modules around")]

use std::ptr::NonNull;

use crate::transport::net::{RawTarget, SegmentMemory};

/// The attached segment of this rank: a mapping that the transport owns, and drops after the
/// network.
pub(crate) fn segment(base: u64, len: u64) -> SegmentMemory {
    let address = |at| NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(at));
    let at = usize::try_from(base).ok().and_then(address);
    let (at, len) = match (at, usize::try_from(len)) {
        (Some(at), Ok(len)) => (at, len),
        _ => (NonNull::dangling(), 0),
    };
    // SAFETY: mapped and writable as long as the transport, which closes the network before; only
    // accessed through raw pointers and atomics (`shm::Segments`).
    unsafe { SegmentMemory::new(at, len) }
}

/// The local end of a get. `rma` sees to it that the buffer is not given back before the operation
/// is complete, or the network closed.
pub(crate) fn target(into: &mut [u8]) -> RawTarget {
    // SAFETY: borrowed from the caller, whose function or scope does not end before the operation
    // is complete or the network closed (`RankContext::abandon`); what C programs pass is theirs to
    // keep until the event is complete.
    unsafe { RawTarget::new(NonNull::from(&mut *into).cast(), into.len()) }
}
