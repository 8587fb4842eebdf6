//! Every category at every boundary of size, with the data compared.

use std::cell::{Cell, RefCell};

use super::*;
use crate::transport::message::{max_long_alloc, max_medium};
use crate::transport::net::am::header::BUFFER;
use crate::transport::net::settings::sizes::{DeviceLimits, INTERNAL_RECEIVES, Job};

fn lengths(nargs: usize) -> Vec<usize> {
    let most = max_medium(nargs);
    let mut all =
        vec![0, 1, 7, 8, 9, 71, 72, 73, 1023, 1024, 1499, 1500, 4012, 4096, most - 1, most];
    all.retain(|len| *len <= most);
    all
}

/// What a rank sees of a message.
type Seen = (u32, Vec<i32>, Vec<u8>);

/// Ranks of the second half send back what those of the first send, who compare.
pub(super) fn echo(kind: &Kind) {
    let half = kind.per_host;
    run(2 * half, 1 << 18, kind, |member| {
        let peer = Rank(member.rank + half);
        let answered = Cell::new(0u32);
        let seen: RefCell<Option<Seen>> = RefCell::new(None);
        let memory = member.memory;
        let handler = |message: Arrived<'_>| {
            let bytes = match &message.payload {
                ArrivedPayload::None => Vec::new(),
                ArrivedPayload::Medium(bytes) => {
                    assert!(bytes.as_ptr().addr().is_multiple_of(8), "a Medium at an odd place");
                    bytes.to_vec()
                }
                ArrivedPayload::Long { offset, len } => {
                    memory.read(usize::try_from(*offset).expect("small"), *len)
                }
            };
            if message.class == MessageClass::Reply {
                *seen.borrow_mut() = Some((rank_of(&message).0, message.args.to_vec(), bytes));
                answered.set(answered.get() + 1);
                return;
            }
            let load = match &message.payload {
                ArrivedPayload::None => AmPayload::None,
                ArrivedPayload::Medium(_) => AmPayload::Medium(&bytes),
                ArrivedPayload::Long { offset, .. } => {
                    AmPayload::Long { payload: &bytes, dest: *offset }
                }
            };
            let back = reply(rank_of(&message), message.args, load);
            let token = message.reply.expect("a way back");
            let sent = member.net.reply(token, &back).expect("reply");
            assert!(sent.is_yes());
            answered.set(answered.get() + 1);
        };
        let mut rounds = 0;
        let mut round = |args: &[i32], load: AmPayload<'_>, expected: &[u8]| {
            rounds += 1;
            if member.rank < half {
                member.send(&request(peer, args, load), &handler);
                member.poll_until(&handler, || answered.get() == rounds);
                let got = seen.take().expect("an answer");
                assert_eq!((got.0, &got.1[..]), (peer.0, args));
                assert!(got.2 == expected, "{} bytes with {} args", expected.len(), args.len());
            }
        };
        for nargs in [0, 1, 2, 16] {
            let args: Vec<i32> = (0..nargs).map(|at| 100 + at).collect();
            let nargs = args.len();
            round(&args, AmPayload::None, &[]);
            for len in lengths(nargs) {
                let bytes = pattern(nargs, len);
                round(&args, AmPayload::Medium(&bytes), &bytes);
                let completion = Arc::new(OpCounter::default());
                memory.write(131_072, &bytes);
                let payload = memory.part(131_072, len);
                round(
                    &args,
                    AmPayload::ZeroCopy(&ZeroCopy { payload, dest: None, completion: &completion }),
                    &bytes,
                );
                member.poll_until(&handler, || completion.is_complete());
            }
            let most = max_long_alloc(nargs);
            for len in [0, 1, 4012, 4013, 65_535, 65_536, 65_537, 131_072, most] {
                let bytes = pattern(nargs + 1, len);
                round(&args, AmPayload::Long { payload: &bytes, dest: 5 }, &bytes);
                let completion = Arc::new(OpCounter::default());
                memory.write(131_072, &bytes);
                let payload = memory.part(131_072, len);
                let load = ZeroCopy { payload, dest: Some(8), completion: &completion };
                round(&args, AmPayload::ZeroCopy(&load), &bytes);
                member.poll_until(&handler, || completion.is_complete());
            }
        }
        if member.rank >= half {
            member.poll_until(&handler, || answered.get() == rounds);
        }
        member.meet(&handler);
    });
}

#[test]
fn every_size_arrives_unchanged() {
    echo(&PLAIN);
}

#[test]
fn every_size_without_inline_data_and_with_few_buffers() {
    echo(&SMALL);
}

#[test]
fn every_size_with_all_inline_data_that_the_device_takes() {
    echo(&Kind { inline: None, ..PLAIN });
}

#[test]
fn every_size_with_shared_receive_queues() {
    echo(&Kind { sizes: Sizes { srq: Some(SHARED), ..USUAL }, ..PLAIN });
}

/// The buffer of a request without payload is posted when nobody waits for its handler any more.
#[test]
fn the_buffer_of_a_short_is_posted_by_a_look_that_finds_nothing() {
    for srq in [None, Some(SHARED)] {
        run(2, 0, &Kind { sizes: Sizes { srq, ..USUAL }, ..PLAIN }, |member| {
            let waits = || !member.net.context.rails[0].waiting.is_empty();
            let seen = Cell::new(member.rank == 1);
            let handler = |_: Arrived<'_>| {
                assert!(waits(), "{srq:?}");
                seen.set(true);
            };
            if member.rank == 1 {
                member.send(&request(Rank(0), &[], AmPayload::None), &handler);
            }
            member.poll_until(&handler, || seen.get() && !waits());
        });
    }
}

#[test]
fn every_size_over_two_rails() {
    echo(&Kind { rails: 2, connections: 3, ..PLAIN });
}

#[test]
fn connections_are_made_when_needed() {
    echo(&Kind { dynamic: true, ..PLAIN });
}

#[test]
fn used_connections_are_written_down() {
    let place = std::env::temp_dir().join(format!("gasnet-connections-{}-%", std::process::id()));
    let name: &'static str = place.to_str().expect("text").to_owned().leak();
    run(3, 0, &Kind { dynamic: true, file_out: Some(name), ..PLAIN }, |member| {
        let done = Cell::new(member.rank == 2);
        let handler = |_: Arrived<'_>| done.set(true);
        // Rank 2 is talked to by nobody.
        if member.rank < 2 {
            let peer = Rank(1 - member.rank);
            member.send(&request(peer, &[], AmPayload::None), &handler);
        }
        member.poll_until(&handler, || done.get());
    });
    let text = |rank: u32| {
        let path = name.replace('%', &rank.to_string());
        let text = std::fs::read_to_string(&path).expect("written");
        std::fs::remove_file(path).expect("removed");
        text
    };
    let texts = [text(0), text(1), text(2)];
    assert!(texts[0].contains("\n0:1\n") && texts[1].contains("\n1:0\n"), "{texts:?}");
    assert!(!texts[2].contains("\n2:"), "{texts:?}");
}

#[test]
fn negotiated_payload_goes_out_of_the_librarys_buffer() {
    run(2, 1 << 17, &PLAIN, |member| {
        let got: RefCell<Vec<Vec<u8>>> = RefCell::default();
        let memory = member.memory;
        let handler = |message: Arrived<'_>| match &message.payload {
            ArrivedPayload::Medium(bytes) => got.borrow_mut().push(bytes.to_vec()),
            ArrivedPayload::Long { offset, len } => {
                let at = usize::try_from(*offset).expect("small");
                got.borrow_mut().push(memory.read(at, *len));
            }
            ArrivedPayload::None => {}
        };
        let peer = Rank(1 - member.rank);
        let mut expected = Vec::new();
        for (len, long) in [(0u32, false), (1, false), (65_528, false), (0, true), (65_520, true)] {
            let bytes = pattern(3, len as usize);
            let prepared = RefCell::new(None);
            member.poll_until(&handler, || {
                let mut prepared = prepared.borrow_mut();
                *prepared = prepared.take().or_else(|| member.net.buffer(MessageClass::Request));
                prepared.is_some()
            });
            let mut buffer: SendBuffer = prepared.into_inner().expect("a buffer");
            buffer.bytes()[..len as usize].copy_from_slice(&bytes);
            let buffer = &Cell::new(Some(buffer));
            let load = AmPayload::SendBuffer { buffer, len, dest: long.then_some(3) };
            member.send(&request(peer, &[], load), &handler);
            assert!(buffer.take().is_none(), "the buffer went with the message");
            expected.push(bytes);
        }
        // A buffer that is not used goes back.
        drop(member.net.buffer(MessageClass::Reply));
        member.poll_until(&handler, || got.borrow().len() == expected.len());
        assert!(*got.borrow() == expected);
        member.meet(&handler);
    });
}

#[test]
fn messages_of_the_library_pass_those_of_the_client() {
    run(2, 0, &SMALL, |member| {
        let client = Cell::new(0);
        let library = Cell::new(0);
        let handler = |message: Arrived<'_>| match message.handler {
            10 => library.set(library.get() + message.args[0]),
            _ => client.set(client.get() + 1),
        };
        if member.rank == 0 {
            // All credits are used up, and the peer does not take what they paid for.
            while member.net.send(&request(Rank(1), &[1], AmPayload::None)).expect("send").is_yes()
            {
            }
            for number in 1..=20 {
                member.send(&internal(Rank(1), 10, &[number]), &handler);
            }
        } else {
            let begin = Instant::now();
            while library.get() < 210 {
                member
                    .net
                    .poll::<Seq, _>(&TestSink(&member.met, &handler), Poll::Internal)
                    .expect("open")
                    .expect("poll");
                assert!(begin.elapsed() < PATIENCE);
            }
            assert_eq!(client.get(), 0, "a client's message in a poll for the library's");
            assert!(member.net.has_work());
            member.poll_until(&handler, || client.get() == 1);
        }
        member.meet(&handler);
    });
}

#[test]
fn a_payload_is_in_use_after_the_call_only_where_it_is_gathered() {
    for gather_min in [None, Some(0), Some(64), Some(1500)] {
        run(2, 1 << 17, &Kind { gather_min, ..PLAIN }, |member| {
            let (seen, peer) = (Cell::new(0), Rank(1 - member.rank));
            let handler = |_: Arrived<'_>| seen.set(seen.get() + 1);
            let mut sent = 0;
            for len in [0, 1, 63, 64, 1499, 1500, 4012] {
                let gathered = gather_min.is_some_and(|least| len >= least as usize) && len > 0;
                let outside = pattern(1, len);
                member.memory.write(0, &outside);
                let own = member.memory.part(0, len);
                for (payload, in_use) in [(own, gathered), (&outside[..], false)] {
                    assert_eq!(
                        Sender(&member.net.context).gathers(payload),
                        in_use,
                        "{len} of {gather_min:?}"
                    );
                    assert_eq!(Sender(&member.net.context).keeps_long(payload, 0, false), in_use);
                    for long in [false, true] {
                        let completion = Arc::new(OpCounter::default());
                        let dest = long.then_some(8192);
                        let load = ZeroCopy { payload, dest, completion: &completion };
                        member.send(&request(peer, &[], AmPayload::ZeroCopy(&load)), &handler);
                        assert_eq!(completion.is_local_complete(), !in_use, "{len}, {long}");
                        member.poll_until(&handler, || completion.is_complete());
                        sent += 1;
                    }
                }
            }
            member.poll_until(&handler, || seen.get() == sent);
            member.meet(&handler);
        });
    }
}

/// A Long whose source shall be free at once is copied up to the limit, and beyond it waits for the
/// device.
#[test]
fn a_long_is_copied_up_to_the_limit() {
    const LEN: usize = 10_000;
    for (put_bounce, copied) in
        [(65_536, true), (LEN as u64, true), (LEN as u64 - 1, false), (0, false)]
    {
        run(2, 2 * LEN, &Kind { put_bounce, inline: Some(0), ..PLAIN }, |member| {
            let got = AtomicU32::new(0);
            let handler = |message: Arrived<'_>| {
                assert!(matches!(message.payload, ArrivedPayload::Long { len: LEN, .. }));
                got.fetch_add(1, Ordering::Relaxed);
            };
            if member.rank == 0 {
                let payload = AmPayload::Long { payload: member.memory.part(0, LEN), dest: 0 };
                let buffers = &member.net.context.buffers.send;
                let before = buffers.len();
                member.send(&request(Rank(1), &[], payload), &handler);
                // Nobody polls since, so that of the header, and of what was copied, are under way.
                assert_eq!(before - buffers.len(), 1 + u32::from(copied), "limit {put_bounce}");
            }
            member.meet(&handler);
            assert_eq!(got.load(Ordering::Relaxed), member.rank);
        });
    }
}

/// `GASNET_INLINESEND_LIMIT=0`.
#[test]
fn nothing_is_inline_where_the_user_says_so() {
    run(2, 0, &Kind { inline: Some(0), ..PLAIN }, |member| {
        let peer = member.net.context.peers.get(Rank(1 - member.rank)).expect("a peer");
        assert!(peer.connections.iter().all(|connection| connection.main.inline == 0));
        member.meet(&|_| {});
    });
}

/// Receive buffers that are posted on a connection for replies.
fn reply_buffers(member: &Member<'_>) -> u32 {
    let peer = member.net.context.peers.get(Rank(1 - member.rank)).expect("a peer");
    match &member.net.context.rails[0].shared {
        Some(shared) => shared.reply_supply.made(),
        None => peer.connections[0].account.supply.made(),
    }
}

#[test]
fn buffers_for_replies_are_posted_when_requests_need_them() {
    let queues = SrqSizes { requests: 24, replies: 24 };
    let shared = Sizes { srq: Some(queues), slack: 0, ..USUAL };
    for sizes in [USUAL, shared] {
        run(2, 0, &Kind { sizes, ..PLAIN }, |member| {
            let answered = AtomicU32::new(0);
            let handler = |message: Arrived<'_>| match message.class {
                MessageClass::Request => {
                    let token = message.reply.expect("a request of the network");
                    let answer = reply(rank_of(&message), &[], AmPayload::None);
                    assert!(member.net.reply(token, &answer).expect("reply").is_yes());
                }
                _ => {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            };
            assert_eq!(reply_buffers(member), 2);
            member.meet(&handler);
            let wait = |all| {
                member.poll_until(&handler, || answered.load(Ordering::Relaxed) == all);
            };
            if member.rank == 0 {
                for turn in 1..=20 {
                    member.send(&request(Rank(1), &[], AmPayload::None), &handler);
                    wait(turn);
                }
                assert_eq!(reply_buffers(member), 2, "one request at a time needs no more");
                member.poll_until(&handler, || !member.net.context.rails[0].is_sending());
                // As many as there are credits, whatever the other rank does.
                for _ in 0..12 {
                    assert!(
                        member
                            .net
                            .send(&request(Rank(1), &[], AmPayload::None))
                            .expect("send")
                            .is_yes()
                    );
                }
                assert!(
                    !member
                        .net
                        .send(&request(Rank(1), &[], AmPayload::None))
                        .expect("send")
                        .is_yes()
                );
                wait(32);
                assert!((12..=24).contains(&reply_buffers(member)), "{}", reply_buffers(member));
                for turn in 0..50 {
                    member.send(&request(Rank(1), &[turn], AmPayload::None), &handler);
                }
                wait(82);
            }
            member.meet(&handler);
            assert!(member.rank == 0 || reply_buffers(member) == 2);
        });
    }
}

/// Bytes of the receive buffers that a rank has made, as its devices know them.
fn receive_bytes(member: &Member<'_>) -> usize {
    let buffers = &member.net.context.buffers;
    (buffers.pool.made() - buffers.made_for_sending() as usize) * BUFFER
}

/// `docs/design/am.md`, section 5, has these figures.
#[test]
fn a_rank_that_64_peers_use_posts_half_of_what_it_did() {
    const PEERS: u32 = 64;
    const RANKS: u32 = PEERS + 1;
    // Of Soft-RoCE.
    let limits = DeviceLimits { max_cqe: 32_767, max_qp_wr: 1 << 20, max_srq_wr: 1 << 20 };
    let job = Job { ranks: RANKS, rails: 1, queue_pairs: 1, reserve: INTERNAL_RECEIVES, spares: 1 };
    let depths = NetSettings::default().depths;
    let sizes = Sizes::of(&depths, &job, limits).expect("defaults").0;
    // As many for replies as for requests, and those of the library, were posted before the first
    // request.
    let queues = sizes.srq.expect("65 ranks share queues");
    let before = (queues.requests + queues.replies + sizes.reserve) as usize * BUFFER;
    assert_eq!(before, 67_239_936);
    run(RANKS, 0, &Kind { sizes, dynamic: true, ..PLAIN }, |member| {
        if member.rank != 0 {
            member.send(&internal(Rank(0), MEET, &[]), &|_| {});
            return;
        }
        member.poll_until(&|_| {}, || member.met.load(Ordering::Relaxed) == PEERS);
        let now = receive_bytes(member);
        assert_eq!(now, 33_488_896);
        assert_eq!(member.net.receive_bytes(), now as u64, "what the statistics say");
        assert!(2 * now <= before, "{now} of {before} bytes");
        let shared = member.net.context.rails[0].shared.as_ref().expect("shared queues");
        let posted = shared.posted_requests.load(Ordering::Relaxed) + shared.reply_supply.made();
        assert_eq!((posted + sizes.reserve) as usize * BUFFER, now, "all of them are posted");
    });
}

/// A batch of requests that nobody answers is acked once, or when half of the sender's credits lie
/// banked; one alone only when more than slack does.
#[test]
fn requests_of_a_batch_are_acked_together() {
    const ROUNDS: u32 = 50;
    // Those after a row of single ones are a batch.
    const REQUESTS: u32 = 12;
    let sizes = Sizes { slack: 1, ..USUAL };
    run(2, 0, &Kind { sizes, ..PLAIN }, |member| {
        let context = &member.net.context;
        let peer = context.peers.get(Rank(1 - member.rank)).expect("a peer");
        let account = &peer.connections[0].account;
        let (most, came) = (Cell::new(0), Cell::new(0));
        let handler = |_: Arrived<'_>| {
            most.set(account.banked().max(most.get()));
            came.set(came.get() + 1);
        };
        for round in 1..=ROUNDS {
            member.meet(&handler);
            if member.rank == 0 {
                for _ in 0..REQUESTS {
                    member.send(&request(Rank(1), &[], AmPayload::None), &handler);
                }
            } else {
                std::thread::sleep(Duration::from_millis(1));
                member.poll_until(&handler, || came.get() == round * REQUESTS);
                assert!(account.banked() <= sizes.slack, "the batch is over");
            }
        }
        let half = USUAL.credits_per_connection / 2;
        let (least, most) = (sizes.slack + 1, most.get());
        assert!(member.rank == 0 || (least..half).contains(&most), "at most {most} were banked");
    });
}

/// A sender that has fewer credits for good than the others bank goes on: it tells them so.
#[test]
fn a_sender_that_cannot_have_all_credits_goes_on() {
    run(2, 0, &PLAIN, |member| {
        let context = &member.net.context;
        let peer = context.peers.get(Rank(1 - member.rank)).expect("a peer");
        let connection = &peer.connections[0];
        let came = Cell::new(0);
        let handler = |_: Arrived<'_>| came.set(came.get() + 1);
        member.meet(&handler);
        if member.rank == 0 {
            connection.account.supply.end(0);
            for turn in 0..50 {
                member.send(&request(Rank(1), &[turn], AmPayload::None), &handler);
                if turn == 1 {
                    // As when no buffer can be registered for a third answer.
                    assert!(connection.account.ends() && connection.account.available() == 0);
                    context.ack_later(connection);
                }
            }
            assert_eq!(connection.account.supply.made(), 2);
        } else {
            member.poll_until(&handler, || came.get() == 50);
            assert!(connection.account.banked() < 2);
        }
        member.meet(&handler);
    });
}
