use proptest::prelude::*;

use super::*;

fn any_record() -> impl Strategy<Value = Record> {
    let kind = (1..Kind::ALL.len()).prop_map(|at| Kind::ALL[at]);
    let small = (kind, any::<[u8; 3]>(), any::<u32>());
    (small, any::<[u32; 3]>(), any::<(u32, u32)>()).prop_map(|(small, [at, span, bytes], run)| {
        let (kind, [detail, flavor, thread], peer) = small;
        let (ordinal, count) = run;
        let [at, span, bytes] = [at, span, bytes].map(u64::from);
        Record { at, kind, detail, flavor, thread, peer, span, bytes, ordinal, count }
    })
}

/// A slot whose clock is the host's.
fn written(records: &[Record], capacity: u64, next: u64) -> Vec<u8> {
    let mut words = vec![0_u64; usize::try_from(slot_len(capacity)).unwrap() / 8];
    words[Word::Next as usize] = next;
    words[Word::Capacity as usize] = capacity;
    words[Word::Clock as usize..][..4].copy_from_slice(&[0, 0, 1, 1]);
    words[Word::Magic as usize] = MAGIC;
    for (number, record) in (0..).zip(records) {
        let at = RING + usize::try_from(number % capacity).unwrap() * RECORD;
        words[at..at + RECORD].copy_from_slice(&record.encode(number));
    }
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

proptest! {
    #[test]
    fn the_newest_records_are_kept(records in proptest::collection::vec(any_record(), 0..40)) {
        let count = records.len() as u64;
        let bytes = written(&records, 16, count);
        let slot = Slot::read(&bytes).unwrap();
        let from = records.len().saturating_sub(16);
        prop_assert_eq!(&slot.records, &records[from..]);
        prop_assert_eq!(slot.lost, from as u64);
        prop_assert_eq!(used_len(&bytes[..4096]), slot_len(count.min(16)));
        let used = usize::try_from(used_len(&bytes)).unwrap();
        prop_assert_eq!(Slot::read(&bytes[..used]).unwrap(), slot);
    }

    #[test]
    fn a_record_that_was_not_finished_is_lost(
        records in proptest::collection::vec(any_record(), 1..10), which in any::<usize>(),
    ) {
        let mut bytes = written(&records, 16, records.len() as u64);
        let torn = which % records.len();
        let last = (RING + torn * RECORD + RECORD - 1) * 8;
        bytes[last..last + 8].fill(0);
        let slot = Slot::read(&bytes).unwrap();
        let mut whole = records.clone();
        whole.remove(torn);
        prop_assert_eq!((slot.records, slot.lost), (whole, 1));
    }

    #[test]
    fn garbage_never_panics(mut words in proptest::collection::vec(any::<u64>(), 0..2200)) {
        if let Some(first) = words.first_mut() {
            *first = MAGIC;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let _ = Slot::read(&bytes);
        let _ = used_len(&bytes);
    }

    #[test]
    fn a_place_survives(
        fd in 0..1000_i32, bits in any::<[bool; 2]>(), power in proptest::option::of(0..30_u32),
    ) {
        let [trace, stats] = bits;
        let capacity = power.map_or(0, |power| 1 << power);
        let place = Place { fd, capacity, wants: (trace, stats) };
        prop_assert_eq!(Place::read(&place.text()), Some(place));
    }
}

#[test]
fn nonsense_is_no_place() {
    for text in ["", "3", "3 7 1 1", "-1 0 0 0", "a b c d", "3 18446744073709551615 1 1"] {
        assert_eq!(Place::read(text), None, "{text}");
    }
}

#[test]
fn clocks_are_straight_lines() {
    let clock = Clock::new([1_000, 50, 3_000, 1_050]);
    assert_eq!([clock.time(1_000), clock.time(2_000), clock.time(5_000)], [50, 550, 2_050]);
    assert_eq!((clock.time(960), clock.time(0)), (30, 0));
    assert_eq!(Clock::new([7, 9, 7, 9]).time(10), 12, "nothing known: nanoseconds");
}

#[test]
fn letters_select_what_there_is() {
    for letter in Kind::ALL.iter().map(|kind| kind.letter()) {
        assert!(LETTERS.as_bytes().contains(&letter));
    }
    for counter in Counter::ALL {
        assert!(LETTERS.as_bytes().contains(&counter.letter()), "{counter:?}");
    }
    assert_eq!(Kind::of(200), None);
    assert!(Cause::Credit.is_stall() && !Cause::Barrier.is_stall());
}

/// The names of the original's list, one a line.
const ORIGINAL: &str = include_str!("counters.txt");

#[test]
fn every_name_of_the_list_is_counted_or_has_a_reason() {
    let counters = Counter::ALL.iter().map(|counter| counter.name());
    let ours: Vec<&str> = counters.chain(Cause::ALL.iter().map(|cause| cause.name())).collect();
    for name in ORIGINAL.lines() {
        let counted = ours.iter().filter(|one| **one == name).count();
        let lacking = LACKING.iter().filter(|(one, _)| *one == name).count();
        assert_eq!(counted + lacking, 1, "{name}");
    }
    for (name, reason) in LACKING {
        assert!(ORIGINAL.lines().any(|one| one == name) && reason.len() > 20, "{name}: {reason}");
    }
    let mut once = ours.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ours.len(), "no name twice");
}
