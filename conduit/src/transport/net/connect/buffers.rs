//! Registered buffers for datagrams. The only unsafe code of this directory.

#![allow(unsafe_code, reason = "memory that a device reads and writes")]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use fabric::{Access, Device, Region, Sge};

use super::Error;

/// Pages of their own, because registered pages may be missing in children of the process.
const PAGE: usize = 4096;
/// Least memory: enough for what jobs of up to 4096 ranks ask for, so that all of them take the
/// same.
const LEAST: usize = 2 * PAGE;

#[derive(Debug)]
struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory that nothing else points to; access goes through `Buffers`, which needs
// `&mut` to write.
unsafe impl Send for Block {}

impl Block {
    fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?.max(LEAST);
        let layout = Layout::from_size_align(bytes, PAGE).ok()?;
        // SAFETY: the size is at least a page.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        Some(Self { base: NonNull::new(base)?, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// Buffers of one size. Each is either here, or lent to the device until the request that uses it
/// is complete (or its queue pair is gone). Bytes are copied in and out; no reference to them is
/// ever made.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Before the memory, so that the device forgets it first.
    region: Arc<dyn Region>,
    block: Block,
    size: usize,
    lent: Vec<bool>,
}

impl Buffers {
    /// `count` buffers of `size` bytes that the device may write.
    pub(super) fn new(device: &dyn Device, size: usize, count: usize) -> Result<Self, Error> {
        let block = size.checked_mul(count).and_then(Block::new);
        let block = block.ok_or(Error::Memory { count, size })?;
        // SAFETY: the memory stays mapped until `block` is dropped, which is after `region`; nobody
        // else holds the region (it is not given out), and Rust code touches a buffer only while it
        // is not lent.
        let region =
            unsafe { device.register(block.base, block.layout.size(), Access::LOCAL_WRITE) };
        let region = region.map_err(|source| Error::Fabric { what: "register buffers", source })?;
        Ok(Self { region, block, size, lent: vec![false; count] })
    }

    pub(super) fn count(&self) -> usize {
        self.lent.len()
    }

    /// The first `len` bytes of a buffer (at most all) for a request. `None` when it is lent
    /// already.
    pub(super) fn lend(&mut self, index: usize, len: usize) -> Option<Sge> {
        let at = self.place(index)?;
        self.lent[index] = true;
        let len = u32::try_from(len.min(self.size)).ok()?;
        Some(Sge { addr: at.as_ptr().addr() as u64, len, lkey: self.region.lkey() })
    }

    /// The request that used it is complete.
    pub(super) fn take_back(&mut self, index: usize) {
        if let Some(lent) = self.lent.get_mut(index) {
            *lent = false;
        }
    }

    /// The queue pair forgot all requests.
    pub(super) fn take_back_all(&mut self) {
        self.lent.fill(false);
    }

    /// Copies the beginning of a buffer. `false` when it is lent or too short.
    pub(super) fn read(&self, index: usize, into: &mut [u8]) -> bool {
        let Some(at) = self.place(index).filter(|_| into.len() <= self.size) else { return false };
        // SAFETY: `place` is the start of `size` bytes inside the block, which are initialised
        // (zeroed at first) and not lent; `into` is other memory, because no reference into the
        // block exists.
        unsafe { at.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies to the beginning of a buffer. `false` when it is lent or too short.
    pub(super) fn write(&mut self, index: usize, bytes: &[u8]) -> bool {
        let Some(at) = self.place(index).filter(|_| bytes.len() <= self.size) else { return false };
        // SAFETY: as in `read`, in the other direction.
        unsafe { at.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }

    /// Where a buffer begins that is not lent.
    fn place(&self, index: usize) -> Option<NonNull<u8>> {
        if *self.lent.get(index)? {
            return None;
        }
        // SAFETY: `index` is below the count (looked up above), and the block has `size * count`
        // bytes.
        Some(unsafe { self.block.base.add(index * self.size) })
    }
}
