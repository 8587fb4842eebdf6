//! Small operations that a call waits for, one at a time.

use super::*;

/// Posts an operation when there is room, and waits: for ends alone, with polls now and then.
fn done(member: &Member<'_>, to: (Rank, u64), what: Small<'_>) -> [u8; MOST_SMALL] {
    // Both ways, in turn.
    let look = what.len() % 2 == 1;
    let one = member.net.one_call::<Par>().expect("no other call has it");
    assert!(member.net.one_call::<Par>().is_none(), "one at a time");
    let begin = Instant::now();
    let poll = || {
        let sink = TestSink(&member.met, &|_| {});
        let _ = member.net.poll::<Par, _>(&sink, Poll::All).expect("open").expect("poll");
        assert!(begin.elapsed() < PATIENCE);
    };
    loop {
        match one.post(to, what, look).expect("an operation") {
            SmallSent::Full => poll(),
            SmallSent::Unsuited => panic!("a connection takes it"),
            SmallSent::Complete => break assert!(look && one.is_complete()),
            SmallSent::UnderWay => break,
        }
    }
    while !one.is_complete() {
        let left = member.net.take_ends(5, || one.is_complete()).expect("open").expect("ends");
        assert!(left < 5);
        if !one.is_complete() {
            poll();
        }
    }
    let mut read = [0; MOST_SMALL];
    one.read(&mut read[..what.len()]);
    read
}

fn small(kind: &Kind) {
    run(2, 4096, kind, |member| {
        let peer = Rank(1 - member.rank);
        for turn in 0..20_u8 {
            let bytes: Vec<u8> = (0..64).map(|at| at ^ turn).collect();
            for len in [1, 7, 8, 33, MOST_SMALL] {
                done(member, (peer, 64), Small::Put(&bytes[..len]));
                let read = done(member, (peer, 64), Small::Get(len));
                assert_eq!(read[..len], bytes[..len]);
            }
            let old = done(member, (peer, 8), Small::Atomic(WordOp::Add(3)));
            assert_eq!(old[0], 3 * turn);
            let swap = WordOp::CompareSwap { compare: u64::from(turn), swap: u64::from(turn) + 1 };
            assert_eq!(done(member, (peer, 16), Small::Atomic(swap))[0], turn);
        }
        member.services.borrow_mut().barrier().expect("all are done");
        assert_eq!(member.memory.read(8, 1), [60]);
    });
}

#[test]
fn few_bytes_go_and_come() {
    small(&PLAIN);
    small(&Kind { rails: 2, connections: 2, dynamic: true, ..PLAIN });
    small(&Kind { fake: true, dynamic: true, ..PLAIN });
}

/// Puts that a counter counts, as many under way as there is room for.
fn counted_puts(kind: &Kind) {
    run(2, 4096, kind, |member| {
        let peer = Rank(1 - member.rank);
        let counters = [(); 3].map(|()| Arc::new(OpCounter::lasting()));
        let begin = Instant::now();
        let poll = || {
            let sink = TestSink(&member.met, &|_| {});
            let _ = member.net.poll::<Par, _>(&sink, Poll::All).expect("open").expect("poll");
            assert!(begin.elapsed() < PATIENCE);
        };
        for number in 0..400_u16 {
            let counter = &counters[usize::from(number % 3)];
            let place = u64::from(number % 8) * 64;
            let bytes = [number.to_ne_bytes(); 4];
            while !member.net.small_put((peer, place), bytes.as_flattened(), counter) {
                poll();
            }
            assert!(counter.is_local_complete(), "they are copied");
        }
        while !counters.iter().all(|counter| counter.is_complete()) {
            poll();
        }
        for counter in &counters {
            assert!((1..=3).contains(&counter.number()), "{}", counter.number());
        }
        // The way is known by now.
        let bytes = [7_u16.to_ne_bytes(); 4];
        while !member.net.known_put((peer, 512), bytes.as_flattened(), (&counters[0], true)) {
            poll();
        }
        while !counters[0].is_complete() {
            poll();
        }
        member.services.borrow_mut().barrier().expect("all are done");
        assert_eq!(member.memory.read(512, 8), bytes.as_flattened());
        for number in 392..400_u16 {
            let seen = member.memory.read(usize::from(number % 8) * 64, 8);
            assert_eq!(seen, [number.to_ne_bytes(); 4].as_flattened());
        }
        assert!(!member.net.small_put((peer, 4089), &[1; 8], &counters[0]), "outside");
        assert!(!member.net.known_put((peer, 4089), &[1; 8], (&counters[0], true)), "outside");
        let passing = Arc::new(OpCounter::default());
        assert!(!member.net.small_put((peer, 0), &[1; 8], &passing), "it has no number");
        assert!(passing.is_complete() && counters[0].is_complete());
        member.services.borrow_mut().barrier().expect("all have looked");
    });
}

#[test]
fn few_bytes_that_a_counter_counts() {
    counted_puts(&PLAIN);
    counted_puts(&Kind { rails: 2, connections: 2, dynamic: true, ..PLAIN });
    counted_puts(&Kind { fake: true, dynamic: true, ..PLAIN });
}

#[test]
fn silent_puts_are_told_of() {
    let kind = Kind { fake: true, single: true, ..PLAIN };
    run(2, 4096, &kind, |member| {
        let (peer, counter) = (Rank(1 - member.rank), Arc::new(OpCounter::lasting()));
        let (rail, begin) = (&member.net.context.rails[0], Instant::now());
        let poll = || {
            let sink = TestSink(&member.met, &|_| {});
            let _ = member.net.poll::<Seq, _>(&sink, Poll::All).expect("open").expect("poll");
            assert!(begin.elapsed() < PATIENCE);
        };
        let put = |number: u64, grouped| {
            let (to, bytes) = ((peer, number % 8 * 8), number.to_ne_bytes());
            while !member.net.known_put(to, &bytes, (&counter, grouped)) {
                poll();
            }
        };
        let wait = || {
            while !counter.is_complete() {
                let left = member.net.take_ends(5, || counter.is_complete());
                left.expect("open").expect("ends");
            }
        };
        // Finds the way.
        while !member.net.small_put((peer, 64), &[1; 8], &counter) {
            poll();
        }
        wait();
        let before = rail.sends.left();
        for count in [1, 2, 15, 16, 17, 40] {
            // Nobody has waited for these.
            for number in 0..32 {
                put(number, true);
                assert!(rail.under_way() > 0, "it reports");
                while !counter.is_complete() {
                    poll();
                }
            }
            (0..count).for_each(|number| put(number, true));
            assert!(u64::from(rail.under_way()) <= count / 4, "{count} puts");
            assert!(!counter.is_complete());
            wait();
            assert_eq!(rail.sends.left(), before);
        }
        // Only those of groups are, and polls alone end a run, too.
        (0..40).for_each(|number| put(number, false));
        wait();
        (0..35).for_each(|number| put(number, true));
        let polls = (1..200).find(|_| {
            poll();
            counter.is_complete()
        });
        assert!((16..40).contains(&polls.expect("told of")));
        // Nor does one that is about to sleep miss it.
        (0..35).for_each(|number| put(number, true));
        member.net.arm().expect("armed");
        poll();
        assert!(counter.is_complete());
        member.services.borrow_mut().barrier().expect("all are done");
        for number in 27..35_u64 {
            let at = usize::try_from(number % 8 * 8).expect("few");
            assert_eq!(member.memory.read(at, 8), number.to_ne_bytes());
        }
        member.services.borrow_mut().barrier().expect("all have looked");
    });
}

#[test]
fn what_cannot_be_done_so_is_said() {
    let kind = Kind { inline: Some(0), fake: true, dynamic: true, ..PLAIN };
    run(2, 4096, &kind, |member| {
        let peer = Rank(1 - member.rank);
        let one = member.net.one_call::<Par>().expect("no other call has it");
        let begin = Instant::now();
        // Nothing goes inline; a connection may have to be made first.
        while one.post((peer, 0), Small::Put(&[1; 8]), true).expect("inside") == SmallSent::Full {
            assert!(begin.elapsed() < PATIENCE);
        }
        assert_eq!(
            one.post((peer, 0), Small::Put(&[1; 8]), true).expect("inside"),
            SmallSent::Unsuited
        );
        for place in [4089, 4096, u64::MAX - 7, 1 << 48] {
            let refused = one.post((peer, place), Small::Get(8), true).expect_err("outside");
            assert!(refused.to_string().contains("(4096 bytes)"), "{refused}");
        }
        assert!(one.is_complete());
        drop(one);
        assert!(member.net.one_call::<Par>().is_some());
    });
}

#[test]
fn the_way_to_a_segment_is_found_once() {
    let kind = Kind { fake: true, dynamic: true, ..PLAIN };
    run(2, 4096, &kind, |member| {
        let peer = Rank(1 - member.rank);
        let way = || member.net.context.peers.get(peer).and_then(|peer| peer.small.get().copied());
        assert!(way().is_none());
        done(member, (peer, 64), Small::Put(&[7; 8]));
        let first = way().expect("kept");
        let segment = member.net.segment(peer).expect("attached");
        assert_eq!((first.base, first.end), (segment.base, segment.len));
        assert_eq!(done(member, (peer, 64), Small::Get(8))[..8], [7; 8]);
        assert_eq!(done(member, (peer, 4088), Small::Get(8))[..8], [0; 8]);
        // It is no way out of the segment.
        let one = member.net.one_call::<Par>().expect("no other call has it");
        for place in [4089, 4096, u64::MAX - 7, 1 << 48] {
            let refused = one.post((peer, place), Small::Get(8), true).expect_err("outside");
            assert!(refused.to_string().contains("(4096 bytes)"), "{refused}");
        }
        assert!(one.is_complete());
        assert_eq!(way().map(|way| way.end), Some(4096));
        member.services.borrow_mut().barrier().expect("all are done");
    });
}

#[test]
fn an_end_is_seen_where_it_was_posted() {
    let kind = Kind { fake: true, single: true, ..PLAIN };
    run(2, 4096, &kind, |member| {
        let peer = Rank(1 - member.rank);
        let sends = || member.net.context.rails[0].sends.left();
        let before = sends();
        for look in [true, false, true] {
            let one = member.net.one_call::<Seq>().expect("no other call has it");
            let sent = one.post((peer, 8), Small::Get(8), look).expect("inside");
            // The fake library has done it when the post returns.
            assert_eq!(sent, if look { SmallSent::Complete } else { SmallSent::UnderWay });
            assert_eq!((one.is_complete(), sends() == before), (look, look));
            if !look {
                let left = member.net.take_ends(5, || one.is_complete());
                assert_eq!(left.expect("open").expect("ends"), 4);
            }
            drop(one);
            assert_eq!(sends(), before, "its slots are back");
        }
        member.services.borrow_mut().barrier().expect("all are done");
    });
}

#[test]
fn a_fenced_put_goes_the_usual_way() {
    let kind = Kind { fake: true, fenced: true, ..PLAIN };
    run(2, 4096, &kind, |member| {
        let peer = Rank(1 - member.rank);
        for _ in 0..2 {
            let one = member.net.one_call::<Par>().expect("no other call has it");
            let sent = one.post((peer, 8), Small::Put(&[1; 8]), true);
            assert_eq!(sent.expect("inside"), SmallSent::Unsuited);
            drop(one);
            done(member, (peer, 8), Small::Get(8));
        }
        let counter = Arc::new(OpCounter::lasting());
        assert!(!member.net.small_put((peer, 8), &[1; 8], &counter));
        assert!(!member.net.known_put((peer, 8), &[1; 8], (&counter, true)));
        member.services.borrow_mut().barrier().expect("all are done");
    });
}
