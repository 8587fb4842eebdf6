//! From an opened fabric to the ports of this rank: opens every device, decides which variable
//! counts, and for `GASNET_IBV_PORTS_TYPE=Auto` deals the devices over the ranks of the host.

use std::cell::OnceCell;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use bootstrap::Bootstrap;
use fabric::{Device, Fabric, LinkLayer};
use nix::ifaddrs::getifaddrs;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::SockaddrStorage;
use settings::log::RANK;
use settings::say;

use super::list::listing;
use super::nearest::{Candidate, Network, nearest};
use super::{Error, Filter, Found, Rail, Selection, select};
use crate::transport::net::settings::PortSettings;
use crate::transport::net::settings::port_family::Spot;
use crate::transport::net::topology::{self, Cpus, SYSTEM, Topology};

/// Devices as they were found, open where they could be opened.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub found: Vec<Found>,
    /// The devices, same order.
    pub open: Vec<Option<Arc<dyn Device>>>,
}

impl Devices {
    /// Opens every device of a fabric and reads its ports. What fails is kept as text.
    pub(crate) fn of(fabric: &dyn Fabric) -> Self {
        let (mut found, mut open) = (Vec::new(), Vec::new());
        for (index, info) in fabric.devices().iter().enumerate() {
            let device = fabric.open(index);
            let port = |number| match &device {
                Ok(device) => device.port(number).map_err(|error| error.to_string()),
                Err(_) => Err("not known".to_owned()),
            };
            found.push(Found {
                info: info.clone(),
                ports: (1..=info.ports).map(port).collect(),
                caps: device.as_ref().map(|one| one.caps().clone()).map_err(ToString::to_string),
            });
            open.push(device.ok());
        }
        Self { found, open }
    }

    /// Distance of each device from this rank's processors.
    fn distances(&self, host: &io::Result<(Topology, Cpus)>) -> Vec<Option<u32>> {
        let far = |found: &Found| {
            let (topology, binding) = host.as_ref().ok()?;
            topology.distance(binding, found.info.numa)
        };
        self.found.iter().map(far).collect()
    }
}

/// Raises the limit on locked memory as far as this process may. Where that is too little,
/// registration says so.
fn raise_locked_memory() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK)
        && soft < hard
    {
        let _too_little_is_seen_at_registration = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
    }
}

fn read_host(whole_process: bool) -> io::Result<(Topology, Cpus)> {
    Ok((Topology::read(Path::new(SYSTEM))?, topology::binding(whole_process)?))
}

/// Addresses of the host's interfaces with their netmasks; none where the system tells nothing.
fn netmasks() -> Vec<(IpAddr, IpAddr)> {
    let ip = |address: Option<&SockaddrStorage>| {
        let address = address?;
        let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
    };
    let all = getifaddrs().into_iter().flatten();
    all.filter_map(|one| Some((ip(one.address.as_ref())?, ip(one.netmask.as_ref())?))).collect()
}

fn network(port: &Rail, masks: &[(IpAddr, IpAddr)]) -> Network {
    let gids = &port.port.gids;
    match port.port.link {
        _ if port.address.service != 0 => Network::Software,
        LinkLayer::Ethernet => Network::of_ip(port.address.gid.ip(), masks),
        LinkLayer::InfiniBand => {
            let gid = gids.first().map(|entry| entry.gid).unwrap_or_default();
            let prefix = gid.0.first_chunk().copied().unwrap_or_default();
            Network::Subnet(u64::from_be_bytes(prefix))
        }
    }
}

/// Mask of the nearest devices among `usable`; a device at an unknown distance is near everybody.
fn near(usable: &[usize], distances: &[Option<u32>]) -> u64 {
    let distance = |index: &usize| distances.get(*index).copied().flatten();
    let least = usable.iter().filter_map(distance).min();
    let near = usable.iter().filter(|index| distance(index).is_none() || distance(index) == least);
    let small = near.filter_map(|index| u32::try_from(*index).ok().filter(|i| *i < MOST_DEVICES));
    small.fold(0, |mask, index| mask | 1 << index)
}

/// Chooses this rank's ports; the `device` of each is a position in `devices.open`, where it is
/// open. Prints the table that `GASNET_IBV_LIST_PORTS` asks this rank for. Collective when the type
/// is `Auto` (which then all ranks have), without any service call otherwise. `nbrhd` is the index
/// in the neighbourhood.
///
/// # Errors
/// In words: a malformed filter, nothing usable, a failed exchange. Without a usable port the rank
/// still takes part in the exchange.
pub(crate) fn choose(
    devices: &Devices,
    settings: &PortSettings,
    nbrhd: u32,
    services: &mut dyn Bootstrap,
) -> Result<Selection, String> {
    let place = services.rank_info();
    // Reading the topology takes a file or more for each processor: only where something depends on
    // it.
    let host = OnceCell::new();
    let host = || host.get_or_init(|| read_host(settings.whole_process));
    let spot = Spot { job: place.rank.0, host: place.local, nbrhd };
    let (choice, warning) = settings.family.choose(spot, || match host() {
        Ok(host) => Ok(host.clone()),
        Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
    });
    if settings.raise_locked_memory && !devices.found.is_empty() {
        raise_locked_memory();
    }
    let filter = choice.filter.map(|(name, text)| Filter::parse(&name, &text)).transpose();
    // `Auto` deals one of all that are usable.
    let all =
        choice.auto.then(|| PortSettings { max_hcas: u32::MAX, num_qps: 0, ..settings.clone() });
    let near = |ports: &[Rail], most| {
        let (distances, masks) = (devices.distances(host()), netmasks());
        let candidate = |port: &Rail| Candidate {
            device: port.device,
            distance: distances.get(port.device).copied().flatten(),
            network: network(port, &masks),
        };
        let candidates: Vec<_> = ports.iter().map(candidate).collect();
        nearest(&candidates, usize::try_from(place.local).unwrap_or(0), most)
    };
    let mut chosen = filter.and_then(|filter| {
        select(&devices.found, filter.as_ref(), all.as_ref().unwrap_or(settings), near)
    });
    if choice.auto {
        let dealt = automatic(devices, settings, &devices.distances(host()), chosen, services);
        chosen = dealt.map_err(|error| error.to_string())?;
    }
    if settings.list && settings.list_ranks.contains(place.rank.0) {
        let rails = chosen.as_ref().map_or(&[][..], |selection| &selection.rails);
        let title = format!("adapters seen by rank {} on host {}", place.rank.0, place.host.0);
        let text = listing(&title, &devices.found, &devices.distances(host()), rails);
        say!(INFO, RANK, "{}", text.trim_end());
    }
    let mut selection = chosen.map_err(|error| error.to_string())?;
    if settings.verbose >= 1 {
        selection.notes.extend(warning);
        // Adapters that no rank of the host uses; one line for the job is enough.
        let used = usize::try_from(place.locals * settings.max_hcas).unwrap_or(usize::MAX);
        if place.rank.0 == 0 && used < selection.left_out.len() + selection.hcas() {
            selection.notes.push(format!(
                "GASNET_IBV_MAX_HCAS={} leaves out {}: raise it to use more adapters in each rank",
                settings.max_hcas,
                selection.left_out.join(", ")
            ));
        }
    }
    Ok(selection)
}

/// The dealt device in place of the `chosen` ones. Without one the filter's choice stays, with a
/// warning.
fn automatic(
    devices: &Devices,
    settings: &PortSettings,
    distances: &[Option<u32>],
    chosen: Result<Selection, Error>,
    services: &mut dyn Bootstrap,
) -> Result<Result<Selection, Error>, bootstrap::Error> {
    let mut usable: Vec<usize> =
        chosen.iter().flat_map(|one| &one.rails).map(|rail| rail.device).collect();
    usable.dedup();
    let mine = near(&usable, distances);
    let place = services.rank_info();
    let mut record = [0; 12];
    record[..4].copy_from_slice(&place.host.0.to_le_bytes());
    record[4..].copy_from_slice(&mine.to_le_bytes());
    let all = services.exchange(&record)?;
    let of_host = all.chunks_exact(record.len()).filter(|one| one[..4] == record[..4]);
    let masks =
        of_host.map(|one| one[4..].iter().rev().fold(0, |mask, byte| mask << 8 | u64::from(*byte)));
    let masks: Vec<u64> = masks.collect();
    let local = usize::try_from(place.local).unwrap_or(usize::MAX);
    let device = deal(&masks).get(local).copied().flatten();
    let Ok(mut selection) = chosen else { return Ok(chosen) };
    let Some(device) = device.and_then(|device| usize::try_from(device).ok()) else {
        if settings.verbose >= 1 {
            let line =
                "GASNET_IBV_PORTS_TYPE=Auto: no adapter is near this rank, the first is used";
            selection.notes.push(line.to_owned());
        }
        let first = usable.first().copied().unwrap_or(0);
        selection.keep(first, settings.num_qps);
        return Ok(Ok(selection));
    };
    if settings.verbose >= 3 {
        let name = &devices.found[device].info.name;
        selection.notes.push(format!(
            "GASNET_IBV_PORTS_TYPE=Auto: {name} of near adapters {mine:#b}, {} ranks on this host",
            masks.len()
        ));
    }
    selection.keep(device, settings.num_qps);
    Ok(Ok(selection))
}

/// Most devices that `Auto` tells apart.
pub(crate) const MOST_DEVICES: u32 = u64::BITS;

/// Deals devices to the ranks of a host: `near[rank]` is a mask of the devices that are near a
/// rank. Round after round each device in turn takes, of the ranks that have none yet and to which
/// it is near, the one that is near the fewest devices, the lowest of equals. `None` for a rank
/// that no device is near to.
pub(crate) fn deal(near: &[u64]) -> Vec<Option<u32>> {
    let mut dealt = vec![None; near.len()];
    loop {
        let mut changed = false;
        for device in 0..MOST_DEVICES {
            let open = |rank: &usize| dealt[*rank].is_none() && near[*rank] & (1 << device) != 0;
            let next = (0..near.len()).filter(open).min_by_key(|rank| near[*rank].count_ones());
            if let Some(rank) = next {
                dealt[rank] = Some(device);
                changed = true;
            }
        }
        if !changed {
            return dealt;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_limit_on_locked_memory_is_raised_to_what_is_allowed() {
        let (_, hard) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
        setrlimit(Resource::RLIMIT_MEMLOCK, hard.min(4096), hard).unwrap();
        raise_locked_memory();
        assert_eq!(getrlimit(Resource::RLIMIT_MEMLOCK).unwrap(), (hard, hard));
    }

    #[test]
    fn unknown_distances_are_near() {
        assert_eq!(near(&[0, 1, 2], &[Some(21), Some(10), None]), 0b110);
        assert_eq!(near(&[0, 2], &[Some(21), Some(10), Some(21)]), 0b101);
        assert_eq!(near(&[], &[Some(21)]), 0);
        assert_eq!(near(&[99], &[]), 0, "above the mask");
    }

    #[test]
    fn devices_are_dealt_to_those_with_few_first() {
        assert_eq!(deal(&[0b11, 0b01, 0b10]), [Some(0), Some(0), Some(1)].map(|x| x));
        assert_eq!(deal(&[0b01, 0b01, 0b10, 0b10]), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(deal(&[0b11, 0b11, 0b11, 0b11]), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(deal(&[0, 0b1]), [None, Some(0)]);
        assert_eq!(deal(&[]), []);
    }

    proptest! {
        #[test]
        fn every_rank_gets_a_near_device_and_loads_are_even(near in proptest::collection::vec(0u64..16, 0..20)) {
            let dealt = deal(&near);
            for (rank, device) in dealt.iter().enumerate() {
                prop_assert_eq!(device.is_none(), near[rank] == 0);
                prop_assert!(device.is_none_or(|device| near[rank] & (1 << device) != 0));
            }
        }

        #[test]
        fn ranks_that_see_all_alike_share_evenly(ranks in 0usize..40, devices in 1u32..8) {
            let dealt = deal(&vec![(1 << devices) - 1; ranks]);
            let load = |device| dealt.iter().filter(|one| **one == Some(device)).count();
            let loads: Vec<_> = (0..devices).map(load).collect();
            prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{:?}", loads);
        }

        #[test]
        fn somebody_is_near_where_anybody_is_usable(distances in proptest::collection::vec(proptest::option::of(0u32..4), 1..20)) {
            let usable: Vec<usize> = (0..distances.len()).collect();
            prop_assert!(near(&usable, &distances) != 0);
        }
    }
}
