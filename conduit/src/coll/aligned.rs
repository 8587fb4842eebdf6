//! Bytes of the library that functions of programs may take for elements of any type.

use std::ops::Range;

/// The alignment.
const ALIGN: usize = 64;

/// Bytes that begin at a multiple of 64.
#[derive(Debug, Default)]
pub(crate) struct Aligned {
    /// With room before the first one.
    room: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub(crate) fn new(len: usize) -> Self {
        let room = vec![0; len + ALIGN - 1];
        let start = room.as_ptr().align_offset(ALIGN).min(ALIGN - 1);
        Self { room, start }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let len = self.room.len().saturating_sub(ALIGN - 1);
        self.room.get_mut(self.start..self.start + len).unwrap_or_default()
    }

    /// Some of the bytes; `None` where there are none.
    pub(crate) fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        let len = self.room.len().saturating_sub(ALIGN - 1);
        (!self.room.is_empty()).then_some(())?;
        self.room.get(self.start..self.start + len)?.get(range)
    }

    /// Copies a piece of `len` bytes to its place; makes room for all when it is the first.
    pub(crate) fn fill(&mut self, len: usize, at: usize, piece: &[u8]) {
        if self.room.is_empty() {
            *self = Self::new(len);
        }
        if let Some(place) = self.bytes().get_mut(at..at + piece.len()) {
            place.copy_from_slice(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_filled_in_pieces() {
        for len in [1, 7, 64, 65, 4096] {
            let mut bytes = Aligned::default();
            bytes.fill(len, len / 2, &vec![2; len - len / 2]);
            bytes.fill(len, 0, &vec![1; len / 2]);
            assert_eq!(bytes.bytes().as_ptr().addr() % ALIGN, 0);
            assert_eq!(bytes.bytes().len(), len);
            assert!(
                bytes
                    .bytes()
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| { *byte == if at < len / 2 { 1 } else { 2 } })
            );
        }
    }
}
