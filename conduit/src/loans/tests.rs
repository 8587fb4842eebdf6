//! Loans between threads that are ranks, over the software adapter: what adapters move, what messages
//! have to move, budgets, and memory that comes and goes under them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bootstrap::Rank;

use crate::rma::by_message::tests::harness::{Placement, job_at};
use crate::rma::by_message::tests::{pattern, put_and_get};
use crate::segment_mode::SegmentMode;
use crate::transport::net::watch_for_tests as watch;
use crate::{BarrierFlags, Client, Mode, Par, Seq, Settings};

const MIB: usize = 1 << 20;
/// More than a transfer has chunks, and a few bytes.
const LEN: usize = 6 * MIB + 1234;

fn settings(mode: SegmentMode, variables: &[(&str, &str)]) -> Settings {
    let mut settings = Settings { segment_mode: mode, ..Settings::default() };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    settings.network.extend(variables.iter().map(owned));
    settings
}

fn everything(variables: &[(&str, &str)]) -> Settings {
    settings(SegmentMode::EVERYTHING, variables)
}

/// `false`, with the reason, where nothing can be lent.
fn can_lend() -> bool {
    match watch::Watch::new() {
        Ok(_) => true,
        Err(error) => {
            println!("SKIP: no userfaultfd here ({error})");
            false
        }
    }
}

fn meet<M: Mode>(client: &Client<M>) {
    client.barrier(0, BarrierFlags::ANONYMOUS).expect("barrier");
}

/// Where the memory of every rank is.
fn exchange<M: Mode>(client: &Client<M>, places: &Mutex<Vec<u64>>, at: u64) -> Vec<u64> {
    let mine = client.rank().0 as usize;
    {
        let mut all = places.lock().expect("lock");
        all.resize(client.size() as usize, 0);
        all[mine] = at;
    }
    meet(client);
    let all = places.lock().expect("lock").clone();
    meet(client);
    all
}

/// Bytes that adapters moved for a rank, and those that messages had to move although they were asked
/// for.
fn moved<M: Mode>(client: &Client<M>) -> (u64, u64) {
    let loans = &client.context.loans;
    (loans.moved.load(Ordering::Relaxed), loans.by_message.load(Ordering::Relaxed))
}

/// A put and a get of [`LEN`] bytes, blocking and not.
fn transfers<M: Mode>(client: &Client<M>, to: Rank, base: u64, rounds: usize) {
    for round in 0..rounds {
        let bytes = pattern(round + 3 * client.rank().0 as usize, LEN);
        put_and_get(client, to, [base + 3, base + 17], &bytes);
    }
}

/// Transfers of two ranks to each other's mapped memory; what adapters and messages moved for each.
fn between_two(settings: &Settings, rounds: usize) -> Vec<(u64, u64)> {
    let (places, all_moved) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    job_at::<Seq>(Placement::Apart, 2, settings, |client| {
        let area = watch::testing::map(8 * MIB);
        let all = exchange(client, &places, area);
        let to = Rank(1 - client.rank().0);
        transfers(client, to, all[to.0 as usize], rounds);
        meet(client);
        let net = client.context.transport.net().expect("a network");
        let counts = net.lent_counts();
        println!("{counts:?}, {:?}", moved(client));
        // Loans come back, the last ones in messages of their own.
        let returned = || client.context.loans.ledger().len() == 0;
        client.block_until(returned).expect("loans are given back");
        all_moved.lock().expect("lock").push(moved(client));
        meet(client);
        watch::testing::unmap(area, 8 * MIB);
    });
    all_moved.into_inner().expect("lock")
}

#[test]
fn large_transfers_are_moved_by_adapters() {
    if !can_lend() {
        return;
    }
    let carried = 2 * 7 * 3072;
    for (adapters, messages) in between_two(&everything(&[]), 3) {
        // All but what went with requests; the ends of transfers are shorter than a request carries.
        assert!(adapters >= 3 * (4 * LEN as u64 - carried - 2 * 3072), "{adapters}");
        assert!(messages <= 3 * 2 * 3072, "{messages}");
    }
    for (adapters, messages) in between_two(&everything(&[("GASNET_PUTINMOVE_LIMIT", "0")]), 1) {
        assert_eq!((adapters, messages), (4 * LEN as u64, 0));
    }
    let blocks = [("GASNET_FIREHOSE_MAXREGION_SIZE", "8K"), ("GASNET_USE_FENCED_PUTS", "1")];
    for (adapters, _) in between_two(&everything(&blocks), 1) {
        assert!(adapters > 3 * LEN as u64, "{adapters}");
    }
}

#[test]
fn what_may_not_be_lent_goes_by_messages() {
    for variable in [("GASNET_FIREHOSE_R", "0"), ("GASNET_USE_FIREHOSE", "0")] {
        for (adapters, _) in between_two(&everything(&[variable]), 1) {
            assert_eq!(adapters, 0, "{variable:?}");
        }
    }
}

#[test]
fn a_small_budget_is_shared_and_nothing_waits_for_it() {
    if !can_lend() {
        return;
    }
    let few = [("GASNET_FIREHOSE_R", "2"), ("GASNET_FIREHOSE_M", "256K")];
    for (adapters, messages) in between_two(&everything(&few), 2) {
        assert!(adapters > 0 && messages > 0, "{adapters} and {messages}");
    }
    // Less than a block.
    for (adapters, messages) in between_two(&everything(&[("GASNET_FIREHOSE_M", "64K")]), 1) {
        assert!(adapters + messages > 3 * LEN as u64, "{adapters} and {messages}");
    }
}

#[test]
fn a_segment_without_keys_is_lent() {
    const SEGMENT: usize = 48 * MIB;
    if !can_lend() {
        return;
    }
    let variables = [("GASNET_IBV_SOFT_FAULTS", "register-max=40M")];
    let settings = settings(SegmentMode::LARGE, &variables);
    job_at::<Seq>(Placement::Pairs, 4, &settings, |client| {
        let _segment = client.attach_segment(SEGMENT as u64).expect("attach");
        let to = Rank((client.rank().0 + 2) % 4);
        transfers(client, to, (SEGMENT - LEN - 100) as u64, 1);
        let (adapters, messages) = moved(client);
        println!("{adapters} by adapters, {messages} by messages");
        assert!(adapters > 3 * LEN as u64 && messages < 100_000);
        meet(client);
    });
}

#[test]
fn pages_that_others_may_exchange_are_not_lent() {
    let places = Mutex::new(Vec::new());
    job_at::<Seq>(Placement::Apart, 2, &everything(&[]), |client| {
        let area = watch::testing::map_shared(8 * MIB);
        watch::testing::fill(area, 8 * MIB, 5);
        let all = exchange(client, &places, area);
        let to = Rank(1 - client.rank().0);
        transfers(client, to, all[to.0 as usize], 1);
        assert_eq!(moved(client).0, 0);
        meet(client);
        watch::testing::unmap(area, 8 * MIB);
    });
}

#[test]
fn memory_that_may_only_be_read_is_lent_for_gets() {
    if !can_lend() {
        return;
    }
    let places = Mutex::new(Vec::new());
    job_at::<Seq>(Placement::Apart, 2, &everything(&[]), |client| {
        let area = watch::testing::map(MIB);
        watch::testing::fill(area, MIB, 0x0707_0707_0707_0707);
        watch::testing::protect(area, MIB);
        let all = exchange(client, &places, area);
        let to = Rank(1 - client.rank().0);
        let mut back = vec![0; MIB];
        client.get(to, all[to.0 as usize], &mut back).expect("get");
        assert!(back.iter().all(|byte| *byte == 7));
        assert_eq!(moved(client), (MIB as u64, 0));
        meet(client);
        watch::testing::unmap(area, MIB);
    });
}

#[test]
fn what_is_not_mapped_is_an_error_of_the_caller() {
    let text = std::panic::catch_unwind(|| {
        job_at::<Seq>(Placement::Apart, 2, &everything(&[]), |client| {
            if client.rank() == Rank(0) {
                let _never = client.put(Rank(1), 1 << 21, &vec![1; 2 * MIB]);
            }
            let _ended = client.block_until(|| false);
        });
    });
    let panic = text.expect_err("it cannot succeed");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("put of rank 0 names bytes 0x200000..0x"), "{text}");
    assert!(text.contains("of rank 1, which has not mapped all of them so"), "{text}");
}

/// Least rounds that say something.
const ROUNDS: u32 = 20;

/// Memory of a rank that a test maps and fills, one word in all of it.
struct Place {
    at: u64,
    len: usize,
    /// What is in it, to be transferred; 0: nothing.
    word: AtomicU64,
    /// The other thread has unmapped it, or is about to return from that.
    free: AtomicBool,
}

/// Threads of rank 1: one unmaps, while another maps the same place again (often before the first is
/// back from its system call), fills it and says so. Rank 0 gets and puts it. Until the end, and on a
/// busy machine until there were some rounds.
fn comes_and_goes(place: &Place, client: &Client<Par>, end: Instant) -> (u32, u64) {
    let (mut rounds, mut word) = (0, 1);
    std::thread::scope(|scope| {
        let unmaps = scope.spawn(|| {
            while place.word.load(Ordering::Acquire) != u64::MAX {
                if place.free.load(Ordering::Acquire) {
                    place.free.store(false, Ordering::Release);
                    watch::testing::unmap(place.at, place.len);
                }
                std::thread::yield_now();
            }
        });
        let patience = end + Duration::from_secs(60);
        while Instant::now() < end || rounds <= ROUNDS && Instant::now() < patience {
            while !watch::testing::map_at(place.at, place.len) {
                std::thread::yield_now();
            }
            for _ in 0..3 {
                word += 1;
                watch::testing::fill(place.at, place.len, word);
                place.word.store(word, Ordering::Release);
                client
                    .block_until(|| place.word.load(Ordering::Acquire) == 0)
                    .expect("the other rank");
                let bytes = watch::testing::bytes(place.at, place.len);
                let put = (word ^ 0xff00).to_ne_bytes();
                assert!(bytes.as_chunks().0.iter().all(|one| *one == put), "put of {word}");
            }
            rounds += 1;
            place.free.store(true, Ordering::Release);
        }
        place.word.store(u64::MAX, Ordering::Release);
        unmaps.join().expect("it ends");
    });
    (rounds, word)
}

#[test]
fn memory_that_comes_and_goes_is_lent_as_it_is() {
    if !can_lend() {
        return;
    }
    let place = Place {
        at: 0x2800_0000_0000 + 5 * 4096,
        len: 600_000 / 4096 * 4096,
        word: AtomicU64::new(0),
        free: AtomicBool::new(false),
    };
    let end = Instant::now() + Duration::from_secs(3);
    let by_adapters = AtomicU64::new(0);
    job_at::<Par>(Placement::Apart, 2, &everything(&[]), |client| {
        if client.rank() == Rank(1) {
            let (rounds, _) = comes_and_goes(&place, client, end);
            let counts = client.context.transport.net().expect("network").lent_counts();
            println!("{rounds} times unmapped, {counts:?}");
            let enough = rounds > ROUNDS && counts.made > ROUNDS.into();
            assert!(enough, "{rounds} rounds, {counts:?}");
        } else {
            loop {
                let is_there = || place.word.load(Ordering::Acquire) != 0;
                client.block_until(is_there).expect("the other rank");
                let word = place.word.load(Ordering::Acquire);
                if word == u64::MAX {
                    break;
                }
                let mut bytes = vec![0; place.len];
                client.get(Rank(1), place.at, &mut bytes).expect("get");
                let seen = bytes.as_chunks().0.iter().map(|one| u64::from_ne_bytes(*one));
                assert!(seen.clone().all(|one| one == word), "{word:#x}");
                let put = (word ^ 0xff00).to_ne_bytes().repeat(place.len / 8);
                client.put(Rank(1), place.at, &put).expect("put");
                place.word.store(0, Ordering::Release);
            }
            by_adapters.store(moved(client).0, Ordering::Relaxed);
        }
        meet(client);
    });
    let by_adapters = by_adapters.load(Ordering::Relaxed);
    println!("{by_adapters} bytes by adapters");
    assert!(by_adapters > u64::from(ROUNDS) * place.len as u64);
}

/// Several threads of two ranks put to and get from each other at once.
#[test]
fn many_transfers_share_what_is_lent() {
    const THREADS: usize = 3;
    let places = Mutex::new(Vec::new());
    let few = [("GASNET_FIREHOSE_R", "12")];
    job_at::<Par>(Placement::Apart, 2, &everything(&few), |client| {
        let area = watch::testing::map(8 * MIB);
        let all = exchange(client, &places, area);
        let to = Rank(1 - client.rank().0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let base = all[to.0 as usize] + (thread * 2 * MIB) as u64;
                scope.spawn(move || {
                    for round in 0..10 {
                        let len = 200_000 + round * 150_000;
                        let bytes = pattern(round * 7 + thread, len);
                        client.put(to, base, &bytes).expect("put");
                        let mut back = vec![0; len];
                        client.get(to, base, &mut back).expect("get");
                        assert!(back == bytes, "round {round} of thread {thread}");
                    }
                });
            }
        });
        println!("{:?}", moved(client));
        meet(client);
        watch::testing::unmap(area, 8 * MIB);
    });
}
