//! What ranks read from each other's first words.

use proptest::prelude::*;

use super::*;
use crate::identity::Program;

fn fabric_caps(rank: u8) -> FabricCaps {
    FabricCaps {
        common: Common {
            max_segment: 1 << 20,
            neighbourhood_max: 0,
            segment_mode: 0,
            program: Program { place: 1, identity: 2 },
        },
        key: [rank; 16],
        fabric: FabricChoice::Auto,
        secure: false,
        adapter: true,
        limits: DeviceLimits { max_cqe: 100, max_qp_wr: 200, max_srq_wr: 300 },
        pinnable: None,
        pages: rank != 2,
        address: Some(IpAddr::from([10, 0, 0, rank])),
    }
}

fn read(all: &[FabricCaps], me: u32) -> Result<JobFabricCaps, Error> {
    let table = all.iter().flat_map(|one| records::write(one, RECORD).unwrap()).collect();
    JobFabricCaps::of(Rank(me), &all[me as usize], Shared::Owned(table))
}

#[test]
fn the_least_of_all_counts_and_the_key_of_rank_0() {
    let mut all = [1, 2, 3].map(fabric_caps);
    all[1].common.max_segment = 4096;
    all[2].limits.max_qp_wr = 7;
    all[1].address = None;
    (all[0].pinnable, all[2].pinnable) = (Some(1 << 20), Some(1 << 16));
    for me in 0..3 {
        let seen = read(&all, me).unwrap();
        assert_eq!((seen.max_segment, seen.key), (4096, [1; 16]));
        assert_eq!(seen.limits, DeviceLimits { max_cqe: 100, max_qp_wr: 7, max_srq_wr: 300 });
        assert_eq!(seen.without_adapter, None);
        assert_eq!(seen.pinnable, 1 << 16);
        assert_eq!(seen.without_paging().collect::<Vec<_>>(), [Rank(1)]);
        let addresses: Vec<_> = seen.addresses().collect();
        assert_eq!(addresses, [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 3])]);
    }
    all[1].adapter = false;
    all[2].adapter = false;
    assert_eq!(read(&all, 0).unwrap().without_adapter, Some(Rank(1)));
}

#[test]
fn what_must_be_alike_is_named_with_both_values() {
    let mut all = [1, 2].map(fabric_caps);
    all[1].common.neighbourhood_max = 2;
    let text = read(&all, 0).unwrap_err().to_string();
    let end = "; set it to the same on all ranks";
    assert_eq!(text, format!("setting GASNET_SUPERNODE_MAXSIZE: 2 on rank 1, 0 on rank 0{end}"));
    let mut all = [1, 2].map(fabric_caps);
    all[0].secure = true;
    let text = read(&all, 1).unwrap_err().to_string();
    assert_eq!(text, format!("setting GASNET_IBV_SOFT_SECURE: 1 on rank 0, 0 on rank 1{end}"));
    let mut all = [1, 2].map(fabric_caps);
    all[0].fabric = FabricChoice::Soft;
    let text = read(&all, 1).unwrap_err().to_string();
    assert_eq!(text, format!("setting GASNET_IBV_FABRIC: soft on rank 0, auto on rank 1{end}"));
}

#[test]
fn other_programs_at_the_same_place_are_refused() {
    let mut all = [1, 2, 3].map(fabric_caps);
    all[2].common.program.identity = 9;
    let text = read(&all, 0).unwrap_err().to_string();
    assert!(text.starts_with("network: rank 2 has another program at /"), "{text}");
    let text = read(&all, 2).unwrap_err().to_string();
    assert!(text.starts_with("network: rank 0 has another program at /"), "{text}");
    // Programs of their own, as they are sent to hosts or of a job with several.
    all[2].common.program.place = 7;
    assert!(read(&all, 0).is_ok() && read(&all, 2).is_ok());
}

#[test]
fn words_of_another_build_are_refused() {
    let mut bytes = records::write(&fabric_caps(1), RECORD).unwrap();
    // No number ends within so many bytes.
    bytes.fill(0xff);
    let table = [records::write(&fabric_caps(0), RECORD).unwrap(), bytes].concat();
    let refused = JobFabricCaps::of(Rank(0), &fabric_caps(0), Shared::Owned(table));
    assert!(refused.unwrap_err().to_string().starts_with("network: rank 1 greets"));
}

#[test]
fn addresses_are_heard_as_they_were_told() {
    for address in [Some(IpAddr::from([10, 0, 0, 1])), Some(IpAddr::from([9u16; 8])), None] {
        let one = FabricCaps { address, ..fabric_caps(1) };
        let table = [fabric_caps(0), one].map(|one| records::write(&one, RECORD).unwrap()).concat();
        let seen = JobFabricCaps::of(Rank(0), &fabric_caps(0), Shared::Owned(table)).unwrap();
        assert_eq!(seen.addresses().nth(1), address);
    }
    for bad in [&[][..], &[4, 1, 2][..], &[0xff; 16], &[0; 23]] {
        assert_eq!(records::read::<FabricCaps>(bad), None, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn a_greeting_is_read_as_it_was_written(
        words in any::<(u64, u32, [u8; 16], bool)>(),
        limits in any::<[u32; 3]>(),
        fabric in 0usize..3,
        ip in proptest::option::of(any::<std::net::Ipv6Addr>()),
        (pinnable, pages) in any::<(Option<u64>, bool)>(),
        (place, identity) in any::<(u64, u64)>(),
    ) {
        let program = Program { place, identity };
        let (max_segment, neighbourhood_max, key, adapter) = words;
        let [max_cqe, max_qp_wr, max_srq_wr] = limits;
        let written = FabricCaps {
            common: Common { max_segment, neighbourhood_max, segment_mode: 2, program },
            key,
            fabric: [FabricChoice::Auto, FabricChoice::Verbs, FabricChoice::Soft][fabric],
            secure: pages,
            adapter,
            limits: DeviceLimits { max_cqe, max_qp_wr, max_srq_wr },
            pinnable,
            pages,
            address: ip.map(IpAddr::from),
        };
        let bytes = records::write(&written, RECORD).unwrap();
        prop_assert_eq!(bytes.len(), RECORD);
        prop_assert_eq!(records::read(&bytes), Some(written));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4 * RECORD)) {
        let _read_or_refused = JobFabricCaps::of(Rank(0), &fabric_caps(0), Shared::Owned(bytes));
    }
}
