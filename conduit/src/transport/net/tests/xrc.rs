//! Networks over the fake libibverbs, with receive queues of each kind: one for each peer, shared,
//! and with connections that the ranks of a host share.

use super::messages::echo;
use super::rma::{all_sizes, bound_memory};
use super::storms::storm;
use super::*;

/// Two ranks on each host.
const PAIRS: Kind = Kind { fake: true, per_host: 2, ..PLAIN };

const ROOMY: SrqSizes = SrqSizes { requests: 12, replies: 24 };

const fn shared(shared: SrqSizes, xrc: bool) -> Kind {
    Kind { sizes: Sizes { srq: Some(shared), slack: 0, ..USUAL }, xrc, ..PAIRS }
}

fn kinds() -> [Kind; 4] {
    [PAIRS, shared(ROOMY, false), shared(ROOMY, true), shared(SHARED, true)]
}

#[test]
fn messages_of_every_size() {
    for kind in kinds() {
        echo(&kind);
        echo(&Kind { dynamic: true, ..kind });
    }
}

#[test]
fn puts_and_gets_of_every_size() {
    for kind in kinds() {
        all_sizes(&kind);
        bound_memory(&kind);
    }
    all_sizes(&Kind { rails: 2, connections: 2, dynamic: true, ..shared(ROOMY, true) });
}

#[test]
fn storms() {
    for kind in kinds() {
        storm(4, 120, &kind);
        storm(6, 60, &Kind { per_host: 3, dynamic: true, ..kind });
    }
}

#[test]
fn a_storm_with_the_smallest_queues_on_shared_connections() {
    let few = SrqSizes { requests: 2, replies: 2 };
    let sizes = Sizes { srq: Some(few), credits: 2, send_cq: 16, ..TINY };
    let kind = Kind { sizes, inline: Some(0), ..shared(ROOMY, true) };
    storm(4, 60, &kind);
    storm(6, 40, &Kind { rails: 2, connections: 3, per_host: 2, ..kind });
}

/// What the ranks of a host share is made once: counted on all ranks of two hosts of three.
#[test]
fn a_host_has_one_receiver_for_a_sender_and_a_rank_one_sender_for_a_host() {
    for dynamic in [false, true] {
        let kind = Kind { per_host: 3, dynamic, ..shared(ROOMY, true) };
        let seen = Mutex::new(Vec::new());
        run(6, 0, &kind, |member| {
            member.meet(&|_| {});
            let peers = member.others().filter_map(|rank| member.net.context.peers.get(rank));
            let send_qps = peers.flat_map(|peer| {
                peer.connections
                    .iter()
                    .flat_map(|connection| connection.send_qps())
                    .map(|send_qp| (peer.rank, send_qp))
            });
            let mut seen = seen.lock().expect("no panic before");
            for (index, (peer, send_qp)) in send_qps.enumerate() {
                assert!(send_qp.link.is_some(), "{peer}: not shared");
                seen.push((member.rank, peer.0, index % 2, send_qp.qp.number(), send_qp.recv_qp));
            }
        });
        let Ok(seen) = seen.into_inner() else { panic!("a rank panicked") };
        if fake::fabric().is_none() {
            return;
        }
        assert_eq!(seen.len(), 6 * 3 * 2);
        for (rank, peer, send_qp, sender, receiver) in &seen {
            for (rank2, peer2, half2, sender2, receiver2) in &seen {
                if send_qp == half2 {
                    assert_eq!(rank == rank2, sender == sender2, "{seen:?}");
                    let host = rank / 3 == rank2 / 3;
                    assert_eq!(host && peer == peer2, receiver == receiver2, "{seen:?}");
                } else {
                    assert!(sender != sender2 && receiver != receiver2, "{seen:?}");
                }
            }
        }
    }
}

/// All ranks decide alike: without another rank on any host, without shared receive queues, or when
/// nobody asks for it, each has connections of its own.
#[test]
fn connections_are_shared_only_where_that_is_of_use() {
    let cases = [
        (shared(ROOMY, true), true),
        (shared(ROOMY, false), false),
        (Kind { xrc: true, ..PAIRS }, false),
        (Kind { per_host: 1, ..shared(ROOMY, true) }, false),
        (Kind { fake: false, ..shared(ROOMY, true) }, false),
    ];
    for (kind, expected) in cases {
        run(4, 0, &kind, |member| {
            assert_eq!(member.net.context.xrc.is_some(), expected, "{kind:?}");
            member.meet(&|_| {});
        });
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    run(4, 0, &shared(ROOMY, true), |member| {
        let context = &member.net.context;
        let xrc = context.xrc.as_ref().expect("shared connections");
        let far = fabric::RcPeer {
            address: fabric::Address::default(),
            qpn: 0,
            psn: 0,
            mtu: Mtu::B2048,
            rd_atom: 1,
        };
        for peer in member.others().filter_map(|rank| context.peers.get(rank)) {
            let send_qp = &peer.connections[0].main;
            let refused = |numbers: &[u32]| {
                let link = send_qp.link.as_ref().expect("shared");
                let done = xrc.receive_ready(link, peer.rank, numbers, &far, &Retry::default());
                done.expect_err("refused").to_string()
            };
            let text = refused(&[9, send_qp.recv_qp + 0x100, 9]);
            assert!(text.contains("they do not share connections"), "{text}");
            let text = refused(&[9, 9]);
            assert!(text.contains("3 numbers are expected"), "{text}");
        }
        // What was refused has changed nothing.
        member.meet(&|_| {});
    });
}
