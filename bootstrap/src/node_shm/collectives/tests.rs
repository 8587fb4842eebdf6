use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::frame::Kind;
use crate::node_shm::NodeShmSpec;
use crate::rank::{HostId, Rank};

/// The page of so many ranks, as the agent and as a rank see it.
fn pages(locals: u32) -> (NodeShm, Arc<NodeShm>) {
    let ranks: Vec<Rank> = (0..locals).map(Rank).collect();
    let hosts = vec![HostId(0); ranks.len()];
    let spec = NodeShmSpec { host: HostId(0), hosts: 1, local_ranks: &ranks, host_of: &hosts };
    let agent = NodeShm::create_with_collectives(&spec).unwrap();
    let rank = NodeShm::open(agent.fd().try_clone_to_owned().unwrap()).unwrap();
    (agent, Arc::new(rank))
}

fn exchange(seq: u32, rank: u32, payload: &[u8]) -> Frame<'_> {
    let total = u32::try_from(payload.len()).unwrap();
    Frame { total, payload, ..Frame::bare(Kind::Exchange, seq, rank, 0) }
}

#[test]
fn a_page_has_a_board_only_when_it_is_made_with_one() {
    let (agent, rank) = pages(3);
    assert!(agent.collectives().is_some() && rank.collectives().is_some());
    let spec =
        NodeShmSpec { host: HostId(0), hosts: 1, local_ranks: &[Rank(0)], host_of: &[HostId(0)] };
    let bare = NodeShm::create(&spec).unwrap();
    assert!(bare.collectives().is_none());
    let seen = NodeShm::open(bare.fd().try_clone_to_owned().unwrap()).unwrap();
    assert!(seen.collectives().is_none());
    assert!(Layout::new(0, MOST).is_some() && Layout::new(0, MOST + 1).is_none());
}

#[test]
fn the_last_rank_to_arrive_tells_the_agent() {
    let (agent, rank) = pages(3);
    let (agent, collectives) = (agent.collectives().unwrap(), rank.collectives().unwrap());
    for seq in [1, 2, u32::MAX, 1] {
        let told = [2, 0, 1].map(|local| collectives.post(local, &exchange(seq, local, b"abc")));
        assert_eq!(told, [false, false, true]);
        let mut buffer = [0; 512];
        for local in 0..3 {
            let (number, len) = agent.take(local, 0, &mut buffer).unwrap();
            let frame = Frame::from_packet(&buffer[..len], 3).unwrap();
            assert_eq!((number, frame), (seq, exchange(seq, local, b"abc")));
            assert_eq!(agent.take(local, seq, &mut buffer), None, "taken once");
        }
    }
}

#[test]
fn ranks_that_differ_tell_the_agent_at_once() {
    let (_agent, rank) = pages(4);
    let collectives = rank.collectives().unwrap();
    assert!(!collectives.post(0, &exchange(1, 0, b"abc")));
    assert!(collectives.post(1, &exchange(1, 1, b"abcd")), "another length");
    assert!(collectives.post(2, &Frame::bare(Kind::Barrier, 1, 2, 0)), "another call");
    assert!(!collectives.post(3, &exchange(1, 3, b"xyz")), "as the first");
    // A call over a socket before the others, and after one.
    collectives.apart(2);
    assert!(collectives.post(0, &exchange(2, 0, b"abc")));
    assert!(!collectives.post(1, &exchange(3, 1, b"abc")));
    collectives.apart(3);
    assert!(!collectives.post(2, &exchange(3, 2, b"abc")), "the packet makes the agent look");
}

/// The page as another rank sees it.
fn opened(agent: &NodeShm) -> Arc<NodeShm> {
    Arc::new(NodeShm::open(agent.fd().try_clone_to_owned().unwrap()).unwrap())
}

#[test]
fn places_are_used_again_when_no_post_says_that_they_are_looked_at() {
    let (page, first) = pages(2);
    let (agent, ranks) = (page.collectives().unwrap(), [first, opened(&page)]);
    let post = |seq| {
        for (local, page) in (0..).zip(&ranks) {
            let _ = page.collectives().unwrap().post(local, &exchange(seq, local, b"abc"));
        }
    };
    let collectives = ranks[0].collectives().unwrap();
    assert_eq!(collectives.answer(1), None);
    let mut held = Vec::new();
    for seq in 1..=8 {
        let bytes = vec![u8::try_from(seq).unwrap(); PLACE - 3];
        post(seq);
        assert!(agent.publish(seq, &bytes));
        let published = collectives.answer(seq).unwrap();
        assert_eq!((published.len, published.place), (PLACE - 3, seq - 1));
        assert_eq!(collectives.answer(seq - 1), None);
        held.push(ranks.each_ref().map(|page| SlotRef::new(page, published).unwrap()));
    }
    post(9);
    assert!(!agent.publish(9, b"x"), "no place is free");
    assert_eq!(collectives.answer(9), None);
    for (index, lent) in (1..).zip(&held) {
        assert!(lent.iter().all(|lent| lent.bytes() == vec![index; PLACE - 3]));
    }
    let [one, other] = held.remove(4);
    drop(one);
    post(9);
    assert!(!agent.publish(9, b"x"), "one rank looks at it");
    let clone = other.clone();
    drop(clone.clone());
    assert_eq!(clone.bytes(), other.bytes());
    drop(other);
    post(9);
    assert!(!agent.publish(9, b"x"), "it looks at it still");
    drop(clone);
    assert!(!agent.publish(9, b"x"), "it has not said so yet");
    post(9);
    assert!(agent.publish(9, b"x"));
    assert_eq!(collectives.answer(9), Some(Published { place: 4, len: 1 }));
    post(10);
    assert!(!agent.publish(10, &[0; PLACE + 1]), "too long");
    assert!(agent.publish(10, &[]), "nothing needs no place");
    assert_eq!(collectives.answer(10).map(|published| published.len), Some(0));
    let mut buffer = [0; 512];
    let (seq, len) = agent.take(0, 9, &mut buffer).unwrap();
    assert_eq!((seq, len), (10, HEADER_LEN + 3), "what is looked at is no part of the length");
}

#[test]
fn what_is_no_place_is_not_looked_at() {
    let (agent, rank) = pages(1);
    for (place, len) in [(8, 1), (u32::MAX, 1), (0, PLACE + 1), (7, usize::MAX)] {
        assert!(SlotRef::new(&rank, Published { place, len }).is_none());
    }
    assert!(agent.result(Published { place: 0, len: 1 }).is_none(), "the agent maps none");
    assert!(
        !ShmCollectives::has_room(ShmCollectives::POST - HEADER_LEN + 1, 0)
            && !ShmCollectives::has_room(0, PLACE + 1)
    );
    assert!(ShmCollectives::has_room(ShmCollectives::POST - HEADER_LEN, PLACE));
}

#[test]
fn sleepers_are_woken_by_answers_mail_and_the_end() {
    let (agent, rank) = pages(1);
    let wakes: [fn(&NodeShm); 3] = [
        |page| assert!(page.collectives().is_some_and(|collectives| collectives.publish(1, b"x"))),
        |page| page.collectives().unwrap().announce_mail(),
        |page| {
            page.decide(crate::node_shm::ExitDecision { code: 1, cause: None });
        },
    ];
    for wake in wakes {
        let collectives = rank.collectives().unwrap();
        let (bell, begin) = (collectives.bell(), std::time::Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                wake(&agent);
            });
            while collectives.bell() == bell {
                collectives.sleep(bell, Duration::from_secs(60));
            }
        });
        assert!(begin.elapsed() < Duration::from_secs(50), "woken, not timed out");
    }
    assert_eq!(rank.collectives().unwrap().mail(), 1);
}

/// An agent that concatenates what was posted; ranks that keep some results and check them to the
/// end.
fn run(locals: u32, rounds: u32, len: usize, keep: u32) {
    let (agent, _) = pages(locals);
    let told = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for local in 0..locals {
            let (rank, told) = (opened(&agent), &told);
            scope.spawn(move || {
                let collectives = rank.collectives().unwrap();
                let mut kept = HashMap::new();
                let mine = |seq: u32, local: u32| vec![(seq * 7 + local).to_ne_bytes()[0]; len];
                for seq in 1..=rounds {
                    if collectives.post(local, &exchange(seq, local, &mine(seq, local))) {
                        told.store(seq, Ordering::SeqCst);
                    }
                    let published = loop {
                        let bell = collectives.bell();
                        if let Some(published) = collectives.answer(seq) {
                            break published;
                        }
                        collectives.sleep(bell, Duration::from_millis(50));
                    };
                    let lent = SlotRef::new(&rank, published).unwrap();
                    let whole: Vec<u8> = (0..locals).flat_map(|local| mine(seq, local)).collect();
                    assert_eq!(lent.bytes(), whole);
                    kept.insert(seq, (lent, whole));
                    if seq > keep {
                        kept.remove(&(seq - keep));
                    }
                    assert!(kept.values().all(|(lent, whole)| lent.bytes() == whole));
                }
            });
        }
        let collectives = agent.collectives().unwrap();
        let mut buffer = [0; 512];
        for seq in 1..=rounds {
            while told.load(Ordering::SeqCst) != seq {
                std::thread::yield_now();
            }
            let mut whole = Vec::new();
            for local in 0..locals {
                let (number, len) = collectives.take(local, seq - 1, &mut buffer).unwrap();
                assert_eq!(number, seq);
                whole.extend_from_slice(&buffer[HEADER_LEN..len]);
            }
            while !collectives.publish(seq, &whole) {
                std::thread::yield_now();
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn every_rank_gets_every_result(
        locals in 1u32..6, rounds in 1u32..40, len in 1usize..=64, keep in 0u32..6,
    ) {
        run(locals, rounds, len, keep);
    }
}
