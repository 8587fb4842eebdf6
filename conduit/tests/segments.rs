//! Segments, put and get, events.
#![expect(clippy::cast_possible_truncation, reason = "small numbers made by the test")]

#[path = "shared/harness.rs"]
mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gasnet_ibv::{
    BarrierFlags, Client, Entry, Error, Flags, HandlerIndex, LocalCompletion, Operations, Rank,
    SegmentLimit, SegmentOffset, Seq, Settings,
};
use harness::{Placement, everywhere, job, job_at};

const PAGE: u64 = 4096;

fn meet(client: &Client<Seq>) {
    client.barrier(0, BarrierFlags::ANONYMOUS).expect("barrier");
}

#[test]
fn segments_of_different_sizes() {
    everywhere::<Seq>(5, &Settings::default(), |client| {
        let me = client.rank().0;
        let len = |rank: u32| PAGE * (u64::from(rank) * 3 + 1);
        let segment = client.attach_segment(len(me)).expect("attach");
        assert_eq!(segment.len(), len(me));
        assert!(segment.base().addr().is_multiple_of(4096));
        let mut first = [1; 16];
        segment.read(len(me) - 16, &mut first).expect("read");
        assert_eq!(first, [0; 16], "zero filled");
        meet(client);
        for rank in 0..client.size() {
            let near = client.neighbours().contains(&Rank(rank));
            let expected = near.then(|| len(rank));
            assert_eq!(segment.of(Rank(rank)).map(|(_, bytes)| bytes), expected);
            let mine = [me as u8 + 1; 3];
            client.put(Rank(rank), len(rank) - 3 * u64::from(me + 1), &mine).expect("put");
        }
        meet(client);
        for from in 0..client.size() {
            let mut got = [0; 3];
            segment.read(len(me) - 3 * u64::from(from + 1), &mut got).expect("read");
            assert_eq!(got, [from as u8 + 1; 3]);
            let to = (me + 1) % client.size();
            client.get(Rank(to), len(to) - 3 * u64::from(from + 1), &mut got).expect("get");
            assert_eq!(got, [from as u8 + 1; 3]);
        }
        assert!(segment.of(Rank(5)).is_none());
        meet(client);
    });
}

#[test]
fn every_alignment_and_size() {
    everywhere::<Seq>(2, &Settings::default(), |client| {
        let segment = client.attach_segment(PAGE).expect("attach");
        let peer = Rank(1 - client.rank().0);
        if client.rank() == Rank(0) {
            let source: Vec<u8> = (0..=255).collect();
            for offset in 0..17 {
                for len in 0..67 {
                    client.put(peer, 100, &[0xaa; 128]).expect("put");
                    client.put(peer, 110 + offset, &source[3..3 + len]).expect("put");
                    let mut back = [0; 128];
                    client.get(peer, 100, &mut back).expect("get");
                    let at = 10 + offset as usize;
                    assert!(back[..at].iter().chain(&back[at + len..]).all(|b| *b == 0xaa));
                    assert_eq!(&back[at..at + len], &source[3..3 + len]);
                }
            }
            for len in 1..=8 {
                let value = 0x0123_4567_89ab_cdef;
                client.put_value(peer, 501, value, len).expect("put");
                let low = value & (u64::MAX >> (64 - 8 * len));
                assert_eq!(client.get_value(peer, 501, len).expect("get"), low);
            }
            assert!(matches!(
                client.put_value(peer, 0, 0, 9),
                Err(Error::ValueSize { len: 9, .. })
            ));
            assert!(matches!(client.get_value(peer, 0, 0), Err(Error::ValueSize { len: 0, .. })));
        }
        assert!(matches!(
            segment.atomic_u64(4),
            Err(Error::Misaligned { offset: 4, align: 8, .. })
        ));
        assert!(matches!(segment.atomic_u32(4096), Err(Error::OutsideSegment { .. })));
        segment.atomic_u32(4092).expect("last word").store(7, Ordering::Relaxed);
        meet(client);
    });
}

#[test]
fn ranges_outside_have_names() {
    everywhere::<Seq>(2, &Settings::default(), |client| {
        assert!(matches!(
            client.put(Rank(0), 0, &[1]),
            Err(Error::OutsideSegment { segment: 0, .. })
        ));
        let max = client.max_local_segment();
        for bad in [0, 1, PAGE + 1, max + PAGE] {
            assert!(matches!(client.attach_segment(bad), Err(Error::SegmentSize { .. })), "{bad}");
        }
        client.attach_segment(PAGE).expect("attach");
        assert!(matches!(client.attach_segment(PAGE), Err(Error::SegmentAttached)));
        for (offset, len) in [(PAGE, 1), (PAGE - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 8), (0, 4097)]
        {
            let mut buffer = vec![0; len];
            for rank in [Rank(0), Rank(1)] {
                assert!(matches!(
                    client.put(rank, offset, &buffer),
                    Err(Error::OutsideSegment { segment: PAGE, .. })
                ));
                assert!(matches!(
                    client.get(rank, offset, &mut buffer),
                    Err(Error::OutsideSegment { .. })
                ));
                let (team, dest) = (client.team(), SegmentOffset(offset));
                let long =
                    team.request_long(rank, HandlerIndex(200), &buffer, dest, &[], Flags::NONE);
                assert!(matches!(long, Err(Error::OutsideSegment { segment: PAGE, .. })));
            }
        }
        assert!(matches!(client.get(Rank(9), 0, &mut [0]), Err(Error::RankOutOfRange { .. })));
        client.put(Rank(1), u64::MAX, &[]).expect("nothing fits anywhere");
        meet(client);
    });
}

#[test]
fn non_blocking_operations() {
    everywhere::<Seq>(3, &Settings::default(), |client| {
        client.attach_segment(PAGE).expect("attach");
        meet(client);
        let right = Rank((client.rank().0 + 1) % 3);
        let source = [client.rank().0 as u8 + 10; 100];
        let (mut one, mut two) = ([0; 100], [0; 50]);
        let done = client.scope(|scope| -> Result<(), Error> {
            let put = scope.put_nb(right, 0, &source, LocalCompletion::Separate, Flags::NONE)?;
            let put = put.expect("not immediate");
            put.leaf(Operations::LOCAL).wait()?;
            put.wait()?;
            let value = scope.put_value_nb(right, 200, 0x1234, 2, Flags::NONE)?.expect("some");
            value.wait()?;
            let get = scope.get_nb(right, 0, &mut one, Flags::NONE)?.expect("some");
            let got: &mut [u8] = get.wait()?;
            assert_eq!(got, source);
            let region = scope.access_region();
            assert_eq!(region.put(right, 100, &source, Flags::NONE)?, gasnet_ibv::Outcome::Sent);
            region.end().wait()?;
            assert_eq!(
                scope.get_nbi(right, 100, &mut two, Flags::NONE)?,
                gasnet_ibv::Outcome::Sent
            );
            let value = scope.put_value_nbi(right, 208, 0x5678, 2, Flags::NONE)?;
            assert_eq!(value, gasnet_ibv::Outcome::Sent);
            scope.nbi_wait(Operations::ALL)?;
            assert!(scope.nbi_test(Operations::PUT | Operations::GET));
            Ok(())
        });
        done.expect("scope").expect("operations");
        assert_eq!(two, source[..50]);
        assert_eq!(client.get_value(right, 200, 2).expect("get"), 0x1234);
        assert_eq!(client.get_value(right, 208, 2).expect("get"), 0x5678);
        meet(client);
    });
}

#[test]
fn payloads_of_requests_are_free_when_their_event_says_so() {
    const EACH: u8 = 40;
    const SIZES: [usize; 4] = [0, 1, 700, 3000];
    everywhere::<Seq>(3, &Settings::default(), |client| {
        let (medium, long) = (HandlerIndex(200), HandlerIndex(201));
        let (mediums, longs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (seen, landed) = (Arc::clone(&mediums), Arc::clone(&longs));
        let number = |args: &[i32]| u8::try_from(args[0]).expect("a number");
        let place = |n: u8| SegmentOffset(u64::from(n) * PAGE);
        let content = |n: u8| vec![n; SIZES[usize::from(n) % SIZES.len()]];
        let mut table = [
            Entry::medium("medium", 1, move |_, payload, args| {
                assert_eq!(*payload, content(number(args)));
                seen.fetch_add(1, Ordering::Relaxed);
            })
            .at(medium.0),
            Entry::long("long", 1, move |_, landing, args| {
                assert_eq!(landing.offset(), place(number(args)));
                assert_eq!(landing.to_vec(), content(number(args)));
                landed.fetch_add(1, Ordering::Relaxed);
            })
            .at(long.0),
        ];
        client.endpoint().register(&mut table).expect("table");
        client.attach_segment(u64::from(EACH) * PAGE).expect("attach");
        meet(client);
        let right = Rank((client.rank().0 + 1) % 3);
        let contents: Vec<Vec<u8>> = (0..EACH).map(content).collect();
        let done = client.scope(|scope| -> Result<(), Error> {
            let mut events = vec![];
            for (n, payload) in (0_u8..).zip(&contents) {
                let args = [i32::from(n)];
                let sent = scope.request_medium_nb(right, medium, payload, &args, Flags::NONE)?;
                events.push(sent.expect("not immediate"));
                loop {
                    // Refused at once where there is no room; then nothing was sent.
                    let flags = Flags::IMMEDIATE;
                    match scope.request_long_nb(right, long, payload, place(n), &args, flags)? {
                        Some(event) => break events.push(event),
                        None => client.poll()?,
                    };
                }
            }
            gasnet_ibv::wait_all(events)?;
            let wrong = scope.request_medium_nb(Rank(3), medium, &[], &[0], Flags::NONE);
            assert!(matches!(wrong, Err(Error::RankOutOfRange { .. })));
            Ok(())
        });
        done.expect("scope").expect("requests");
        while [&mediums, &longs].iter().any(|c| c.load(Ordering::Relaxed) < u32::from(EACH)) {
            client.poll().expect("poll");
        }
        meet(client);
    });
}

#[test]
fn limits_of_the_segment() {
    let limit = SegmentLimit::PerHost(PAGE * 10 + 5);
    job::<Seq>(3, &Settings { max_segment: limit, ..Settings::default() }, |client| {
        assert_eq!(client.max_local_segment(), PAGE * 3);
        assert_eq!(client.max_global_segment(), PAGE * 3);
        client.attach_segment(PAGE * 3).expect("attach");
        assert_eq!(client.neighbours(), [Rank(0), Rank(1), Rank(2)]);
        let position = client.position();
        assert_eq!((position.hosts, position.host, position.neighbourhoods), (1, 0, 1));
    });
}

#[test]
fn neighbourhoods_and_hosts() {
    let at = |placement, size, check: fn(&Client<Seq>)| {
        job_at::<Seq>(placement, size, &Settings::default(), check);
    };
    at(Placement::Cut, 5, |client| {
        let (me, position) = (client.rank().0, client.position());
        assert_eq!((position.hosts, position.host), (1, 0));
        assert_eq!((position.neighbourhoods, position.neighbourhood), (3, me / 2));
        let neighbours = (0..5).map(Rank).filter(|rank| rank.0 / 2 == me / 2);
        assert_eq!(client.neighbours(), neighbours.collect::<Vec<_>>());
        assert_eq!(client.host_ranks().len(), 5);
    });
    at(Placement::Alternating, 5, |client| {
        let (me, position) = (client.rank().0, client.position());
        assert_eq!((position.hosts, position.host), (2, me % 2));
        assert_eq!((position.neighbourhoods, position.neighbourhood), (2, me % 2));
        let neighbours = (0..5).map(Rank).filter(|rank| rank.0 % 2 == me % 2);
        assert_eq!(client.neighbours(), neighbours.collect::<Vec<_>>());
        assert_eq!(client.host_ranks(), client.neighbours());
    });
}

#[test]
fn operations_stay_in_flight_until_they_are_waited_for() {
    job_at::<Seq>(Placement::Apart, 2, &Settings::default(), |client| {
        client.attach_segment(64 * PAGE).expect("attach");
        let peer = Rank(1 - client.rank().0);
        let me = client.rank().0 as u8;
        for round in 0..20_u8 {
            let source = vec![me ^ round; 30_000];
            let mut targets = vec![vec![0; 10_000]; 3];
            let done = client.scope(|scope| -> Result<(), Error> {
                let mut puts = vec![];
                for (place, part) in (0_u64..).zip(source.chunks(10_000)) {
                    let put = scope.put_nb(
                        peer,
                        place * 10_000,
                        part,
                        LocalCompletion::Separate,
                        Flags::NONE,
                    )?;
                    puts.push(put.expect("not immediate"));
                }
                for put in &puts {
                    put.leaf(Operations::LOCAL).wait()?;
                }
                gasnet_ibv::wait_all(puts)?;
                let mut gets = vec![];
                for (place, into) in (0_u64..).zip(&mut targets) {
                    gets.push(scope.get_nb(peer, place * 10_000, into, Flags::NONE)?.expect("get"));
                }
                for mut got in gets.into_iter().rev() {
                    let bytes = loop {
                        match got.test() {
                            Ok(bytes) => break bytes,
                            Err(event) => got = event,
                        }
                        client.poll()?;
                    };
                    assert!(bytes.iter().all(|byte| *byte == me ^ round));
                }
                // Dropped and implicit ones are the scope's.
                let _event =
                    scope.put_nb(peer, 50_000, &source, LocalCompletion::Now, Flags::NONE)?;
                let sent =
                    scope.put_nbi(peer, 90_000, &source, LocalCompletion::Separate, Flags::NONE)?;
                assert_eq!(sent, gasnet_ibv::Outcome::Sent);
                let region = scope.access_region();
                let sent = region.put(peer, 130_000, &source, Flags::NONE)?;
                assert_eq!(sent, gasnet_ibv::Outcome::Sent);
                let event = region.end();
                event.leaf(Operations::GET).wait()?;
                event.leaf(Operations::LOCAL).wait()?;
                event.wait()?;
                scope.nbi_wait(Operations::LOCAL)
            });
            done.expect("scope").expect("operations");
            for place in [50_000, 90_000, 130_000] {
                let mut seen = vec![0; 30_000];
                client.get(peer, place, &mut seen).expect("get");
                assert_eq!(seen, source);
            }
            meet(client);
        }
    });
}
