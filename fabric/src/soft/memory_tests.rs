//! Keys, bounds, and copies into and out of regions.

use super::*;
use proptest::prelude::*;

fn random() -> impl FnMut() -> u32 {
    let mut state = 1_u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    }
}

#[test]
fn keys_of_an_ended_region_are_wrong_and_its_slot_is_used_again() {
    let table = Table::new();
    let mut bytes = [0_u8; 16];
    let base = bytes.as_mut_ptr() as u64;
    let mut random = random();
    let first = table.enter(base, 16, Access::ALL, &mut random).unwrap();
    assert!(table.local(&Sge { addr: base, len: 16, lkey: first.lkey }, true).is_some());
    table.leave(first);
    assert!(table.local(&Sge { addr: base, len: 16, lkey: first.lkey }, true).is_none());
    let second = table.enter(base, 16, Access::NONE, &mut random).unwrap();
    assert_eq!(first.lkey & 0xffff, second.lkey & 0xffff);
    assert!(table.local(&Sge { addr: base, len: 16, lkey: first.lkey }, false).is_none());
    assert!(table.local(&Sge { addr: base, len: 16, lkey: second.lkey }, true).is_none());
    assert!(table.local(&Sge { addr: base, len: 16, lkey: second.lkey }, false).is_some());
    assert!(table.remote(second.rkey, base, 1, Access::REMOTE_READ).is_none());
}

#[test]
fn a_copy_and_an_addition_reach_the_bytes() {
    let table = Table::new();
    let mut words = [7_u64; 4];
    let base = words.as_mut_ptr() as u64;
    let keys = table.enter(base, 32, Access::ALL, random()).unwrap();
    let at = |offset, len| table.remote(keys.rkey, base + offset, len, Access::ALL).unwrap();
    assert_eq!(at(8, 8).fetch_add(5), Some(7));
    assert_eq!(at(4, 8).fetch_add(5), None);
    assert_eq!(at(16, 8).compare_swap(7, 9), Some(7));
    assert_eq!(at(16, 8).compare_swap(7, 8), Some(9));
    assert_eq!(at(20, 8).compare_swap(7, 9), None);
    assert_eq!(at(0, 3).fill(&[1, 2, 3, 4]), 3);
    let mut back = [0; 4];
    assert_eq!(at(0, 4).read(&mut back), 4);
    assert_eq!(back, [1, 2, 3, 0]);
    assert_eq!(words[1..3], [12, 9]);
}

#[test]
fn fragments_are_copied_from_any_place() {
    let table = Table::new();
    let mut words = [0_u64; 2];
    let keys = table.enter(words.as_mut_ptr() as u64, 16, Access::ALL, random()).unwrap();
    let span = |offset, len| {
        let base = words.as_ptr() as u64;
        table.remote(keys.rkey, base + offset, len, Access::ALL).unwrap()
    };
    let mut into = Scatter::new();
    assert!(into.span(span(0, 3)) && into.span(span(8, 5)));
    assert_eq!(into.fill(0, b"ab"), 2);
    assert_eq!(into.fill(2, b"cdefghij"), 6);
    assert_eq!(into.fill(8, b"x"), 0);
    drop(into);
    let mut out = Gather::new();
    assert!(out.bytes(b"<") && out.span(span(0, 3)) && out.span(span(8, 5)) && out.bytes(b">"));
    for from in 0..=out.total() {
        for len in 0..12 {
            let mut seen = vec![0; len];
            let count = out.copy(from, &mut seen);
            let all = &b"<abcdefgh>"[from..];
            assert_eq!(seen[..count], all[..len.min(all.len())], "{len} bytes from {from} on");
        }
    }
}

proptest! {
    /// Whatever a peer names, a span is given exactly for ranges inside.
    #[test]
    fn bounds_hold_for_every_range(
        base in 4096_u64..1 << 47,
        size in 1_u64..1 << 40,
        near in -3_i64..3,
        end in any::<bool>(),
        addr in any::<u64>(),
        len in 1_usize..1 << 41,
        pick in any::<bool>(),
    ) {
        let table = Table::new();
        let keys = table.enter(base, size, Access::ALL, random()).unwrap();
        let edge = if end { base + size } else { base };
        let addr = if pick { addr } else { edge.wrapping_add_signed(near) };
        let inside = u128::from(addr) >= u128::from(base)
            && u128::from(addr) + len as u128 <= u128::from(base) + u128::from(size);
        prop_assert_eq!(
            table.remote(keys.rkey, addr, len, Access::REMOTE_WRITE).is_some(),
            inside
        );
        prop_assert!(table.remote(keys.rkey ^ 0x1_0000, base, 1, Access::NONE).is_none());
    }
}
