//! Requests that report no success.

use std::cell::Cell;

use super::*;
use crate::transport::net::peer::SendQp;
use crate::transport::net::signal::Unsignaled;

/// The queue pair that messages to a rank leave on.
fn main_of<'a>(member: &'a Member<'_>, peer: Rank) -> &'a SendQp {
    let peer = member.net.context.peers.get(peer).expect("connected");
    &peer.connections.first().expect("a connection").main
}

#[test]
fn one_of_some_shorts_is_signalled() {
    for fake in [false, true] {
        run(2, 0, &Kind { fake, ..PLAIN }, |member| {
            let (answers, rail) = (Cell::new(0), &member.net.context.rails[0]);
            let handler = |message: Arrived<'_>| {
                if message.class == MessageClass::Reply {
                    answers.set(answers.get() + 1);
                } else {
                    let back = reply(rank_of(&message), &[], AmPayload::None);
                    assert!(
                        member
                            .net
                            .reply(message.reply.expect("a way"), &back)
                            .expect("reply")
                            .is_yes()
                    );
                }
            };
            member.meet(&handler);
            if member.rank == 0 {
                let peer = Rank(1);
                member.poll_until(&handler, || !rail.is_sending());
                // Of 26 entries every sixth, whatever the meeting has left.
                let mut signaled = Vec::new();
                for turn in 1..=30 {
                    assert!(
                        member
                            .net
                            .send(&request(peer, &[], AmPayload::None))
                            .expect("send")
                            .is_yes()
                    );
                    if rail.is_sending() {
                        signaled.push(turn);
                        assert_eq!(main_of(member, peer).unsignaled.count(), 0);
                    }
                    member.poll_until(&handler, || answers.get() == turn && !rail.is_sending());
                }
                assert_eq!(signaled.len(), 5, "{signaled:?}");
                assert!(signaled.windows(2).all(|two| two[1] - two[0] == 6), "{signaled:?}");
            }
            member.meet(&handler);
        });
    }
}

#[test]
fn a_payload_in_a_buffer_is_signalled() {
    run(2, 0, &Kind { inline: Some(0), ..PLAIN }, |member| {
        let handler = |_: Arrived<'_>| {};
        let sent = member.net.send(&request(Rank(1 - member.rank), &[1], AmPayload::None));
        assert!(sent.expect("send").is_yes());
        assert!(member.net.context.rails[0].is_sending());
        member.meet(&handler);
    });
}

/// Nothing waits for the end of such a request, and yet its failure ends the job.
#[test]
fn an_unsignalled_request_that_fails_is_heard_of() {
    run(2, 0, &PLAIN, |member| {
        if member.rank == 0 {
            let (send_qp, rail) = (main_of(member, Rank(1)), &member.net.context.rails[0]);
            send_qp.qp.to_error().expect("any state to ERROR");
            assert!(
                member.net.send(&request(Rank(1), &[], AmPayload::None)).expect("send").is_yes()
            );
            assert!(!rail.is_sending() && rail.has_unsignaled());
            let begin = Instant::now();
            let error = loop {
                let none = |_: Arrived<'_>| {};
                let polled = member.net.poll::<Par, _>(&TestSink(&member.met, &none), Poll::All);
                if let Err(error) = polled.expect("open") {
                    break error.to_string();
                }
                assert!(begin.elapsed() < PATIENCE, "nobody says that it failed");
            };
            assert!(error.contains("an active message"), "{error}");
            let all = USUAL.sends() + Unsignaled::room(USUAL.sends());
            assert_eq!((send_qp.slots.left(), send_qp.unsignaled.count()), (all, 0));
            assert!(!rail.has_unsignaled());
        }
        member.services.borrow_mut().barrier().expect("all are done");
    });
}
