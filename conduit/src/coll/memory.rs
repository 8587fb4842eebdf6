//! Buffers of programs that collectives read and write while they are under way.
#![allow(unsafe_code, reason = "buffers that programs leave to a collective until it is complete")]

use std::ops::Range;

use super::aligned::Aligned;
use super::machine::Memory;
use super::reduce::Combine;

/// The memory of one collective, as who begins it gives it: addresses that may be read, and those
/// of the result written, until the collective is complete or given up. C programs promise it; for
/// Rust programs calls and scopes see to it, which end only then.
#[derive(Debug)]
pub struct Buffers {
    /// What this rank contributes; null when it is in place, or there is nothing.
    pub source: *const u8,
    /// Where data is worked on and where the result is to be; null when there is none here.
    pub result: *mut u8,
    /// Bytes of `source`.
    pub contributes: usize,
    /// Bytes of `result`.
    pub len: usize,
}

// SAFETY: addresses of memory that belongs to the collective until it is complete, whatever thread
// moves it on; one at a time does, under the lock of all collectives.
unsafe impl Send for Buffers {}

impl Buffers {
    /// For collectives without data.
    pub const NONE: Self =
        Self { source: std::ptr::null(), result: std::ptr::null_mut(), contributes: 0, len: 0 };

    /// Of a call or scope that does not end before the collective is complete or given up.
    pub(crate) fn of<T: Plain>(source: Option<&[T]>, result: Option<&mut [T]>) -> Self {
        let contributes = source.map_or(0, size_of_val);
        let len = result.as_deref().map_or(0, size_of_val);
        let source = source.map_or(std::ptr::null(), <[T]>::as_ptr).cast();
        let result = result.map_or(std::ptr::null_mut(), <[T]>::as_mut_ptr).cast();
        Self { source, result, contributes, len }
    }
}

/// Types that every sequence of bytes is a value of, without padding.
pub trait Plain: sealed::Sealed + Copy + Send + Sync + 'static {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl sealed::Sealed for $type {}
        impl Plain for $type {}
    )*};
}

plain!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 usize isize f32 f64);

/// Bytes as elements. Their number and place are those of elements.
pub(crate) fn elements<T: Plain>(bytes: &[u8]) -> &[T] {
    // SAFETY: every sequence of bytes is a value of a plain type.
    let (before, all, _) = unsafe { bytes.align_to() };
    assert!(before.is_empty(), "elements at an odd address");
    all
}

/// As [`elements`], to be changed.
pub(crate) fn elements_mut<T: Plain>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: as in `elements`, and every value of a plain type is a sequence of bytes.
    let (before, all, _) = unsafe { bytes.align_to_mut() };
    assert!(before.is_empty(), "elements at an odd address");
    all
}

/// Where a collective works.
pub(super) struct Work {
    buffers: Buffers,
    /// Where there is no place for the result.
    own: Aligned,
    combine: Option<Combine>,
}

impl Work {
    /// `own`: bytes that this rank needs because it has no place for a result.
    pub(super) fn new(buffers: Buffers, own: usize, combine: Option<Combine>) -> Self {
        let own = if own > 0 { Aligned::new(own) } else { Aligned::default() };
        Self { buffers, own, combine }
    }

    /// Combines a left operand with a right one; the left one becomes the result.
    pub(super) fn join(&self, left: &mut [u8], right: &mut [u8]) {
        if let Some(combine) = &self.combine {
            combine.apply(left, right, false);
        }
    }

    fn contribution(&self, range: Range<usize>) -> &[u8] {
        if self.buffers.source.is_null() || range.end > self.buffers.contributes {
            return &[];
        }
        // SAFETY: inside the source, which may be read while the collective is under way.
        unsafe {
            std::slice::from_raw_parts(self.buffers.source.wrapping_add(range.start), range.len())
        }
    }

    /// The place of the result, or what stands for it.
    fn place(&mut self, range: Range<usize>) -> &mut [u8] {
        if self.buffers.result.is_null() {
            return self.own.bytes().get_mut(range).unwrap_or_default();
        }
        if range.end > self.buffers.len {
            return &mut [];
        }
        // SAFETY: inside the result, which belongs to the collective while it is under way.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.buffers.result.wrapping_add(range.start),
                range.len(),
            )
        }
    }
}

impl Memory for Work {
    fn begin(&mut self, range: Range<usize>) {
        let Buffers { source, result, contributes, .. } = self.buffers;
        if source.is_null() || range.end > contributes || source == result.cast_const() {
            return;
        }
        let to = self.place(range.clone());
        if to.len() == range.len() {
            // SAFETY: both have so many bytes. A program may let them overlap.
            unsafe {
                std::ptr::copy(source.wrapping_add(range.start), to.as_mut_ptr(), range.len())
            };
        }
    }

    fn read(&self, range: Range<usize>) -> &[u8] {
        if !self.buffers.result.is_null() && range.end <= self.buffers.len {
            // SAFETY: as in `place`.
            return unsafe {
                std::slice::from_raw_parts(
                    self.buffers.result.wrapping_add(range.start),
                    range.len(),
                )
            };
        }
        match self.own.get(range.clone()) {
            Some(bytes) => bytes,
            // A rank that only contributes.
            None => self.contribution(range),
        }
    }

    fn original(&self, range: Range<usize>) -> &[u8] {
        if self.buffers.source.is_null() { self.read(range) } else { self.contribution(range) }
    }

    fn room(&mut self, range: Range<usize>) -> &mut [u8] {
        self.place(range)
    }

    fn combines_anywhere(&self) -> bool {
        matches!(self.combine, Some(Combine::Builtin(_)))
    }

    fn combine(&mut self, range: Range<usize>, data: &mut [u8], left: bool) {
        let Some(combine) = self.combine.take() else { return };
        combine.apply(self.place(range), data, left);
        self.combine = Some(combine);
    }
}
