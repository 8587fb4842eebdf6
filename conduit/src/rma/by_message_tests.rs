//! All memory of a rank as the target of everything that is one-sided, and segments that adapters do
//! not register: threads are ranks, in all placements.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers made by the test"
)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bootstrap::Rank;
use proptest::prelude::*;

#[path = "../../tests/shared/harness.rs"]
pub(crate) mod harness;

use self::harness::{Placement, everywhere, job_at};
use crate::atomics::types::AtomicOps;
use crate::segment_mode::SegmentMode;
use crate::transport::limits::MAX_CARRIED;
use crate::{
    BarrierFlags, Client, Entry, Error, Extent, Flags, HandlerIndex, LocalCompletion, MAX_ARGS,
    Mode, Par, SegmentOffset, Seq, Settings, Strided, Strides, Vectors,
};

const WORDS: usize = 1 << 16;
const BYTES: usize = 8 * WORDS;

fn everything() -> Settings {
    Settings { segment_mode: SegmentMode::EVERYTHING, ..Settings::default() }
}

/// Segments above 40 MB are not registered.
fn large() -> Settings {
    let mut settings = Settings { segment_mode: SegmentMode::LARGE, ..Settings::default() };
    let limit = ("GASNET_IBV_SOFT_FAULTS".to_owned(), "register-max=40M".to_owned());
    settings.network.push(limit);
    settings
}

fn meet<M: Mode>(client: &Client<M>) {
    client.barrier(0, BarrierFlags::ANONYMOUS).expect("barrier");
}

/// Memory of a rank that others write.
#[derive(Clone, Copy)]
struct Area {
    at: u64,
    words: &'static [AtomicU64],
}

impl Area {
    fn of(words: &'static [AtomicU64]) -> Self {
        Self { at: words.as_ptr().expose_provenance() as u64, words }
    }

    /// Memory that the allocator maps for itself alone.
    fn heap() -> Self {
        Self::of(Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect()))
    }

    fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }
}

/// In the data of the program; a rank has one.
static DATA: [[AtomicU64; WORDS]; 4] = [const { [const { AtomicU64::new(0) }; WORDS] }; 4];

/// Where every rank's area is, for a job of these.
fn exchange<M: Mode>(client: &Client<M>, places: &Mutex<Vec<u64>>, at: u64) -> Vec<u64> {
    let mine = client.rank().0 as usize;
    {
        let mut all = places.lock().expect("lock");
        let size = client.size() as usize;
        all.resize(size, 0);
        all[mine] = at;
    }
    meet(client);
    let all = places.lock().expect("lock").clone();
    meet(client);
    all
}

pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(31) + at * 7 + at / 251).to_le_bytes()[0]).collect()
}

/// Puts bytes to a place of a rank and gets them, then the same without blocking at another place.
pub(crate) fn put_and_get<M: Mode>(client: &Client<M>, to: Rank, places: [u64; 2], bytes: &[u8]) {
    let (me, len, [first, second]) = (client.rank().0, bytes.len(), places);
    client.put(to, first, bytes).expect("put");
    let mut back = vec![0; len];
    client.get(to, first, &mut back).expect("get");
    assert!(back == bytes, "{len} bytes of rank {me} at {to}");
    let mut again = vec![0; len];
    let moved = client.scope(|scope| {
        let put = scope.put_nb(to, second, bytes, LocalCompletion::Now, Flags::NONE)?;
        put.expect("sent").wait()?;
        scope.get_nbi(to, second, &mut again, Flags::NONE).map(|_sent| ())
    });
    moved.expect("scope").expect("operations");
    assert!(again == bytes, "{len} bytes of rank {me} at {to}, not blocking");
}

/// Everything that moves bytes, to the next rank and to itself.
fn transfers<M: Mode>(client: &Client<M>, there: impl Fn(u32) -> u64, own: impl Fn() -> Vec<u8>) {
    let (me, size) = (client.rank().0, client.size());
    for step in 0..size.min(2) {
        let to = Rank((me + 1 + step) % size);
        let base = there(to.0);
        for (round, len) in [1_usize, 8, 100, 4097, 65_536, 200_001].into_iter().enumerate() {
            let bytes = pattern(round + me as usize, len);
            put_and_get(client, to, [base + 3, base + 9], &bytes);
        }
        client.put_value(to, base + 16, 0x0102_0304_0506, 6).expect("put");
        assert_eq!(client.get_value(to, base + 17, 5).expect("get"), 0x01_0203_0405);
        vectors(client, to, base);
        meet(client);
        assert_eq!(own()[16..22], [6, 5, 4, 3, 2, 1]);
        meet(client);
    }
}

fn vectors<M: Mode>(client: &Client<M>, to: Rank, base: u64) {
    let at = usize::try_from(base).expect("an address") + 300_000;
    let source = pattern(77, 40_000);
    let counts = [100, 40];
    let column = Strides { first: at, strides: &[80, 2] };
    let packed = Strides { first: 0, strides: &[80, 2] };
    let what = Strided { element: 2, counts: &counts, local: packed, remote: column };
    client.put_strided(to, &source, &what).expect("put");
    let mut back = vec![0; 40_000];
    client.get_strided(to, &mut back, &what).expect("get");
    assert!(back[..8000] == source[..8000] && back[8000..].iter().all(|byte| *byte == 0));
    let ranges: Vec<Extent> =
        (0..50).map(|step| Extent { at: at + 700 * step, len: 1 + step * 13 }).collect();
    let total = ranges.iter().map(|range| range.len).sum();
    let local = [Extent { at: 5, len: total }];
    let what = Vectors { local: &local, remote: &ranges };
    client.put_vector(to, &source, &what).expect("put");
    let mut back = vec![0; 40_000];
    client.get_vector(to, &mut back, &what).expect("get");
    assert!(back[5..5 + total] == source[5..5 + total]);
}

#[test]
fn all_memory_is_reached_by_puts_and_gets() {
    let places = Mutex::new(Vec::new());
    everywhere::<Seq>(3, &everything(), |client| {
        assert_eq!(client.max_local_segment(), u64::MAX);
        let rank = client.rank().0 as usize;
        for area in [Area::of(&DATA[rank]), Area::heap()] {
            let all = exchange(client, &places, area.at);
            transfers(client, |rank| all[rank as usize], || area.bytes());
        }
        let stack = [const { AtomicU64::new(0) }; 4];
        let all = exchange(client, &places, stack.as_ptr().expose_provenance() as u64);
        let next = (rank + 1) % all.len();
        client.put(Rank(next as u32), all[next] + 8, &[7; 16]).expect("put");
        meet(client);
        assert_eq!(
            stack.map(AtomicU64::into_inner),
            [0, 0x0707_0707_0707_0707, 0x0707_0707_0707_0707, 0]
        );
        let segment = client.attach_segment(0).expect("a barrier");
        assert!(segment.is_empty());
        assert!(matches!(client.attach_segment(0), Err(Error::SegmentAttached)));
        meet(client);
    });
}

#[test]
fn a_segment_that_is_not_registered_is_reached_by_messages() {
    const LEN: usize = 48 << 20;
    for placement in [Placement::Apart, Placement::Pairs, Placement::Together] {
        job_at::<Seq>(placement, 4, &large(), |client| {
            let segment = client.attach_segment(LEN as u64).expect("attach");
            let net = client.context.transport.net();
            let keyless = net.map(|net| net.lacks_key(Rank((client.rank().0 + 2) % 4), 0));
            assert_eq!(keyless, (placement != Placement::Together).then_some(true));
            let base = (LEN - BYTES) as u64;
            let own = || {
                let mut bytes = vec![0; BYTES];
                segment.read(base, &mut bytes).expect("inside");
                bytes
            };
            transfers(client, |_| base, own);
            let outside = client.put(Rank((client.rank().0 + 2) % 4), LEN as u64 - 1, &[1; 2]);
            assert!(matches!(outside, Err(Error::OutsideSegment { .. })), "{outside:?}");
            // The own segment is no registered memory for adapters either.
            meet(client);
        });
    }
    // Smaller ones are registered as in FAST.
    job_at::<Seq>(Placement::Apart, 2, &large(), |client| {
        let segment = client.attach_segment(BYTES as u64 * 2).expect("attach");
        let net = client.context.transport.net().expect("a network");
        assert!(!net.lacks_key(Rank(1 - client.rank().0), 0));
        let own = || {
            let mut bytes = vec![0; BYTES];
            segment.read(0, &mut bytes).expect("inside");
            bytes
        };
        transfers(client, |_| 0, own);
        meet(client);
    });
}

fn index(index: u8) -> HandlerIndex {
    HandlerIndex(index)
}

/// Longs with every count of arguments, answered by Longs, short and longer than a message.
fn longs<M: Mode>(client: &Client<M>, places: &[u64], base: u64) {
    let seen = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&seen);
    let limit = client.team().max_reply_long(None, MAX_ARGS, Flags::NONE);
    let request = move |token: &crate::Token<'_, M>,
                        landing: crate::LongPayload<'_>,
                        args: &[i32]| {
        let bytes = landing.to_vec();
        assert_eq!((landing.len(), token.is_long()), (args[0] as usize, true));
        assert!(bytes == pattern(args[1] as usize, landing.len()), "a Long as it was sent");
        let len = bytes.len().min(limit);
        let to = u64::from(args[2].cast_unsigned()) | u64::from(args[3].cast_unsigned()) << 32;
        let reply =
            token.reply_long(index(202), &bytes[..len], SegmentOffset(to), &[1, 2], Flags::NONE);
        let _sent = reply.expect("reply");
    };
    let mut table = [
        Entry::long("request", 4, request).at(201),
        Entry::long("reply", 2, move |token: &crate::Token<'_, M>, landing, args| {
            assert!(!token.is_request() && args == [1, 2]);
            assert_eq!(landing.to_vec()[..1], pattern(9, 1)[..]);
            counted.fetch_add(1, Ordering::Relaxed);
        })
        .at(202),
    ];
    client.endpoint().register(&mut table).expect("register");
    meet(client);
    let (me, size) = (client.rank().0, client.size());
    let back = places[me as usize] + base;
    let mut sent = 0;
    for to in (0..size).map(Rank) {
        for len in [1, 100, MAX_CARRIED, MAX_CARRIED + 1, 150_000] {
            let bytes = pattern(9, len);
            let answer = back + 200_000;
            let halves = [answer as u32, (answer >> 32) as u32].map(u32::cast_signed);
            let args = [len as i32, 9, halves[0], halves[1]];
            let dest = SegmentOffset(places[to.0 as usize] + base);
            // One at a time: they all go to the same place.
            for turn in 0..size {
                if turn == me {
                    let team = client.team();
                    let request =
                        team.request_long(to, index(201), &bytes, dest, &args, Flags::NONE);
                    let _sent = request.expect("request");
                    sent += 1;
                    client.block_until(|| seen.load(Ordering::Relaxed) == sent).expect("reply");
                    if len == 100 {
                        let mut long = team
                            .prepare_request_long(to, None, 1, 100, Some(dest), 4)
                            .expect("prepare");
                        long.buffer_mut()[..100].copy_from_slice(&bytes);
                        long.commit(index(201), 100, dest, &args).expect("commit");
                        sent += 1;
                        client.block_until(|| seen.load(Ordering::Relaxed) == sent).expect("reply");
                    }
                }
                meet(client);
            }
        }
    }
}

#[test]
fn longs_go_to_all_memory() {
    let places = Mutex::new(Vec::new());
    everywhere::<Par>(2, &everything(), |client| {
        let area = Area::heap();
        let all = exchange(client, &places, area.at);
        longs(client, &all, 0);
    });
}

#[test]
fn longs_go_to_segments_that_are_not_registered() {
    job_at::<Seq>(Placement::Apart, 2, &large(), |client| {
        client.attach_segment(48 << 20).expect("attach");
        longs(client, &[0, 0], 47 << 20);
    });
}

#[test]
fn a_reply_that_no_message_carries_is_refused() {
    job_at::<Seq>(Placement::Apart, 2, &everything(), |client| {
        let refused = Arc::new(OnceLock::new());
        let told = Arc::clone(&refused);
        let request = move |token: &crate::Token<'_, Seq>, _: &[i32]| {
            assert_eq!(token.max_reply_long(), MAX_CARRIED);
            let payload = vec![1; MAX_CARRIED + 1];
            let reply = token.reply_long(index(212), &payload, SegmentOffset(8), &[], Flags::NONE);
            told.set(matches!(reply, Err(Error::PayloadSize { .. }))).expect("once");
            let prepared = token.prepare_reply_long(None, MAX_CARRIED + 1, 1 << 20, None, 0);
            assert!(matches!(prepared, Err(Error::PayloadSize { .. })));
            let _sent = token.reply_short(index(213), &[], Flags::NONE).expect("the right is back");
        };
        let done = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&done);
        let mut table = [
            Entry::short("request", 0, request).at(211),
            Entry::short("done", 0, move |_, _| {
                counted.fetch_add(1, Ordering::Relaxed);
            })
            .at(213),
        ];
        client.endpoint().register(&mut table).expect("register");
        meet(client);
        let to = Rank(1 - client.rank().0);
        let _sent = client.team().request_short(to, index(211), &[], Flags::NONE).expect("sent");
        client.block_until(|| done.load(Ordering::Relaxed) == 1).expect("reply");
        meet(client);
        assert_eq!(refused.get(), Some(&true));
    });
}

#[test]
fn words_in_all_memory_are_atomic() {
    static WORD: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
    everywhere::<Par>(3, &everything(), |client| {
        WORD[1].store(0, Ordering::Relaxed);
        meet(client);
        let team = client.team();
        let counters = team.atomic_domain::<u64>(AtomicOps::all()).expect("a domain");
        let at = WORD[1].as_ptr().expose_provenance() as u64;
        for _ in 0..500 {
            counters.fetch_add(Rank(0), at, 1).expect("add");
        }
        meet(client);
        assert_eq!(counters.get(Rank(0), at).expect("get"), 1500);
        assert_eq!(WORD[1].load(Ordering::Relaxed), 1500);
        let odd = counters.fetch_add(Rank(0), at + 4, 1);
        assert!(matches!(odd, Err(Error::Misaligned { .. })), "{odd:?}");
        meet(client);
    });
}

/// What the test of a job says whose ranks name memory that nobody has.
fn panics(run: impl Fn() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(run).expect_err("it cannot succeed");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn what_the_target_has_not_mapped_is_an_error_of_the_caller() {
    for placement in [Placement::Together, Placement::Apart] {
        let text = panics(|| {
            job_at::<Seq>(placement, 2, &everything(), |client| {
                if client.rank() == Rank(0) {
                    let _never = client.put(Rank(1), 4096, &[1; 100]);
                }
                let _ended = client.block_until(|| false);
            });
        });
        let expected = "put of rank 0 names bytes 0x1000..0x1064 of rank 1, which has not mapped all of them so: \
                        Bad address";
        assert!(text.contains(expected), "{placement:?}: {text}");
        let text = panics(|| {
            job_at::<Seq>(placement, 2, &everything(), |client| {
                if client.rank() == Rank(1) {
                    let _never = client.get(Rank(0), 8192, &mut [1; 4]);
                }
                let _ended = client.block_until(|| false);
            });
        });
        assert!(text.contains("get of rank 1 names bytes 0x2000..0x2004 of rank 0"), "{text}");
        let text = panics(|| {
            job_at::<Seq>(placement, 2, &everything(), |client| {
                let team = client.team();
                let words = team.atomic_domain::<u64>(AtomicOps::all()).expect("a domain");
                if client.rank() == Rank(0) {
                    let _never = words.fetch_add(Rank(1), 64, 1);
                }
                let _ended = client.block_until(|| false);
            });
        });
        assert!(text.contains("rank 1 does not do it: the word is not mapped"), "{text}");
    }
}

#[test]
fn no_process_has_an_address_beyond_the_greatest() {
    everywhere::<Seq>(2, &everything(), |client| {
        let to = Rank(1 - client.rank().0);
        for at in [1 << 48, (1 << 48) - 4, u64::MAX - 7] {
            let put = client.put(to, at, &[1; 8]);
            assert!(matches!(put, Err(Error::OutsideSegment { .. })), "{at:#x}: {put:?}");
        }
        meet(client);
    });
}

#[test]
fn ranks_of_different_modes_do_not_start() {
    for (placement, modes) in [
        (Placement::Together, [SegmentMode::FAST, SegmentMode::LARGE]),
        (Placement::Apart, [SegmentMode::LARGE, SegmentMode::EVERYTHING]),
    ] {
        let (hosts, settings) = placement.of(2, &Settings::default());
        let services = bootstrap::memory::job_on_hosts(&hosts).expect("a job");
        let texts: Vec<String> = std::thread::scope(|scope| {
            let starts: Vec<_> = services
                .into_iter()
                .zip(modes)
                .map(|(services, segment_mode)| {
                    let settings = Settings { segment_mode, ..settings.clone() };
                    scope.spawn(move || {
                        let page = Arc::clone(services.node_shm());
                        let client = Client::<Seq>::with_bootstrap("TEST", services, settings);
                        let text = client.err().map(|error| error.to_string());
                        let code = bootstrap::node_shm::ExitDecision { code: 9, cause: None };
                        page.decide(code);
                        text
                    })
                })
                .collect();
            starts.into_iter().filter_map(|start| start.join().expect("no panic")).collect()
        });
        let names = |text: &String| modes.iter().all(|mode| text.contains(mode.name()));
        assert!(
            texts.iter().any(|text| text.contains("GASNET_SEGMENT_MODE") && names(text)),
            "{texts:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn bytes_land_where_they_were_sent(
        runs in proptest::collection::vec((0_usize..BYTES - 70_000, 1_usize..70_000), 1..12),
    ) {
        let (runs, places) = (&runs, Mutex::new(Vec::new()));
        job_at::<Seq>(Placement::Cut, 3, &everything(), |client| {
            let area = Area::heap();
            let all = exchange(client, &places, area.at);
            let to = (client.rank().0 as usize + 1) % 3;
            let mut model = vec![0; BYTES];
            for (seed, (at, len)) in runs.iter().enumerate() {
                let bytes = pattern(seed, *len);
                model[*at..at + len].copy_from_slice(&bytes);
                client.put(Rank(to as u32), all[to] + *at as u64, &bytes).expect("put");
            }
            meet(client);
            assert!(area.bytes() == model);
            meet(client);
        });
    }
}
