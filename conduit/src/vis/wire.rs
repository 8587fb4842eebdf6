//! What of the other rank's segment a packet is about, as it travels behind the packed bytes. Pure.
//!
//! A list is its ranges: offset (4 bytes, or 8 where segments are larger) and length (2 bytes, for a
//! packet has less than 64 KiB). A grid is said once for all of its bytes, with the place of the
//! packet's bytes among them. Nothing of it is believed: what comes out of [`decode`] lies in the
//! segment and has as many bytes as the packet.

use super::grid::{Dim, Grid};
use super::list::Extent;

/// Form of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Ranges in a segment of at most 4 GiB.
    Narrow,
    /// Ranges.
    Wide,
    /// A part of a grid.
    Grid,
}

impl Form {
    pub(crate) const fn number(self) -> i32 {
        self as i32
    }

    pub(crate) const fn of(number: i32) -> Option<Self> {
        match number {
            0 => Some(Self::Narrow),
            1 => Some(Self::Wide),
            2 => Some(Self::Grid),
            _ => None,
        }
    }

    /// The form of lists for a segment of so many bytes.
    pub(crate) const fn of_lists(segment: u64) -> Self {
        if segment <= 1 << 32 { Self::Narrow } else { Self::Wide }
    }

    /// Bytes that a range takes.
    pub(crate) const fn entry(self) -> usize {
        if matches!(self, Self::Narrow) { 6 } else { 10 }
    }
}

/// Most dimensions: with two elements each there are 2^63.
const MOST_DIMS: usize = 63;
const HEAD: usize = 24;
const DIM: usize = 16;

/// What a description says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Described {
    /// Ranges, as offsets in the segment.
    List(Vec<Extent>),
    /// Bytes of a grid from one on. Only its remote side counts.
    Grid(Grid, usize),
}

/// Appends a range of at most 65535 bytes.
#[expect(clippy::cast_possible_truncation, reason = "a narrow form is for narrow offsets")]
pub(crate) fn encode_run(form: Form, run: Extent, into: &mut Vec<u8>) {
    match form {
        Form::Narrow => into.extend((run.at as u32).to_le_bytes()),
        Form::Wide | Form::Grid => into.extend((run.at as u64).to_le_bytes()),
    }
    into.extend((run.len as u16).to_le_bytes());
}

/// Bytes of a grid's description.
pub(crate) const fn grid_len(grid: &Grid) -> usize {
    HEAD + DIM * grid.dims.len()
}

/// Appends the remote side of a grid that begins at an offset of its segment, from a byte on.
pub(crate) fn encode_grid(grid: &Grid, (at, from): (usize, usize), into: &mut Vec<u8>) {
    for word in [grid.element, at, from] {
        into.extend((word as u64).to_le_bytes());
    }
    for dim in &grid.dims {
        into.extend((dim.count as u64).to_le_bytes());
        into.extend((dim.remote as i64).to_le_bytes());
    }
}

/// The description of `len` packed bytes for a segment; `None` for what is none.
pub(crate) fn decode(form: Form, bytes: &[u8], len: usize, segment: usize) -> Option<Described> {
    match form {
        Form::Narrow | Form::Wide => decode_list(form, bytes, len, segment),
        Form::Grid => decode_grid(bytes, len, segment),
    }
}

fn decode_list(form: Form, bytes: &[u8], len: usize, segment: usize) -> Option<Described> {
    let (entries, rest) = (bytes.chunks_exact(form.entry()), bytes.len() % form.entry());
    let mut runs = Vec::with_capacity(entries.len());
    let mut left = len;
    for entry in entries {
        let (at, size) = entry.split_at_checked(form.entry() - 2)?;
        let at = match form {
            Form::Narrow => u64::from(u32::from_le_bytes(at.try_into().ok()?)),
            Form::Wide | Form::Grid => u64::from_le_bytes(at.try_into().ok()?),
        };
        let run = Extent {
            at: usize::try_from(at).ok()?,
            len: usize::from(u16::from_le_bytes(size.try_into().ok()?)),
        };
        left = left.checked_sub(run.len)?;
        if run.at.checked_add(run.len)? > segment {
            return None;
        }
        runs.push(run);
    }
    (rest == 0 && left == 0).then_some(Described::List(runs))
}

fn decode_grid(bytes: &[u8], len: usize, segment: usize) -> Option<Described> {
    let words = bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
    let mut words = words.map_while(Result::ok);
    let mut number = || usize::try_from(words.next()?).ok();
    let (element, remote, from) = (number()?, number()?, number()?);
    let dims = bytes.len().checked_sub(HEAD)? / DIM;
    if bytes.len() != HEAD + dims * DIM || dims > MOST_DIMS || element == 0 {
        return None;
    }
    let mut grid = Grid { local: 0, remote, element, dims: Vec::with_capacity(dims) };
    let mut total = element;
    for _ in 0..dims {
        let dim = Dim { count: number()?, local: 0, remote: number()?.cast_signed() };
        total = total.checked_mul(dim.count)?;
        grid.dims.push(dim);
    }
    let extent = grid.extent(true)?;
    let inside = extent.at.checked_add(extent.len)? <= segment;
    let there = total > 0 && from.checked_add(len)? <= total;
    (inside && there).then_some(Described::Grid(grid, from))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lists_come_back(
            runs in proptest::collection::vec((0_usize..1 << 20, 0_usize..65_536), 0..50),
            wide in any::<bool>(),
        ) {
            let runs: Vec<_> = runs.into_iter().map(|(at, len)| Extent { at, len }).collect();
            let form = if wide { Form::Wide } else { Form::Narrow };
            let mut bytes = Vec::new();
            runs.iter().for_each(|run| encode_run(form, *run, &mut bytes));
            prop_assert_eq!(bytes.len(), runs.len() * form.entry());
            let len = runs.iter().map(|run| run.len).sum();
            let end = runs.iter().map(|run| run.at + run.len).max().unwrap_or(0);
            let there = decode(form, &bytes, len, end);
            prop_assert_eq!(there, Some(Described::List(runs)));
            prop_assert_eq!(decode(form, &bytes, len + 1, end), None);
            prop_assert!(end == 0 || decode(form, &bytes, len, end - 1).is_none());
        }

        #[test]
        fn grids_come_back(
            element in 1_usize..100,
            dims in proptest::collection::vec((2_usize..9, -1000_isize..1000), 0..7),
            from in 0_usize..50,
            len in 0_usize..50,
        ) {
            let dims = dims.into_iter().map(|(count, remote)| Dim { count, local: 0, remote });
            let grid = Grid { local: 0, remote: 1 << 30, element, dims: dims.collect() };
            let mut bytes = Vec::new();
            encode_grid(&grid, (grid.remote, from), &mut bytes);
            prop_assert_eq!(bytes.len(), grid_len(&grid));
            let extent = grid.extent(true).expect("small");
            let end = extent.at + extent.len;
            let there = decode(Form::Grid, &bytes, len, end);
            let expected = (from + len <= grid.total()).then_some(Described::Grid(grid, from));
            prop_assert_eq!(there, expected);
            prop_assert_eq!(decode(Form::Grid, &bytes, len, end - 1), None);
        }

        #[test]
        fn nothing_is_believed(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
            words in proptest::collection::vec(0_u64..5, 0..10),
            len in 0_usize..70_000,
            segment in 0_usize..100_000,
            form in 0_i32..3,
        ) {
            let form = Form::of(form).expect("a form");
            let small: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            for bytes in [bytes, small] {
                match decode(form, &bytes, len, segment) {
                    None => {}
                    Some(Described::List(runs)) => {
                        prop_assert_eq!(runs.iter().map(|run| run.len).sum::<usize>(), len);
                        prop_assert!(runs.iter().all(|run| run.at + run.len <= segment));
                    }
                    Some(Described::Grid(grid, from)) => {
                        let mut left = len;
                        for row in grid.rows(from, len).take(10_000) {
                            left -= row.size * row.count;
                            let last = row.remote_stride * (row.count - 1).cast_signed();
                            for at in [row.remote, row.remote.wrapping_add_signed(last)] {
                                prop_assert!(at + row.size <= segment);
                            }
                        }
                        prop_assert!(left == 0 || grid.rows(from, len).nth(10_000).is_some());
                    }
                }
            }
        }
    }
}
