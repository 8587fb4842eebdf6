//! Active messages: every category, size and count, as request, reply and loop-back; storms;
//! errors.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers made by the test"
)]

#[path = "shared/harness.rs"]
mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gasnet_ibv::{
    BarrierFlags, Client, Entry, Error, Flags, HandlerIndex, MAX_ARGS, Mode, Outcome, Par, ParSync,
    Payload, Rank, Role, SegmentOffset, Seq, Settings,
};
use harness::{Placement, everywhere, job, job_at, tiny};

const REQ: HandlerIndex = HandlerIndex(200);
const REP: HandlerIndex = HandlerIndex(201);

fn meet<M: Mode>(client: &Client<M>) {
    client.barrier(0, BarrierFlags::ANONYMOUS).expect("barrier");
}

fn byte(seed: u32, at: usize) -> u8 {
    (seed.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ (at as u8).wrapping_mul(31) ^ (at >> 8) as u8
}

fn fill(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte(seed, at)).collect()
}

fn check(seed: u32, bytes: &[u8], len: usize) {
    assert_eq!(bytes.len(), len);
    assert!(bytes.iter().enumerate().all(|(at, b)| *b == byte(seed, at)), "payload {seed}/{len}");
}

fn args(seed: u32, count: usize) -> Vec<i32> {
    (0..count as u32).map(|i| (seed ^ i.wrapping_mul(0x0101_0101)).cast_signed()).collect()
}

#[test]
fn every_number_of_arguments_in_every_category() {
    everywhere::<Seq>(3, &Settings::default(), |client| {
        let replies = Arc::new(AtomicU32::new(0));
        let segment = client.attach_segment(1 << 20).expect("attach");
        for nargs in 0..=MAX_ARGS {
            let base = 128 + 6 * nargs as u8;
            let index = move |i: u8| HandlerIndex(base + i);
            let count = Arc::clone(&replies);
            let done = move |a: &[i32]| {
                assert_eq!(a, args(7, nargs));
                count.fetch_add(1, Ordering::SeqCst);
            };
            let (d1, d2, d3) = (done.clone(), done.clone(), done);
            let a = args(7, nargs);
            let (a1, a2, a3) = (a.clone(), a.clone(), a.clone());
            let mut table = [
                Entry::short("s", nargs, move |token, got| {
                    assert_eq!(got, a1);
                    assert!(token.is_request() && !token.is_long());
                    assert_eq!(token.entry().name, "s");
                    token.reply_short(index(1), got, Flags::NONE).map(|_| ()).expect("reply");
                })
                .at(base)
                .role(Role::Request),
                Entry::short("sr", nargs, move |token, got| {
                    assert!(!token.is_request());
                    d1(got);
                })
                .at(base + 1)
                .role(Role::Reply),
                Entry::medium("m", nargs, move |token, payload, got| {
                    assert_eq!(got, a2);
                    assert!(payload.as_ptr().addr().is_multiple_of(8));
                    check(11, payload, payload.len());
                    payload.reverse();
                    payload.reverse();
                    token
                        .reply_medium(index(3), payload, got, Flags::NONE)
                        .map(|_| ())
                        .expect("reply");
                })
                .at(base + 2),
                Entry::medium("mr", nargs, move |_, payload, got| {
                    check(11, payload, payload.len());
                    d2(got);
                })
                .at(base + 3),
                Entry::long("l", nargs, move |token, landing, got| {
                    assert_eq!(got, a3);
                    assert!(token.is_long());
                    let bytes = landing.to_vec();
                    check(13, &bytes, landing.len());
                    let dest = SegmentOffset(landing.offset().0 + (1 << 19));
                    token
                        .reply_long(index(5), &bytes, dest, got, Flags::NONE)
                        .map(|_| ())
                        .expect("reply");
                })
                .at(base + 4),
                Entry::med_long("lr", nargs, move |_, payload, got| {
                    let Payload::Long(landing) = payload else { panic!("a Long") };
                    check(13, &landing.to_vec(), landing.len());
                    d3(got);
                })
                .at(base + 5),
            ];
            client.endpoint().register(&mut table).expect("register");
        }
        meet(client);
        let team = client.team();
        let mut sent = 0;
        for nargs in 0..=MAX_ARGS {
            let base = 128 + 6 * nargs as u8;
            let a = args(7, nargs);
            let max = team.max_request_medium(None, nargs, Flags::NONE);
            for target in 0..client.size() {
                let to = Rank(target);
                let slot = u64::from(client.rank().0) << 17;
                team.request_short(to, HandlerIndex(base), &a, Flags::NONE)
                    .map(|_| ())
                    .expect("short");
                sent += 1;
                for len in [0, 1, 7, 40, 80, 104 - 4 * nargs, 105, 1024, 1025, 8192, 8193, max] {
                    let payload = fill(11, len);
                    team.request_medium(to, HandlerIndex(base + 2), &payload, &a, Flags::NONE)
                        .map(|_| ())
                        .expect("medium");
                    let payload = fill(13, len);
                    team.request_long(
                        to,
                        HandlerIndex(base + 4),
                        &payload,
                        SegmentOffset(slot),
                        &a,
                        Flags::NONE,
                    )
                    .map(|_| ())
                    .expect("long");
                    sent += 2;
                    // The next Long goes to the same place.
                    client.block_until(|| replies.load(Ordering::SeqCst) == sent).expect("replies");
                }
            }
        }
        meet(client);
        assert!(segment.len() == 1 << 20);
    });
}

/// Every rank floods every rank (itself too) with requests of all categories that all reply.
fn storm<M: Mode>(size: u32, settings: &Settings, messages: u32) {
    storm_at::<M>(Placement::Together, size, settings, messages);
}

fn storm_at<M: Mode>(placement: Placement, size: u32, settings: &Settings, messages: u32) {
    job_at::<M>(placement, size, settings, |client| {
        let (served, answered, sum) =
            (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
        register_storm(client, &served, &answered, &sum);
        client.attach_segment(1 << 16).expect("attach");
        meet(client);
        flood(client, messages, 0);
        let expected = messages * size;
        client.block_until(|| answered.load(Ordering::SeqCst) == expected).expect("answers");
        client.block_until(|| served.load(Ordering::SeqCst) == expected).expect("requests");
        meet(client);
        assert_eq!(answered.load(Ordering::SeqCst), expected);
        assert_eq!(served.load(Ordering::SeqCst), expected);
        let each: u64 = (0..messages).map(u64::from).sum();
        assert_eq!(sum.load(Ordering::SeqCst), each * u64::from(size));
    });
}

fn register_storm<M: Mode>(
    client: &Client<M>,
    served: &Arc<AtomicU32>,
    answered: &Arc<AtomicU32>,
    sum: &Arc<AtomicU64>,
) {
    let (s1, s2, s3) = (Arc::clone(served), Arc::clone(served), Arc::clone(served));
    let (a1, a2, a3) = (Arc::clone(answered), Arc::clone(answered), Arc::clone(answered));
    let (t1, t2, t3) = (Arc::clone(sum), Arc::clone(sum), Arc::clone(sum));
    let add = |answered: &AtomicU32, sum: &AtomicU64, got: &[i32]| {
        sum.fetch_add(u64::from(got[0].cast_unsigned()), Ordering::SeqCst);
        answered.fetch_add(1, Ordering::SeqCst);
    };
    let mut table = [
        Entry::short("short", 1, move |token, got| {
            s1.fetch_add(1, Ordering::SeqCst);
            token.reply_short(HandlerIndex(211), got, Flags::NONE).map(|_| ()).expect("reply");
        })
        .at(210),
        Entry::short("short reply", 1, move |_, got| add(&a1, &t1, got)).at(211),
        Entry::medium("medium", 1, move |token, payload, got| {
            s2.fetch_add(1, Ordering::SeqCst);
            let n = got[0].cast_unsigned();
            check(n ^ token.source().0, payload, len_of(n));
            if n % 2 == 0 {
                token
                    .reply_medium(HandlerIndex(213), payload, got, Flags::NONE)
                    .map(|_| ())
                    .expect("reply");
            } else {
                let prepared =
                    token.prepare_reply_medium(None, payload.len(), payload.len(), 1, Flags::NONE);
                let mut prepared = prepared.expect("prepare").expect("not immediate");
                prepared.buffer_mut().copy_from_slice(payload);
                prepared.commit(HandlerIndex(213), payload.len(), got).expect("commit");
            }
        })
        .at(212),
        Entry::medium("medium reply", 1, move |_, payload, got| {
            assert_eq!(payload.len(), len_of(got[0].cast_unsigned()));
            add(&a2, &t2, got);
        })
        .at(213),
        Entry::long("long", 1, move |token, landing, got| {
            s3.fetch_add(1, Ordering::SeqCst);
            let dest = landing.offset();
            token
                .reply_long(HandlerIndex(215), &[got[0] as u8; 9], dest, got, Flags::NONE)
                .map(|_| ())
                .expect("reply");
        })
        .at(214),
        Entry::long("long reply", 1, move |_, landing, got| {
            assert_eq!(landing.len(), 9);
            add(&a3, &t3, got);
        })
        .at(215),
    ];
    client.endpoint().register(&mut table).expect("register");
}

/// Payload length of message `n`: mostly small, sometimes the largest.
const fn len_of(n: u32) -> usize {
    match n % 7 {
        0 => 0,
        1 => 60,
        2 => 900,
        3 => 3000,
        4 => 20_000,
        5 => 65_464,
        _ => 96,
    }
}

fn flood<M: Mode>(client: &Client<M>, messages: u32, thread: u32) {
    let team = client.team();
    let me = client.rank().0;
    for n in 0..messages {
        for step in 0..client.size() {
            let to = Rank((me + step) % client.size());
            let a = [n.cast_signed()];
            let sent = match (n + step + thread) % 4 {
                0 => team.request_short(to, HandlerIndex(210), &a, Flags::NONE).map(|_| ()),
                1 => {
                    let dest = SegmentOffset(u64::from(me) * 16);
                    team.request_long(to, HandlerIndex(214), &[me as u8; 9], dest, &a, Flags::NONE)
                        .map(|_| ())
                }
                2 => {
                    let payload = fill(n ^ me, len_of(n));
                    team.request_medium(to, HandlerIndex(212), &payload, &a, Flags::NONE)
                        .map(|_| ())
                }
                _ => {
                    let len = len_of(n);
                    let prepared = team.prepare_request_medium(to, None, len, len, 1, Flags::NONE);
                    let mut prepared = prepared.expect("prepare").expect("not immediate");
                    prepared.buffer_mut().copy_from_slice(&fill(n ^ me, len));
                    prepared.commit(HandlerIndex(212), len, &a)
                }
            };
            sent.expect("request");
        }
    }
}

#[test]
fn storm_of_two() {
    storm::<Seq>(2, &tiny(), 1500);
}

#[test]
fn storm_of_many() {
    storm::<Seq>(9, &tiny(), 120);
}

#[test]
fn storm_between_neighbourhoods() {
    for placement in Placement::REMOTE {
        storm_at::<Seq>(placement, 4, &tiny(), 150);
    }
    storm_at::<Par>(Placement::AllButOne, 4, &tiny(), 150);
    storm_at::<ParSync>(Placement::Cut, 5, &tiny(), 100);
}

#[test]
fn storm_with_itself() {
    storm::<ParSync>(1, &tiny(), 2000);
}

#[test]
fn storm_with_deep_queues() {
    storm::<Par>(4, &Settings::default(), 400);
}

#[test]
fn storm_of_ranks_with_several_threads() {
    const THREADS: u32 = 3;
    const MESSAGES: u32 = 150;
    job::<Par>(3, &tiny(), |client| {
        let (served, answered, sum) =
            (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
        register_storm(client, &served, &answered, &sum);
        client.attach_segment(1 << 16).expect("attach");
        meet(client);
        let expected = MESSAGES * THREADS * client.size();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (served, answered) = (&served, &answered);
                scope.spawn(move || {
                    flood(client, MESSAGES, thread);
                    client
                        .block_until(|| answered.load(Ordering::SeqCst) == expected)
                        .expect("answers");
                    client
                        .block_until(|| served.load(Ordering::SeqCst) == expected)
                        .expect("requests");
                });
            }
        });
        meet(client);
        let each: u64 = (0..MESSAGES).map(u64::from).sum();
        assert_eq!(sum.load(Ordering::SeqCst), each * u64::from(THREADS * client.size()));
    });
}

/// More senders than a receiver has lanes, each often enough to ask for one.
#[test]
fn storm_of_more_ranks_than_lanes() {
    storm::<Seq>(12, &tiny(), 40);
}

/// Shorts of threads that come and go: a lane of one that has ended loses and repeats nothing.
#[test]
fn threads_that_come_and_go() {
    const GENERATIONS: u32 = 12;
    const THREADS: u32 = 2;
    const EACH: u32 = 300;
    job::<Par>(2, &tiny(), |client| {
        let seen: Arc<Vec<AtomicU32>> =
            Arc::new((0..GENERATIONS * THREADS * EACH).map(|_| AtomicU32::new(0)).collect());
        let got = Arc::new(AtomicU32::new(0));
        let (marks, count) = (Arc::clone(&seen), Arc::clone(&got));
        let mark = move |_: &gasnet_ibv::Token<'_, Par>, a: &[i32]| {
            marks[a[0] as usize].fetch_add(1, Ordering::SeqCst);
            count.fetch_add(1, Ordering::SeqCst);
        };
        let mut table = [Entry::short("mark", 1, mark).at(REQ.0)];
        client.endpoint().register(&mut table).expect("table");
        meet(client);
        let peer = Rank(1 - client.rank().0);
        for generation in 0..GENERATIONS {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || {
                        let first = (generation * THREADS + thread) * EACH;
                        for n in first..first + EACH {
                            let args = [n.cast_signed()];
                            let sent = client.team().request_short(peer, REQ, &args, Flags::NONE);
                            let _ = sent.expect("request");
                        }
                    });
                }
            });
        }
        let all = GENERATIONS * THREADS * EACH;
        client.block_until(|| got.load(Ordering::SeqCst) >= all).expect("messages");
        meet(client);
        client.poll().expect("poll");
        assert!(seen.iter().all(|times| times.load(Ordering::SeqCst) == 1));
    });
}

#[test]
fn immediate_requests_decline_when_the_queue_is_full() {
    job::<Seq>(2, &tiny(), |client| {
        let got = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&got);
        let count = move |_: &gasnet_ibv::Token<'_, Seq>, payload: &mut [u8], _: &[i32]| {
            check(1, payload, payload.len());
            counter.fetch_add(1, Ordering::SeqCst);
        };
        client
            .endpoint()
            .register(&mut [Entry::medium("count", 1, count).at(200)])
            .expect("register");
        meet(client);
        let payload = fill(1, 40_000);
        let mut sent = 0;
        if client.rank() == Rank(0) {
            let team = client.team();
            while team
                .request_medium(Rank(1), REQ, &payload, &[0], Flags::IMMEDIATE)
                .expect("request")
                == Outcome::Sent
            {
                sent += 1;
                assert!(sent < 100_000, "an idle receiver has bounded room");
            }
            let none = team.prepare_request_medium(Rank(1), None, 1, 40_000, 1, Flags::IMMEDIATE);
            assert!(none.expect("prepare").is_none());
            // The others still find room: one slow receiver does not hold up the arena's small
            // blocks.
            let own = team.request_medium(Rank(0), REQ, &payload[..100], &[0], Flags::IMMEDIATE);
            let own_sent = own.expect("request") == Outcome::Sent;
            client.block_until(|| got.load(Ordering::SeqCst) == u32::from(own_sent)).expect("own");
        }
        meet(client);
        let mut all = [0; 4];
        let segment = client.attach_segment(4096).expect("attach");
        if client.rank() == Rank(0) {
            client.put(Rank(1), 0, &u32::to_le_bytes(sent)).expect("put");
        }
        meet(client);
        if client.rank() == Rank(1) {
            segment.read(0, &mut all).expect("read");
            let expected = u32::from_le_bytes(all);
            assert!(expected > 0);
            client.block_until(|| got.load(Ordering::SeqCst) == expected).expect("all");
        }
        meet(client);
    });
}

#[test]
fn messages_before_the_segment_exists() {
    everywhere::<Seq>(2, &Settings::default(), |client| {
        let got = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&got);
        let long = Entry::long("empty long", 0, move |_, landing, _| {
            assert!(landing.is_empty());
            assert_eq!(landing.offset(), SegmentOffset(u64::MAX - 3));
            counter.fetch_add(1, Ordering::SeqCst);
        });
        client.endpoint().register(&mut [long.at(200)]).expect("register");
        meet(client);
        let peer = Rank(1 - client.rank().0);
        let team = client.team();
        let dest = SegmentOffset(u64::MAX - 3);
        team.request_long(peer, REQ, &[], dest, &[], Flags::NONE).map(|_| ()).expect("long");
        let outside = team.request_long(peer, REQ, &[1], SegmentOffset(0), &[], Flags::NONE);
        assert!(matches!(outside, Err(Error::OutsideSegment { segment: 0, .. })));
        client.block_until(|| got.load(Ordering::SeqCst) == 1).expect("got");
        meet(client);
    });
}

#[test]
fn negotiated_payload() {
    everywhere::<Seq>(2, &Settings::default(), |client| {
        let got = Arc::new(AtomicU32::new(0));
        let (c1, c2) = (Arc::clone(&got), Arc::clone(&got));
        let mut table = [
            Entry::medium("m", 2, move |_, payload, got| {
                check(5, payload, got[1] as usize);
                c1.fetch_add(1, Ordering::SeqCst);
            })
            .at(200),
            Entry::long("l", 0, move |_, landing, _| {
                check(6, &landing.to_vec(), landing.len());
                c2.fetch_add(1, Ordering::SeqCst);
            })
            .at(201),
        ];
        client.endpoint().register(&mut table).expect("register");
        client.attach_segment(1 << 20).expect("attach");
        meet(client);
        let peer = Rank(1 - client.rank().0);
        let team = client.team();
        let max = team.max_request_medium(Some(peer), 2, Flags::LEAST_ALLOC);
        let mut p = team
            .prepare_request_medium(peer, None, 0, usize::MAX, 2, Flags::NONE)
            .expect("p")
            .expect("p");
        assert_eq!(p.size(), max);
        let filled = fill(5, max);
        p.buffer_mut().copy_from_slice(&filled);
        let wrong = [1, 2, 3];
        // A failed commit consumes the message; the block comes back.
        assert!(matches!(
            p.commit(REQ, 10, &wrong),
            Err(Error::ArgCount { given: 3, promised: 2, .. })
        ));
        for _ in 0..100 {
            let p = team
                .prepare_request_medium(peer, None, max, max, 2, Flags::NONE)
                .expect("p")
                .expect("p");
            p.cancel();
        }
        let p = team
            .prepare_request_medium(peer, Some(&filled), 10, max, 2, Flags::NONE)
            .expect("p")
            .expect("p");
        p.commit(REQ, 77, &[0, 77]).expect("commit");
        let long = fill(6, 70_000);
        let dest = SegmentOffset(4096);
        let p = team.prepare_request_long(peer, Some(&long), 1, 70_000, Some(dest), 0).expect("p");
        assert!(matches!(
            p.commit(REP, 5, SegmentOffset(0), &[]),
            Err(Error::DestinationChanged { .. })
        ));
        let p = team.prepare_request_long(peer, Some(&long), 1, 70_000, Some(dest), 0).expect("p");
        p.commit(REP, 70_000, dest, &[]).expect("commit");
        let mut p = team.prepare_request_long(peer, None, 1, 1 << 30, None, 0).expect("p");
        assert_eq!(p.size(), team.max_request_long(None, 0, Flags::LEAST_ALLOC));
        let len = p.size();
        p.buffer_mut().copy_from_slice(&fill(6, len));
        let mut left = Some(p);
        while let Some(p) = left {
            left = p.try_commit(REP, len, SegmentOffset(80_000), &[]).expect("commit");
            client.poll().expect("poll");
        }
        let too_much = team.prepare_request_medium(peer, None, max + 1, max + 1, 2, Flags::NONE);
        assert!(matches!(too_much, Err(Error::PayloadSize { .. })));
        let order = team.prepare_request_medium(peer, None, 9, 8, 2, Flags::NONE);
        assert!(matches!(order, Err(Error::PayloadBounds { .. })));
        client.block_until(|| got.load(Ordering::SeqCst) == 3).expect("got");
        meet(client);
    });
}

#[test]
fn mistakes_have_names() {
    everywhere::<Seq>(2, &Settings::default(), |client| {
        let team = client.team();
        let many = [0; MAX_ARGS + 1];
        assert!(matches!(
            team.request_short(Rank(2), REQ, &[], Flags::NONE),
            Err(Error::RankOutOfRange { rank: Rank(2), size: 2, .. })
        ));
        assert!(matches!(
            team.request_short(Rank(1), REQ, &many, Flags::NONE),
            Err(Error::TooManyArgs { count: 17, .. })
        ));
        let big = vec![0; 65_529];
        assert!(matches!(
            team.request_medium(Rank(1), REQ, &big, &[], Flags::NONE),
            Err(Error::PayloadSize { len: 65_529, max: 65_528, .. })
        ));
        let endpoint = client.endpoint();
        let nop = |nargs| Entry::<Seq>::short("nop", nargs, |_, _| {});
        assert!(matches!(
            endpoint.register(&mut [nop(0).at(127)]),
            Err(Error::HandlerIndexRange { index: 127 })
        ));
        assert!(matches!(
            endpoint.register(&mut [nop(17)]),
            Err(Error::TooManyArgs { count: 17, .. })
        ));
        let twice = &mut [nop(0).at(130), nop(0).at(130)];
        assert!(matches!(
            endpoint.register(twice),
            Err(Error::HandlerIndexTaken { index: 130, .. })
        ));
        endpoint.register(&mut []).expect("an empty table");
        let mut table = [nop(0), nop(1).at(254), nop(2), nop(3).at(255)];
        endpoint.register(&mut table).expect("register");
        assert_eq!(table.each_ref().map(|entry| entry.index().0), [253, 254, 252, 255]);
        assert!(matches!(endpoint.register(&mut table), Err(Error::HandlerSpent { .. })));
        let mut rest: Vec<_> = (0..125).map(|_| nop(0)).collect();
        assert!(matches!(endpoint.register(&mut rest), Err(Error::HandlerTableFull { left: 1 })));
        rest.pop();
        endpoint.register(&mut rest).expect("exactly full");
        assert_eq!(rest.last().map(|entry| entry.index().0), Some(128));
        let mut long: Vec<_> = (0..129).map(|_| nop(0)).collect();
        assert!(matches!(
            endpoint.register(&mut long),
            Err(Error::HandlerTableSize { count: 129 })
        ));
        meet(client);
    });
}

#[test]
fn handlers_reply_once_and_do_nothing_else() {
    everywhere::<Seq>(1, &Settings::default(), |client| {
        let done = Arc::new(AtomicU32::new(0));
        let (d1, d2) = (Arc::clone(&done), Arc::clone(&done));
        let mut table = [
            Entry::short("request", 0, move |token, _| {
                let p = token
                    .prepare_reply_medium(None, 1, 1, 0, Flags::NONE)
                    .expect("prepare")
                    .expect("some");
                assert!(matches!(
                    token.reply_short(REP, &[], Flags::NONE),
                    Err(Error::Reply { .. })
                ));
                p.cancel();
                token.reply_short(REP, &[], Flags::NONE).map(|_| ()).expect("reply");
                assert!(matches!(
                    token.reply_short(REP, &[], Flags::NONE),
                    Err(Error::Reply { .. })
                ));
                d1.fetch_add(1, Ordering::SeqCst);
            })
            .at(200),
            Entry::short("reply", 0, move |token, _| {
                assert!(matches!(
                    token.reply_short(REP, &[], Flags::NONE),
                    Err(Error::Reply { .. })
                ));
                d2.fetch_add(1, Ordering::SeqCst);
            })
            .at(201),
        ];
        client.endpoint().register(&mut table).expect("register");
        client.team().request_short(Rank(0), REQ, &[], Flags::NONE).map(|_| ()).expect("request");
        client.block_until(|| done.load(Ordering::SeqCst) == 2).expect("done");
    });
}

#[test]
#[should_panic(expected = "not registered")]
fn a_message_for_nobody_is_fatal() {
    job::<Seq>(2, &Settings::default(), send_to_nobody);
}

#[test]
#[should_panic(expected = "not registered")]
fn a_message_over_the_network_for_nobody_is_fatal() {
    job_at::<Seq>(Placement::Apart, 2, &Settings::default(), send_to_nobody);
}

fn send_to_nobody(client: &Client<Seq>) {
    let peer = Rank(1 - client.rank().0);
    let _ = client.team().request_short(peer, REQ, &[], Flags::NONE);
    let _ = client.block_until(|| false);
}

#[test]
#[should_panic(expected = "arguments")]
fn a_message_that_breaks_its_promise_is_fatal() {
    job::<Seq>(1, &Settings::default(), |client| {
        client
            .endpoint()
            .register(&mut [Entry::short("two", 2, |_, _| {}).at(200)])
            .expect("register");
        let _ = client.team().request_short(Rank(0), REQ, &[1], Flags::NONE);
        let _ = client.block_until(|| false);
    });
}

#[test]
fn the_decided_end_of_the_job_ends_every_wait() {
    let services = bootstrap::memory::job(2).expect("job");
    let page = Arc::clone(services[0].node_shm());
    std::thread::scope(|scope| {
        for services in services {
            scope.spawn(move || {
                let client = Client::<Seq>::with_bootstrap("TEST", services, Settings::default());
                let client = client.expect("init");
                let end = if client.rank() == Rank(0) {
                    client.block_until(|| false)
                } else {
                    client.barrier(0, BarrierFlags::ANONYMOUS)
                };
                assert!(matches!(end, Err(Error::JobEnding { code: 42 })));
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        page.decide(bootstrap::node_shm::ExitDecision { code: 42, cause: None });
    });
}
