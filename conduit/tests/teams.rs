//! Teams and their collectives, between threads as ranks: who is in which team, requests by team
//! rank, results against a computation of one's own, many teams and sizes.

#[path = "shared/harness.rs"]
mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gasnet_ibv::{
    Client, Entry, Error, Flags, HandlerIndex, Par, Rank, ReduceOp, Seq, Settings, Team,
};
use harness::{everywhere, job, tiny};

fn job_ranks(team: &Team<'_, Seq>) -> Vec<u32> {
    (0..team.size()).map(|rank| team.job_rank(Rank(rank)).expect("a rank").0).collect()
}

#[test]
fn splits_have_who_chose_them_in_the_order_of_keys() {
    everywhere::<Seq>(5, &Settings::default(), |client| {
        let (all, me, size) = (client.team(), client.rank().0, client.size());
        let down = all.split(Some(7), -i32::try_from(me).expect("few")).expect("split");
        let down = down.expect("a team");
        assert_eq!(job_ranks(&down), (0..size).rev().collect::<Vec<_>>());
        assert_eq!((down.rank().0, down.size()), (size - 1 - me, size));
        // Of the reversed team: its even and odd ranks, and its first rank takes part in nothing.
        let color = (down.rank().0 > 0).then_some(down.rank().0 % 2);
        let half = down.split(color, 0).expect("split");
        let of_color = |color| {
            let ranks = (1..size).filter(|rank| rank % 2 == color);
            ranks.map(|rank| size - 1 - rank).collect::<Vec<_>>()
        };
        match (&half, color) {
            (Some(half), Some(color)) => {
                assert_eq!(job_ranks(half), of_color(color));
                assert_eq!(half.job_rank(half.rank()), Some(Rank(me)));
                let other = of_color(1 - color)[0];
                assert_eq!(half.rank_of(Rank(other)), None);
                half.barrier().expect("barrier");
            }
            (half, color) => assert!(half.is_none() && color.is_none()),
        }
        down.barrier().expect("barrier");
    });
}

#[test]
fn lists_make_teams_and_wrong_ones_are_refused() {
    everywhere::<Seq>(4, &Settings::default(), |client| {
        let (all, me) = (client.team(), client.rank().0);
        let list: &[Rank] = if me == 2 { &[] } else { &[Rank(3), Rank(0), Rank(1)] };
        let made = all.create(list).expect("create");
        assert_eq!(made.as_ref().map(job_ranks), (me != 2).then(|| vec![3, 0, 1]));
        if let Some(team) = &made {
            let mut data = [u64::from(me) + 1, 10];
            team.reduce_to_all(&mut data, ReduceOp::Mult).expect("reduce");
            assert_eq!(data, [8, 1000]);
        }
        let refused = |list: &[Rank]| match all.create(list) {
            Err(error) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(refused(&[Rank(me), Rank(9)]).contains("rank 9 of the list"));
        assert!(refused(&[Rank((me + 1) % 4)]).contains("not in itself"));
        assert!(refused(&[Rank(me), Rank(me)]).contains("twice"));
        let longer = [Rank(0), Rank(1), Rank(2), Rank(3)];
        let differs = refused(if me == 0 { &longer[..2] } else { &longer });
        assert!(differs.contains("different lists"), "{differs}");
        client.team().barrier().expect("barrier");
    });
}

#[test]
fn requests_go_to_ranks_of_the_team() {
    everywhere::<Seq>(4, &Settings::default(), |client| {
        let got = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&got);
        let count = move |token: &gasnet_ibv::Token<'_, Seq>, args: &[i32]| {
            assert_eq!(u32::try_from(args[0]).expect("a rank"), token.source().0);
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let mut table = [Entry::short("count", 1, count).at(200)];
        client.endpoint().register(&mut table).expect("table");
        client.team().barrier().expect("barrier");
        let me = client.rank().0;
        let team = client.team().split(Some(me % 2), -i32::try_from(me).expect("few"));
        let team = team.expect("split").expect("a team");
        let args = [i32::try_from(me).expect("few")];
        for rank in 0..team.size() {
            let sent = team.request_short(Rank(rank), HandlerIndex(200), &args, Flags::NONE);
            let _ = sent.expect("request");
        }
        client.block_until(|| got.load(Ordering::Relaxed) == 2).expect("requests");
        let nobody = team.request_short(Rank(2), HandlerIndex(200), &args, Flags::NONE);
        assert!(matches!(nobody, Err(Error::RankOutOfRange { size: 2, .. })));
        client.team().barrier().expect("barrier");
        assert_eq!(got.load(Ordering::Relaxed), 2);
    });
}

/// Everything once on a team, with `count` elements.
fn collectives(team: &Team<'_, Seq>, count: usize) {
    let (me, size) = (u64::from(team.rank().0), u64::from(team.size()));
    let own = |rank: u64| (0..count as u64).map(|at| rank * 1_000_003 + at).collect::<Vec<u64>>();
    for root in 0..team.size() {
        let mut data = own(me);
        team.broadcast(Rank(root), &mut data).expect("broadcast");
        assert!(data == own(u64::from(root)));
        let mut data = own(me);
        team.reduce_to_one(Rank(root), &mut data, ReduceOp::Add).expect("reduce");
        let sums = (0..count as u64).map(|at| size * at + size * (size - 1) / 2 * 1_000_003);
        let expected = if root == team.rank().0 { sums.collect() } else { own(me) };
        assert!(data == expected);
    }
    let mut data = own(me);
    // Not commutative: the leftmost operand wins the high half, the rightmost the low one.
    let ends = |left: u64, right: u64| left >> 32 << 32 | right & 0xffff_ffff;
    data.iter_mut().for_each(|word| *word = *word << 32 | (*word & 0xffff_ffff));
    let root = Rank(team.size() / 2);
    let mut at_root = data.clone();
    team.reduce_to_one_with(root, &mut at_root, ends).expect("reduce");
    team.reduce_to_all_with(&mut data, ends).expect("reduce");
    assert!(team.rank() != root || at_root == data);
    let (first, last) = (own(0), own(size - 1));
    let expected = first.iter().zip(&last).map(|(a, b)| a << 32 | (b & 0xffff_ffff));
    assert!(data.into_iter().eq(expected));
    team.barrier().expect("barrier");
}

/// Everything that moves blocks, with `count` elements of a block.
fn blocks(team: &Team<'_, Seq>, count: usize) {
    let (me, size) = (team.rank().0, team.size());
    let word =
        |from: u32, to: u32, at: usize| u64::from(from) << 40 | u64::from(to) << 20 | at as u64;
    let block = |from, to| (0..count).map(move |at| word(from, to, at));
    let of_all = |block: &dyn Fn(u32) -> Vec<u64>| (0..size).flat_map(block).collect::<Vec<_>>();
    let mine: Vec<u64> = block(me, 0).collect();
    let for_all = of_all(&|to| block(me, to).collect());
    let gathered = of_all(&|from| block(from, 0).collect());
    for root in [0, size / 2, size - 1] {
        let (mut one, mut all) = (vec![7; count], vec![7; count * size as usize]);
        team.scatter(Rank(root), if me == root { &for_all } else { &[] }, &mut one)
            .expect("scatter");
        assert!(one.iter().copied().eq(block(root, me)));
        team.gather(Rank(root), &mine, if me == root { &mut all } else { &mut [] })
            .expect("gather");
        assert!(if me == root { all == gathered } else { all.iter().all(|word| *word == 7) });
    }
    let mut all = vec![7; count * size as usize];
    team.gather_all(&mine, &mut all).expect("gather");
    assert!(all == gathered);
    team.exchange(&for_all, &mut all).expect("exchange");
    assert!(all == of_all(&|from| block(from, me).collect()));
    let mut sums: Vec<u64> = (0..count as u64).map(|at| at + u64::from(me)).collect();
    team.scan(&mut sums, ReduceOp::Add).expect("scan");
    let (to, below) = (u64::from(me) + 1, u64::from(me) * (u64::from(me) + 1) / 2);
    assert!(sums.iter().zip(0..).all(|(sum, at)| *sum == to * at + below));
    let mut ends = [u64::from(me) << 32 | u64::from(me)];
    team.scan_with(&mut ends, |left, right| left >> 32 << 32 | right & 0xffff_ffff).expect("scan");
    assert_eq!(ends, [u64::from(me)]);
}

#[test]
fn blocks_of_many_teams_and_sizes_come_to_their_places() {
    everywhere::<Seq>(5, &tiny(), |client| {
        let me = i32::try_from(client.rank().0).expect("few");
        let all = client.team();
        let back = all.split(Some(0), -me).expect("split").expect("a team");
        for (team, count) in [(&all, 5), (&back, 2500), (&all, 12_000)] {
            blocks(team, count);
        }
    });
    for size in [1, 2, 3, 8, 13] {
        job::<Seq>(size, &Settings::default(), |client| blocks(&client.team(), 3));
    }
}

#[test]
fn blocks_that_do_not_fit_are_refused() {
    job::<Seq>(3, &Settings::default(), |client| {
        let (team, few) = (client.team(), [1_u8; 2]);
        let refused = |outcome: Result<(), Error>| match outcome {
            Err(error) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let text = refused(team.scatter(team.rank(), &few, &mut [0; 2]));
        assert!(text.contains("the source has 2 elements, not 6 in a team of 3 ranks"), "{text}");
        let text = refused(team.gather(team.rank(), &few, &mut [0; 7]));
        assert!(text.contains("the result has 7 elements, not 6"), "{text}");
        assert!(refused(team.gather_all(&few, &mut [])).contains("0 elements, not 6"));
        assert!(refused(team.exchange(&few, &mut [0; 2])).contains("the source has 2 elements"));
        assert!(refused(team.exchange(&[1, 2, 3], &mut [0; 2])).contains("the result has 2"));
        let outside = team.scatter(Rank(3), &few, &mut [0; 2]);
        assert!(matches!(outside, Err(Error::RankOutOfRange { size: 3, .. })));
        assert!(refused(team.scan(&mut [1.0], ReduceOp::Xor)).contains("no operation Xor"));
    });
}

#[test]
fn collectives_of_many_teams_and_sizes_have_the_results_of_one_process() {
    everywhere::<Seq>(5, &tiny(), |client| {
        let me = i32::try_from(client.rank().0).expect("few");
        let all = client.team();
        let back = all.split(Some(0), -me).expect("split").expect("a team");
        let part = all.split(Some(u32::from(me > 1)), 0).expect("split").expect("a team");
        for team in [&all, &back, &part] {
            collectives(team, 5);
        }
        collectives(&back, 9000);
    });
    job::<Seq>(5, &Settings::default(), |client| collectives(&client.team(), 150_000));
    for size in [1, 2, 3, 8, 13] {
        job::<Seq>(size, &Settings::default(), |client| collectives(&client.team(), 3));
    }
}

#[test]
fn threads_of_a_rank_use_teams_of_their_own() {
    everywhere::<Par>(3, &Settings::default(), |client| {
        let make = |thread: i32| {
            let key = if thread == 0 { 0 } else { -i32::try_from(client.rank().0).expect("few") };
            client.team().split(Some(1), key).expect("split").expect("a team")
        };
        let teams = [make(0), make(1), make(2)];
        std::thread::scope(|scope| {
            for team in &teams {
                scope.spawn(move || {
                    for turn in 0..40 {
                        let mut data = [turn, i64::from(team.rank().0)];
                        team.reduce_to_all(&mut data, ReduceOp::Add).expect("reduce");
                        assert_eq!(data, [3 * turn, 3]);
                    }
                });
            }
        });
        client.team().barrier().expect("barrier");
    });
}

#[test]
fn many_collectives_are_under_way_and_waited_for_in_any_order() {
    everywhere::<Seq>(4, &tiny(), |client| {
        let (all, me) = (client.team(), client.rank().0);
        let back = all.split(Some(0), -i32::try_from(me).expect("few"));
        let back = back.expect("split").expect("a team");
        let mut data = vec![[me; 300]; 12];
        client
            .scope(|scope| {
                let mut events = Vec::new();
                for (turn, data) in data.iter_mut().enumerate() {
                    let team = if turn % 2 == 0 { &all } else { &back };
                    let root = Rank(u32::try_from(turn).expect("few") % 4);
                    let event = match turn % 3 {
                        0 => scope.broadcast_nb(team, root, data),
                        1 => scope.reduce_to_one_nb(team, root, data, ReduceOp::Add),
                        _ => scope.reduce_to_all_nb(team, data, ReduceOp::Max),
                    };
                    events.push((turn, root, team, event.expect("begin")));
                }
                let barrier = scope.barrier_nb(&back).expect("begin");
                let first = events.swap_remove(me as usize);
                for (turn, root, team, event) in std::iter::once(first).chain(events) {
                    if turn == 5 {
                        continue;
                    }
                    let expected = match turn % 3 {
                        0 => team.job_rank(root).expect("a rank").0,
                        1 if root == team.rank() => 6,
                        1 => me,
                        _ => 3,
                    };
                    assert_eq!(event.wait().expect("wait"), [expected; 300]);
                }
                barrier.wait().expect("wait");
            })
            .expect("scope");
        assert_eq!(data[5], [3; 300]);
    });
}

#[test]
fn members_that_wait_for_each_other_are_told() {
    let said = std::panic::catch_unwind(|| {
        job::<Seq>(3, &Settings::default(), |client: &Client<Seq>| {
            // Each waits for the one before it.
            let root = Rank((client.rank().0 + 2) % 3);
            let _ended = client.team().broadcast(root, &mut [0_u32; 4]);
        });
    });
    let said = said.expect_err("they differ");
    let text = said.downcast_ref::<String>().expect("a text");
    assert!(text.contains("collectives differ") && text.contains("another root"), "{text}");
}

#[test]
fn members_that_call_different_collectives_are_told() {
    let said = std::panic::catch_unwind(|| {
        job::<Seq>(2, &Settings::default(), |client: &Client<Seq>| {
            let mut data = [0_u32; 4];
            let me = client.rank().0 as usize;
            let mine = &mut data[..1 + me];
            let _ended = client.team().reduce_to_all(mine, ReduceOp::Add);
        });
    });
    let said = said.expect_err("they differ");
    let text = said.downcast_ref::<String>().expect("a text");
    assert!(text.contains("collectives differ") && text.contains("bytes"), "{text}");
}

#[test]
fn a_member_that_waits_in_memory_and_one_that_waits_for_a_message_are_told() {
    let said = std::panic::catch_unwind(|| {
        job::<Seq>(2, &Settings::default(), |client: &Client<Seq>| {
            let (team, mut data) = (client.team(), [0_u32; 1]);
            let _ended = match client.rank() {
                Rank(0) => team.reduce_to_all(&mut data, ReduceOp::Add),
                _ => team.broadcast(Rank(0), &mut data),
            };
        });
    });
    let said = said.expect_err("they differ");
    let text = said.downcast_ref::<String>().expect("a text");
    assert!(text.contains("collectives differ") && text.contains("a broadcast"), "{text}");
}

#[test]
fn many_small_reductions_are_under_way_and_waited_for_in_any_order() {
    job::<Seq>(3, &Settings::default(), |client: &Client<Seq>| {
        let (team, me) = (client.team(), u64::from(client.rank().0));
        for round in 0..20_u64 {
            let mut data: Vec<[u64; 3]> = (0..9).map(|turn| [turn, me, round]).collect();
            let mut at_once = [me];
            client
                .scope(|scope| {
                    let begin = |data| scope.reduce_to_all_nb(&team, data, ReduceOp::Add);
                    let mut events: Vec<_> =
                        data.iter_mut().map(|data| begin(data).expect("begin")).collect();
                    team.reduce_to_all(&mut at_once, ReduceOp::Max).expect("reduce");
                    events.rotate_left(usize::try_from((me + round) % 9).expect("few"));
                    for event in events {
                        let sums = event.wait().expect("wait");
                        assert!(sums[0] % 3 == 0 && sums[1..] == [3, 3 * round], "{sums:?}");
                    }
                })
                .expect("scope");
            assert_eq!(at_once, [2]);
        }
    });
}
