//! What ranks say of themselves reaches the others, for any number of rails, and ranks that do not
//! fit hear it.

use proptest::prelude::*;

use super::*;
use crate::transport::net::settings::ConnectWays;

fn agreement(rails: u16) -> Agreement {
    let (credits, ways) = (12, ConnectWays::default());
    let (srq, fenced) = (false, false);
    Agreement {
        moving: 0,
        volume: 0,
        rails,
        queue_pairs: rails,
        credits,
        srq,
        fenced,
        buffer: 16,
        ways,
    }
}

/// An introduction whose parts are told by the rank and the rail.
fn introduction(rank: u8, rails: u16) -> OwnAddress {
    let rail = |index: u16| {
        let (lid, gid) = (index, [rank; 16]);
        RailAddress { lid, service: 0, gid, global: true, mtu: 2048, rd_atom: 3 }
    };
    let (agreement, datagrams) = (agreement(rails), 1000 + u32::from(rank));
    let (sharing, atomics) = (sharing(rank), 2);
    let record = Record { agreement, sharing, datagrams, atomics, rail: rail(0) };
    OwnAddress { record, further: (1..rails).map(rail).collect() }
}

fn sharing(rank: u8) -> Sharing {
    Sharing { can: true, first: rank.into(), ports: rank.into() }
}

impl PeerAddresses {
    /// Ranks with one rail that say this of shared connections.
    pub(in crate::transport::net) fn of_sharing(said: &[Sharing]) -> Self {
        let record = |sharing: &Sharing| {
            let record = Record { sharing: *sharing, ..introduction(0, 1).record };
            records::write(&record, RECORD).unwrap()
        };
        Self {
            table: Shared::Owned(said.iter().flat_map(record).collect()),
            further: None,
            atomics: AtomicCap::None,
        }
    }
}

/// What the ranks of a job hear from each other, each on a thread.
fn job(all: &[OwnAddress]) -> Vec<Result<PeerAddresses, Error>> {
    let size = u32::try_from(all.len()).unwrap();
    let services = bootstrap::memory::job(size).unwrap();
    std::thread::scope(|scope| {
        let ranks = (0..).map(Rank).zip(services).zip(all);
        let threads: Vec<_> = ranks
            .map(|((me, mut services), mine)| {
                scope.spawn(move || {
                    let heard = PeerAddresses::exchange(me, mine, &mut *services);
                    let _ = services.fini(0);
                    heard
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn atomics_are_what_all_have() {
    let least = |said: [u8; 3]| {
        let all = said.map(|atomics| {
            let one = introduction(7, 1);
            OwnAddress { record: Record { atomics, ..one.record }, ..one }
        });
        let heard = job(&all).into_iter().map(|heard| heard.unwrap().atomics);
        let heard: Vec<_> = heard.collect();
        assert!(heard.iter().all(|one| *one == heard[0]), "{heard:?}");
        heard[0]
    };
    assert_eq!(least([2, 2, 2]), AtomicCap::Global);
    assert_eq!(least([2, 1, 2]), AtomicCap::Device);
    assert_eq!(least([1, 1, 1]), AtomicCap::Device);
    assert_eq!(least([2, 1, 0]), AtomicCap::None);
    assert_eq!(least([2, 2, 9]), AtomicCap::None);
}

#[test]
fn atomics_of_adapters_alone_take_connections_on_demand() {
    for (atomics, expected) in [(1, AtomicCap::None), (2, AtomicCap::Global)] {
        let said = [1000, 0].map(|datagrams| {
            let one = introduction(7, 1);
            OwnAddress { record: Record { atomics, datagrams, ..one.record }, ..one }
        });
        assert!(job(&said).into_iter().all(|heard| heard.unwrap().atomics == expected));
    }
}

#[test]
fn every_rail_of_every_rank_is_found() {
    for rails in [1, 2, 5] {
        let all = [7, 8, 9].map(|rank| introduction(rank, rails));
        for heard in job(&all) {
            let heard = heard.unwrap();
            for (rank, number) in (0..3).map(Rank).zip([7, 8, 9]) {
                assert_eq!(heard.sharing(rank), sharing(number));
                assert_eq!(heard.datagrams(rank), 1000 + u32::from(number));
                for rail in 0..rails {
                    let (address, mtu, reads) = heard.rail(rank, rail.into());
                    assert_eq!((address.lid, address.gid.0[0]), (rail, number));
                    assert_eq!((mtu, reads), (Mtu::B2048, 3));
                }
            }
            // Ranks that are not there have no address.
            assert_eq!((heard.datagrams(Rank(3)), heard.sharing(Rank(3))), (0, Sharing::default()));
            assert_eq!(heard.rail(Rank(3), 0).0, Address::default());
        }
    }
}

#[test]
fn the_longest_records_have_room() {
    let ways = ConnectWays { at_start: true, dynamic: true, one_list: true, listed: true };
    let (rails, credits) = (u16::MAX, u32::MAX);
    let (srq, fenced, buffer) = (true, true, u8::MAX);
    let (moving, volume, queue_pairs) = (credits, credits, rails);
    let agreement =
        Agreement { moving, volume, rails, queue_pairs, credits, srq, fenced, buffer, ways };
    let sharing = Sharing { can: true, first: u32::MAX, ports: u64::MAX };
    let (gid, mtu) = ([0xff; 16], 4096);
    let rail = RailAddress { lid: rails, service: rails, gid, global: true, mtu, rd_atom: 255 };
    let record = Record { agreement, sharing, datagrams: u32::MAX, atomics: 2, rail };
    assert!(records::write(&record, RECORD).is_ok() && records::write(&rail, RAIL).is_ok());
}

#[test]
fn a_rank_with_another_number_of_rails_is_named_by_both_sides() {
    let heard = job(&[introduction(0, 2), introduction(1, 1)]);
    let text = |rank: usize| heard[rank].as_ref().unwrap_err().to_string();
    assert!(text(0).starts_with("network: rank 1 has 1 ports, rank 0 2: "), "{}", text(0));
    assert!(text(1).starts_with("network: rank 0 has 2 ports, rank 1 1: "), "{}", text(1));
}

#[test]
fn a_rank_on_another_kind_of_network_is_named() {
    let on = |rank, lid, service| {
        let one = introduction(rank, 1);
        let rail = RailAddress { lid, service, ..one.record.rail };
        OwnAddress { record: Record { rail, ..one.record }, ..one }
    };
    let heard = job(&[on(0, 17, 0), on(1, 0, 0)]);
    let text = |rank: usize| heard[rank].as_ref().unwrap_err().to_string();
    let said = "network: rank 1 uses an Ethernet port (RoCE), rank 0 an InfiniBand port: name ";
    assert!(text(0).starts_with(said) && text(0).contains("GASNET_IBV_PORTS"), "{}", text(0));
    assert!(text(1).starts_with("network: rank 0 uses an InfiniBand port, rank 1 "), "{}", text(1));
    assert!(job(&[on(0, 0, 4791), on(1, 0, 4792)]).into_iter().all(|heard| heard.is_ok()));
}

proptest! {
    #[test]
    fn a_table_of_any_length_is_only_read_inside(bytes in proptest::collection::vec(any::<u8>(), 0..3 * RECORD), rank in 0u32..5, rail in 0usize..4) {
        let further = Some((Shared::Owned(bytes.clone()), 2));
        let heard = PeerAddresses { table: Shared::Owned(bytes), further, atomics: AtomicCap::None };
        let _found_or_zero = (heard.rail(Rank(rank), rail), heard.datagrams(Rank(rank)), heard.sharing(Rank(rank)));
    }
}
