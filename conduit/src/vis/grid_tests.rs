//! Grids against a model that visits every element.

use std::collections::{BTreeSet, HashSet};

use proptest::prelude::*;

use super::*;

const BASE: usize = 1 << 40;

/// Every pair of bytes of a description, in any order.
fn naive(element: usize, dims: &[Dim]) -> Vec<(usize, usize)> {
    let mut at = vec![(BASE, 2 * BASE)];
    for dim in dims {
        at = at
            .iter()
            .flat_map(|(local, remote)| {
                (0..dim.count).map(|k| {
                    let step = |stride: isize| stride.wrapping_mul(k.cast_signed());
                    (
                        local.wrapping_add_signed(step(dim.local)),
                        remote.wrapping_add_signed(step(dim.remote)),
                    )
                })
            })
            .collect();
    }
    at.iter().flat_map(|(l, r)| (0..element).map(move |k| (l + k, r + k))).collect()
}

fn bytes(rows: Rows<'_>) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for row in rows {
        for k in 0..row.count.cast_signed() {
            let local = row.local.wrapping_add_signed(row.local_stride * k);
            let remote = row.remote.wrapping_add_signed(row.remote_stride * k);
            all.extend((0..row.size).map(|b| (local + b, remote + b)));
        }
    }
    all
}

fn dims() -> impl Strategy<Value = Vec<Dim>> {
    let one = (0_usize..5, -40_isize..40, -40_isize..40).prop_map(|(count, local, remote)| Dim {
        count,
        local,
        remote,
    });
    proptest::collection::vec(one, 0..5)
}

/// A destination without overlap: each dimension steps over the one before.
fn disjoint(element: usize, steps: &[(usize, isize, bool, usize)]) -> Vec<Dim> {
    let mut reach = element;
    let mut dims: Vec<Dim> = steps
        .iter()
        .map(|&(count, local, backwards, gap)| {
            let stride = (reach + gap).cast_signed();
            reach = (reach + gap) * count.max(1);
            Dim { count, local, remote: if backwards { -stride } else { stride } }
        })
        .collect();
    dims.reverse();
    dims
}

proptest! {
    #[test]
    fn a_grid_is_the_bytes_of_its_description(
        element in 0_usize..7,
        steps in proptest::collection::vec((0_usize..5, -30_isize..30, any::<bool>(), 0_usize..9), 0..5),
    ) {
        let dims = disjoint(element, &steps);
        let expected = naive(element, &dims);
        let grid = Grid::new((BASE, 2 * BASE), element, dims.iter().copied(), true).expect("legal");
        let Some(grid) = grid else {
            prop_assert!(expected.is_empty());
            return Ok(());
        };
        let all = bytes(grid.rows(0, usize::MAX));
        prop_assert_eq!(all.len(), grid.total());
        prop_assert_eq!(all.len(), expected.len());
        let set: BTreeSet<_> = all.iter().collect();
        prop_assert_eq!(&set, &expected.iter().collect::<BTreeSet<_>>());
        // The extents are exact.
        for remote in [false, true] {
            let side = |pair: &(usize, usize)| if remote { pair.1 } else { pair.0 };
            let extent = grid.extent(remote).expect("in range");
            prop_assert_eq!(Some(extent.at), all.iter().map(side).min());
            prop_assert_eq!(Some(extent.at + extent.len - 1), all.iter().map(side).max());
        }
        // Nothing that is contiguous on both sides is left in pieces.
        let contiguous: HashSet<_> = expected.iter().map(|pair| (pair.0 + 1, pair.1 + 1)).collect();
        let starts = expected.iter().filter(|pair| !contiguous.contains(pair)).count();
        if starts == 1 {
            prop_assert_eq!(grid.dims.len(), 0, "one run is one element");
        }
    }

    #[test]
    fn parts_of_a_grid_make_the_whole(
        element in 1_usize..7,
        steps in proptest::collection::vec((1_usize..5, -30_isize..30, any::<bool>(), 0_usize..9), 0..5),
        chunk in 1_usize..40,
    ) {
        let dims = disjoint(element, &steps);
        let grid = Grid::new((BASE, 2 * BASE), element, dims, true).expect("legal").expect("bytes");
        let mut parts = Vec::new();
        for from in (0..grid.total()).step_by(chunk) {
            let part = bytes(grid.rows(from, chunk));
            prop_assert_eq!(part.len(), chunk.min(grid.total() - from));
            parts.extend(part);
        }
        prop_assert_eq!(parts, bytes(grid.rows(0, usize::MAX)));
    }

    #[test]
    fn any_numbers_are_a_grid_or_refused(
        element in any::<usize>(),
        dims in proptest::collection::vec((any::<usize>(), any::<isize>(), any::<isize>()), 0..20),
        put in any::<bool>(),
    ) {
        let dims = dims.into_iter().map(|(count, local, remote)| Dim { count, local, remote });
        if let Ok(Some(grid)) = Grid::new((BASE, BASE), element, dims, put) {
            prop_assert!(grid.total() > 0);
        }
    }

    #[test]
    fn small_numbers_never_lose_a_byte(element in 0_usize..4, dims in dims(), put in any::<bool>()) {
        let expected = naive(element, &dims);
        let made = Grid::new((BASE, 2 * BASE), element, dims.iter().copied(), put);
        if let Ok(Some(grid)) = made {
            let mut got = bytes(grid.rows(0, usize::MAX));
            let mut expected = expected;
            got.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(got, expected);
        }
    }
}

#[test]
fn contiguous_dimensions_become_one_element() {
    let dims = [(5, 240, 240), (3, 8, 8), (10, 24, 24)];
    let dims = dims.map(|(count, local, remote)| Dim { count, local, remote });
    let grid = Grid::new((0, 0), 8, dims, true).expect("legal").expect("bytes");
    assert_eq!((grid.element, grid.dims.len()), (1200, 0));
}

#[test]
fn an_overlap_in_the_destination_is_refused() {
    let dim = |local, remote| [Dim { count: 2, local, remote }];
    let made = |dims, put| Grid::new((BASE, BASE), 8, dims, put).map(|grid| grid.is_some());
    assert_eq!(made(dim(0, 8), true), Ok(true));
    let overlap = BadGrid::Overlap { count: 2, stride: 0, element: 8 };
    assert_eq!(made(dim(0, 8), false), Err(overlap));
    let overlap = BadGrid::Overlap { count: 2, stride: -7, element: 8 };
    assert_eq!(made(dim(8, -7), true), Err(overlap));
}

#[test]
fn sizes_beyond_two_to_the_31_are_counted_right() {
    let dims = [(1 << 16, 2, 16), (1 << 16, 1 << 17, 1 << 20), (3, 1 << 33, 1 << 36)];
    let dims = dims.map(|(count, local, remote)| Dim { count, local, remote });
    let grid = Grid::new((0, 0), 1, dims, true).expect("legal").expect("bytes");
    assert_eq!((grid.total(), grid.elements()), (3 << 32, 3 << 32));
    let last = grid.rows((3 << 32) - 1, 7).next().expect("a byte");
    let end = ((1 << 16) - 1) * 16 + ((1 << 16) - 1) * (1 << 20) + 2 * (1 << 36);
    assert_eq!((last.remote, last.size, last.count), (end, 1, 1));
}

#[test]
fn too_much_is_refused() {
    let dim = |count, stride| Dim { count, local: stride, remote: stride };
    let made = |dims: [Dim; 2]| Grid::new((0, 0), 8, dims, true);
    assert_eq!(made([dim(1 << 33, 8), dim(1 << 33, 1 << 40)]), Err(BadGrid::Huge));
    assert_eq!(made([dim(2, -8), dim(1, 8)]), Err(BadGrid::Outside));
    assert_eq!(made([dim(3, isize::MAX), dim(1, 8)]), Err(BadGrid::Outside));
    assert_eq!(made([dim(0, 8), dim(usize::MAX, isize::MAX)]), Ok(None));
}
