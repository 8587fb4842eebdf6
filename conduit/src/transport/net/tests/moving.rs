//! Credits that move between peers.

use std::sync::atomic::AtomicBool;

use super::bad_input::refusal;
use super::*;
use crate::transport::net::am::send::Sender;
use crate::transport::net::flow::Limits;

/// Few credits, epochs that end often, idle peers asked early.
pub(super) fn moving(banked: u32) -> Sizes {
    let limits =
        Limits { least: 1, most: 8, lent: 8, revoked: 4, low_water: 2, asked: 2, epoch: 16 };
    let queues = SrqSizes { requests: 24, replies: 24 };
    Sizes { srq: Some(queues), flow: Some((limits, banked)), slack: 0, ..USUAL }
}

#[test]
fn storms() {
    for banked in [0, 1, 6] {
        storms::storm(4, 200, &Kind { sizes: moving(banked), ..PLAIN });
    }
    storms::storm(3, 200, &Kind { sizes: moving(4), rails: 2, connections: 2, ..PLAIN });
    storms::storm(3, 100, &Kind { sizes: moving(4), dynamic: true, ..PLAIN });
}

#[test]
fn storms_on_shared_connections() {
    let kind = Kind { sizes: moving(4), fake: true, per_host: 2, xrc: true, ..PLAIN };
    storms::storm(4, 100, &kind);
}

#[test]
fn every_size_arrives() {
    messages::echo(&Kind { sizes: moving(3), ..PLAIN });
}

/// Credits that a rank holds of another.
fn held(member: &Member<'_>, peer: u32) -> u32 {
    let peer = member.net.context.peers.get(Rank(peer)).expect("a peer");
    peer.connections[0].account.supply.made()
}

/// One rank after the other floods rank 0. Each comes to hold most of what rank 0 lends, which those
/// before it have given back.
#[test]
fn a_flood_takes_the_credits_with_it() {
    run(4, 0, &Kind { sizes: moving(6), ..PLAIN }, |member| {
        let handled = AtomicU32::new(0);
        let handler = |message: Arrived<'_>| {
            if message.class == MessageClass::Request {
                handled.fetch_add(1, Ordering::Relaxed);
            }
        };
        let each = 3000;
        for sender in 1..4 {
            if member.rank == sender {
                for _ in 0..each {
                    member.send(&request(Rank(0), &[], AmPayload::None), &handler);
                }
                assert!(held(member, 0) >= 4, "rank {sender} holds {}", held(member, 0));
            }
            if member.rank == 0 {
                let all = sender * each;
                member.poll_until(&handler, || handled.load(Ordering::Relaxed) == all);
            }
            member.meet(&handler);
        }
        let first = (member.rank == 1).then(|| held(member, 0));
        assert!(first.is_none_or(|held| held <= 4), "rank 1 still holds {first:?}");
        member.meet(&handler);
    });
}

/// Who comes late gets its share beside one that floods, holds all there is, and never has enough.
#[test]
fn who_comes_late_gets_its_share_of_a_flood() {
    let [holds_all, has_share] = [const { AtomicBool::new(false) }; 2];
    run(3, 0, &Kind { sizes: moving(6), ..PLAIN }, |member| {
        let handler = |_: Arrived<'_>| {};
        let flood_until = |done: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !done() {
                member.send(&request(Rank(0), &[], AmPayload::None), &handler);
                assert!(begin.elapsed() < PATIENCE, "rank 2 has {}", held(member, 0));
            }
        };
        match member.rank {
            1 => flood_until(&|| {
                holds_all.fetch_or(held(member, 0) == 7, Ordering::Relaxed);
                has_share.load(Ordering::Relaxed)
            }),
            2 => {
                member.poll_until(&handler, || holds_all.load(Ordering::Relaxed));
                flood_until(&|| held(member, 0) >= 4);
                has_share.store(true, Ordering::Relaxed);
            }
            _ => member.poll_until(&handler, || has_share.load(Ordering::Relaxed)),
        }
        member.meet(&handler);
    });
}

/// A request that was not sent after all has a credit that was promised; no reply brings it. (That
/// nobody had asked for it here shows that it came.)
#[test]
fn what_a_request_gives_back_that_was_not_sent_is_collected() {
    run(2, 0, &Kind { sizes: moving(3), ..PLAIN }, |member| {
        if member.rank == 0 {
            let error = refusal(member);
            assert!(error.contains("1 credits given back although none were asked for"), "{error}");
            return;
        }
        let context = &member.net.context;
        let connection = &context.peers.get(Rank(0)).expect("a peer").connections[0];
        let demand = &connection.flow.borrowed().expect("credits move").demand;
        connection.account.lent(1);
        assert!((0..2).all(|_| connection.account.take()));
        let limits = moving(3).flow.expect("credits move").0;
        assert_eq!(demand.share(&connection.account, &limits, 1), None);
        Sender(context).give_credits_back(connection, MessageClass::Request);
        member.poll_until(&|_| {}, || !demand.owes());
    });
}

/// What a peer cannot have to say about credits ends the job with its name.
#[test]
fn wrong_words_about_credits_are_refused() {
    let cases: [(Sizes, &[i32], &str); 5] = [
        (USUAL, &[1], "which are fixed here"),
        (moving(3), &[2, 5], "although none were asked for"),
        (moving(3), &[2, -1], "2 arguments in a message about credits"),
        (moving(3), &[3, -1], "2 arguments in a message about credits, the first is 3"),
        (moving(3), &[7, 7, 7], "3 arguments in a message about credits, the first is 7"),
    ];
    for (sizes, args, text) in cases {
        run(2, 0, &Kind { sizes, ..PLAIN }, |member| {
            if member.rank == 1 {
                let context = &member.net.context;
                let peer = context.peers.get(Rank(0)).expect("a peer");
                assert_eq!(Sender(context).about_credits(peer, 0, args).expect("sent"), Sent::Yes);
                return;
            }
            let error = refusal(member);
            assert!(error.contains(text) && error.contains("rank 1"), "{error}");
        });
    }
}
