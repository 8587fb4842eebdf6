//! Requests that are written into rings.

use super::*;
use crate::transport::net::am::header::{self, Head, Shape};
use crate::transport::net::am::send::Sender;
use crate::transport::net::context::NetContext;
use crate::transport::net::credits::Carried;
use crate::transport::net::flow::volume::Geometry;
use crate::transport::net::settings::sizes::LONGEST;

/// The smallest ring that works, or some times its size.
fn volume(credits: u32, times: u64) -> Sizes {
    let ring = Geometry::of(2 * times * LONGEST, LONGEST);
    let queues = SrqSizes { requests: 3 * credits, replies: 3 * credits };
    Sizes {
        srq: Some(queues),
        volume: Some(ring),
        credits_per_connection: credits,
        credits: 3 * credits,
        slack: 0,
        ..USUAL
    }
}

#[test]
fn storms() {
    for (credits, times) in [(1, 1), (8, 1), (24, 2)] {
        storms::storm(4, 200, &Kind { sizes: volume(credits, times), ..PLAIN });
    }
    storms::storm(3, 200, &Kind { sizes: volume(8, 1), rails: 2, connections: 2, ..PLAIN });
    storms::storm(3, 100, &Kind { sizes: volume(8, 1), dynamic: true, ..PLAIN });
    // Nothing inline, and a table of ranks whose numbers in messages stand for several.
    storms::storm(5, 60, &Kind { sizes: volume(8, 1), inline: Some(0), ..PLAIN });
}

#[test]
fn storms_over_verbs() {
    let kind = Kind { sizes: volume(8, 1), fake: true, ..PLAIN };
    storms::storm(3, 100, &kind);
    // Shared connections are not used.
    storms::storm(4, 60, &Kind { per_host: 2, xrc: true, ..kind });
}

#[test]
fn every_size_arrives() {
    for inline in [Some(72), Some(0), None] {
        messages::echo(&Kind { sizes: volume(8, 1), inline, ..PLAIN });
    }
    messages::echo(&Kind { sizes: volume(8, 1), gather_min: None, ..PLAIN });
}

/// Requests of all sizes up to the longest, most without an answer, to a rank whose handlers answer
/// the others at once and read their payload after that.
#[test]
fn a_payload_stays_until_its_handler_has_ended() {
    run(3, 1 << 17, &Kind { sizes: volume(8, 1), ..PLAIN }, |member| {
        let (handled, answers) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let handler = |message: Arrived<'_>| {
            if message.class == MessageClass::Reply {
                answers.set(answers.get() + 1);
                return;
            }
            let number = message.args[0].cast_unsigned() as usize;
            if number.is_multiple_of(2) {
                let back = reply(rank_of(&message), &[], AmPayload::None);
                assert!(
                    member
                        .net
                        .reply(message.reply.expect("a way back"), &back)
                        .expect("sent")
                        .is_yes()
                );
                // The answer is there before the payload is read.
                std::thread::sleep(Duration::from_micros(50));
            }
            match &message.payload {
                ArrivedPayload::Medium(bytes) => {
                    assert!(bytes.as_ptr().addr().is_multiple_of(8), "not aligned");
                    assert!(**bytes == pattern(number, bytes.len())[..], "damaged");
                }
                ArrivedPayload::Long { offset, len } => {
                    let place = usize::try_from(*offset).expect("small");
                    assert!(member.memory.read(place, *len) == pattern(number, *len), "damaged");
                }
                _ => {}
            }
            handled.set(handled.get() + 1);
        };
        let most = crate::transport::limits::max_medium(1);
        let long = 40_000 * member.rank as u64 / 2;
        for number in 0..300_usize {
            let len = if number % 7 == 0 { most } else { number * 7919 % most };
            let bytes = pattern(number, len);
            let short = &bytes[..len.min(4000)];
            for peer in member.others() {
                let args = [i32::try_from(number).expect("small")];
                let load = match number % 5 {
                    0 => AmPayload::None,
                    1 => AmPayload::Long { payload: short, dest: long },
                    _ => AmPayload::Medium(&bytes),
                };
                member.send(&request(peer, &args, load), &handler);
            }
        }
        let all = 300 * member.count();
        member.poll_until(&handler, || handled.get() == all && answers.get() == all / 2);
        member.meet(&handler);
    });
}

/// Checks and counts from any thread, and answers every second request.
struct Checking<'a> {
    net: &'a NetTransport,
    handled: AtomicU32,
    answers: AtomicU32,
}

impl Sink for Checking<'_> {
    fn arrived(&self, message: Arrived<'_>) {
        let _outside = Mark::outside();
        if message.class == MessageClass::Reply {
            self.answers.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let number = message.args[0].cast_unsigned();
        if number.is_multiple_of(2) {
            let back = reply(rank_of(&message), &[], AmPayload::None);
            assert!(
                self.net.reply(message.reply.expect("a way back"), &back).expect("sent").is_yes()
            );
        }
        if let ArrivedPayload::Medium(bytes) = &message.payload {
            std::thread::yield_now();
            assert!(**bytes == pattern(number as usize, bytes.len())[..], "damaged");
        }
        self.handled.fetch_add(1, Ordering::SeqCst);
    }
}

/// Three threads of each rank send to the same peers and poll; handlers end in any order.
#[test]
fn several_threads() {
    const THREADS: u32 = 3;
    const EACH: u32 = 150;
    run(3, 0, &Kind { sizes: volume(8, 1), ..PLAIN }, |member| {
        let (net, others) = (member.net, member.others().collect::<Vec<_>>());
        let (handled, answers) = (AtomicU32::new(0), AtomicU32::new(0));
        let sink = Checking { net, handled, answers };
        let all = THREADS * EACH * member.count();
        let begin = Instant::now();
        let poll = || {
            net.poll::<Par, _>(&sink, Poll::All).expect("open").expect("poll");
            assert!(begin.elapsed() < PATIENCE, "{:?}, {:?}", sink.handled, sink.answers);
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (poll, others, sink) = (&poll, &others, &sink);
                scope.spawn(move || {
                    for number in 0..EACH {
                        let len = (number * 7919 * (thread + 1)) as usize % 30_000;
                        let bytes = pattern(number as usize, len);
                        for peer in others {
                            let args = [number.cast_signed()];
                            let load = match number % 3 {
                                0 => AmPayload::None,
                                _ => AmPayload::Medium(&bytes),
                            };
                            while !net.send(&request(*peer, &args, load)).expect("send").is_yes() {
                                poll();
                            }
                        }
                    }
                    let done = || sink.handled.load(Ordering::SeqCst) == all;
                    while !done() || sink.answers.load(Ordering::SeqCst) < all / 2 {
                        poll();
                        std::thread::yield_now();
                    }
                });
            }
        });
        member.services.borrow_mut().barrier().expect("barrier");
    });
}

/// Many Shorts are under way where few Mediums are.
#[test]
fn shorts_take_little() {
    run(2, 0, &Kind { sizes: volume(64, 1), ..PLAIN }, |member| {
        if member.rank == 1 {
            let bytes = vec![1; crate::transport::limits::max_medium(0)];
            let count = |payload: Option<&[u8]>| {
                let load = || payload.map_or(AmPayload::None, AmPayload::Medium);
                let send =
                    || member.net.send(&request(Rank(0), &[], load())).expect("sent").is_yes();
                (0..200).take_while(|_| send()).count()
            };
            // Nobody takes them.
            let begin = Instant::now();
            let mut shorts = 0;
            while shorts < 30 {
                shorts += count(None);
                assert!(begin.elapsed() < PATIENCE, "{shorts} Shorts");
                std::thread::yield_now();
            }
            let mediums = count(Some(&bytes));
            assert!(mediums <= 2, "{mediums} of the longest requests in a ring for two");
        }
        member.meet(&|_| {});
        member.meet(&|_| {});
    });
}

/// A poll that may not run handlers sets requests aside, the oldest first for the next; rows for that
/// come back, so it does so again and again.
#[test]
fn requests_that_are_set_aside_come_in_order() {
    const CREDITS: u32 = 8;
    run(2, 0, &Kind { sizes: volume(CREDITS, 1), ..PLAIN }, |member| {
        let seen = std::cell::RefCell::new(Vec::new());
        let handler = |message: Arrived<'_>| seen.borrow_mut().push(message.args[0]);
        for turn in 0..4 {
            if member.rank == 1 {
                for number in 0..CREDITS.cast_signed() {
                    let args = [turn * CREDITS.cast_signed() + number];
                    member.send(&request(Rank(0), &args, AmPayload::None), &|_| {});
                }
            }
            // The barrier polls for messages of the library alone.
            member.services.borrow_mut().barrier().expect("barrier");
            if member.rank == 0 {
                let begin = Instant::now();
                let all = ((turn + 1) * CREDITS.cast_signed()).cast_unsigned() as usize;
                let deferred = || !member.net.context.receive.deferred.is_empty();
                while !deferred() {
                    let sink = TestSink(&member.met, &handler);
                    member.net.poll::<Par, _>(&sink, Poll::Internal).expect("open").expect("poll");
                    assert!(begin.elapsed() < PATIENCE, "nothing came");
                }
                member.poll_until(&handler, || seen.borrow().len() == all);
            }
            member.services.borrow_mut().barrier().expect("barrier");
        }
        let due: Vec<i32> = (0..4 * CREDITS.cast_signed()).collect();
        assert!(member.rank == 1 || *seen.borrow() == due, "{seen:?}");
        member.meet(&|_| {});
    });
}

/// What a peer cannot have to say ends the job with its name.
#[test]
fn wrong_requests_are_refused() {
    // Places that are given back, and none are out.
    refused(volume(4, 1), "3 places of its ring given back where 0 are out", |context| {
        let peer = context.peers.get(Rank(0)).expect("a peer");
        peer.connections[0].account.free_places(3);
        assert_eq!(Sender(context).ack(peer, 0).expect("sent"), Sent::Yes);
    });
    let head =
        |shape| Head { source: 1, handler: 200, reply: false, carried: Carried::default(), shape };
    let message = header::encode(&head(Shape::Short), &[]);
    let other = header::encode(&Head { handler: 201, ..head(Shape::Short) }, &[]);
    let internal = header::encode(&Head { handler: 9, ..head(Shape::Short) }, &[]);
    let long = header::encode(&head(Shape::Medium { len: 500 }), &[]);
    // First unit, number, immediate data before the message and that of the write, what is said.
    let cases = [
        (0, 99, &message, &message, "request 99 came where 0 or one of the next 8 can come"),
        (5, 0, &message, &message, "request 0 is at unit 5 of the ring, and belongs at 0"),
        (4095, 0, &message, &message, "outside its place in the ring"),
        (0, 0, &other, &message, "a request for handler 201 in a ring, announced as"),
        (0, 0, &internal, &internal, "a request for handler 9 in a ring"),
        (0, 0, &long, &long, "8 bytes, the header says 508"),
    ];
    for (start, number, own, told, text) in cases {
        refused(volume(4, 1), text, |context| {
            let prefix = header::prefix(own.imm, number);
            write(context, start, told.imm, &[&prefix, own.bytes()]);
        });
    }
    refused(volume(4, 1), "a request of 3 bytes, shorter than", |context| {
        write(context, 0, message.imm, &[&[1, 2, 3]]);
    });
    // On the queue pair of replies, where it uses up a buffer.
    refused(volume(4, 1), "a write beside its ring", |context| {
        let prefix = header::prefix(message.imm, 0);
        let connection = &context.peers.get(Rank(0)).expect("a peer").connections[0];
        let send = write_of(context, 0, message.imm, &[&prefix, message.bytes()], |send| {
            connection.main.qp.post_send(send)
        });
        send.expect("posted");
    });
}

/// Rank 1 does something wrong, and rank 0 says so.
fn refused(sizes: Sizes, text: &str, wrong: impl Fn(&NetContext) + Sync) {
    run(2, 0, &Kind { sizes, ..PLAIN }, |member| {
        if member.rank == 1 {
            wrong(&member.net.context);
            return;
        }
        let begin = Instant::now();
        let error = loop {
            let sink = TestSink(&member.met, &|_| {});
            match member.net.poll::<Par, _>(&sink, Poll::All).expect("open") {
                Ok(_) => assert!(begin.elapsed() < PATIENCE, "not said: {text}"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains(text) && error.contains("rank 1"), "{error}");
    });
}

/// Writes bytes into the ring of rank 0, as a request that begins at a unit.
fn write(context: &NetContext, start: u32, imm: u32, bytes: &[&[u8]]) {
    let connection = &context.peers.get(Rank(0)).expect("a peer").connections[0];
    let requests = connection.requests.as_ref().expect("requests");
    write_of(context, start, imm, bytes, |send| requests.qp.post_send(send)).expect("posted");
}

/// As [`write`], posted by `post`.
fn write_of(
    context: &NetContext,
    start: u32,
    imm: u32,
    bytes: &[&[u8]],
    post: impl FnOnce(&fabric::SendWr<'_>) -> Result<(), fabric::PostError>,
) -> Result<(), fabric::PostError> {
    let connection = &context.peers.get(Rank(0)).expect("a peer").connections[0];
    let rings = connection.flow.rings().expect("rings");
    let (remote, rkey) = rings.take(64).map(|taken| (taken.remote, taken.key)).expect("room");
    // What is beyond the end is not written, so that the device does not refuse it.
    let at = u64::from(if start < 2000 { start * 64 } else { 0 });
    let send = fabric::SendWr {
        id: 0,
        operation: fabric::Operation::WriteImm {
            remote: remote + at,
            rkey,
            imm: header::ring_imm(imm, start),
        },
        data: fabric::Data::Inline(bytes),
        signaled: false,
        to: None,
    };
    post(&send)
}
