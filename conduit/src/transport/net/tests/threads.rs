//! Sleeping, progress threads, and what happens when a peer is gone.

use super::super::settings::{PollMode, ThreadSettings};
use super::*;
use crate::sys::tally::Sharing;

#[test]
fn an_armed_network_rings_the_doorbell() {
    const ROUNDS: u32 = 200;
    run(2, 0, &PLAIN, |member| {
        let count = AtomicU32::new(0);
        let handler = |message: Arrived<'_>| {
            assert!(message.class != MessageClass::Internal);
            count.fetch_add(1, Ordering::Relaxed);
        };
        let peer = Rank(1 - member.rank);
        let page = Arc::clone(member.services.borrow().node_shm());
        let begin = Instant::now();
        for round in 1..=ROUNDS {
            if member.rank == 0 {
                member.send(&request(peer, &[], AmPayload::None), &handler);
            }
            while count.load(Ordering::Relaxed) < round {
                let rung = page.slot(0).rung();
                member.net.arm().expect("arm");
                let polled = member
                    .net
                    .poll::<Seq, _>(&TestSink(&member.met, &handler), Poll::All)
                    .expect("open")
                    .expect("poll");
                if polled == 0 && count.load(Ordering::Relaxed) < round {
                    page.slot(0).sleep(PATIENCE, || page.slot(0).rung() != rung);
                }
            }
            if member.rank == 1 {
                member.send(&request(peer, &[], AmPayload::None), &handler);
            }
        }
        assert!(begin.elapsed() < PATIENCE, "a wake-up was lost");
        member.meet(&handler);
    });
}

/// Without a thread a wait sleeps on the adapters themselves.
#[test]
fn a_network_of_one_thread_has_no_other() {
    for (fake, single) in [(true, true), (false, false)] {
        run(2, 0, &Kind { fake, single: true, ..PLAIN }, |member| {
            assert_eq!(member.net.is_single(), single, "the software adapter has a thread anyhow");
            let sharing = if single { Sharing::OneThread } else { Sharing::Threads };
            assert_eq!(member.net.context.sharing, sharing);
            let count = AtomicU32::new(0);
            let handler = |_: Arrived<'_>| {
                count.fetch_add(1, Ordering::Relaxed);
            };
            let (peer, begin) = (Rank(1 - member.rank), Instant::now());
            for round in 1..=100 {
                if member.rank == 0 {
                    member.send(&request(peer, &[], AmPayload::None), &handler);
                }
                while count.load(Ordering::Relaxed) < round {
                    member.net.arm().expect("arm");
                    let sink = TestSink(&member.met, &handler);
                    let polled = member.net.poll::<Seq, _>(&sink, Poll::All);
                    if polled.expect("open").expect("poll") == 0 {
                        member.net.nap(PATIENCE);
                    }
                    assert!(begin.elapsed() < PATIENCE);
                }
                if member.rank == 1 {
                    member.send(&request(peer, &[], AmPayload::None), &handler);
                }
            }
            member.meet(&handler);
        });
    }
}

/// A program that polls makes no system call for connections that nobody wants.
#[test]
fn polls_arm_nothing() {
    run(2, 0, &Kind { fake: true, single: true, dynamic: true, ..PLAIN }, |member| {
        let service = member.net.threads.inline.as_ref().expect("no threads over an adapter");
        let count = AtomicU32::new(0);
        let handler = |_: Arrived<'_>| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        // Both connect, by datagrams that one of them waits for.
        member.send(&request(Rank(1 - member.rank), &[], AmPayload::None), &handler);
        member.poll_until(&handler, || count.load(Ordering::Relaxed) > 0);
        assert!(!service.has_event(), "a datagram made an event");
        service.serve_and_arm().expect("armed");
        member.meet(&handler);
    });
}

/// Counts requests, from any thread.
#[derive(Default)]
struct Counting {
    requests: AtomicU32,
}

impl Sink for Counting {
    fn arrived(&self, message: Arrived<'_>) {
        if message.class == MessageClass::Request {
            self.requests.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn progress_threads_deliver_without_polls() {
    for mode in [PollMode::Serialized, PollMode::Unserialized, PollMode::Exclusive] {
        run(2, 0, &PLAIN, |member| {
            let sink = Arc::new(Counting::default());
            let shared: SharedSink = sink.clone();
            let on = ThreadSettings { on: true, rate: 0, idle: Duration::from_micros(20), mode };
            member.net.threads.progress(&on, &on, &shared).expect("threads");
            let peer = Rank(1 - member.rank);
            let begin = Instant::now();
            for number in 0..500 {
                let args = [number];
                let message = request(peer, &args, AmPayload::None);
                // No poll here: threads take what comes back.
                while !member.net.send(&message).expect("send").is_yes() {
                    assert!(begin.elapsed() < PATIENCE, "{mode:?}");
                    std::thread::yield_now();
                }
            }
            while sink.requests.load(Ordering::SeqCst) < 500 {
                assert!(begin.elapsed() < PATIENCE, "{mode:?}");
                std::thread::yield_now();
            }
            member.services.borrow_mut().barrier().expect("barrier");
        });
    }
}

/// What becomes of `count` requests from rank 0 while another poller has the turn on rank 1: those
/// that a thread of a mode has taken, and those that are left for a poll of the client.
fn taken_out_of_turn(mode: PollMode) -> (u32, u32) {
    const COUNT: u32 = 5;
    let seen = Mutex::new((0, 0));
    run(2, 0, &PLAIN, |member| {
        let barrier = || member.services.borrow_mut().barrier().expect("barrier");
        if member.rank == 0 {
            barrier();
            for _ in 0..COUNT {
                member.send(&request(Rank(1), &[], AmPayload::None), &|_| {});
            }
            barrier();
            barrier();
            return;
        }
        let sink = Arc::new(Counting::default());
        let shared: SharedSink = sink.clone();
        let on = ThreadSettings { on: true, rate: 0, idle: Duration::ZERO, mode };
        member
            .net
            .threads
            .progress(&on, &ThreadSettings { on: false, ..on }, &shared)
            .expect("threads");
        let rail = &member.net.context.rails[0];
        // As a poller that is in the middle of asking.
        let mine = rail.receiving.take();
        barrier();
        barrier();
        let begin = Instant::now();
        let enough =
            if mode == PollMode::Serialized { Duration::from_millis(200) } else { PATIENCE };
        while sink.requests.load(Ordering::SeqCst) < COUNT && begin.elapsed() < enough {
            std::thread::sleep(Duration::from_millis(1));
        }
        let taken = sink.requests.load(Ordering::SeqCst);
        assert!(mine);
        rail.receiving.give();
        // The client's turn; the thread has some, too, so both may take a part of what is left.
        let (left, begin) = (AtomicU32::new(0), Instant::now());
        let count = |message: Arrived<'_>| {
            left.fetch_add(u32::from(message.class == MessageClass::Request), Ordering::SeqCst);
        };
        while sink.requests.load(Ordering::SeqCst) + left.load(Ordering::SeqCst) < COUNT {
            let polled = member.net.poll::<Seq, _>(&TestSink(&member.met, &count), Poll::All);
            let _ = polled.expect("open").expect("poll");
            assert!(begin.elapsed() < PATIENCE, "{mode:?}");
        }
        *seen.lock().unwrap() =
            (taken, sink.requests.load(Ordering::SeqCst) + left.load(Ordering::SeqCst));
        barrier();
    });
    seen.into_inner().unwrap()
}

/// A thread that takes turns waits for whoever asks the queue; one that does not, and one that has
/// the queue for itself, do not.
#[test]
fn poll_modes_differ_in_whose_turn_it_is() {
    assert_eq!(taken_out_of_turn(PollMode::Serialized), (0, 5));
    assert_eq!(taken_out_of_turn(PollMode::Unserialized), (5, 5));
    assert_eq!(taken_out_of_turn(PollMode::Exclusive), (5, 5));
}

/// Who else may ask a queue that a thread waits for: nobody where it is the thread's alone.
#[test]
fn only_an_exclusive_thread_keeps_others_from_the_queue() {
    for (mode, others) in
        [(PollMode::Serialized, true), (PollMode::Unserialized, true), (PollMode::Exclusive, false)]
    {
        // What goes inline is not signalled.
        run(2, 0, &Kind { inline: Some(0), ..PLAIN }, |member| {
            let barrier = || member.services.borrow_mut().barrier().expect("barrier");
            let off = ThreadSettings { on: false, rate: 0, idle: Duration::ZERO, mode };
            let on = ThreadSettings { on: true, ..off };
            let shared: SharedSink = Arc::new(Counting::default());
            // Its queues are the thread's from when it runs, which it need not for this.
            for task in member.net.threads.wanted(&on, &on, &shared) {
                task.claim();
            }
            if member.rank == 0 {
                member.send(&request(Rank(1), &[], AmPayload::None), &|_| {});
            }
            barrier();
            let got = AtomicU32::new(0);
            let (begin, wanted) = (Instant::now(), member.rank);
            let enough = || {
                let (got, rail) = (got.load(Ordering::Relaxed), &member.net.context.rails[0]);
                got == wanted && (wanted == 1 || !rail.is_sending())
            };
            let limit = if others { PATIENCE } else { Duration::from_millis(200) };
            while !enough() && begin.elapsed() < limit {
                let count = |_: Arrived<'_>| {
                    got.fetch_add(1, Ordering::Relaxed);
                };
                let polled = member.net.poll::<Seq, _>(&TestSink(&member.met, &count), Poll::All);
                let _ = polled.expect("open").expect("poll");
            }
            assert_eq!(enough(), others, "{mode:?}, rank {}", member.rank);
            barrier();
        });
    }
}

/// An ack that found no room when it was due used to wait for a poll, and its peer for credits.
#[test]
fn an_ack_without_room_goes_out_although_nobody_polls() {
    run(2, 0, &PLAIN, |member| {
        if member.rank == 0 {
            member.services.borrow_mut().barrier().expect("barrier");
            for number in 0..200 {
                member.send(&request(Rank(1), &[number], AmPayload::None), &|_| {});
            }
            member.services.borrow_mut().barrier().expect("barrier");
            return;
        }
        let sink = Arc::new(Counting::default());
        let shared: SharedSink = sink.clone();
        let mode = PollMode::Exclusive;
        let on = ThreadSettings { on: true, rate: 0, idle: Duration::ZERO, mode };
        let off = ThreadSettings { on: false, ..on };
        member.net.threads.progress(&on, &off, &shared).expect("threads");
        let context = &member.net.context;
        let connection = &context.peers.get(Rank(0)).expect("a peer").connections[0];
        let mut taken = 0;
        while connection.main.slots.take(0) {
            taken += 1;
        }
        member.services.borrow_mut().barrier().expect("barrier");
        let begin = Instant::now();
        let wait_until = |what: &str, done: &dyn Fn() -> bool| {
            while !done() {
                assert!(begin.elapsed() < PATIENCE, "{what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_until("no ack was due", &|| context.acks_pending.load(Ordering::SeqCst) != 0);
        connection.main.slots.give(taken);
        wait_until("no ack", &|| sink.requests.load(Ordering::SeqCst) == 200);
        member.services.borrow_mut().barrier().expect("barrier");
    });
}

#[test]
fn threads_of_a_rank_send_and_poll_together() {
    run(2, 0, &PLAIN, |member| {
        let got = AtomicU32::new(0);
        let peer = Rank(1 - member.rank);
        let (net, met) = (member.net, &member.met);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let count = |message: Arrived<'_>| {
                        if message.class != MessageClass::Internal {
                            got.fetch_add(1, Ordering::SeqCst);
                        }
                    };
                    let begin = Instant::now();
                    for number in 0..1000 {
                        let bytes = pattern(1, 500);
                        let args = [number];
                        let message = request(peer, &args, AmPayload::Medium(&bytes));
                        while !net.send(&message).expect("send").is_yes() {
                            let _ = net
                                .poll::<Par, _>(&TestSink(met, &count), Poll::All)
                                .expect("open")
                                .expect("poll");
                            assert!(begin.elapsed() < PATIENCE);
                        }
                    }
                    while got.load(Ordering::SeqCst) < 3000 {
                        let _ = net
                            .poll::<Par, _>(&TestSink(met, &count), Poll::All)
                            .expect("open")
                            .expect("poll");
                        assert!(begin.elapsed() < PATIENCE);
                    }
                });
            }
        });
        member.meet(&|_| {});
    });
}

#[test]
fn a_peer_that_is_gone_is_named() {
    run(2, 0, &PLAIN, |member| {
        if member.rank == 1 {
            for peer in member.net.context.peers.iter() {
                peer.connections[0].main.qp.to_error().expect("error state");
            }
            member.services.borrow_mut().barrier().expect("barrier");
            member.net.quiet();
            return;
        }
        member.services.borrow_mut().barrier().expect("barrier");
        let begin = Instant::now();
        let error = loop {
            assert!(begin.elapsed() < PATIENCE);
            let sent = member.net.send(&request(Rank(1), &[], AmPayload::None));
            let polled = member.net.poll::<Seq, _>(&TestSink(&member.met, &|_| {}), Poll::All);
            if let Some(error) =
                sent.err().map(|error| *error).or(polled.and_then(Result::err).map(|error| *error))
            {
                break error;
            }
        };
        let text = error.to_string();
        assert!(text.contains("rank 1") && text.contains("queue pair"), "{text}");
        member.net.quiet();
        assert!(
            member
                .net
                .poll::<Seq, _>(&TestSink(&member.met, &|_| {}), Poll::All)
                .is_some_and(|polled| polled.is_ok()),
            "quiet"
        );
    });
}
