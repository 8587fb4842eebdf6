//! What the network is promised about memory that it reads and writes by itself.
#![allow(unsafe_code, reason = "promises about memory that are kept in the modules around")]

use std::ptr::{NonNull, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::atomics::wire::Refusal;
use crate::atomics::word::AtomicWord;
use crate::error::Error;
use crate::rank::RankContext;
use crate::segment_mode::SegmentMode;
use crate::sys::own_memory::{self, Range};
use crate::transport::net::{RawTarget, SegmentMemory};
use crate::transport::place::Place;

/// The attached segment of this rank: a mapping that the transport owns, and drops after the
/// network.
pub(crate) fn segment(base: u64, len: u64) -> SegmentMemory {
    let address = |at| NonNull::new(with_exposed_provenance_mut::<u8>(at));
    let at = usize::try_from(base).ok().and_then(address);
    let (at, len) = match (at, usize::try_from(len)) {
        (Some(at), Ok(len)) => (at, len),
        _ => (NonNull::dangling(), 0),
    };
    // SAFETY: mapped and writable as long as the transport, which closes the network before; only
    // accessed through raw pointers and atomics (`shm::Segments`).
    unsafe { SegmentMemory::new(at, len) }
}

impl SegmentMode {
    /// All memory of the process is reached by other ranks; there is no segment. Offsets in the
    /// calls of a client are addresses in the process of the other rank.
    ///
    /// # Safety
    /// Ranks of the job read and write only such memory of each other as the programs have set
    /// aside for it, to which no Rust reference exists meanwhile.
    #[must_use]
    pub const unsafe fn everything() -> Self {
        Self::EVERYTHING
    }
}

impl RankContext {
    /// The word at an address of this process, for atomics that another rank asks for. `None`: it
    /// is not mapped, or cannot be written where `write` says so.
    pub(crate) fn word_in_memory(
        &self,
        place: u64,
        size: usize,
        write: bool,
    ) -> Result<AtomicWord<'static>, Refusal> {
        let at = usize::try_from(place).map_err(|_| Refusal::Outside)?;
        if !at.is_multiple_of(size) {
            return Err(Refusal::Misaligned);
        }
        if !own_memory::has_word(Range { at, len: size }, write) {
            return Err(Refusal::Unmapped);
        }
        Ok(if size == 4 {
            let word = with_exposed_provenance_mut(at);
            // SAFETY: aligned and mapped (checked above), and set aside for atomics by the program's
            // promise, which is that of the segment mode.
            AtomicWord::Bits32(unsafe { AtomicU32::from_ptr(word) })
        } else {
            let word = with_exposed_provenance_mut(at);
            // SAFETY: as above.
            AtomicWord::Bits64(unsafe { AtomicU64::from_ptr(word) })
        })
    }

    /// Lets other ranks reach memory of this process over the network, as the segment of one of its
    /// endpoints; without a network there is nothing to do. They know of it when it was published.
    ///
    /// # Safety
    /// `len` bytes from `base` on stay mapped and writable until the process ends, other ranks may
    /// read and write them at any time, and no Rust reference to any of them is made.
    ///
    /// # Errors
    /// The adapters refuse to register the memory.
    pub unsafe fn bind_memory(
        &self,
        endpoint: u16,
        base: NonNull<u8>,
        len: usize,
    ) -> Result<(), Error> {
        let Some(net) = self.transport.net() else { return Ok(()) };
        if len as u64 > Place::MAX_LEN {
            let most = Place::MAX_LEN;
            return Err(Error::SegmentSize { len: len as u64, page: 1, max: most });
        }
        // SAFETY: what this method's caller promised.
        let memory = unsafe { SegmentMemory::new(base, len) };
        Ok(net.bind(endpoint, memory)?)
    }
}

/// The local end of a get. `rma` sees to it that the buffer is not given back before the operation
/// is complete, or the network closed.
pub(crate) fn target(into: &mut [u8]) -> RawTarget {
    // SAFETY: borrowed from the caller, whose function or scope does not end before the operation
    // is complete or the network closed (`RankContext::abandon`); what C programs pass is theirs to
    // keep until the event is complete.
    unsafe { RawTarget::new(NonNull::from(&mut *into).cast(), into.len()) }
}
