//! Atomics that adapters do, at remote ranks, at neighbours and at the own rank.

use std::sync::atomic::AtomicU64;

use super::*;

/// Old values by slot.
#[derive(Debug)]
struct Old(Vec<AtomicU64>);

impl Fetched for Old {
    fn fetched(&self, slot: u32, old: u64) {
        self.0[slot as usize].store(old, Ordering::Relaxed);
    }
}

/// Starts an operation; polls while there is no room.
fn start(member: &Member<'_>, to: (Rank, u64), op: WordOp, by: &FetchedBy, of: &Arc<OpCounter>) {
    let begin = Instant::now();
    while member.net.atomic(to, op, by, of).expect("an atomic") == Sent::Full {
        let sink = TestSink(&member.met, &|_| {});
        let _ = member.net.poll::<Par, _>(&sink, Poll::All).expect("open").expect("poll");
        assert!(begin.elapsed() < PATIENCE);
    }
}

const TURNS: u32 = 50;

/// Everybody counts on a word of every rank of `whom`, takes tickets there, and exchanges another.
fn counted(kind: &Kind, size: u32, cap: AtomicCap, whom: impl Fn(&Member<'_>) -> Vec<Rank> + Sync) {
    run(size, 4096, kind, |member| {
        assert_eq!(member.net.atomics(), cap);
        let whom = whom(member);
        let old = Arc::new(Old((0..2 * TURNS).map(|_| AtomicU64::new(u64::MAX)).collect()));
        let by = |slot| -> FetchedBy { (Arc::clone(&old) as _, slot) };
        let counter = Arc::new(OpCounter::default());
        let wait = || member.poll_until(&|_| {}, || counter.is_complete());
        for rank in &whom {
            for turn in 0..TURNS {
                start(member, (*rank, 8), WordOp::Add(3), &by(turn), &counter);
                start(member, (*rank, 16), WordOp::Add(u64::MAX), &by(TURNS + turn), &counter);
            }
            wait();
            let seen: Vec<u64> = old.0.iter().map(|one| one.load(Ordering::Relaxed)).collect();
            let (up, down) = seen.split_at(TURNS as usize);
            assert!(up.is_sorted() && up.iter().all(|one| one % 3 == 0), "{up:?}");
            assert!(up.windows(2).all(|two| two[0] < two[1]), "{up:?}");
            assert!(down.windows(2).all(|two| two[0].wrapping_sub(two[1]) < 1000), "{down:?}");
            for _ in 0..TURNS / 5 {
                let mut seen = 0;
                loop {
                    let op = WordOp::CompareSwap { compare: seen, swap: seen + 7 };
                    start(member, (*rank, 24), op, &by(0), &counter);
                    wait();
                    let found = old.0[0].load(Ordering::Relaxed);
                    if found == seen {
                        break;
                    }
                    seen = found;
                }
            }
        }
        member.services.borrow_mut().barrier().expect("all are done");
        let word = |at| u64::from_ne_bytes(member.memory.read(at, 8).try_into().expect("8 bytes"));
        let by_all = u64::from(TURNS) * whom.len() as u64;
        assert_eq!(word(8), 3 * by_all);
        assert_eq!(word(16), 0_u64.wrapping_sub(by_all));
        assert_eq!(word(24), 7 * by_all / 5);
    });
}

/// Every rank at every other one.
fn others(member: &Member<'_>) -> Vec<Rank> {
    member.others().collect()
}

#[test]
fn the_software_adapter_counts_for_remote_ranks() {
    counted(&PLAIN, 3, AtomicCap::Global, others);
    let rails = Kind { rails: 2, connections: 2, dynamic: true, ..PLAIN };
    counted(&rails, 2, AtomicCap::Global, others);
    let sizes = Sizes { ops_per_connection: 1, ..TINY };
    counted(&Kind { sizes, ..SMALL }, 2, AtomicCap::Global, others);
}

/// Every rank at all, itself and its neighbour included.
#[test]
fn an_adapter_that_is_atomic_to_itself_counts_for_all() {
    let everybody = |member: &Member<'_>| (0..member.size).map(Rank).collect();
    let kind = Kind { fake: true, per_host: 2, dynamic: true, ..PLAIN };
    counted(&kind, 4, AtomicCap::Device, everybody);
    counted(&Kind { dynamic: false, both: true, ..kind }, 4, AtomicCap::Device, everybody);
    let sizes = Sizes { srq: Some(SHARED), ..USUAL };
    counted(&Kind { sizes, ..kind }, 4, AtomicCap::Device, everybody);
}

#[test]
fn one_that_cannot_connect_with_neighbours_counts_for_nobody() {
    let kind = Kind { fake: true, per_host: 2, ..PLAIN };
    for kind in [kind, Kind { xrc: true, sizes: Sizes { srq: Some(SHARED), ..USUAL }, ..kind }] {
        run(4, 4096, &kind, |member| assert_eq!(member.net.atomics(), AtomicCap::None));
    }
}

#[test]
fn a_word_outside_a_segment_is_refused() {
    run(2, 4096, &PLAIN, |member| {
        let old: FetchedBy = (Arc::new(Old(vec![])), 0);
        let counter = Arc::new(OpCounter::default());
        for place in [4089, 4096, u64::MAX - 7, 1 << 48] {
            let to = (Rank(1 - member.rank), place);
            let refused = member.net.atomic(to, WordOp::Add(1), &old, &counter);
            let text = refused.expect_err("outside").to_string();
            assert!(text.contains("(4096 bytes)"), "{text}");
        }
        assert!(counter.is_complete());
    });
}
