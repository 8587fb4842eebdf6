//! Whether a destination has bytes twice, which is forbidden, and too dear to ask with each transfer.
//! Pure.

use super::grid::Grid;
use super::list::{Extent, List};

/// More elements of a grid whose dimensions interleave are not compared one by one.
const MOST: usize = 1 << 20;

/// Bytes that two of these ranges have, if there are any.
fn common(mut runs: Vec<Extent>) -> Option<Extent> {
    runs.sort_unstable_by_key(|run| run.at);
    let mut end = 0;
    for run in runs {
        if run.at < end {
            return Some(Extent { at: run.at, len: run.len.min(end - run.at) });
        }
        end = run.at.saturating_add(run.len);
    }
    None
}

/// Bytes that are in a list twice.
#[must_use]
pub fn of_list(list: &List<'_>) -> Option<Extent> {
    common(list.runs().collect())
}

/// Bytes that are twice on one side of a grid. Grids of many elements whose dimensions interleave
/// are not looked at.
#[must_use]
pub fn of_grid(grid: &Grid, remote: bool) -> Option<Extent> {
    let mut steps: Vec<(usize, usize)> = grid
        .dims
        .iter()
        .map(|dim| (if remote { dim.remote } else { dim.local }.unsigned_abs(), dim.count))
        .collect();
    steps.sort_unstable();
    // Each dimension steps over all that is inside of it, or elements may lie between others.
    let mut reach = Some(grid.element);
    for (stride, count) in steps {
        reach = reach.filter(|reach| *reach <= stride);
        reach = reach.and_then(|reach| reach.checked_add(stride.checked_mul(count - 1)?));
    }
    if reach.is_some() || grid.elements() > MOST {
        return None;
    }
    let rows = grid.rows(0, usize::MAX).flat_map(|row| {
        let (first, stride) =
            if remote { (row.remote, row.remote_stride) } else { (row.local, row.local_stride) };
        let at = move |k: usize| first.wrapping_add(stride.cast_unsigned().wrapping_mul(k));
        (0..row.count).map(move |k| Extent { at: at(k), len: row.size })
    });
    common(rows.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::vis::grid::Dim;
    use crate::vis::list::Entries;

    const BASE: usize = 1 << 30;

    fn twice(bytes: impl IntoIterator<Item = usize>) -> bool {
        let mut seen = HashSet::new();
        !bytes.into_iter().all(|byte| seen.insert(byte))
    }

    proptest! {
        #[test]
        fn lists_overlap_as_their_bytes_do(
            all in proptest::collection::vec((0_usize..300, 0_usize..9), 0..20),
        ) {
            let all: Vec<_> = all.into_iter().map(|(at, len)| Extent { at, len }).collect();
            let list = List { entries: Entries::Vector(&all), base: 0 };
            let bytes = all.iter().flat_map(|one| one.at..one.at + one.len);
            prop_assert_eq!(of_list(&list).is_some(), twice(bytes));
        }

        #[test]
        fn grids_overlap_as_their_bytes_do(
            element in 1_usize..5,
            dims in proptest::collection::vec((1_usize..5, -30_isize..30), 0..4),
        ) {
            let mut bytes: Vec<usize> = (BASE..BASE + element).collect();
            for (count, stride) in &dims {
                let step = |at: &usize| {
                    let at = *at;
                    (0..*count).map(move |k| at.wrapping_add_signed(stride * k.cast_signed()))
                };
                bytes = bytes.iter().flat_map(step).collect();
            }
            let dims = dims.iter().map(|&(count, remote)| Dim { count, local: 0, remote });
            match Grid::new((BASE, BASE), element, dims, true) {
                Ok(Some(grid)) => {
                    prop_assert_eq!(of_grid(&grid, true).is_some(), twice(bytes));
                }
                Ok(None) => prop_assert!(bytes.is_empty()),
                Err(_) => prop_assert!(twice(bytes)),
            }
        }
    }
}
