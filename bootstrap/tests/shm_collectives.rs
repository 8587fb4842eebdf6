//! Calls on the collectives of the node memory, against agents that answer there, by packets,
//! wrongly, or not at all.
#![expect(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

#[expect(dead_code, reason = "these tests script their agent by hand")]
mod server;

use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::time::Duration;

use bootstrap::frame::{Frame, Kind};
use bootstrap::node_shm::{NodeShm, NodeShmSpec, ShmCollectives};
use bootstrap::wait::Bounds;
use bootstrap::{Error, HostId, Rank, agent, memfd};
use server::{pair, receive, send};

const SIZE: u32 = 2;

/// Page of two ranks on one host.
fn page() -> NodeShm {
    let (ranks, hosts) = ([Rank(0), Rank(1)], [HostId(0); 2]);
    let spec = NodeShmSpec { host: HostId(0), hosts: 1, local_ranks: &ranks, host_of: &hosts };
    NodeShm::create_with_collectives(&spec).unwrap()
}

/// The frame that rank 1 has posted as call `seq`; the other rank of the host arrives after it or,
/// when `first`, before.
fn posted(
    collectives: ShmCollectives<'_>,
    seq: u32,
    first: bool,
    socket: BorrowedFd<'_>,
) -> Vec<u8> {
    let mut packet = [0; ShmCollectives::POST];
    let len = loop {
        if let Some((found, len)) = collectives.take(1, seq - 1, &mut packet) {
            assert_eq!(found, seq);
            break len;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    if first {
        let told = receive(socket);
        assert_eq!(Frame::from_packet(&told, SIZE).unwrap(), Frame::bare(Kind::Posted, seq, 1, 0));
    }
    packet[..len].to_vec()
}

/// What two exchanges of rank 1 yield.
fn exchanges(
    first: bool,
    answer: impl FnOnce(BorrowedFd<'_>, ShmCollectives<'_>) + Send + 'static,
) -> [Result<Vec<u8>, Error>; 2] {
    let (theirs, ours) = pair();
    let thread = std::thread::spawn(move || {
        let page = page();
        receive(ours.as_fd());
        let collectives = page.collectives().unwrap();
        if first {
            let payload = &[0; 3];
            let frame = Frame { total: 3, payload, ..Frame::bare(Kind::Exchange, 1, 0, 0) };
            assert!(!collectives.post(0, &frame));
        }
        send(ours.as_fd(), &Frame::bare(Kind::Welcome, 0, 1, SIZE), Some(page.fd()));
        answer(ours.as_fd(), collectives);
        while !receive(ours.as_fd()).is_empty() {}
    });
    let mut rank = agent::connect(theirs.into_raw_fd(), Rank(1), SIZE, Bounds::default()).unwrap();
    let outcomes = [(); 2].map(|()| rank.exchange(&[7, 8, 9]).map(|shared| shared.to_vec()));
    drop(rank);
    thread.join().unwrap();
    outcomes
}

const RESULT: [u8; 6] = [1, 2, 3, 7, 8, 9];

#[test]
fn a_result_is_read_where_it_was_published() {
    for first in [true, false] {
        let [one, two] = exchanges(first, move |socket, collectives| {
            let packet = posted(collectives, 1, first, socket);
            let frame = Frame::from_packet(&packet, SIZE).unwrap();
            assert_eq!(
                (frame.kind, frame.rank, frame.payload),
                (Kind::Exchange, 1, &[7, 8, 9][..])
            );
            assert!(collectives.publish(1, &RESULT));
            posted(collectives, 2, false, socket);
            assert!(collectives.publish(2, &RESULT));
            assert_eq!(collectives.answer(2).unwrap().place, 0, "the first result was given back");
        });
        assert_eq!((one.unwrap(), two.unwrap()), (RESULT.to_vec(), RESULT.to_vec()));
    }
}

#[test]
fn an_answer_by_packets_is_taken_and_the_board_used_again() {
    let [one, two] = exchanges(false, |socket, collectives| {
        posted(collectives, 1, false, socket);
        let mapped = Frame { total: 6, ..Frame::bare(Kind::Mapped, 1, 1, 0) };
        send(socket, &mapped, Some(memfd::result(&RESULT).unwrap().as_fd()));
        collectives.announce_mail();
        posted(collectives, 2, false, socket);
        assert!(collectives.publish(2, &RESULT));
    });
    assert_eq!((one.unwrap(), two.unwrap()), (RESULT.to_vec(), RESULT.to_vec()));
}

#[test]
fn a_refusal_is_heard_also_by_a_later_call() {
    let outcomes = exchanges(false, |socket, collectives| {
        posted(collectives, 1, false, socket);
        for reason in [&b"not together"[..], b"as before"] {
            let head = Frame::bare(Kind::Refuse, 1, 1, 0);
            Frame::pieces(head, reason).for_each(|frame| send(socket, &frame, None));
        }
        collectives.announce_mail();
    });
    let texts = outcomes.map(|outcome| outcome.unwrap_err().to_string());
    assert!(texts[0].contains("not together") && texts[1].contains("as before"), "{texts:?}");
}

#[test]
fn a_result_of_another_length_is_no_result() {
    let [one, _] = exchanges(false, |socket, collectives| {
        posted(collectives, 1, false, socket);
        assert!(collectives.publish(1, &RESULT[1..]));
        posted(collectives, 2, false, socket);
        assert!(collectives.publish(2, &RESULT));
    });
    let error = one.unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
    assert!(error.to_string().contains("5 bytes on the collectives instead of 6"), "{error}");
}

#[test]
fn the_end_of_the_agent_is_noticed() {
    let (theirs, ours) = pair();
    let thread = std::thread::spawn(move || {
        let page = page();
        receive(ours.as_fd());
        send(ours.as_fd(), &Frame::bare(Kind::Welcome, 0, 1, SIZE), Some(page.fd()));
        posted(page.collectives().unwrap(), 1, false, ours.as_fd());
    });
    let mut rank = agent::connect(theirs.into_raw_fd(), Rank(1), SIZE, Bounds::default()).unwrap();
    let outcome = rank.barrier();
    thread.join().unwrap();
    assert!(matches!(outcome, Err(Error::Lost { during: "barrier" })), "{outcome:?}");
}
