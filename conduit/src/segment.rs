//! The segment: memory of this rank that every rank of the job can put to and get from.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::core::Core;
use crate::error::Error;

/// Distance in bytes from the start of a rank's segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentOffset(pub u64);

/// This rank's attached segment. Zero filled at first, page aligned. Other ranks change it at any time: safe access copies.
#[derive(Clone)]
pub struct Segment {
    core: Arc<Core>,
}

impl Segment {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        let _ = &self.core;
        todo!()
    }

    /// Whether the segment has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address of the first byte in this process.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        todo!()
    }

    /// Copies bytes out of the own segment.
    ///
    /// # Errors
    /// A range outside the segment.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let _ = (offset, into);
        todo!()
    }

    /// Copies bytes into the own segment.
    ///
    /// # Errors
    /// A range outside the segment.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let _ = (offset, from);
        todo!()
    }

    /// An atomic word of the segment; `offset` is a multiple of 8.
    ///
    /// # Errors
    /// A range outside the segment, or a misaligned one.
    pub fn atomic_u64(&self, offset: u64) -> Result<&AtomicU64, Error> {
        let _ = offset;
        todo!()
    }

    /// An atomic word of the segment; `offset` is a multiple of 4.
    ///
    /// # Errors
    /// A range outside the segment, or a misaligned one.
    pub fn atomic_u32(&self, offset: u64) -> Result<&AtomicU32, Error> {
        let _ = offset;
        todo!()
    }
}

/// Where the payload of a Long landed in this rank's segment.
#[derive(Clone, Copy, Debug)]
pub struct Landing<'a> {
    life: PhantomData<&'a ()>,
}

impl Landing<'_> {
    /// Destination that the sender gave; unchanged also when there is no payload.
    #[must_use]
    pub fn offset(&self) -> SegmentOffset {
        todo!()
    }

    /// Bytes of payload.
    #[must_use]
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether there is no payload.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the payload.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        todo!()
    }

    /// Address of the payload in this process.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        todo!()
    }
}
