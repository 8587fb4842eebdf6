//! Writer and owner together, in random orders of everything that can overtake something else.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// One end's view of the other, and what is on its way between them.
struct World {
    ring: Geometry,
    most: u32,
    writer: Writer,
    owner: Owner,
    /// Requests that were sent and not taken, and those that handlers work on.
    sent: Vec<Place>,
    running: Vec<Place>,
    /// Places that can be given back and wait to be carried; counts under way.
    banked: u32,
    carried: VecDeque<u32>,
    /// Live units, by what the two agree on: number of the request, or none.
    map: Vec<Option<u32>>,
}

impl World {
    fn new(ring: Geometry, most: u32, first: u32) -> Self {
        let (mut writer, owner) = (Writer::new(ring, most), Owner::new(ring, most));
        // As if so many had been before.
        writer.number = first;
        (writer.oldest, writer.stop) = (first, first.wrapping_add(most));
        for back in 0..=2 * most.next_power_of_two() {
            let number = first.wrapping_sub(back + 1);
            let slot = owner.entry(number);
            slot.store(word(Place { number, start: 0, units: 0 }), Ordering::Relaxed);
            if back + 1 == u32::try_from(owner.done.len()).unwrap() {
                break;
            }
        }
        owner.prefix.store(word(Place { number: first, start: 0, units: 0 }), Ordering::Relaxed);
        Self {
            ring,
            most,
            writer,
            owner,
            sent: Vec::new(),
            running: Vec::new(),
            banked: 0,
            carried: VecDeque::new(),
            map: vec![None; ring.units as usize],
        }
    }

    fn units(place: Place) -> std::ops::Range<usize> {
        place.start as usize..(place.start + place.units) as usize
    }

    /// Sends a request, unless there is no room.
    fn send(&mut self, len: u32, undone: bool) -> bool {
        let Some(place) = self.writer.take(len) else { return false };
        if undone {
            self.writer.untake();
            let again = self.writer.take(len);
            assert_eq!(again, Some(place), "what was undone is not as it was");
        }
        assert!(place.start + place.units <= self.ring.units, "{place:?} is outside the ring");
        assert!(self.writer.used() <= self.ring.units, "more than the budget");
        assert!(self.writer.out() <= self.most, "more than may be out");
        for unit in &mut self.map[Self::units(place)] {
            assert_eq!(*unit, None, "{place:?} lies on a live request");
            *unit = Some(place.number);
        }
        self.sent.push(place);
        true
    }

    fn take(&mut self, which: usize) {
        let place = self.sent.swap_remove(which);
        self.owner.arrived(place.number).unwrap();
        self.running.push(place);
    }

    fn end(&mut self, which: usize) {
        let place = self.running.swap_remove(which);
        for unit in &mut self.map[Self::units(place)] {
            assert_eq!(*unit, Some(place.number), "{place:?} was overwritten");
            *unit = None;
        }
        self.banked += self.owner.ended(place).unwrap();
        assert!(self.owner.kept() < self.owner.group, "more is kept than a group");
        if self.owner.is_due(self.banked) {
            self.carry();
        }
    }

    fn carry(&mut self) {
        let count = self.banked.min(255);
        self.banked -= count;
        self.carried.push_back(count);
    }

    fn hear(&mut self, which: usize) {
        let count = self.carried.remove(which).unwrap();
        self.writer.freed(count);
    }

    /// All handlers end, all that must be said is said.
    fn settle(&mut self) {
        while !self.sent.is_empty() {
            self.take(0);
        }
        while !self.running.is_empty() {
            self.end(0);
        }
        while !self.carried.is_empty() {
            self.hear(0);
        }
    }
}

fn rings() -> impl Strategy<Value = Geometry> {
    (1u64..200_000, prop_oneof![Just(1032u64), Just(65_544), 65u64..5000])
        .prop_map(|(space, longest)| Geometry::of(space, longest))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn rings_are_as_large_as_they_have_to_be(space: u64, longest in 1u64..70_000) {
        let ring = Geometry::of(space, longest);
        prop_assert!(ring.units <= MOST_UNITS && ring.unit.is_multiple_of(64));
        prop_assert!(u64::from(ring.longest) * u64::from(ring.unit) >= longest);
        prop_assert!(ring.units >= 2 * ring.longest);
        prop_assert!(u64::from(ring.bytes()) <= 65 * longest.next_multiple_of(64));
    }

    /// The two agree on every place, no live requests lie on each other, and once all handlers have
    /// ended the longest request has room.
    #[test]
    fn nobody_waits_for_ever(
        ring in rings(),
        most in 1u32..40,
        first in prop_oneof![Just(0u32), Just(u32::MAX - 20), any::<u32>()],
        steps in proptest::collection::vec((0u8..8, any::<u16>(), any::<bool>()), 1..400),
    ) {
        let mut world = World::new(ring, most, first);
        let most_bytes = ring.longest * ring.unit;
        for (step, number, flag) in steps {
            let pick = |len: usize| usize::from(number) % len;
            match step {
                0..=2 => {
                    let len = if flag { u32::from(number) % 200 } else { u32::from(number) };
                    world.send((len % most_bytes).max(1), flag);
                }
                3 | 4 if !world.sent.is_empty() => world.take(pick(world.sent.len())),
                5 if !world.running.is_empty() => world.end(pick(world.running.len())),
                6 if !world.carried.is_empty() => world.hear(pick(world.carried.len())),
                7 if flag && world.banked > 0 => world.carry(),
                _ => {}
            }
        }
        for _ in 0..2 * most + 4 {
            world.settle();
            prop_assert!(world.send(most_bytes, false), "no room although all are done");
        }
    }

    /// What a writer cannot have done is found, and nothing panics.
    #[test]
    fn wild_requests_are_refused(
        ring in rings(),
        places in proptest::collection::vec((0u32..70, 0u32..5000, 0u32..1100), 1..200),
    ) {
        let owner = Owner::new(ring, 16);
        let mut freed = 0;
        for (number, start, units) in places {
            if owner.arrived(number).is_err() {
                continue;
            }
            match owner.ended(Place { number, start, units: units.min(ring.longest) }) {
                Ok(count) => freed += count,
                Err(_) => return Ok(()),
            }
            let _ = owner.is_due(freed);
        }
        prop_assert!(freed <= 70);
    }
}

#[test]
fn a_writer_that_breaks_its_rule_is_found() {
    let ring = Geometry::of(1 << 17, 65_544);
    let place = |number, start| Place { number, start, units: 2 };
    let owner = Owner::new(ring, 4);
    assert_eq!(owner.arrived(4), Err(Wrong::Number { number: 4, expected: 0, most: 4 }));
    assert_eq!(owner.ended(place(1, 2)), Ok(0));
    assert_eq!(owner.ended(place(1, 2)), Err(Wrong::Twice { number: 1 }));
    let wrong = Wrong::Place { number: 0, start: 1, expected: 0 };
    assert_eq!(owner.ended(place(0, 1)), Err(wrong));
}

/// Threads end what others took; each place is given back once.
#[test]
fn threads_give_each_place_back_once() {
    let (ring, most) = (Geometry::of(1 << 18, 65_544), 64);
    let owner = Owner::new(ring, most);
    let writer = std::sync::Mutex::new(Writer::new(ring, most));
    let (given, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (owner, writer, given, ended) = (&owner, &writer, &given, &ended);
            scope.spawn(move || {
                let mut mine = VecDeque::new();
                for turn in 0..5000_u32 {
                    let place = writer.lock().unwrap().take(1 + turn * (thread + 7) % 3000);
                    mine.extend(place);
                    if place.is_none() || turn % (thread + 2) == 0 {
                        for place in mine.drain(..) {
                            owner.arrived(place.number).unwrap();
                            let freed = owner.ended(place).unwrap();
                            ended.fetch_add(1, Ordering::Relaxed);
                            given.fetch_add(freed.into(), Ordering::Relaxed);
                            writer.lock().unwrap().freed(freed);
                        }
                        std::thread::yield_now();
                    }
                }
                for place in mine {
                    let freed = owner.ended(place).unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                    given.fetch_add(freed.into(), Ordering::Relaxed);
                    writer.lock().unwrap().freed(freed);
                }
            });
        }
    });
    let kept = owner.kept();
    assert!(kept < owner.group);
    assert_eq!(given.into_inner() + u64::from(kept), ended.into_inner());
    let mut writer = writer.into_inner().unwrap();
    writer.freed(kept);
    assert_eq!(writer.used(), 0);
}

/// How many places come back with each of some requests of `len` bytes, one after the other.
fn given(ring: Geometry, most: u32, len: u32, count: usize) -> Vec<u32> {
    let (mut writer, owner) = (Writer::new(ring, most), Owner::new(ring, most));
    let one = || {
        let place = writer.take(len).unwrap();
        let freed = owner.ended(place).unwrap();
        writer.freed(freed);
        freed
    };
    std::iter::repeat_with(one).take(count).collect()
}

/// An answer seldom carries something: small requests give their places back sixteen at once.
#[test]
fn small_requests_give_places_back_in_groups() {
    let counts = given(Geometry::of(1 << 18, 65_544), 128, 64, 320);
    let group = |at: usize| if (at + 1).is_multiple_of(16) { 16 } else { 0 };
    assert_eq!(counts, (0..320).map(group).collect::<Vec<_>>());
    // Few that may be out at once are never kept, and neither is anything in the smallest ring.
    assert!(given(Geometry::of(1 << 18, 65_544), 8, 64, 20).iter().all(|count| *count == 1));
    assert!(given(Geometry::of(1, 65_544), 128, 64, 20).iter().all(|count| *count == 1));
}

/// What is kept takes less than a part of the ring.
#[test]
fn long_requests_give_places_back_at_once() {
    let ring = Geometry::of(1 << 18, 65_544);
    assert!(given(ring, 128, 65_544, 40).iter().all(|count| *count == 1));
    let counts = given(ring, 128, 100 * 64, 400);
    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    assert!(counts.contains(&0) && counts.contains(&3), "{counts:?}");
}
