//! What a peer cannot have said of credits, nor of who it is: the job ends with the peer's name. More of
//! it about credits that move is in `moving.rs`, about rings in `volume.rs`.

use super::moving::moving;
use super::*;
use crate::transport::net::am::header::{self, ACK, Head, Shape};
use crate::transport::net::context::NetContext;
use crate::transport::net::credits::Carried;

/// Polls until a message is refused.
pub(super) fn refusal(member: &Member<'_>) -> String {
    let begin = Instant::now();
    loop {
        let sink = TestSink(&member.met, &|_| {});
        match member.net.poll::<Par, _>(&sink, Poll::All).expect("open") {
            Ok(_) => assert!(begin.elapsed() < PATIENCE, "nothing was refused"),
            Err(error) => return error.to_string(),
        }
    }
}

/// Sends rank 0 a Short with a header that no sender writes.
fn post(context: &NetContext, head: &Head) {
    let connection = &context.peers.get(Rank(0)).expect("a peer").connections[0];
    let encoded = header::encode(head, &[]);
    let send = fabric::SendWr {
        id: 0,
        operation: fabric::Operation::Send { imm: Some(encoded.imm) },
        data: fabric::Data::Inline(&[encoded.bytes()]),
        signaled: false,
        to: None,
    };
    connection.main.qp.post_send(&send).expect("posted");
}

/// Rank 1 sends acks that carry these words in the name of a rank, and rank 0 refuses the last.
fn refused(sizes: Sizes, source: u16, words: &[u16], text: &str) {
    run(2, 0, &Kind { sizes, ..PLAIN }, |member| {
        if member.rank == 1 {
            for word in words {
                let (carried, shape) = (Carried(*word), Shape::Short);
                let head = Head { source, handler: ACK, reply: true, carried, shape };
                post(&member.net.context, &head);
            }
            return;
        }
        let error = refusal(member);
        let peer = format!("rank {source}");
        assert!(error.contains(text) && error.contains(&peer), "{text:?} not in {error}");
    });
}

#[test]
fn a_word_of_credits_that_no_peer_can_have_sent() {
    let lent = Carried::of(0, 0, 7, false).0;
    refused(USUAL, 1, &[Carried::of(0, 1, 0, false).0], "it moves credits, which are fixed here");
    refused(moving(3), 1, &[0x8000], "it says 0x8000 of credits, which nobody can have sent");
    // At most 8, and one is there from the start.
    let text = "it lends 7 credits more, where 8 are there and 8 are the most";
    refused(moving(3), 1, &[lent, lent], text);
}

#[test]
fn a_limit_of_credits_that_nobody_can_have() {
    const LIMIT: i32 = 4;
    for args in [&[LIMIT, 0][..], &[LIMIT, -1], &[LIMIT], &[LIMIT, 2, 2], &[7, 2]] {
        run(2, 0, &Kind { sizes: USUAL, ..PLAIN }, |member| {
            if member.rank == 0 {
                let error = refusal(member);
                assert!(error.contains("it moves credits, which are fixed here"), "{error}");
                return;
            }
            let peer = member.net.context.peers.get(Rank(0)).expect("a peer");
            let sent = Sender(&member.net.context).about_credits(peer, 0, args).expect("open");
            assert_eq!(sent, Sent::Yes);
        });
    }
}

#[test]
fn more_credits_returned_than_were_lent() {
    let text = "5 credits returned where at most 0 can be out";
    for sizes in [USUAL, moving(3)] {
        refused(sizes, 1, &[5], text);
    }
}

#[test]
fn a_rank_number_over_the_size() {
    refused(USUAL, 7, &[0], "is not connected to that rank");
}

#[test]
fn a_revoke_that_is_answered_twice() {
    run(2, 0, &Kind { sizes: moving(3), ..PLAIN }, |member| {
        let context = &member.net.context;
        if member.rank == 0 {
            // Rank 1 borrows all, does not want more for an epoch, and then another one does.
            let shared = context.rails[0].shared.as_ref().expect("shared queues");
            let mut lender = shared.bank.as_ref().expect("a bank").try_lender().expect("free");
            let mut asked = Vec::new();
            assert_eq!(lender.requested(1, 3, &mut asked), 3);
            lender.end_epoch();
            lender.requested(9, 1, &mut asked);
            assert_eq!(asked.iter().map(|question| question.peer).collect::<Vec<_>>(), [1]);
            drop(lender);
            member.meet(&|_| {});
            let error = refusal(member);
            let text = "0 credits given back although none were asked for";
            assert!(error.contains(text) && error.contains("rank 1"), "{error}");
            return;
        }
        member.meet(&|_| {});
        let peer = context.peers.get(Rank(0)).expect("a peer");
        for _ in 0..2 {
            let sent = Sender(context).about_credits(peer, 0, &[2, 0]).expect("open");
            assert_eq!(sent, Sent::Yes);
        }
    });
}
