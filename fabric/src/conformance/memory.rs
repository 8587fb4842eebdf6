//! Memory of a case that the device knows.
#![expect(unsafe_code, reason = "registered memory changes behind the compiler's back")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Access, Device, Error, Region, Sge};

const ALIGN: usize = 4096;

/// Page-aligned memory, zero at first, registered for as long as it lives.
pub struct Buffer {
    // Goes before the memory does.
    region: Option<Arc<dyn Region>>,
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned; it is only reached through raw copies, and what a device changes
// while a case reads is bytes without an invariant.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`; no reference into the memory is ever made.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// `len` bytes (at least 1).
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(device: &dyn Device, len: usize, access: Access) -> Result<Self, Error> {
        let mut buffer = Self::unregistered(len);
        // SAFETY: the memory lives until `Drop`, which drops the region first; a case expects any
        // change of it.
        buffer.region = Some(unsafe { device.register(buffer.base, len, access) }?);
        Ok(buffer)
    }

    /// Memory that no device knows.
    pub(super) fn unregistered(len: usize) -> Self {
        let layout = Layout::from_size_align(len.max(1), ALIGN).unwrap_or(Layout::new::<u64>());
        // SAFETY: the size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Self { region: None, base, layout }
    }

    pub(super) fn len(&self) -> usize {
        self.layout.size()
    }

    /// Address of a byte.
    pub fn addr(&self, offset: usize) -> u64 {
        (self.base.as_ptr() as u64).wrapping_add(offset as u64)
    }

    pub(super) fn lkey(&self) -> u32 {
        self.region.as_ref().map_or(0, |region| region.lkey())
    }

    /// Key for peers.
    pub fn rkey(&self) -> u32 {
        self.region.as_ref().map_or(0, |region| region.rkey())
    }

    /// `len` bytes from `offset` on, for requests of this side.
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Sge { addr: self.addr(offset), len, lkey: self.lkey() }
    }

    /// Ends the registration, not the memory.
    pub(super) fn deregister(&mut self) {
        self.region = None;
    }

    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        assert!(inside, "{offset}+{len} of a buffer of {} bytes", self.len());
        self.base.as_ptr().wrapping_add(offset)
    }

    pub(super) fn put(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: the range is inside the memory (checked above) and `bytes` cannot overlap it:
        // nobody has references to it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// A copy of `len` bytes from `offset` on.
    ///
    /// # Panics
    /// The part is not inside.
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let from = self.at(offset, len);
        // SAFETY: the range is inside the memory (checked above), `out` is new and as long.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), len) }
        out
    }

    /// Sets every byte to `byte`.
    pub fn fill(&self, byte: u8) {
        // SAFETY: the whole memory, which is owned.
        unsafe { std::ptr::write_bytes(self.base.as_ptr(), byte, self.len()) }
    }

    pub(super) fn word(&self, offset: usize) -> u64 {
        let bytes = self.get(offset, 8);
        bytes.try_into().map_or(0, u64::from_ne_bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.region = None;
        // SAFETY: from `alloc_zeroed` with this layout; the region is gone.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
