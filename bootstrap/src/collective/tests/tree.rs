//! Several hosts: what meets in the tree, who leaves it, and what no agent may say.

use super::*;

fn map(list: &[u32]) -> Vec<HostId> {
    list.iter().copied().map(HostId).collect()
}

fn barrier(seq: u32, rank: u32) -> Frame<'static> {
    Frame::bare(Kind::Barrier, seq, rank, 0)
}

fn reasons(actions: &[Action]) -> Vec<&str> {
    let mut told = Vec::new();
    for action in actions {
        let Action::Refuse { reason, .. } = action else { panic!("{action:?}") };
        told.push(&**reason);
    }
    told
}

#[test]
fn depth_is_that_of_the_deepest_host() {
    fn walked(hosts: std::ops::Range<usize>, degree: usize) -> u32 {
        let below =
            groups(hosts, degree).map(|group| 1 + walked(group.start + 1..group.end, degree));
        below.max().unwrap_or(0)
    }
    for degree in [0, 1, 2, 3, 32] {
        for hosts in 0..200 {
            assert_eq!(depth(hosts, degree), walked(0..hosts, degree), "{hosts} hosts by {degree}");
        }
    }
    assert_eq!(depth(crate::rank::MAX_HOSTS as usize, 2), 20);
}

#[test]
fn groups_are_contiguous_and_even() {
    let split = |hosts, degree| groups(hosts, degree).collect::<Vec<_>>();
    assert_eq!(split(0..5, 0), [0..1, 1..2, 2..3, 3..4, 4..5]);
    assert_eq!(split(0..5, 32), [0..1, 1..2, 2..3, 3..4, 4..5]);
    assert_eq!(split(3..13, 4), [3..6, 6..9, 9..11, 11..13]);
    assert_eq!(split(0..5, 1), vec![0..5; 1]);
    assert_eq!(split(7..7, 3), []);
    assert_eq!(split(7..7, 0), []);
}

#[test]
fn a_node_that_cannot_be_is_refused() {
    let node = |size, ranks: &[u32], below: &[&[u32]], parent| {
        let list = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect::<Vec<_>>();
        let branch = |ranks: &&[u32]| Branch { host: HostId(7), ranks: list(ranks) };
        let branches = below.iter().map(branch).collect();
        Collective::node(Node { size, host: HostId(0), ranks: list(ranks), branches, parent })
    };
    for (ranks, below, parent, word) in [
        (&[0, 4][..], &[][..], true, "rank 4 in a job of 4 ranks"),
        (&[0, 1], &[&[1, 2][..]][..], true, "rank 1 is there twice"),
        (&[1, 0], &[], true, "not ascending"),
        (&[0, 1], &[&[2]], false, "3 of 4 ranks"),
        (&[0, 1], &[&[]], true, "no ranks below the agent of host 7"),
        (&[], &[], true, "0 of 4 ranks"),
    ] {
        let error = node(4, ranks, below, parent).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    assert!(node(4, &[1, 3], &[&[2, 0]], false).is_ok());
}

#[test]
fn both_sides_are_named_across_hosts() {
    let mut net = Net::new(&map(&[0, 0, 1, 2, 2]), 1);
    assert_eq!(net.frame(Rank(2), &barrier(1, 2)), []);
    for rank in [0, 1] {
        let exchange = Frame { total: 1, payload: &[9], ..Frame::bare(Kind::Exchange, 1, rank, 0) };
        assert_eq!(net.frame(Rank(rank), &exchange), []);
    }
    for rank in [3, 4] {
        assert_eq!(net.frame(Rank(rank), &barrier(1, rank)), []);
    }
    let refusals = net.settle();
    let told = reasons(&refusals);
    assert_eq!(told.len(), 5);
    for reason in told {
        assert_eq!(reason, "rank 2 calls barrier, rank 0 called exchange of 1 bytes");
    }
    assert!(net.tree.machines.iter().all(Collective::is_refused));
}

#[test]
fn a_rank_is_held_against_what_came_from_below() {
    let mut net = Net::new(&map(&[0, 1]), 1);
    let exchange = Frame { total: 1, payload: &[9], ..Frame::bare(Kind::Exchange, 1, 1, 0) };
    net.frame(Rank(1), &exchange);
    net.settle();
    let mut refusals = net.frame(Rank(0), &barrier(1, 0));
    refusals.extend(net.settle());
    let told = reasons(&refusals);
    assert_eq!(told, ["rank 0 calls barrier, rank 1 called exchange of 1 bytes"; 2]);
}

#[test]
fn hosts_that_made_other_broadcasts_of_their_own_are_found() {
    let mut net = Net::new(&map(&[0, 1]), 0);
    let own = Frame::bare(Kind::HostBroadcast, 1, 0, 0);
    assert_eq!(net.frame(Rank(0), &own), [Action::Release { to: To::Rank(Rank(0)), seq: 1 }]);
    net.frame(Rank(0), &barrier(2, 0));
    net.frame(Rank(1), &barrier(1, 1));
    let refusals = net.settle();
    let told = reasons(&refusals);
    assert_eq!(told.len(), 2);
    let text = "rank 1 calls barrier after 0 broadcasts inside its host, rank 0 after 1";
    assert_eq!(told, [text; 2]);
}

#[test]
fn memory_of_a_host_may_be_asked_for_at_any_time() {
    let mut net = Net::new(&map(&[0, 1]), 2);
    let memory = Frame { total: 64, ..Frame::bare(Kind::HostMemory, 1, 1, 0) };
    net.frame(Rank(0), &barrier(1, 0));
    assert_eq!(
        net.frame(Rank(1), &memory),
        [Action::HostMemory { host: HostId(1), seq: 1, len: 64 }]
    );
    net.frame(Rank(1), &barrier(2, 1));
    let released = net.settle();
    assert_eq!(released.len(), 2);
    assert!(released.contains(&Action::Release { to: To::Host(HostId(0)), seq: 1 }));
    assert!(released.contains(&Action::Release { to: To::Host(HostId(1)), seq: 2 }));
}

#[test]
fn a_refusal_by_the_driver_reaches_everybody_once() {
    for at in 0..8 {
        let mut net = Net::new(&map(&[0, 1, 2, 3, 4, 5, 6, 6]), 2);
        let mut refusals = net.tree.machines[at].refuse_all(&"x".repeat(9000));
        net.post(at);
        refusals.extend(net.settle());
        let mut ranks: Vec<Rank> = refusals
            .iter()
            .map(|action| match action {
                Action::Refuse { to, seq: 1, .. } => *to,
                other => panic!("{other:?}"),
            })
            .collect();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..8).map(Rank).collect::<Vec<_>>());
        let messages: usize = net.count.iter().flatten().sum();
        assert_eq!(messages, 7, "one on each link");
    }
}

#[test]
fn farewells_come_together_over_the_tree() {
    let host_of = map(&[0, 1, 2, 3, 4, 4, 4, 5]);
    let mut net = Net::new(&host_of, 2);
    for rank in 0..7 {
        assert_eq!(net.fini(Rank(rank)), []);
        assert_eq!(net.settle(), []);
    }
    assert_eq!(net.fini(Rank(7)), []);
    let released = net.settle();
    assert_eq!(released.len(), 6);
    for host in 0..6 {
        assert!(released.contains(&Action::Release { to: To::Host(HostId(host)), seq: 0 }));
    }
    for (count, above) in net.count.iter().zip(&net.tree.above) {
        assert!(count[0] <= 2 && count[1] == usize::from(above.is_some()), "{count:?}");
    }
}

#[test]
fn a_call_that_misses_a_rank_of_another_host_is_known_at_the_root() {
    let mut net = Net::new(&map(&[0, 1, 1, 2]), 1);
    net.fini(Rank(3));
    net.settle();
    let root = net.tree.machines.len() - 1;
    assert_eq!(net.tree.machines[root].stuck(), None);
    net.frame(Rank(0), &barrier(1, 0));
    net.frame(Rank(1), &barrier(1, 1));
    net.frame(Rank(2), &barrier(1, 2));
    assert_eq!(net.settle(), []);
    // Host 1 has host 2 below: the call ends there, so host 1 knows.
    let told = "rank 1 calls barrier, rank 3 has said its farewell";
    assert_eq!(net.tree.machines[1].stuck().as_deref(), Some(told));
    assert_eq!(net.tree.stuck().as_deref(), Some(told));

    let mut net = Net::new(&map(&[0, 1, 1, 2]), 0);
    net.fini(Rank(3));
    net.frame(Rank(0), &barrier(1, 0));
    net.settle();
    let told = "rank 0 calls barrier, rank 3 has said its farewell";
    assert_eq!(net.tree.machines[3].stuck().as_deref(), Some(told));
}

#[test]
fn a_lost_host_is_named_and_not_waited_for_at_the_end() {
    // Root (3) above 0 and 2, 1 below 0.
    let mut net = Net::new(&map(&[0, 1, 1, 2]), 2);
    assert_eq!(net.tree.below, [vec![1], vec![], vec![], vec![0, 2]]);
    net.frame(Rank(3), &barrier(1, 3));
    net.settle();
    assert_eq!(net.tree.machines[0].lost(0), []);
    assert_eq!(net.tree.machines[0].lost(0), []);
    assert_eq!(net.tree.machines[0].lost(9), []);
    net.post(0);
    assert_eq!(net.settle(), []);
    let told = "rank 3 calls barrier, host 1 is lost";
    assert_eq!(net.tree.machines[3].stuck().as_deref(), Some(told));
    // What was still on the way from there is nothing, and nothing is sent there.
    let late = Up::Done(Gone::Rank(Rank(1)));
    assert_eq!(net.tree.machines[0].from_child(0, late), Ok(vec![]));
    let mut refusals = net.tree.machines[3].refuse_all(told);
    net.post(3);
    refusals.extend(net.settle());
    assert_eq!(reasons(&refusals), [told; 2]);
    assert_eq!(net.count[1], [0, 0]);
    net.fini(Rank(0));
    net.fini(Rank(3));
    let released = net.settle();
    assert_eq!(released.len(), 2, "{released:?}");
    assert_eq!(net.count[1], [0, 0]);
}

/// A message as a confused or malicious agent might send it: mostly near the truth.
fn nonsense() -> impl Strategy<Value = (Up, Down)> {
    let small = || prop_oneof![4 => 0u32..6, 1 => any::<u32>()];
    let service = prop_oneof![
        Just(Service::Barrier),
        small().prop_map(|len| Service::Exchange { len }),
        small().prop_map(|total| Service::Alltoall { total }),
        (small(), small()).prop_map(|(root, len)| Service::Broadcast { root, len }),
    ];
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let part = (small(), service, prop_oneof![9 => Just(0), 1 => any::<u32>()], small(), bytes());
    let part = part.prop_map(|(number, service, on_host, first, bytes)| Contribution {
        number,
        service,
        on_host,
        first: Rank(first),
        bytes,
    });
    let gone = || {
        prop_oneof![
            small().prop_map(|rank| Gone::Rank(Rank(rank))),
            small().prop_map(|host| Gone::Host(HostId(host)))
        ]
    };
    let reason = || (0usize..3 * MAX_REASON).prop_map(|len| "x".repeat(len));
    let up = prop_oneof![
        12 => part.prop_map(Up::Contribution),
        2 => gone().prop_map(Up::Gone),
        2 => gone().prop_map(Up::Done),
        1 => reason().prop_map(Up::Refuse),
    ];
    let down = prop_oneof![
        12 => (small(), bytes()).prop_map(|(number, bytes)| Down::Result { number, bytes }),
        6 => (small(), bytes()).prop_map(|(number, bytes)| Down::Piece { number, bytes }),
        2 => Just(Down::Farewell),
        1 => reason().prop_map(Down::Refuse),
    ];
    (up, down)
}

/// Rank 0 and 3 here, 1 and 4 below the first branch, 2 below the second, 5 elsewhere when there is
/// an agent above.
fn middle(parent: bool) -> Collective {
    let branch = |host, ranks: &[u32]| Branch {
        host: HostId(host),
        ranks: ranks.iter().copied().map(Rank).collect(),
    };
    let branches = vec![branch(1, &[4, 1]), branch(2, &[2])];
    let ranks = vec![Rank(0), Rank(3)];
    let size = if parent { 6 } else { 5 };
    Collective::node(Node { size, host: HostId(0), ranks, branches, parent }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nonsense_names_its_sender_and_changes_nothing(
        parent in any::<bool>(),
        play in proptest::collection::vec((0usize..6, nonsense()), 1..40),
    ) {
        let mut machine = middle(parent);
        let mut arrived = 0;
        let mut seq = 1;
        for (who, (up, down)) in play {
            let before = format!("{machine:?}");
            let (outcome, link) = match who {
                index @ 0..3 => {
                    if let Up::Contribution(part) = &up { arrived += part.bytes.len(); }
                    let name = format!("the agent of host {}", index + 1);
                    (machine.from_child(index, up), name)
                }
                3 => {
                    if let Down::Result { bytes, .. } | Down::Piece { bytes, .. } = &down {
                        arrived += bytes.len();
                    }
                    (machine.from_parent(down), "the agent above in the tree".to_owned())
                }
                // The machine's own ranks behave.
                who => {
                    let rank = if who == 4 { 0 } else { 3 };
                    (machine.handle(Rank(rank), &barrier(seq, rank)), String::new())
                }
            };
            match outcome {
                Ok(actions) => {
                    let released = |action: &Action| matches!(action, Action::Release { seq: 1.., .. });
                    seq += u32::from(actions.iter().any(released));
                }
                Err(ProtocolError::Layout { .. }) => prop_assert!(who == 2),
                Err(error) => {
                    prop_assert!(error.to_string().starts_with(&link), "{}", error);
                    prop_assert_eq!(before, format!("{machine:?}"));
                }
            }
            prop_assert!(machine.kept() <= 2 * arrived + 64);
            while machine.poll_transmit().is_some() {}
            let _ = machine.stuck();
        }
    }

    #[test]
    fn messages_survive_their_encoding((up, down) in nonsense()) {
        let packet = postcard::to_stdvec(&up).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Up>(&packet), Ok(up));
        let packet = postcard::to_stdvec(&down).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Down>(&packet), Ok(down));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut machine = middle(true);
        if let Ok(up) = postcard::from_bytes::<Up>(&bytes) {
            let _ = machine.from_child(0, up);
        }
        if let Ok(down) = postcard::from_bytes::<Down>(&bytes) {
            let _ = machine.from_parent(down);
        }
    }
}

#[test]
fn each_nonsense_is_told_apart() {
    let part = |number, service, first, len: usize| {
        let bytes = vec![0; len].into();
        Up::Contribution(Contribution { number, service, on_host: 0, first: Rank(first), bytes })
    };
    let exchange = Service::Exchange { len: 3 };
    for (message, word) in [
        (part(2, exchange, 1, 6), "spoke of call 2, expected 1"),
        (part(1, exchange, 2, 6), "spoke of rank 2, which is not below it"),
        (part(1, exchange, 1, 5), "sent 5 bytes for exchange of 3 bytes, expected 6"),
        (part(1, Service::Exchange { len: u32::MAX }, 1, 0), "which no job of 6 ranks can call"),
        (part(1, Service::Alltoall { total: 7 }, 1, 0), "which no job of 6 ranks can call"),
        (part(1, Service::Broadcast { root: 6, len: 0 }, 1, 0), "which no job of 6 ranks can call"),
        (part(1, Service::Broadcast { root: 0, len: 2 }, 1, 2), "expected 0"),
        (part(1, Service::Broadcast { root: 4, len: 2 }, 1, 0), "expected 2"),
        (Up::Done(Gone::Rank(Rank(0))), "spoke of rank 0, which is not below it"),
        (Up::Refuse("x".repeat(MAX_REASON + 1)), "at most 2048 are meant"),
    ] {
        let mut machine = middle(true);
        let error = machine.from_child(0, message).unwrap_err().to_string();
        assert!(error.starts_with("the agent of host 1 ") && error.ends_with(word), "{error}");
    }
    let mut machine = middle(true);
    assert_eq!(machine.from_child(0, part(1, exchange, 1, 6)), Ok(vec![]));
    let error = machine.from_child(0, part(1, exchange, 1, 6)).unwrap_err().to_string();
    assert_eq!(error, "the agent of host 1 gave its part of call 1 twice");
    let error = machine.from_parent(Down::Farewell).unwrap_err().to_string();
    assert!(error.ends_with("sent a farewell while ranks had not said theirs"), "{error}");
    let answer = Down::Result { number: 1, bytes: vec![0; 18].into() };
    let error = machine.from_parent(answer.clone()).unwrap_err().to_string();
    assert_eq!(error, "the agent above in the tree sent an answer while no call was complete");
    assert_eq!(machine.from_child(1, part(1, exchange, 2, 3)), Ok(vec![]));
    for rank in [0, 3] {
        let frame =
            Frame { total: 3, payload: &[1, 2, 3], ..Frame::bare(Kind::Exchange, 1, rank, 0) };
        assert_eq!(machine.handle(Rank(rank), &frame), Ok(vec![]));
    }
    let short = Down::Result { number: 1, bytes: vec![0; 17].into() };
    let error = machine.from_parent(short).unwrap_err().to_string();
    assert!(error.ends_with("sent 17 bytes for exchange of 3 bytes, expected 18"), "{error}");
    machine.cut(6);
    let later = Down::Result { number: 2, bytes: vec![0; 18].into() };
    assert!(machine.from_parent(later).is_err());
    let piece = |number, len: usize| Down::Piece { number, bytes: vec![0; len].into() };
    for (piece, word) in [
        (piece(1, 5), "sent a piece of 5 bytes for exchange of 3 bytes, expected 6"),
        (piece(2, 3), "spoke of call 2, expected 1"),
    ] {
        let error = machine.from_parent(piece).unwrap_err().to_string();
        assert!(error.ends_with(word), "{error}");
    }
    for _ in 0..2 {
        assert_eq!(machine.from_parent(piece(1, 6)), Ok(vec![]));
    }
    let error = machine.from_parent(piece(1, 6)).unwrap_err().to_string();
    assert!(
        error.ends_with("sent 18 bytes and more for exchange of 3 bytes, expected 18"),
        "{error}"
    );
    let error = machine.from_parent(answer).unwrap_err().to_string();
    assert!(error.ends_with("sent 30 bytes for exchange of 3 bytes, expected 18"), "{error}");
    let rest = Down::Result { number: 1, bytes: vec![0; 6].into() };
    assert_eq!(machine.from_parent(rest).map(|actions| actions.len()), Ok(1));
    while machine.poll_transmit().is_some() {}
    assert_eq!(machine.from_child(1, Up::Done(Gone::Rank(Rank(2)))), Ok(vec![]));
    assert!(machine.from_child(1, Up::Done(Gone::Rank(Rank(2)))).is_err());
    assert!(machine.from_child(1, Up::Gone(Gone::Rank(Rank(2)))).is_err());
    assert!(machine.from_child(1, part(2, exchange, 2, 3)).is_err());
}
