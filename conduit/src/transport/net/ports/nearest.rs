//! Which adapters a rank uses of more than it may (`GASNET_IBV_MAX_HCAS`): the nearest to its
//! processors, equally near ones in turn by its rank on the host. Only those of one network are
//! taken instead of each other: a rank of another host may have any of them. Pure.

use std::net::IpAddr;

/// What an adapter is attached to, as far as the host tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Subnet of InfiniBand, by the prefix of its GIDs.
    Subnet(u64),
    /// IP network of RoCE; of an address that no interface has, the address alone.
    Ip {
        address: u128,
        bits: u32,
    },
    Software,
}

impl Network {
    /// The network of an address; `masks` are the interfaces of the host with their netmasks.
    pub(crate) fn of_ip(ip: IpAddr, masks: &[(IpAddr, IpAddr)]) -> Self {
        let mask = masks.iter().find(|(address, _)| *address == ip).map(|(_, mask)| *mask);
        let mask = match (mask, ip) {
            (Some(IpAddr::V4(mask)), IpAddr::V4(_)) => !0 << 32 | u128::from(mask.to_bits()),
            (Some(IpAddr::V6(mask)), IpAddr::V6(_)) => mask.to_bits(),
            _ => u128::MAX,
        };
        let address = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        Self::Ip { address: address & mask, bits: mask.count_ones() }
    }
}

/// A usable adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its place among the devices.
    pub device: usize,
    /// From this rank's processors; one at an unknown distance counts as near.
    pub distance: Option<u32>,
    pub network: Network,
}

/// The `most` adapters that the rank with index `local` on its host uses, ascending. All candidates
/// are in the order of the devices.
pub(crate) fn nearest(candidates: &[Candidate], local: usize, most: usize) -> Vec<usize> {
    let Some(first) = candidates.first() else { return Vec::new() };
    let alike: Vec<_> = candidates.iter().filter(|one| one.network == first.network).collect();
    if alike.len() < most {
        // Several networks are asked for: every rank takes the same.
        return candidates.iter().take(most).map(|one| one.device).collect();
    }
    let least = alike.iter().filter_map(|one| one.distance).min();
    let distance = |one: &&Candidate| one.distance.or(least);
    let mut distances: Vec<_> = alike.iter().map(&distance).collect();
    distances.sort_unstable();
    distances.dedup();
    let mut kept = Vec::with_capacity(most);
    for class in distances {
        let equal: Vec<_> = alike.iter().filter(|one| distance(one) == class).collect();
        let wanted = (most - kept.len()).min(equal.len());
        let start = local.wrapping_mul(wanted) % equal.len();
        kept.extend(equal.iter().cycle().skip(start).take(wanted).map(|one| one.device));
    }
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(distances: &[Option<u32>]) -> Vec<Candidate> {
        let one = |(device, distance): (usize, &Option<u32>)| Candidate {
            device,
            distance: *distance,
            network: Network::Software,
        };
        distances.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_nearest_is_taken_and_equals_take_turns() {
        let host = candidates(&[Some(21), Some(10), Some(21), Some(10)]);
        let of = |local, most| nearest(&host, local, most);
        assert_eq!([0, 1, 2].map(|local| of(local, 1)), [vec![1], vec![3], vec![1]]);
        assert_eq!(of(0, 2), [1, 3]);
        assert_eq!([0, 1].map(|local| of(local, 3)), [vec![0, 1, 3], vec![1, 2, 3]]);
        let four = candidates(&[None; 4]);
        let pairs = [0, 1, 2].map(|local| nearest(&four, local, 2));
        assert_eq!(pairs, [vec![0, 1], vec![2, 3], vec![0, 1]]);
        assert_eq!(nearest(&[], 3, 1), [0; 0]);
    }

    #[test]
    fn an_unknown_distance_is_near() {
        let host = candidates(&[Some(21), None, Some(10)]);
        assert_eq!([0, 1].map(|local| nearest(&host, local, 1)), [vec![1], vec![2]]);
    }

    #[test]
    fn networks_are_not_mixed_unless_asked_for() {
        let mut host = candidates(&[Some(21), Some(10), Some(21)]);
        host[1].network = Network::Subnet(7);
        assert_eq!([0, 1].map(|local| nearest(&host, local, 1)), [vec![0], vec![2]]);
        host[2].network = Network::Subnet(8);
        assert_eq!([0, 1].map(|local| nearest(&host, local, 2)), [vec![0, 1], vec![0, 1]]);
    }

    #[test]
    fn addresses_of_an_ip_network_are_alike() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let masks = ["10.1.0.1", "10.1.0.2", "10.2.0.1"].map(|one| (ip(one), ip("255.255.0.0")));
        let of = |text| Network::of_ip(ip(text), &masks);
        assert_eq!(of("10.1.0.1"), of("10.1.0.2"));
        assert_ne!(of("10.1.0.1"), of("10.2.0.1"));
        assert_ne!(of("10.1.0.3"), of("10.1.0.1"), "of no interface");
        let six = [(ip("2001:db8::1"), ip("ffff:ffff:ffff:ffff::"))];
        let other = [(ip("2001:db8::2"), six[0].1)];
        let of = |text, masks: &[_]| Network::of_ip(ip(text), masks);
        assert_eq!(of("2001:db8::1", &six), of("2001:db8::2", &other));
    }

    proptest! {
        #[test]
        fn as_many_as_allowed_and_none_twice(
            distances in proptest::collection::vec(proptest::option::of(0u32..3), 1..9),
            networks in proptest::collection::vec(0u64..2, 9),
            local in 0usize..20,
            most in 1usize..9,
        ) {
            let mut host = candidates(&distances);
            for (one, network) in host.iter_mut().zip(networks) {
                one.network = Network::Subnet(network);
            }
            let kept = nearest(&host, local, most);
            prop_assert_eq!(kept.len(), most.min(host.len()));
            prop_assert!(kept.is_sorted() && kept.iter().all(|one| *one < host.len()));
            prop_assert!(kept.windows(2).all(|pair| pair[0] != pair[1]));
        }

        #[test]
        fn equally_near_adapters_have_even_loads(devices in 1usize..8, ranks in 0usize..40) {
            let host = candidates(&vec![Some(10); devices]);
            let mut loads = vec![0; devices];
            (0..ranks).for_each(|local| loads[nearest(&host, local, 1)[0]] += 1);
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
        }
    }
}
