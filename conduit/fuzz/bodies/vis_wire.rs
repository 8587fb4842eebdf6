//! Any bytes as the description of a packet: no panic, and what is accepted names as many bytes as
//! the packet has, all in the segment.
//!
//! An input is the form (1 byte), the bytes of the packet (2 bytes, little-endian), those of the
//! segment (4 bytes), the description.

use super::wire::{self, Described, Form};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&[form, a, b, c, d, e, f], about)) = bytes.split_first_chunk::<7>() else { return };
    let Some(form) = Form::of(i32::from(form % 4)) else { return };
    let len = usize::from(u16::from_le_bytes([a, b]));
    let segment = u32::from_le_bytes([c, d, e, f]) as usize;
    let named = match wire::decode(form, about, len, segment) {
        None => return,
        Some(Described::List(runs)) => {
            assert!(runs.iter().all(|run| run.at + run.len <= segment));
            runs.iter().map(|run| run.len).sum::<usize>()
        }
        Some(Described::Grid(grid, from)) => {
            let inside =
                |at: usize, size: usize| at.checked_add(size).is_some_and(|end| end <= segment);
            let rows = grid.rows(from, len).inspect(|row| {
                let last = row.remote_stride.wrapping_mul((row.count - 1).cast_signed());
                assert!(inside(row.remote, row.size));
                assert!(inside(row.remote.wrapping_add_signed(last), row.size));
            });
            rows.map(|row| row.size * row.count).sum()
        }
    };
    assert_eq!(named, len);
}
