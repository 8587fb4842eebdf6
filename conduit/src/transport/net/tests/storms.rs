//! Floods with the smallest queues: nothing is lost, nothing stands still, and no buffer or credit
//! is missing at the end.

use std::cell::{Cell, RefCell};

use super::*;
use crate::transport::net::signal::Unsignaled;

/// Everybody sends `each` requests to everybody else; some are answered from the handler.
pub(super) fn storm(size: u32, each: u32, kind: &Kind) {
    run(size, 1 << 17, kind, |member| {
        let handled = Cell::new(0);
        let answers = Cell::new(0);
        let sums: RefCell<Vec<u64>> = RefCell::new(vec![0; size as usize]);
        let handler = |message: Arrived<'_>| {
            if message.class == MessageClass::Reply {
                answers.set(answers.get() + 1);
                return;
            }
            let number = message.args[0].cast_unsigned();
            sums.borrow_mut()[rank_of(&message).0 as usize] += u64::from(number);
            if let ArrivedPayload::Medium(bytes) = &message.payload {
                let expected = pattern(number as usize, bytes.len());
                assert!(**bytes == expected[..], "damaged Medium");
            }
            if !number.is_multiple_of(3) {
                let bytes = pattern(1, number as usize * 997 % 5000);
                let load = match number % 4 {
                    0 => AmPayload::None,
                    1 => AmPayload::Long { payload: &bytes, dest: 0 },
                    _ => AmPayload::Medium(&bytes),
                };
                let back = reply(rank_of(&message), &[], load);
                let token = message.reply.expect("a way back");
                let sent = member.net.reply(token, &back).expect("reply");
                assert!(sent.is_yes());
            }
            handled.set(handled.get() + 1);
        };
        let mut expected = 0;
        for number in 0..each {
            for peer in member.others() {
                let args = [number.cast_signed()];
                let long = pattern(2, 9000);
                let bytes = pattern(number as usize, number as usize * 379 % 3000);
                let load = match number % 5 {
                    0 => AmPayload::None,
                    1 if number.is_multiple_of(2) => {
                        AmPayload::Long { payload: &long, dest: 65_536 }
                    }
                    _ => AmPayload::Medium(&bytes),
                };
                member.send(&request(peer, &args, load), &handler);
                expected += u32::from(!number.is_multiple_of(3));
            }
        }
        member.poll_until(&handler, || {
            handled.get() == each * member.count() && answers.get() == expected
        });
        let sum = u64::from(each) * u64::from(each - 1) / 2;
        for peer in member.others() {
            assert_eq!(sums.borrow()[peer.0 as usize], sum, "requests of rank {peer}");
        }
        member.meet(&handler);
        settled(member, kind, &handler);
    });
}

/// All that was taken came back. (Banked credits are the peer's until it has something to carry
/// them.)
fn settled(member: &Member<'_>, kind: &Kind, handler: &dyn Fn(Arrived<'_>)) {
    let context = &member.net.context;
    let sizes = &kind.sizes;
    let banked = sizes.slack * member.count() * u32::try_from(kind.connections).expect("few");
    let whole = || {
        context.buffers.send.len() == sizes.bounce
            && context.rails.iter().all(|rail| !rail.is_sending())
            && context.credits.as_ref().is_none_or(|all| all.left() + banked >= sizes.credits)
            && context.peers.iter().flat_map(|peer| &*peer.connections).all(|connection| {
                let all = match sizes.flow {
                    Some(_) => connection.account.supply.made(),
                    None => sizes.credits_per_connection,
                };
                connection.account.available() + sizes.slack >= all
                    && connection.main.slots.left() + connection.main.unsignaled.count()
                        == sizes.sends() + Unsignaled::room(sizes.sends())
            })
    };
    member.poll_until(handler, whole);
}

#[test]
fn two_ranks_with_one_credit() {
    storm(2, 200, &SMALL);
}

#[test]
fn four_ranks_with_one_credit() {
    let sizes = Sizes { credits: 2, send_cq: 16, receive_cq: 128, ..TINY };
    storm(4, 60, &Kind { sizes, ..SMALL });
}

#[test]
fn ranks_of_one_thread_each() {
    storm(3, 200, &Kind { fake: true, single: true, ..SMALL });
}

#[test]
fn four_ranks_as_usual() {
    storm(4, 400, &PLAIN);
}

#[test]
fn without_spares_messages_are_copied() {
    storm(3, 300, &Kind { sizes: Sizes { spares: 0, ..USUAL }, ..PLAIN });
}

#[test]
fn slack_banks_credits() {
    let sizes = Sizes { credits_per_connection: 4, credits: 12, slack: 3, ..USUAL };
    storm(3, 300, &Kind { sizes, ..PLAIN });
}

#[test]
fn few_shared_receive_buffers() {
    let shared = SrqSizes { requests: 2, replies: 2 };
    let sizes = Sizes { srq: Some(shared), credits: 2, send_cq: 16, ..TINY };
    storm(4, 60, &Kind { sizes, ..SMALL });
    let shared = SrqSizes { requests: 3, replies: 9 };
    let sizes = Sizes { srq: Some(shared), slack: 0, bounce: 5, ..USUAL };
    storm(3, 300, &Kind { sizes, ..PLAIN });
}

#[test]
fn two_rails() {
    storm(3, 600, &Kind { rails: 2, connections: 2, ..PLAIN });
    storm(
        3,
        200,
        &Kind {
            sizes: Sizes { credits: 3, ..TINY },
            rails: 2,
            connections: 4,
            dynamic: true,
            ..SMALL
        },
    );
}
