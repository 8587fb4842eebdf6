//! Buffers of programs that collectives read and write while they are under way.
#![allow(unsafe_code, reason = "buffers that programs leave to a collective until it is complete")]

use std::ops::Range;

use super::aligned::Aligned;
use super::blocks::Side;
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

/// What whoever moves a collective on sees of them.
impl Buffers {
    /// The first bytes of what this rank contributes, where it is.
    pub(super) fn operand(&self, len: usize) -> &[u8] {
        if self.source.is_null() { self.result(0..len) } else { self.contribution(0..len) }
    }

    fn contribution(&self, range: Range<usize>) -> &[u8] {
        if self.source.is_null() || range.end > self.contributes {
            return &[];
        }
        // SAFETY: inside the source, which may be read while the collective is under way.
        unsafe { std::slice::from_raw_parts(self.source.wrapping_add(range.start), range.len()) }
    }

    fn result(&self, range: Range<usize>) -> &[u8] {
        if self.result.is_null() || range.end > self.len {
            return &[];
        }
        // SAFETY: inside the result, which is the collective's while it is under way.
        unsafe { std::slice::from_raw_parts(self.result.wrapping_add(range.start), range.len()) }
    }

    /// Bytes of the result.
    pub(super) fn room(&mut self, range: Range<usize>) -> &mut [u8] {
        if self.result.is_null() || range.end > self.len {
            return &mut [];
        }
        let start = self.result.wrapping_add(range.start);
        // SAFETY: as in `result`, and nobody else has it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
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
    moves: Option<Moves>,
}

/// What of it a collective that moves blocks uses. Numbers of bytes.
#[derive(Debug)]
pub(super) struct Moves {
    pub(super) reads: Side,
    pub(super) stores: Side,
    /// Where the bytes that stay here are in the source, and where they go.
    pub(super) keeps: Option<(usize, usize)>,
    pub(super) block: usize,
}

impl Work {
    /// `own`: bytes that this rank needs because it has no place for a result.
    pub(super) fn new(buffers: Buffers, own: usize, combine: Option<Combine>) -> Self {
        let own = if own > 0 { Aligned::new(own) } else { Aligned::default() };
        Self { buffers, own, combine, moves: None }
    }

    /// As [`Work::new`] for a collective that moves blocks.
    pub(super) fn moving(buffers: Buffers, own: usize, moves: Moves) -> Self {
        Self { moves: Some(moves), ..Self::new(buffers, own, None) }
    }

    fn contribution(&self, range: Range<usize>) -> &[u8] {
        self.buffers.contribution(range)
    }

    fn result(&self, range: Range<usize>) -> &[u8] {
        self.buffers.result(range)
    }

    /// The place of the result, or what stands for it.
    fn place(&mut self, range: Range<usize>) -> &mut [u8] {
        if self.buffers.result.is_null() {
            return self.own.bytes().get_mut(range).unwrap_or_default();
        }
        self.result_mut(range)
    }

    fn result_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.buffers.room(range)
    }
}

/// Collectives that move blocks.
impl Work {
    /// Stores where `side` says; what has no room there is not stored.
    fn store_at(&mut self, side: Side, block: usize, at: usize, bytes: &[u8]) {
        let (head, rest) = match side {
            Side::Split => bytes.split_at(block.saturating_sub(at).min(bytes.len())),
            Side::Own => (&[][..], bytes),
            Side::Source | Side::Result => (bytes, &[][..]),
        };
        let behind = if side == Side::Split { (at + head.len()).saturating_sub(block) } else { at };
        if let Some(place) = self.own.bytes().get_mut(behind..behind + rest.len()) {
            place.copy_from_slice(rest);
        }
        let place = self.result_mut(at..at + head.len());
        if place.len() == head.len() {
            place.copy_from_slice(head);
        }
    }

    fn read_at(&self, side: Side, block: usize, range: Range<usize>) -> &[u8] {
        match side {
            Side::Source => self.contribution(range),
            Side::Result => self.result(range),
            Side::Own => self.own.get(range).unwrap_or_default(),
            Side::Split => {
                let Some(start) = range.start.checked_sub(block) else { return &[] };
                self.own.get(start..start + range.len()).unwrap_or_default()
            }
        }
    }

    /// What stays here goes to its place.
    fn keep(&mut self, from: usize, to: usize, side: Side, range: &Range<usize>) {
        let source = self.contribution(from + range.start..from + range.end);
        let (source, len) = (source.as_ptr(), source.len());
        let place = match side {
            Side::Own => self.own.bytes().get_mut(to + range.start..to + range.end),
            _ => Some(self.result_mut(to + range.start..to + range.end)),
        };
        if let Some(place) = place.filter(|place| place.len() == len) {
            // SAFETY: both have so many bytes. A program may let them be the same.
            unsafe { std::ptr::copy(source, place.as_mut_ptr(), len) };
        }
    }
}

impl Memory for Work {
    fn begin(&mut self, range: Range<usize>) {
        if let Some(Moves { stores, keeps, .. }) = self.moves {
            if let Some((from, to)) = keeps {
                self.keep(from, to, stores, &range);
            }
            return;
        }
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
        if let Some(Moves { reads, block, .. }) = self.moves {
            return self.read_at(reads, block, range);
        }
        if !self.buffers.result.is_null() && range.end <= self.buffers.len {
            return self.result(range);
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

    fn store(&mut self, at: usize, bytes: &[u8]) {
        if let Some(Moves { stores, block, .. }) = self.moves {
            return self.store_at(stores, block, at, bytes);
        }
        let room = self.place(at..at + bytes.len());
        if room.len() == bytes.len() {
            room.copy_from_slice(bytes);
        }
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
