//! From the settings to a network: which fabric, which ports, how much of everything, and what the
//! ranks must agree on.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use bootstrap::{Bootstrap, Rank};
use fabric::soft::{self, SoftConfig};
use fabric::{Device, Fabric, Mtu};
use settings::log::RANK;
use settings::say;

use super::fabric_caps::{FabricCaps, JobFabricCaps, Key};
use super::pinnable::{Asker, largest_segment};
use crate::segment_mode::SegmentMode;
use crate::transport::net::error::Error;
use crate::transport::net::members::{Common, Members};
use crate::transport::net::plan::{NetPlan, RailPlan};
use crate::transport::net::ports::choice::{Devices, choose};
use crate::transport::net::ports::{Rail, Selection};
use crate::transport::net::settings::sizes::{DeviceLimits, INTERNAL_RECEIVES, Job, Sizes};
use crate::transport::net::settings::{
    FabricChoice, NetSettings, Paging, PortSettings, SoftAddress,
};

/// An opened fabric with the ports that this rank uses.
struct Opened {
    devices: Devices,
    selection: Selection,
}

/// The ports of a fabric, or why this rank cannot use it, in words.
fn open_ports(
    fabric: Result<Arc<dyn Fabric>, fabric::Error>,
    settings: &PortSettings,
    nbrhd: u32,
    services: &mut dyn Bootstrap,
) -> Result<Opened, String> {
    let devices = fabric.as_ref().map_or_else(|_| Devices::default(), |one| Devices::of(&**one));
    // Also without a device: the choice may be collective.
    let selection = choose(&devices, settings, nbrhd, services);
    fabric.map_err(|error| error.to_string())?;
    Ok(Opened { selection: selection?, devices })
}

fn job_key() -> Result<Key, Error> {
    let mut key = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut key))
        .map_err(|source| Error::Os { operation: "read random numbers", source })?;
    Ok(key)
}

/// The address of this host from which packets towards `there` would leave. Nothing is sent.
fn source_towards(there: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match there {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(SocketAddr::new(there, 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_unspecified()).then_some(own)
}

/// Some address inside a network, other than its first.
fn inside(network: SoftAddress) -> IpAddr {
    match network.ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() | 1).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() | 1).into(),
    }
}

const SOFT_ADDRESS: &str = "GASNET_IBV_SOFT_ADDRESS";

/// The address of this host by itself: as set, of the default route, or what the launcher's login
/// came to. `None` when nothing tells.
fn own_address(settings: &NetSettings) -> Result<Option<IpAddr>, Error> {
    let Some(network) = settings.soft.address else {
        let routed = source_towards(Ipv4Addr::new(192, 0, 2, 1).into())
            .or_else(|| source_towards(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()));
        return Ok(routed.or(settings.soft.reached));
    };
    let whole = if network.ip.is_ipv4() { 32 } else { 128 };
    if network.bits == whole {
        return Ok(Some(network.ip));
    }
    let own = source_towards(inside(network)).filter(|own| network.covers(*own));
    own.map(Some).ok_or_else(|| {
        let problem = format!(
            "this host has no address in {}/{}; see `ip address`",
            network.ip, network.bits
        );
        Error::Setting { name: SOFT_ADDRESS, problem }
    })
}

/// Where the software adapter listens. Who does not know it takes the address from which another
/// rank is reached. (The launching host without a default route is such a one.)
fn soft_address(
    own: Result<Option<IpAddr>, Error>,
    fabric_caps: &JobFabricCaps,
) -> Result<IpAddr, Error> {
    if let Some(own) = own? {
        return Ok(own);
    }
    let mut sources = fabric_caps.addresses().filter_map(source_towards);
    sources.find(|own| !own.is_loopback()).ok_or_else(|| {
        let problem = "this host has no default route, and no login over ssh, that would tell which address other hosts \
                       reach; set the network that joins the hosts, as 10.1.2.0/24"
            .to_owned();
        Error::Setting { name: SOFT_ADDRESS, problem }
    })
}

/// What the user reads when no adapter is used; `named`: what was set to choose ports.
fn fallen_back(reason: &str, named: &str) -> String {
    let line = format!("the job uses the software adapter (TCP): {reason}.");
    if named.is_empty() {
        return format!("{line} GASNET_IBV_FABRIC=soft hides this line");
    }
    format!(
        "{line} {named} counts for adapters only, so any software device may be used; GASNET_IBV_FABRIC=soft hides this line, and \
         there it counts for soft0, soft1 …"
    )
}

/// What the user reads who asked for encryption where adapters are used.
const NOT_ENCRYPTED: &str = "the job uses adapters, and what they send is not encrypted: GASNET_IBV_SOFT_SECURE counts for the software \
                             adapter only (GASNET_IBV_FABRIC=soft takes that)";

/// Decides on the fabric, for all ranks alike. Also what all ranks said first, and what their
/// devices can do.
fn opened(
    settings: &NetSettings,
    members: &Members,
    (common, mode): (Common, SegmentMode),
    services: &mut dyn Bootstrap,
) -> Result<(Opened, DeviceLimits, u64), Error> {
    let nbrhd = members.neighbours.index_of(members.rank.0).unwrap_or(0);
    let verbs = (settings.fabric != FabricChoice::Soft)
        .then(|| open_ports(fabric::verbs::open(None), &settings.ports, nbrhd, services));
    // Only the software adapter needs it.
    let address = match settings.soft.address {
        None if members.hosts == 1 => Ok(Some(Ipv4Addr::LOCALHOST.into())),
        _ => own_address(settings),
    };
    let usable = verbs.as_ref().and_then(|verbs| verbs.as_ref().ok());
    let mine = FabricCaps {
        common,
        key: if members.rank == Rank(0) { job_key()? } else { [0; 16] },
        fabric: settings.fabric,
        secure: settings.soft.secure,
        adapter: usable.is_some(),
        limits: usable.map_or(DeviceLimits::NONE, limits_of_ports),
        pinnable: usable
            .filter(|_| mode.is_fast())
            .and_then(|usable| pinnable(settings, usable, services)),
        pages: usable.is_some_and(|usable| devices_of(usable).all(|one| one.caps().odp)),
        address: address.as_ref().ok().copied().flatten(),
    };
    let fabric_caps = JobFabricCaps::exchange(members.rank, &mine, services)?;
    let mut reason = None;
    match (verbs, fabric_caps.without_adapter) {
        (Some(Ok(verbs)), None) => {
            say_lack_of_paging(settings.odp, members, &fabric_caps, &verbs);
            if settings.soft.secure && members.rank == Rank(0) {
                say!(WARN, RANK, "{NOT_ENCRYPTED}");
            }
            let max_segment = fabric_caps.max_segment.min(fabric_caps.pinnable);
            return Ok((verbs, fabric_caps.limits, max_segment));
        }
        (Some(Ok(_)), Some(rank)) => reason = Some(format!("rank {rank} has no usable adapter")),
        (Some(Err(problem)), _) => reason = Some(problem),
        (None, _) => {}
    }
    if settings.fabric == FabricChoice::Verbs {
        let problem = format!("verbs was asked for, and {}", reason.unwrap_or_default());
        return Err(Error::Setting { name: "GASNET_IBV_FABRIC", problem });
    }
    if let (Some(reason), Rank(0)) = (&reason, members.rank) {
        say!(WARN, RANK, "{}", fallen_back(reason, &settings.ports.family.assignments()));
    }
    let bind = soft_address(address, &fabric_caps)?;
    let soft = open_software(settings, members.rank, (fabric_caps.key, bind), nbrhd, services)?;
    // Software devices can do the same everywhere.
    let limits = limits_of_ports(&soft);
    Ok((soft, limits, fabric_caps.max_segment))
}

/// Devices that this rank uses.
fn devices_of(opened: &Opened) -> impl Iterator<Item = &Arc<dyn Device>> {
    let rails = opened.selection.rails.iter();
    rails.filter_map(|rail| opened.devices.open.get(rail.device)?.as_ref())
}

/// The largest segment that ranks of this host can register; one of them asks.
fn pinnable(settings: &NetSettings, opened: &Opened, services: &mut dyn Bootstrap) -> Option<u64> {
    let place = services.rank_info();
    let mut devices: Vec<Arc<dyn Device>> = devices_of(opened).cloned().collect();
    devices.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let asker = Asker { locals: place.locals, speaks: place.rank == Rank(0) };
    (place.local == 0).then(|| largest_segment(&settings.pinned, &devices, asker))
}

/// What is said where adapters do not page memory in on demand.
fn say_lack_of_paging(odp: Paging, members: &Members, caps: &JobFabricCaps, opened: &Opened) {
    if !odp.on || !odp.is_set || odp.verbose == 0 {
        return;
    }
    let without: Vec<Rank> = caps.without_paging().collect();
    if without.is_empty() {
        return;
    }
    if members.rank == Rank(0) {
        let (count, size) = (without.len(), members.size);
        let list = || without.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let which = if odp.verbose >= 2 { format!(" ({})", list()) } else { String::new() };
        say!(
            INFO,
            RANK,
            "{count} of {size} ranks{which} have adapters without paging on demand (ODP) and register memory instead; GASNET_ODP_VERBOSE=0 hides this line"
        );
    }
    if odp.verbose >= 3 && without.contains(&members.rank) {
        let lacks = devices_of(opened).filter(|one| !one.caps().odp);
        let names: Vec<&str> = lacks.map(|one| one.info().name.as_str()).collect();
        say!(INFO, RANK, "rank {}: no paging on demand on {}", members.rank, names.join(", "));
    }
}

fn open_software(
    settings: &NetSettings,
    rank: Rank,
    (key, bind): (Key, IpAddr),
    nbrhd: u32,
    services: &mut dyn Bootstrap,
) -> Result<Opened, Error> {
    // Sections of the script are for ranks.
    let script = |text| soft::FaultScript::parse_for(text, &rank.to_string());
    let faults = settings.soft.faults.as_deref().map(script).transpose();
    let faults = faults.map_err(|problem| Error::Setting {
        name: "GASNET_IBV_SOFT_FAULTS",
        problem: problem.to_string(),
    })?;
    let (devices, secure, mtu) = (settings.soft.devices, settings.soft.secure, Mtu::B4096);
    let fabric = soft::open(&SoftConfig { devices, ports: 1, bind, key, secure, mtu, faults })?;
    let mut ports = settings.ports.clone();
    if settings.fabric == FabricChoice::Auto {
        // What names ports named real adapters, and rank 0 has said why they are not used.
        ports.family = Default::default();
    }
    open_ports(Ok(fabric), &ports, nbrhd, services).map_err(|problem| {
        let problem = format!("cannot use its software adapter: {problem}");
        Error::Mismatch { rank, problem }
    })
}

fn limits_of_ports(opened: &Opened) -> DeviceLimits {
    let rails = opened.selection.rails.iter();
    let caps = rails.filter_map(|rail| opened.devices.found.get(rail.device)?.caps.as_ref().ok());
    caps.map(DeviceLimits::of).fold(DeviceLimits::NONE, DeviceLimits::least)
}

fn job(settings: &NetSettings, members: &Members, selection: &Selection, locals: u32) -> Job {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let threads = count(std::thread::available_parallelism().map_or(1, usize::from));
    Job {
        ranks: members.size,
        rails: count(selection.rails.len()),
        queue_pairs: count(selection.queue_pairs.len()),
        reserve: INTERNAL_RECEIVES,
        spares: threads.div_ceil(locals.max(1)) + u32::from(settings.receive_thread.on),
    }
}

/// Collective: everything up to the context; with the smallest of the largest segments of all
/// ranks.
pub(crate) fn plan(
    settings: &NetSettings,
    members: &Members,
    common: (Common, SegmentMode),
    services: &mut dyn Bootstrap,
) -> Result<(NetPlan, u64), Error> {
    let (opened, can, max_segment) = opened(settings, members, common, services)?;
    let job = job(settings, members, &opened.selection, services.rank_info().locals);
    let depths = settings.depths.for_ranks(job.ranks);
    let (sizes, warnings) = Sizes::of(&depths, &job, can)?;
    if members.rank == Rank(0) && !settings.quiet {
        for note in settings.warnings.iter().chain(&warnings) {
            say!(WARN, RANK, "{note}");
        }
    }
    for note in &opened.selection.notes {
        say!(INFO, RANK, "rank {}: {note}", members.rank);
    }
    let rail = |rail: &Rail| {
        let device = opened.devices.open.get(rail.device).and_then(Option::as_ref)?;
        Some(RailPlan {
            device: Arc::clone(device),
            port: rail.port.number,
            pkey_index: rail.pkey_index,
            address: rail.address,
            mtu: rail.mtu,
            rd_atom: rail.rd_atom,
            max_message: rail.port.max_message,
        })
    };
    let rails = opened.selection.rails.iter().filter_map(rail).collect();
    let connections = opened.selection.queue_pairs.clone();
    Ok((NetPlan { rails, connections, sizes }, max_segment))
}
