//! What a rank works with: the fabric that all ranks agree on, its ports, and the depths of its queues. Everything is
//! compared between the ranks before anything relies on it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;

use bootstrap::{Bootstrap, Rank};
use fabric::Fabric;

use super::choice::{self, Chosen, Devices, choose};
use super::ports::Selection;
use super::settings::{self, FabricChoice, NetSettings, SoftAddress, SoftSettings};
use super::sizes::{Agreement, Job, Limits, Sizes};

/// Bytes of a job's key.
pub(crate) const KEY: usize = 16;
/// Bytes of a rank's record: whether it has ports, and what its devices can do.
const RECORD: usize = 1 + Limits::BYTES;
/// An address of documentation: asked of the routing table only, nothing is sent to it.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 1), 9);

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// No port.
    #[error("network: {fabric}: {source}")]
    Choice {
        /// `verbs` or `soft`.
        fabric: &'static str,
        /// Why not.
        source: choice::Error,
    },
    /// The fabric cannot be opened.
    #[error(transparent)]
    Fabric(#[from] fabric::Error),
    /// A setting that devices cannot hold.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The bootstrap layer failed.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// Ranks that do not fit together.
    #[error("network: rank {} {problem}", .rank.0)]
    Mismatch {
        /// Who differs.
        rank: Rank,
        /// In what, and what to set.
        problem: String,
    },
    /// No address for the software adapter.
    #[error("network: the software adapter has no address that other hosts reach: {problem}")]
    Address {
        /// What was looked for, and what to set.
        problem: String,
    },
    /// No key for the software adapter.
    #[error("network: cannot read random bytes from the system: {0}")]
    Random(std::io::Error),
}

/// How fabrics are opened.
pub(crate) trait Opener {
    /// Adapters.
    ///
    /// # Errors
    /// No libibverbs.
    fn verbs(&self) -> Result<Arc<dyn Fabric>, fabric::Error>;

    /// The software adapter.
    ///
    /// # Errors
    /// It cannot listen at `bind`, or the settings are wrong.
    fn soft(
        &self,
        bind: IpAddr,
        key: [u8; KEY],
        settings: &SoftSettings,
    ) -> Result<Arc<dyn Fabric>, fabric::Error>;
}

/// What the rank's own protocol adds: see [`Job`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    /// Index in the neighbourhood.
    pub nbrhd: u32,
    /// [`Job::reserve`].
    pub reserve: u32,
    /// [`Job::spares`].
    pub spares: u32,
    /// [`Job::connect_receives`].
    pub connect_receives: u32,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Equipment {
    /// The fabric that all ranks use.
    pub fabric: Arc<dyn Fabric>,
    /// Its devices.
    pub devices: Devices,
    /// Ports and the rail of each queue pair.
    pub selection: Selection,
    /// What the sizes were computed from.
    pub job: Job,
    /// Depths and buffers.
    pub sizes: Sizes,
    /// Lines for standard error: what this rank should say about its ports, and on rank 0 about settings.
    pub notes: Vec<String>,
    /// Text that `GASNET_IBV_LIST_PORTS` asks this rank to print.
    pub listing: Option<String>,
}

/// A fabric with ports.
struct Ready {
    fabric: Arc<dyn Fabric>,
    devices: Devices,
    chosen: Chosen,
}

impl Ready {
    fn of(
        fabric: Arc<dyn Fabric>,
        settings: &NetSettings,
        needs: &Needs,
        services: &mut dyn Bootstrap,
    ) -> Result<Self, Error> {
        let devices = Devices::of(&*fabric);
        let name = fabric.name();
        let chosen = choose(&devices, &settings.ports, needs.nbrhd, services)
            .map_err(|source| Error::Choice { fabric: name, source })?;
        Ok(Self { fabric, devices, chosen })
    }

    /// What all used devices can do.
    fn limits(&self) -> Limits {
        let rails = self.chosen.selection.rails.iter();
        let caps = rails.filter_map(|rail| self.devices.found[rail.device].caps.as_ref().ok());
        caps.map(Limits::of).fold(Limits::NONE, Limits::least)
    }
}

fn record(ready: &Result<Ready, Error>) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    if let Ok(ready) = ready {
        record[0] = 1;
        record[1..].copy_from_slice(&ready.limits().to_bytes());
    }
    record
}

/// What everybody can do, or the first rank that has no port. Collective.
fn compare(
    ready: &Result<Ready, Error>,
    services: &mut dyn Bootstrap,
) -> Result<Result<Limits, Rank>, Error> {
    let all = services.exchange(&record(ready))?;
    let mut limits = Limits::NONE;
    for (rank, theirs) in (0..).map(Rank).zip(all.chunks_exact(RECORD)) {
        match theirs.split_first() {
            Some((1, rest)) if rest.len() == Limits::BYTES => {
                let mut bytes = [0; Limits::BYTES];
                bytes.copy_from_slice(rest);
                limits = limits.least(Limits::from_bytes(bytes));
            }
            _ => return Ok(Err(rank)),
        }
    }
    Ok(Ok(limits))
}

/// The error of a rank whose fabric may be in order, but not that of `other`.
fn failed(ready: Result<Ready, Error>, other: Rank) -> Error {
    match ready {
        Err(error) => error,
        Ok(_) => Error::Mismatch {
            rank: other,
            problem: "has no usable port; its own message says why".to_owned(),
        },
    }
}

/// Collective over the job: the fabric, the ports, the sizes.
///
/// # Errors
/// No port on some rank (and no other fabric allowed), settings that cannot be met, ranks that differ.
pub(crate) fn equip(
    settings: &NetSettings,
    opener: &dyn Opener,
    needs: &Needs,
    services: &mut dyn Bootstrap,
) -> Result<Equipment, Error> {
    let place = services.place();
    let mut notes = Vec::new();
    let mut found = None;
    if settings.fabric != FabricChoice::Soft {
        let ready = verbs(settings, opener, needs, services)?;
        match (compare(&ready, services)?, ready) {
            (Ok(limits), Ok(ready)) => found = Some((ready, limits)),
            (Ok(_), Err(error)) => return Err(error),
            (Err(rank), ready) if settings.fabric == FabricChoice::Verbs => {
                return Err(failed(ready, rank));
            }
            (Err(rank), ready) if place.rank.0 == 0 => {
                let why = failed(ready, rank);
                notes.push(format!("the software adapter is used (GASNET_IBV_FABRIC=auto): {why}"));
            }
            (Err(_), _) => {}
        }
    }
    let (ready, limits) = match found {
        Some(found) => found,
        None => soft(settings, opener, needs, services)?,
    };
    let Ready { fabric, devices, chosen: Chosen { selection, listing } } = ready;
    let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let job = Job {
        ranks: place.size,
        rails: count(selection.rails.len()),
        queue_pairs: count(selection.queue_pairs.len()),
        reserve: needs.reserve,
        spares: needs.spares,
        connect_receives: needs.connect_receives,
    };
    let sizes = Sizes::of(&settings.depths, &job, limits)?;
    agree(sizes.agreement(&job), services)?;
    notes.extend_from_slice(&selection.notes);
    if place.rank.0 == 0 {
        notes.extend(settings.warnings.iter().chain(&sizes.warnings).cloned());
    }
    Ok(Equipment { fabric, devices, selection, job, sizes, notes, listing })
}

/// Adapters and their ports; the inner error is for the comparison with the other ranks.
fn verbs(
    settings: &NetSettings,
    opener: &dyn Opener,
    needs: &Needs,
    services: &mut dyn Bootstrap,
) -> Result<Result<Ready, Error>, Error> {
    let nothing = || Devices { found: Vec::new(), open: Vec::new() };
    match opener.verbs() {
        Ok(fabric) => match Ready::of(fabric, settings, needs, services) {
            Err(Error::Choice { source: choice::Error::Bootstrap(error), .. }) => Err(error.into()),
            other => Ok(other),
        },
        Err(error) => {
            // A choice may be collective, so a rank without adapters takes part in it.
            match choose(&nothing(), &settings.ports, needs.nbrhd, services) {
                Err(choice::Error::Bootstrap(error)) => Err(error.into()),
                _ => Ok(Err(error.into())),
            }
        }
    }
}

fn soft(
    settings: &NetSettings,
    opener: &dyn Opener,
    needs: &Needs,
    services: &mut dyn Bootstrap,
) -> Result<(Ready, Limits), Error> {
    let place = services.place();
    let mut key = [0; KEY];
    if place.rank.0 == 0 {
        key = random().map_err(Error::Random)?;
    }
    services.broadcast(Rank(0), &mut key)?;
    let bind = address(settings.soft.address, place.hosts)?;
    let fabric = opener.soft(bind, key, &settings.soft)?;
    let ready = Ready::of(fabric, settings, needs, services);
    match (compare(&ready, services)?, ready) {
        (Ok(limits), Ok(ready)) => Ok((ready, limits)),
        (Ok(_), Err(error)) => Err(error),
        (Err(rank), ready) => Err(failed(ready, rank)),
    }
}

fn random() -> std::io::Result<[u8; KEY]> {
    use std::io::Read;
    let mut key = [0; KEY];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

/// Compares what must be the same on all ranks. Collective.
fn agree(mine: Agreement, services: &mut dyn Bootstrap) -> Result<(), Error> {
    let all = services.exchange(&mine.to_bytes())?;
    let records = all.chunks_exact(Agreement::BYTES).map(<[u8; Agreement::BYTES]>::try_from);
    for (rank, theirs) in (0..).map(Rank).zip(records.flatten()) {
        if let Some(problem) = mine.differs(Agreement::from_bytes(theirs)) {
            return Err(Error::Mismatch { rank, problem });
        }
    }
    Ok(())
}

/// Where the software adapter listens: as set; 127.0.0.1 in a job of one host; else the address from which the host would
/// talk to others.
fn address(wanted: Option<SoftAddress>, hosts: u32) -> Result<IpAddr, Error> {
    let wrong = |problem: String| Error::Address { problem };
    match wanted {
        Some(wanted) if wanted.is_single() => Ok(wanted.ip),
        Some(wanted) => {
            let all = own_addresses();
            all.iter().copied().find(|ip| wanted.covers(*ip)).ok_or_else(|| {
                let all: Vec<_> = all.iter().map(IpAddr::to_string).collect();
                wrong(format!(
                    "GASNET_IBV_SOFT_ADDRESS={}/{} covers none of this host's addresses ({})",
                    wanted.ip,
                    wanted.bits,
                    all.join(", ")
                ))
            })
        }
        None if hosts <= 1 => Ok(Ipv4Addr::LOCALHOST.into()),
        None => {
            let other = own_addresses().into_iter().find(|ip| !ip.is_loopback() && ip.is_ipv4());
            routed().or(other).ok_or_else(|| {
                wrong("there is only the loopback; set GASNET_IBV_SOFT_ADDRESS to an address or a network".to_owned())
            })
        }
    }
}

/// Address that the routing table takes for hosts elsewhere.
fn routed() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

/// Addresses of this host, as the kernel shows them.
fn own_addresses() -> Vec<IpAddr> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let mut all = ipv4_of(&read("/proc/net/fib_trie"));
    all.extend(ipv6_of(&read("/proc/net/if_inet6")));
    all
}

/// Local addresses in a dump of the routing trie: `|-- ADDRESS`, then a line with `host LOCAL`.
fn ipv4_of(trie: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.ends_with("/32 host LOCAL")
            && let Some(ip) = last.map(IpAddr::V4)
            && !found.contains(&ip)
        {
            found.push(ip);
        }
    }
    found
}

/// Addresses in the kernel's list: 32 hexadecimal digits at the start of each line.
fn ipv6_of(list: &str) -> Vec<IpAddr> {
    let words = list.lines().filter_map(|line| line.split_whitespace().next());
    let numbers = words.filter_map(|word| u128::from_str_radix(word, 16).ok());
    numbers.map(|number| Ipv6Addr::from(number).into()).collect()
}

#[cfg(test)]
#[path = "equip_tests.rs"]
mod tests;
