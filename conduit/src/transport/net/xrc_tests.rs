//! Groups of ranks, and the table of receivers that several ranks fill at once.

use std::sync::atomic::AtomicUsize;

use super::*;

/// Ranks with a neighbourhood's first rank and ports each.
fn groups(ranks: &[(u32, u64)]) -> Groups {
    let said = |&(first, ports): &(u32, u64)| Sharing { can: true, first, ports };
    let said: Vec<_> = ranks.iter().map(said).collect();
    let size = u32::try_from(said.len()).unwrap();
    Groups { said: PeerAddresses::of_sharing(&said), size }
}

#[test]
fn a_group_is_the_ranks_of_a_neighbourhood_with_the_same_ports() {
    // Ranks of two hosts in turn; rank 4 uses other ports.
    let seen = groups(&[(0, 7), (1, 7), (0, 7), (1, 7), (0, 8), (1, 7), (0, 8)]);
    let leaders: Vec<u32> = (0..7).map(|rank| seen.leader(Rank(rank)).0).collect();
    assert_eq!(leaders, [0, 1, 0, 1, 4, 1, 4]);
    let counts: Vec<u32> = (0..7).map(|rank| seen.count(Rank(rank))).collect();
    assert_eq!(counts, [2, 3, 2, 3, 2, 3, 2]);
    assert!(seen.is_worth_it());
    assert!(!groups(&[(0, 7), (1, 7), (2, 7)]).is_worth_it(), "everybody is alone");
    assert!(!groups(&[(0, 7), (0, 8)]).is_worth_it(), "other ports");
    // What another rank says of itself is not believed to be in range.
    assert_eq!(groups(&[(99, 7), (99, 7)]).leader(Rank(1)), Rank(1));
}

#[test]
fn words_of_the_table_have_a_number_once_it_is_made() {
    for number in [1, 0x123, NUMBER] {
        for state in [MADE, CONNECTING, READY] {
            assert_eq!(number_in(state | number), Some(number));
        }
    }
    assert_eq!([NOTHING, CLAIMED, u32::MAX].map(number_in), [None; 3]);
}

#[test]
fn one_of_many_makes_a_receiver_and_one_connects_it() {
    let word = AtomicU32::new(NOTHING);
    let (made, connected) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                if swap(&word, NOTHING, CLAIMED) {
                    made.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    word.store(MADE | 9, Ordering::Release);
                }
                let number = settled(&word, Rank(1), number_in);
                assert_eq!(number.unwrap(), 9);
                if swap(&word, MADE | 9, CONNECTING | 9) {
                    connected.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    word.store(READY | 9, Ordering::Release);
                }
                let ready = |seen| (seen == READY | 9).then_some(());
                settled(&word, Rank(1), ready).unwrap();
            });
        }
    });
    assert_eq!((made.into_inner(), connected.into_inner()), (1, 1));
}
