//! Destinations of Longs.

use crate::segment_mode::SegmentMode;
use crate::sys::own_memory::{self, Range};
use crate::transport::shm::ShmTransport;

/// Distance in bytes from the start of a rank's segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentOffset(pub u64);

/// Where the payload of a Long is in this rank's segment.
#[derive(Clone, Copy)]
pub struct LongPayload<'a> {
    shm: &'a ShmTransport,
    /// The offset is an address, of whatever memory.
    everything: bool,
    offset: u64,
    len: usize,
}

impl std::fmt::Debug for LongPayload<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LongPayload({} bytes at {})", self.len, self.offset)
    }
}

impl<'a> LongPayload<'a> {
    /// Checks the range; `None` when it is not inside the own segment.
    pub(crate) fn new(
        (shm, mode): (&'a ShmTransport, SegmentMode),
        offset: u64,
        len: usize,
    ) -> Option<Self> {
        let everything = mode.is_everything();
        if len != 0 && !everything {
            shm.segments.get()?.range(shm.memory.row(shm.local()), offset, len)?;
        }
        Some(Self { shm, everything, offset, len })
    }

    /// Destination that the sender gave; unchanged also when there is no payload.
    #[must_use]
    pub const fn offset(&self) -> SegmentOffset {
        SegmentOffset(self.offset)
    }

    /// Bytes of payload.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no payload.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first bytes of the payload, as many as `into` takes.
    pub fn read(&self, into: &mut [u8]) {
        let len = self.len.min(into.len());
        if self.everything {
            let at = usize::try_from(self.offset).unwrap_or(usize::MAX);
            // It was mapped when the payload was written.
            let _mapped = own_memory::load(&mut into[..len], [Range { at, len }]);
            return;
        }
        // Checked when the message arrived.
        let _inside = self.shm.read(self.shm.local(), self.offset, &mut into[..len]);
    }

    /// A copy of the payload.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(&mut bytes);
        bytes
    }

    /// Address of the payload in this process; without payload the address that the destination
    /// would have.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        if self.everything {
            let at = usize::try_from(self.offset).unwrap_or(usize::MAX);
            return std::ptr::with_exposed_provenance_mut(at);
        }
        let base = self.shm.segment_base(self.shm.local()).unwrap_or(std::ptr::null_mut());
        base.wrapping_add(usize::try_from(self.offset).unwrap_or(usize::MAX))
    }
}
