//! The cache against memory that comes and goes, with a device that pins pages as adapters do: what
//! it sees must be what the program sees.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use fabric::Region;

use super::super::refusals::LEFT_OUT;
use super::super::registrar::Rights;
use super::super::watch::testing::{
    Pinned, discard, fill, map, map_at, map_shared, replace, swap, unmap,
};
use super::*;

const PAGE: usize = 4096;
/// Bytes of a region: as many pages as the device can pin.
const BLOCK: usize = 16 * PAGE;

/// A device that pins pages, and may refuse.
#[derive(Clone, Debug, Default)]
struct Pinning {
    regions: Arc<Mutex<HashMap<u32, Arc<Pinned>>>>,
    next: Arc<AtomicU32>,
    refuses: Arc<AtomicBool>,
    /// Refuses to be allowed to write.
    read_only: bool,
}

#[derive(Debug)]
struct PinnedRegion(Pinning, u32);

impl Region for PinnedRegion {
    fn lkey(&self) -> u32 {
        self.1
    }

    fn rkey(&self) -> u32 {
        self.1
    }
}

impl Drop for PinnedRegion {
    fn drop(&mut self) {
        lock(&self.0.regions).remove(&self.1);
    }
}

impl Registrar for Pinning {
    fn register_all(&self, _: bool) -> Result<Registered, fabric::Error> {
        Ok(Registered::new([u32::MAX].into(), Vec::new(), 0))
    }

    fn register(&self, span: Span, rights: Rights) -> Result<Registered, fabric::Error> {
        let refused =
            || fabric::Error::Unsupported { device: "pinning".to_owned(), what: "more regions" };
        if self.refuses.load(Ordering::Relaxed) || self.read_only && rights.write {
            return Err(refused());
        }
        let pinned = Arc::new(Pinned::new(span).ok_or_else(refused)?);
        let key = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&self.regions).insert(key, pinned);
        let region: Arc<dyn Region> = Arc::new(PinnedRegion(self.clone(), key));
        Ok(Registered::new([key].into(), vec![region], span.len()))
    }
}

fn limits(regions: u32) -> Limits {
    let (page, block) = (PAGE as u64, BLOCK as u64);
    Limits { page, block, bytes: block * u64::from(regions), regions }
}

/// `None`, with the reason, where the system does not tell of unmapped memory.
fn cache(device: &Pinning, regions: u32) -> Option<Cache> {
    let cache = Cache::new(Box::new(device.clone()), [limits(regions); 2], false);
    if cache.shared.state().is_none() {
        println!("SKIP: no userfaultfd here ({:?})", Watch::new().err());
        return None;
    }
    Some(cache)
}

/// New memory at a place where the system puts nothing by itself, so that no other thread's memory
/// comes there when it is unmapped.
fn own_place(number: u64, from: usize, len: usize) -> u64 {
    let place = 0x2000_0000_0000 + (number << 32) + from as u64;
    assert!(map_at(place, len));
    place
}

/// A put that the device has done in the end: right after memory was unmapped some are copied.
fn put_at_last(cache: &Cache, device: &Pinning, at: u64, len: usize, word: u64) {
    let end = Instant::now() + Duration::from_secs(10);
    while !put(cache, device, at, len, word) {
        assert!(Instant::now() < end, "{:?}", cache.counts());
        std::thread::yield_now();
    }
}

/// A put of words that are all `word`: whether the device read them, and it may not read others.
fn put(cache: &Cache, device: &Pinning, at: u64, len: usize, word: u64) -> bool {
    let at = usize::try_from(at).expect("an address");
    let mut entries = Entries::new();
    let held = cache.hold((0, MOST), (at, len), false, &mut entries);
    let Some(held) = held else { return false };
    let mut next = at as u64;
    for entry in &entries {
        assert_eq!(entry.addr, next);
        next += u64::from(entry.len);
        let pinned = lock(&device.regions).get(&entry.lkey).cloned().expect("registered");
        let seen = pinned.words(entry.addr, entry.len as usize);
        assert!(seen.iter().all(|one| *one == word), "{seen:x?} instead of {word:x}");
    }
    assert!(next > at as u64 && next <= (at + len) as u64);
    drop(held);
    true
}

/// As [`put`], of another rank to which the memory is lent.
fn borrow(cache: &Cache, device: &Pinning, at: u64, len: usize, word: u64) -> bool {
    let Some((held, parts)) = cache.lend((at, len as u64), true, false) else { return false };
    let mut next = at;
    for part in &parts {
        assert_eq!(part.at, next);
        next += u64::from(part.len);
        let pinned = lock(&device.regions).get(&part.keys[0]).cloned().expect("registered");
        let seen = pinned.words(part.at, part.len as usize);
        assert!(seen.iter().all(|one| *one == word), "{seen:x?} instead of {word:x}");
    }
    assert!(next > at && next <= at + len as u64);
    drop(held);
    true
}

/// What is registered for others is in a budget of its own, and both may have the same pages.
#[test]
fn what_is_lent_and_what_is_used_here_go_their_own_ways() {
    let device = Pinning::default();
    let budgets = [limits(8), Limits { regions: 2, ..limits(8) }];
    let cache = Cache::new(Box::new(device.clone()), budgets, false);
    if cache.shared.state().is_none() {
        println!("SKIP: no userfaultfd here ({:?})", Watch::new().err());
        return;
    }
    let (len, memory) = (4 * BLOCK, map(5 * BLOCK).next_multiple_of(BLOCK as u64));
    fill(memory, len, 1);
    assert!(put(&cache, &device, memory, len, 1));
    let lend = |at: usize| cache.lend((memory + at as u64, BLOCK as u64), true, false);
    let (first, parts) = lend(0).expect("room");
    assert_eq!((parts.len(), parts[0].at, parts[0].len as usize), (1, memory, BLOCK));
    let second = lend(BLOCK).expect("room");
    assert!(lend(2 * BLOCK).is_none(), "two regions are lent");
    drop(second);
    let third = lend(2 * BLOCK).expect("the second gives way");
    let known = |key| lock(&device.regions).contains_key(&key);
    assert!(known(parts[0].keys[0]));
    // The pages of the second are heard of for the own region; what is lent stays registered.
    unmap(memory, len);
    assert!(map_at(memory, len));
    fill(memory, len, 2);
    put_at_last(&cache, &device, memory, len, 2);
    assert!(known(parts[0].keys[0]));
    drop((first, third));
    let end = Instant::now() + Duration::from_secs(10);
    while !borrow(&cache, &device, memory, BLOCK, 2) {
        assert!(Instant::now() < end, "{:?}", cache.lent_counts());
    }
    assert!(!known(parts[0].keys[0]));
    unmap(memory, len);
}

#[test]
fn nothing_is_lent_without_a_budget() {
    let device = Pinning::default();
    let none = Limits { regions: 0, ..limits(8) };
    let cache = Cache::new(Box::new(device), [limits(8), none], false);
    let memory = map(BLOCK);
    assert!(cache.lend((memory, BLOCK as u64), false, false).is_none());
    unmap(memory, BLOCK);
}

/// A segment is shared memory, and yet lent: nobody unmaps it.
#[test]
fn what_lasts_is_not_watched() {
    let device = Pinning::default();
    let Some(cache) = cache(&device, 8) else { return };
    let memory = map_shared(BLOCK);
    fill(memory, BLOCK, 3);
    assert!(!borrow(&cache, &device, memory, BLOCK, 3));
    let lent = cache.lend((memory, BLOCK as u64), false, true);
    assert!(lent.is_some_and(|(_, parts)| !parts.is_empty()));
    assert!(cache.lend((u64::MAX - 100, 200), true, true).is_none());
    assert!(cache.lend((memory, 0), true, true).is_none());
    unmap(memory, BLOCK);
}

#[test]
fn a_second_put_finds_what_the_first_has_made() {
    let device = Pinning::default();
    let Some(cache) = cache(&device, 64) else { return };
    let len = 5 * BLOCK / 2;
    let memory = own_place(1, 0, len);
    fill(memory, len, 7);
    assert!(put(&cache, &device, memory, len, 7));
    let counts = cache.counts();
    assert!((3..=4).contains(&counts.made) && counts.copied == 0, "{counts:?}");
    for word in 0..100 {
        fill(memory, len, word);
        assert!(put(&cache, &device, memory + PAGE as u64, len - PAGE, word));
    }
    let again = cache.counts();
    assert_eq!((again.made, again.copied), (counts.made, 0));
    assert_eq!(again.hits, counts.hits + 100);
    unmap(memory, len);
    assert!(map_at(memory, len));
    fill(memory, len, 1 << 40);
    put_at_last(&cache, &device, memory, len, 1 << 40);
    assert!(cache.counts().unmapped > 0);
    unmap(memory, len);
    drop(cache);
    assert!(lock(&device.regions).is_empty(), "all are deregistered");
}

#[test]
fn every_way_to_exchange_pages_is_heard_of() {
    let device = Pinning::default();
    let Some(cache) = cache(&device, 64) else { return };
    let len = BLOCK;
    let (memory, other) = (own_place(2, 0, len), map(len));
    let ways: [(&str, &dyn Fn()); 5] = [
        ("replaced", &|| replace(memory, len)),
        ("unmapped", &|| {
            unmap(memory, len);
            assert!(map_at(memory, len));
        }),
        ("moved", &|| swap(memory, other, len)),
        ("emptied", &|| discard(memory, len)),
        ("partly unmapped", &|| {
            unmap(memory + PAGE as u64, PAGE);
            assert!(map_at(memory + PAGE as u64, PAGE));
        }),
    ];
    let mut word = 0;
    for _ in 0..20 {
        for (way, exchange) in ways {
            word += 1;
            fill(memory, len, word);
            put_at_last(&cache, &device, memory, len, word);
            println!("before it is {way}");
            exchange();
            word += 1;
            fill(memory, len, word);
            put_at_last(&cache, &device, memory, len, word);
            println!("after it was {way}");
        }
    }
    assert!(cache.counts().unmapped >= 100, "{:?}", cache.counts());
    unmap(memory, len);
    unmap(other, len);
}

#[test]
fn what_cannot_be_registered_is_copied() {
    let device = Pinning::default();
    let Some(cache) = cache(&device, 64) else { return };
    let (len, memory) = (2 * BLOCK, map(2 * BLOCK));
    fill(memory, len, 1);
    device.refuses.store(true, Ordering::Relaxed);
    assert!((0..5).all(|_| !put(&cache, &device, memory, len, 1)));
    device.refuses.store(false, Ordering::Relaxed);
    // Not tried for a while.
    assert!((0..LEFT_OUT - 10).all(|_| !put(&cache, &device, memory, len, 1)));
    assert!((0..20).any(|_| put(&cache, &device, memory, len, 1)));
    // Others could exchange its pages.
    let shared = map_shared(len);
    fill(shared, len, 2);
    assert!(!put(&cache, &device, shared, len, 2));
    let mut entries = Entries::new();
    assert!(cache.hold((0, MOST), (usize::MAX - 5000, 5000), false, &mut entries).is_none());
    assert!(cache.hold((0, MOST), (usize::MAX - 5000, 9000), false, &mut entries).is_none());
    cache.close();
    assert!(!put(&cache, &device, memory, len, 1));
    unmap(memory, len);
    unmap(shared, len);
}

#[test]
fn paging_on_demand_registers_nothing_else() {
    let device = Pinning::default();
    let mut cache = Cache::new(Box::new(device.clone()), [limits(64); 2], false);
    cache.use_paging().expect("it can");
    let mut entries = Entries::new();
    let held = cache.hold((0, MOST), (12_345, 1 << 30), true, &mut entries);
    drop(held.expect("everything"));
    assert_eq!(entries[..], [Sge { addr: 12_345, len: 1 << 30, lkey: u32::MAX }]);
    assert_eq!(cache.counts(), Counts::default());
    assert!(lock(&device.regions).is_empty());
}

/// Sources of puts may be read-only; a target that is not writable is copied into, and whoever
/// copies says that it cannot.
#[test]
fn reading_needs_no_right_to_write() {
    let device = Pinning { read_only: true, ..Pinning::default() };
    let Some(cache) = cache(&device, 64) else { return };
    let (len, memory) = (BLOCK, map(BLOCK));
    fill(memory, len, 1);
    assert!(put(&cache, &device, memory, len, 1));
    let at = usize::try_from(memory).expect("an address");
    assert!(cache.hold((0, MOST), (at, len), true, &mut Entries::new()).is_none());
    assert!(put(&cache, &device, memory, len, 1), "reading is not refused");
    unmap(memory, len);
}

/// Transfers from many regions in a budget of few: how many transfers, from how many blocks.
fn in_a_small_budget(transfers: usize, blocks: usize, regions: u32) {
    let device = Pinning::default();
    let Some(cache) = cache(&device, regions) else { return };
    let memory = map((blocks + 4) * BLOCK);
    // The first page of each block is used, and sometimes all of a few.
    (0..blocks).for_each(|block| fill(memory + (block * BLOCK) as u64, PAGE, 9));
    fill(memory, 8 * BLOCK, 9);
    let mut random = 1_usize;
    for number in 0..transfers {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (block, len) = match number % 10 {
            0 => ((random >> 33) % 4, PAGE + (random >> 11) % (4 * BLOCK - PAGE)),
            _ => ((random >> 33) % blocks, PAGE),
        };
        assert!(put(&cache, &device, memory + (block * BLOCK) as u64, len, 9));
        assert!(lock(&device.regions).len() <= regions as usize);
    }
    let counts = cache.counts();
    println!("{counts:?}");
    assert!(counts.evicted > transfers as u64 / 2 && counts.copied == 0, "{counts:?}");
    unmap(memory, (blocks + 4) * BLOCK);
}

#[test]
fn a_small_budget_is_kept_whatever_is_transferred() {
    in_a_small_budget(3000, 400, 10);
    if is_long() {
        in_a_small_budget(1_000_000, 10_000, 100);
    } else {
        println!("SKIP: a million transfers over 10000 regions run with TESTKIT_ALL");
    }
}

/// Not a limit, which a machine under load would miss: the figure of `docs/design/memory.md`.
#[test]
fn what_a_hit_costs() {
    const ROUNDS: u32 = 2000;
    let device = Pinning::default();
    let Some(cache) = cache(&device, 256) else { return };
    let memory = map(128 * BLOCK);
    fill(memory, 128 * BLOCK, 1);
    let mut entries = Entries::new();
    let mut hold = |block: usize| {
        let at = usize::try_from(memory).expect("an address") + block * BLOCK + 64;
        cache.hold((0, MOST), (at, BLOCK / 2), false, &mut entries)
    };
    assert!((0..128).all(|block| hold(block).is_some()));
    let mut best = Duration::MAX;
    for _ in 0..50 {
        let begin = Instant::now();
        for round in 0..ROUNDS {
            assert!(hold(round as usize * 37 % 128).is_some());
        }
        best = best.min(begin.elapsed() / ROUNDS);
    }
    println!("a hit and its end: {best:?}");
    assert_eq!(cache.counts().copied, 0);
    unmap(memory, 128 * BLOCK);
}

/// Ends the other thread of a pair, also when this one fails.
struct Last<'a>(&'a AtomicU64);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Release);
    }
}

fn is_long() -> bool {
    settings::variable("TESTKIT_ALL").is_some_and(|value| !value.is_empty() && value != "0")
}

#[test]
fn the_cache_does_not_lie() {
    does_not_lie(10, [put; 3]);
}

/// The same for what is lent, and for pages that are lent as well as used here.
#[test]
fn loans_do_not_lie() {
    does_not_lie(20, [borrow, put, borrow]);
}

/// A transfer by the device, as [`put`].
type Transfer = fn(&Cache, &Pinning, u64, usize, u64) -> bool;

/// One thread unmaps; another one maps the same place again while the first is still in its system
/// call, fills it and transfers from it. Others register and give up regions all the time.
fn does_not_lie(first: u64, ways: [Transfer; 3]) {
    /// Where pairs work: two share a block, so that each registers pages of the other.
    const PLACES: [(u64, usize, usize); PAIRS] =
        [(0, 0, BLOCK / 2), (0, BLOCK / 2, BLOCK / 2), (1, 0, 2 * BLOCK)];
    const PAIRS: usize = 3;
    let device = Pinning::default();
    let Some(cache) = cache(&device, 6) else { return };
    let (cache, device) = (&cache, &device);
    let end = Instant::now() + Duration::from_secs(if is_long() { 60 } else { 3 });
    let turns: [AtomicU64; PAIRS] = Default::default();
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for pair in 0..PAIRS {
            let (turn, taken) = (&turns[pair], &taken);
            let (number, from, len) = PLACES[pair];
            let transfer = ways[pair];
            let place = own_place(first + number, from, len);
            let unmaps = move || {
                let mut seen = 0;
                while seen != u64::MAX {
                    unmap(place, len);
                    while turn.load(Ordering::Acquire) == seen {
                        std::thread::yield_now();
                    }
                    seen = turn.load(Ordering::Acquire);
                }
            };
            let maps = move || {
                let _last = Last(turn);
                let mut word = pair as u64 + 1;
                while Instant::now() < end {
                    while !map_at(place, len) {
                        std::thread::yield_now();
                    }
                    for _ in 0..3 {
                        word += PAIRS as u64;
                        fill(place, len, word);
                        let held = transfer(cache, device, place, len, word);
                        taken.fetch_add(u64::from(held), Ordering::Relaxed);
                    }
                    if word.is_multiple_of(5) {
                        discard(place, len);
                        fill(place, len, word + 1);
                        transfer(cache, device, place, len, word + 1);
                    }
                    turn.store(word, Ordering::Release);
                }
            };
            scope.spawn(unmaps);
            scope.spawn(maps);
        }
        scope.spawn(|| {
            let memory = map(8 * BLOCK);
            fill(memory, 8 * BLOCK, 3);
            while Instant::now() < end {
                for block in 0..8 {
                    put(cache, device, memory + (block * BLOCK) as u64, BLOCK, 3);
                }
                std::thread::yield_now();
            }
            unmap(memory, 8 * BLOCK);
        });
    });
    let counts = cache.counts();
    println!("{counts:?}, {} puts by the device", taken.load(Ordering::Relaxed));
    assert!(taken.load(Ordering::Relaxed) > 20 && counts.unmapped > 20, "{counts:?}");
}
