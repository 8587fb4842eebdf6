//! Regions against a model that knows every page.

use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;
/// Pages of a block.
const BLOCK: u64 = 8;

fn limits(bytes: u64, regions: u32) -> Limits {
    Limits { page: PAGE, block: BLOCK * PAGE, bytes: bytes * PAGE, regions }
}

fn span(from: u64, to: u64) -> Span {
    Span { from: from * PAGE, to: to * PAGE }
}

/// Registers until `span` can be held, and what was deregistered for it.
fn make(regions: &mut Regions<u32>, wanted: Span, write: bool, value: u32) -> Option<Vec<u32>> {
    let mut gone = Vec::new();
    loop {
        match regions.plan(wanted, write) {
            Plan::Register(union, write) => {
                regions.insert(union, write, value).expect("nothing was forgotten");
                return Some(gone);
            }
            Plan::Evict(_, value) => gone.push(value),
            Plan::Full => return None,
        }
    }
}

#[test]
fn a_block_ends_a_region_and_addresses_do_not_wrap() {
    let limits = limits(64, 8);
    assert_eq!(limits.first_block(5 * PAGE + 7, 1), Some(span(5, 6)));
    assert_eq!(limits.first_block(5 * PAGE + 7, PAGE), Some(span(5, 7)));
    assert_eq!(limits.first_block(5 * PAGE, 100 * PAGE), Some(span(5, 8)));
    assert_eq!(limits.first_block(8 * PAGE, 8 * PAGE), Some(span(8, 16)));
    assert_eq!(limits.first_block(u64::MAX - 7, 8), None);
    assert_eq!(limits.first_block(u64::MAX - 4096, 4), None);
}

#[test]
fn a_missing_region_joins_its_neighbours_in_its_block() {
    let mut regions = Regions::new(limits(64, 8));
    make(&mut regions, span(1, 2), true, 1);
    make(&mut regions, span(4, 5), false, 2);
    make(&mut regions, span(8, 9), false, 3);
    assert_eq!(regions.plan(span(2, 4), false), Plan::Register(span(1, 5), true));
    assert_eq!(regions.plan(span(5, 8), false), Plan::Register(span(4, 8), false));
    assert_eq!(regions.plan(span(6, 7), false), Plan::Register(span(6, 7), false));
    assert_eq!(regions.plan(span(9, 11), false), Plan::Register(span(8, 11), false));
    assert_eq!(make(&mut regions, span(2, 4), false, 4), Some(vec![]));
    assert!(regions.hold(span(1, 5), true).is_some());
    // Those that it replaced go before anything else is made.
    assert_eq!(make(&mut regions, span(6, 7), false, 5).map(|gone| gone.len()), Some(2));
}

#[test]
fn reading_does_not_give_the_right_to_write() {
    let mut regions = Regions::new(limits(64, 8));
    make(&mut regions, span(0, 4), false, 1);
    assert!(regions.hold(span(1, 2), true).is_none());
    assert_eq!(regions.plan(span(1, 2), true), Plan::Register(span(0, 4), true));
    make(&mut regions, span(1, 2), true, 2);
    let (_held, value) = regions.hold(span(0, 4), true).expect("writable");
    assert_eq!(value, &2);
    assert!(regions.hold(span(3, 4), false).is_some());
}

#[test]
fn what_was_not_used_for_longest_goes_first_and_what_is_used_stays() {
    let mut regions = Regions::new(limits(64, 3));
    for (value, at) in [(1, 0), (2, 8), (3, 16)] {
        assert_eq!(make(&mut regions, span(at, at + 1), false, value), Some(vec![]));
    }
    let hold = |regions: &mut Regions<u32>, at| {
        regions.hold(span(at, at + 1), false).map(|(one, _)| one).expect("there")
    };
    // The oldest, but in use; then the second is used again, briefly.
    let first = hold(&mut regions, 0);
    for at in [8, 16, 8] {
        drop(hold(&mut regions, at));
    }
    assert_eq!(make(&mut regions, span(24, 25), false, 4), Some(vec![3]));
    assert_eq!(make(&mut regions, span(32, 33), false, 5), Some(vec![2]));
    drop(first);
    assert_eq!(make(&mut regions, span(40, 41), false, 6), Some(vec![1]));
    let all = [24, 32, 40].map(|at| hold(&mut regions, at));
    assert_eq!(make(&mut regions, span(56, 57), false, 8), None);
    drop(all);
    assert_eq!(make(&mut regions, span(56, 57), false, 9), Some(vec![4]));
}

#[test]
fn forgotten_pages_are_not_found_and_their_region_waits_for_its_users() {
    let mut regions = Regions::new(limits(64, 8));
    make(&mut regions, span(0, 4), false, 1);
    make(&mut regions, span(4 + 8, 8 + 8), false, 2);
    make(&mut regions, span(24, 25), false, 3);
    let hold = |regions: &mut Regions<u32>, from, to| {
        regions.hold(span(from, to), false).map(|(one, _)| one)
    };
    let held = hold(&mut regions, 0, 4).expect("there");
    regions.forget(span(3, 13));
    assert!(hold(&mut regions, 0, 1).is_none());
    assert!(hold(&mut regions, 12, 13).is_none());
    // The next plan hands out what is unused.
    assert_eq!(make(&mut regions, span(32, 33), false, 4), Some(vec![2]));
    // Neither a plan nor the search of a victim does with what is used.
    assert_eq!(regions.evict(), Some((span(24, 25), 3)));
    assert_eq!(make(&mut regions, span(40, 41), false, 5), Some(vec![]));
    assert_eq!(regions.held(), (3, 6 * PAGE));
    drop(held);
    assert_eq!(make(&mut regions, span(48, 49), false, 6), Some(vec![1]));
    assert_eq!(regions.held(), (3, 3 * PAGE));
}

#[test]
fn what_is_forgotten_while_it_is_registered_is_not_entered() {
    let mut regions = Regions::new(limits(64, 8));
    regions.begin(span(0, 4));
    regions.forget(span(4, 5));
    regions.forget(span(2, 3));
    assert_eq!(regions.insert(span(0, 4), false, 1), Err(1));
    assert_eq!(regions.insert(span(0, 4), false, 1), Err(1), "it was not begun");
    regions.begin(span(0, 4));
    regions.forget(span(4, 5));
    assert_eq!(regions.insert(span(0, 4), false, 1), Ok(()));
}

#[test]
fn what_is_forgotten_after_it_was_planned_is_not_entered() {
    let mut regions = Regions::new(limits(64, 8));
    make(&mut regions, span(0, 2), false, 1);
    assert_eq!(regions.plan(span(2, 4), false), Plan::Register(span(0, 4), false));
    // A neighbour, which belongs to another transfer.
    regions.forget(span(0, 1));
    assert_eq!(regions.insert(span(0, 4), false, 2), Err(2));
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Use { from: u64, len: u64, write: bool },
    Release(usize),
    Forget { from: u64, len: u64 },
}

const PAGES: u64 = 64;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..PAGES, 1_u64..12, any::<bool>())
            .prop_map(|(from, len, write)| Step::Use { from, len, write }),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (0..PAGES, 1_u64..20).prop_map(|(from, len)| Step::Forget { from, len }),
    ];
    proptest::collection::vec(step, 0..200)
}

/// What is true of every region that a history has made.
#[derive(Clone, Copy, Debug)]
struct Made {
    span: Span,
    write: bool,
    users: u32,
    /// When its last use began, or it was made.
    begun: u64,
    forgotten: bool,
    gone: bool,
}

struct Model {
    regions: Regions<usize>,
    limits: Limits,
    made: Vec<Made>,
    held: Vec<(Use, usize)>,
    now: u64,
}

impl Model {
    fn gone(&mut self, value: usize) {
        let one = &mut self.made[value];
        assert!(!one.gone && one.users == 0, "{one:?} deregistered");
        one.gone = true;
    }

    /// A victim is one that nobody will find again, or else the one that was not used for longest.
    fn is_next(&self, value: usize) {
        let victim = self.made[value];
        let idle = self.made.iter().filter(|one| !one.gone && one.users == 0);
        let first = idle.min_by_key(|one| (!one.forgotten, one.begun)).expect("the victim");
        let is_right = if first.forgotten { victim.forgotten } else { victim.begun == first.begun };
        assert!(is_right, "{victim:?} instead of {first:?}");
    }

    /// No region with any of these pages is found again.
    fn replaced(&mut self, span: Span) {
        for one in self.made.iter_mut().filter(|one| one.span.overlaps(span)) {
            one.forgotten = true;
        }
    }

    fn hold(&mut self, span: Span, write: bool) -> bool {
        let Some((held, value)) = self.regions.hold(span, write) else { return false };
        let value = *value;
        let one = &mut self.made[value];
        assert!(!one.gone && !one.forgotten && one.span.covers(span), "{one:?} for {span:?}");
        assert!(one.write || !write);
        one.users += 1;
        self.now += 1;
        one.begun = self.now;
        self.held.push((held, value));
        true
    }

    fn make(&mut self, span: Span, write: bool) {
        loop {
            match self.regions.plan(span, write) {
                Plan::Evict(_, value) => {
                    self.is_next(value);
                    self.gone(value);
                }
                Plan::Register(span, write) => {
                    let value = self.made.len();
                    self.regions.insert(span, write, value).expect("room was planned");
                    self.replaced(span);
                    self.now += 1;
                    let (begun, users) = (self.now, 0);
                    self.made.push(Made {
                        span,
                        write,
                        users,
                        begun,
                        forgotten: false,
                        gone: false,
                    });
                    assert!(self.hold(span, write), "what was just made is found");
                    return;
                }
                Plan::Full => {
                    let mut here = self.made.iter().filter(|one| !one.gone);
                    let too_large = span.len() > self.limits.bytes;
                    assert!(too_large || here.all(|one| one.users > 0), "unused ones give way");
                    return;
                }
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Use { from, len, write } => {
                let span = self.limits.first_block(from * PAGE, len * PAGE).expect("no wrap");
                if !self.hold(span, write) {
                    self.make(span, write);
                }
            }
            Step::Release(which) if !self.held.is_empty() => {
                let (held, value) = self.held.swap_remove(which % self.held.len());
                self.made[value].users -= 1;
                drop(held);
            }
            Step::Release(_) => {}
            Step::Forget { from, len } => {
                let span = span(from, from + len);
                self.regions.forget(span);
                self.replaced(span);
            }
        }
        let here: Vec<&Made> = self.made.iter().filter(|one| !one.gone).collect();
        let bytes: u64 = here.iter().map(|one| one.span.len()).sum();
        assert_eq!(self.regions.held(), (here.len(), bytes));
        assert!(bytes <= self.limits.bytes && here.len() <= self.limits.regions as usize);
    }
}

proptest! {
    /// No region is found for pages that were forgotten, or for writing what is only read; each is
    /// deregistered once, without users; the budget is kept.
    #[test]
    fn every_history_is_kept_straight(
        steps in steps(),
        bytes in 4_u64..80,
        count in 1_u32..20,
    ) {
        let limits = limits(bytes, count);
        let regions = Regions::new(limits);
        let mut model = Model { regions, limits, made: Vec::new(), held: Vec::new(), now: 0 };
        for step in steps {
            model.step(step);
        }
        while let Some((held, value)) = model.held.pop() {
            model.made[value].users -= 1;
            drop(held);
        }
        // Whatever is left goes when it is asked for, each once.
        while let Some((_, value)) = model.regions.take_dead().or_else(|| model.regions.evict()) {
            model.is_next(value);
            model.gone(value);
        }
        assert!(model.made.iter().all(|one| one.gone));
        assert_eq!(model.regions.held(), (0, 0));
    }
}
