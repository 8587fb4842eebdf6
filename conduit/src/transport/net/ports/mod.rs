//! Which ports a rank uses, as rails of its network: the filter `HCA[:port[,port…]]` joined with
//! `+`, what of the host's devices it leaves, and for each port how it is addressed. Pure over what
//! devices say; `docs/design/ports.md` has the rules.

use std::fmt::Write as _;

use fabric::{Address, Caps, DeviceInfo, GidEntry, GidKind, LinkLayer, Mtu, PortInfo, PortState};

use ::settings::{PortEntry, PortFilter, PortFilterError};

use super::settings::PortSettings;

pub(crate) mod choice;
mod list;
mod nearest;

/// Partition keys are told apart without the membership bit.
const PKEY_MASK: u16 = 0x7fff;
/// Reads and atomics in flight that a queue pair may be told.
const MOST_RD_ATOM: u32 = 255;
/// Names of adapters that libibverbs serves poorly, and the network that serves them better.
const MODELS: [(&str, &str); 3] =
    [("hfi1", "Omni-Path"), ("qib", "InfiniPath"), ("ipath", "InfiniPath")];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "environment variable {name}={text:?}: {source}; expected HCA or HCA:PORT,PORT joined with +, for example mlx5_0+mlx5_1:2"
    )]
    Filter { name: String, text: String, source: PortFilterError },
    #[error(
        "{first} is {first_link} and {second} is {second_link}, and the ports of a rank must be of one kind: name those to use in GASNET_IBV_PORTS"
    )]
    Links { first: String, first_link: &'static str, second: String, second_link: &'static str },
    #[error(
        "port {port}: partition key {key:#06x} (GASNET_IBV_PKEY) is not in its table, which has {seen}"
    )]
    Pkey { port: String, key: u16, seen: String },
    #[error("no usable port{filter}; on this host: {seen}")]
    Nothing { filter: String, seen: String },
}

/// A filter and the variable that it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    name: String,
    text: String,
    entries: Vec<PortEntry>,
}

impl Filter {
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let (name, text) = (name.to_owned(), text.to_owned());
        match PortFilter::parse(&text) {
            Ok(PortFilter { entries }) => Ok(Self { name, text, entries }),
            Err(source) => Err(Error::Filter { name, text, source }),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub info: DeviceInfo,
    /// What it can do, or why it cannot be opened.
    pub caps: Result<Caps, String>,
    /// Its ports, or why one cannot be read.
    pub ports: Vec<Result<PortInfo, String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rail {
    /// Device, by its place in what was found.
    pub device: usize,
    pub hca: String,
    pub port: PortInfo,
    pub address: Address,
    pub pkey_index: u16,
    /// Path MTU; the connection takes the lesser of both ends'.
    pub mtu: Mtu,
    pub rd_atom: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Ports, in the order of the devices.
    pub rails: Vec<Rail>,
    /// Rail of each queue pair of a peer: at least one for each rail.
    pub queue_pairs: Vec<usize>,
    /// Adapters that only `GASNET_IBV_MAX_HCAS` leaves out.
    pub left_out: Vec<String>,
    /// What the user should know, for standard error; `GASNET_IBV_PORTS_VERBOSE` is applied.
    pub notes: Vec<String>,
}

impl Selection {
    /// Adapters in use.
    pub(crate) fn hcas(&self) -> usize {
        self.rails.chunk_by(|one, next| one.device == next.device).count()
    }

    /// Leaves only the ports of one device, at most `pairs` of them unless that is 0; that many
    /// queue pairs are dealt anew.
    pub(crate) fn keep(&mut self, device: usize, pairs: u32) {
        self.rails.retain(|rail| rail.device == device);
        self.rails.truncate(most_ports(pairs));
        self.queue_pairs = deal(self.rails.len(), pairs);
    }
}

/// How good a GID is for peers: the least counts. Only RoCE v2 can be routed by what a connection
/// is told.
fn worth(entry: &GidEntry) -> u8 {
    let std::net::IpAddr::V6(ip) = entry.gid.ip() else { return 0 };
    let link_local = ip.segments()[0] & 0xffc0 == 0xfe80;
    1 + u8::from(link_local)
}

/// The best of the entries of a kind; the first of equals.
fn best(port: &PortInfo, kind: GidKind) -> Option<GidEntry> {
    let fit = port.gids.iter().filter(|entry| entry.kind == kind && !entry.gid.is_empty());
    fit.min_by_key(|entry| worth(entry)).copied()
}

/// How peers address a port, or why they cannot.
fn addressing(port: &PortInfo, wanted: Option<u8>) -> Result<Address, String> {
    let address = |entry: Option<GidEntry>, global| {
        let gid = entry.map(|entry| entry.gid).unwrap_or_default();
        let sgid_index = entry.map_or(0, |entry| entry.index);
        Address { lid: port.lid, service: port.service, gid, sgid_index, global }
    };
    if let Some(index) = wanted {
        let entry = port.gids.iter().find(|entry| entry.index == index && !entry.gid.is_empty());
        return entry.map(|entry| address(Some(*entry), true)).ok_or_else(|| {
            let used = join(port.gids.iter().map(|entry| entry.index.to_string()), "none");
            format!("GID entry {index} (GASNET_IBV_GID_INDEX) is not in use; in use: {used}")
        });
    }
    let soft = best(port, GidKind::Soft);
    match port.link {
        _ if soft.is_some() => Ok(address(soft, true)),
        LinkLayer::InfiniBand if port.lid == 0 => {
            Err("LID 0: the subnet manager has not configured it".to_owned())
        }
        LinkLayer::InfiniBand => Ok(address(best(port, GidKind::IbOrRoceV1), false)),
        LinkLayer::Ethernet => match best(port, GidKind::RoceV2) {
            Some(gid) => Ok(address(Some(gid), true)),
            None => Err("no RoCE v2 entry in its GID table: give its interface an address, or choose an entry with GASNET_IBV_GID_INDEX".to_owned()),
        },
    }
}

/// Items with commas between them, or what stands for none.
fn join(items: impl Iterator<Item = String>, none: &str) -> String {
    let items = items.collect::<Vec<_>>().join(", ");
    if items.is_empty() { none.to_owned() } else { items }
}

fn pkey_index(port: &PortInfo, hca: &str, key: Option<u16>) -> Result<u16, Error> {
    let Some(key) = key else { return Ok(0) };
    let found = port.pkeys.iter().position(|one| one & PKEY_MASK == key & PKEY_MASK);
    found.and_then(|index| u16::try_from(index).ok()).ok_or_else(|| {
        let keys = port.pkeys.iter().filter(|key| **key != 0).map(|key| format!("{key:#06x}"));
        Error::Pkey { port: format!("{hca}:{}", port.number), key, seen: join(keys, "none") }
    })
}

/// Reads and atomics in flight: the lesser of both directions, at most as many as are wanted (0: no
/// wish).
fn rd_atom(caps: &Caps, hca: &str, wanted: u32, notes: &mut Vec<String>) -> u8 {
    let most = u32::from(caps.max_rd_atom.min(caps.max_init_rd_atom)).min(MOST_RD_ATOM);
    if wanted > most {
        notes
            .push(format!("GASNET_QP_RD_ATOM={wanted} is above what {hca} can do: {most} is used"));
    }
    let used = if wanted == 0 { most } else { wanted.min(most) };
    u8::try_from(used).unwrap_or(u8::MAX)
}

/// Why an active port of a usable device is not used, or how it is addressed.
fn usable(found: &Found, port: &PortInfo, settings: &PortSettings) -> Result<Address, String> {
    if !found.info.ib_transport {
        return Err(
            "the device does not speak the InfiniBand transport (iWARP or another)".to_owned()
        );
    }
    if let Err(problem) = &found.caps {
        return Err(format!("the device cannot be opened: {problem}"));
    }
    match port.state {
        PortState::Down => Err("down".to_owned()),
        PortState::Init => Err("not active yet".to_owned()),
        PortState::Active => addressing(port, settings.gid_index),
    }
}

struct Chooser<'a> {
    found: &'a [Found],
    filter: Option<&'a Filter>,
    settings: &'a PortSettings,
    rails: Vec<Rail>,
    /// For `GASNET_IBV_PORTS_VERBOSE` 1 and up.
    warnings: Vec<String>,
    /// For 2 and up.
    in_vain: Vec<String>,
    /// For 3 and up.
    details: Vec<String>,
}

impl Chooser<'_> {
    /// Ports of a device that the filter names: `None`, the device is not named; empty, any one
    /// port.
    fn named(&self, hca: &str) -> Option<Vec<u8>> {
        let Some(filter) = self.filter else { return Some(Vec::new()) };
        let entries: Vec<_> = filter.entries.iter().filter(|entry| entry.hca == hca).collect();
        if entries.is_empty() {
            return None;
        }
        // A name alone and a list of ports of the same device: the list says more.
        Some(entries.iter().flat_map(|entry| entry.ports.iter().copied()).collect())
    }

    fn device(&mut self, index: usize) -> Result<(), Error> {
        let found = &self.found[index];
        let hca = &found.info.name;
        let Some(ports) = self.named(hca) else {
            self.details.push(format!("{hca}: not named by the filter"));
            return Ok(());
        };
        for port in found.ports.iter().filter_map(|port| port.as_ref().ok()) {
            if !ports.is_empty() && !ports.contains(&port.number) {
                continue;
            }
            let address = match usable(found, port, self.settings) {
                Ok(address) => address,
                Err(reason) => {
                    self.details.push(format!("{hca}:{}: {reason}", port.number));
                    continue;
                }
            };
            self.take(index, port, address)?;
            if ports.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, index: usize, port: &PortInfo, address: Address) -> Result<(), Error> {
        let found = &self.found[index];
        let Ok(caps) = &found.caps else { return Ok(()) };
        let hca = found.info.name.clone();
        let pkey_index = pkey_index(port, &hca, self.settings.pkey)?;
        let mtu = self.settings.max_mtu.map_or(port.active_mtu, |most| most.min(port.active_mtu));
        let rd_atom = rd_atom(caps, &hca, self.settings.rd_atom, &mut self.warnings);
        self.rails.push(Rail {
            device: index,
            hca,
            port: port.clone(),
            address,
            pkey_index,
            mtu,
            rd_atom,
        });
        Ok(())
    }

    /// What the filter names and the host has not, or cannot use.
    fn check_filter(&mut self) {
        let Some(filter) = self.filter else { return };
        let lines = filter.entries.iter().flat_map(|entry| self.named_in_vain(entry));
        let mut lines: Vec<String> = lines.collect();
        lines.dedup();
        let (name, text) = (&filter.name, &filter.text);
        self.in_vain.extend(lines.into_iter().map(|line| format!("{name}={text}: {line}")));
    }

    /// What of an entry of the filter cannot be used, in words.
    fn named_in_vain(&self, entry: &PortEntry) -> Vec<String> {
        let hca = &entry.hca;
        let Some(found) = self.found.iter().find(|one| one.info.name == *hca) else {
            let there = join(self.found.iter().map(|one| one.info.name.clone()), "none");
            return vec![format!("there is no adapter {hca} (there: {there})")];
        };
        if entry.ports.is_empty() {
            let is_used = self.rails.iter().any(|rail| rail.hca == *hca);
            let line = || format!("{hca} has no usable port: {}", describe(found, self.settings));
            return (!is_used).then(line).into_iter().collect();
        }
        let flaw = |number: &u8| match found.ports.iter().flatten().find(|p| p.number == *number) {
            None => Some(format!("{hca} has no port {number} (it has {})", found.info.ports)),
            Some(port) => usable(found, port, self.settings)
                .err()
                .map(|reason| format!("{hca}:{number} cannot be used: {reason}")),
        };
        entry.ports.iter().filter_map(flaw).collect()
    }

    /// Leaves at most so many devices as the settings allow. `nearest` gets one port of each usable
    /// one and says which to keep. Returns the names of the others.
    fn keep_nearest(&mut self, nearest: impl FnOnce(&[Rail], usize) -> Vec<usize>) -> Vec<String> {
        let mut ports = self.rails.clone();
        ports.dedup_by_key(|rail| rail.device);
        let most = usize::try_from(self.settings.max_hcas).unwrap_or(usize::MAX).max(1);
        if ports.len() <= most {
            return Vec::new();
        }
        let kept = nearest(&ports, most);
        self.rails.retain(|rail| kept.contains(&rail.device));
        ports.retain(|rail| !kept.contains(&rail.device));
        let names = ports.into_iter().map(|rail| rail.hca);
        let names: Vec<String> = names.collect();
        let line = |name| {
            let most = self.settings.max_hcas;
            format!(
                "{name}: others are nearer, or it is other ranks' turn (GASNET_IBV_MAX_HCAS={most})"
            )
        };
        self.details.extend(names.iter().map(line));
        names
    }

    /// Leaves at most so many ports as there are queue pairs.
    fn keep_first(&mut self) {
        let pairs = self.settings.num_qps;
        let dropped = self.rails.split_off(most_ports(pairs).min(self.rails.len()));
        if !dropped.is_empty() {
            let names = dropped.iter().map(name);
            self.warnings.push(format!(
                "GASNET_NUM_QPS={pairs} leaves out {}: name ports in GASNET_IBV_PORTS to choose, or raise it",
                join(names, "none")
            ));
        }
    }

    /// Ports of one rank are of one kind.
    fn check_links(&self) -> Result<(), Error> {
        let mut pairs = self.rails.iter().zip(self.rails.iter().skip(1));
        match pairs.find(|(one, other)| one.port.link != other.port.link) {
            None => Ok(()),
            Some((one, other)) => Err(Error::Links {
                first: name(one),
                first_link: link(one.port.link),
                second: name(other),
                second_link: link(other.port.link),
            }),
        }
    }

    fn check_models(&mut self) {
        if !self.settings.model_warn {
            return;
        }
        for rail in &self.rails {
            let model = MODELS.iter().find(|(model, _)| rail.hca.starts_with(model));
            if let Some((_, network)) = model {
                self.warnings.push(format!(
                    "{}: verbs is not the native interface of {network} adapters; expect less speed, and if sends fail set GASNET_NETWORKDEPTH_PP=8 and GASNET_QP_RD_ATOM=1 (GASNET_IBV_MODEL_WARN=0 hides this line)",
                    rail.hca
                ));
            }
        }
    }
}

/// A device's ports in words, with the reason why each is not usable.
fn describe(found: &Found, settings: &PortSettings) -> String {
    if let Err(problem) = &found.caps {
        return format!("cannot be opened: {problem}");
    }
    let ports = found.ports.iter().zip(1..).map(|(port, number)| match port {
        Ok(port) => {
            let state = usable(found, port, settings).err().unwrap_or_else(|| "usable".to_owned());
            format!("port {}: {state}", port.number)
        }
        Err(problem) => format!("port {number}: {problem}"),
    });
    let ports = ports.collect::<Vec<_>>().join("; ");
    if ports.is_empty() { "no ports".to_owned() } else { ports }
}

pub(crate) fn seen(found: &[Found], settings: &PortSettings) -> String {
    let device = |one: &Found| format!("{} ({})", one.info.name, describe(one, settings));
    join(found.iter().map(device), "no adapter at all")
}

/// Ports that so many queue pairs for each peer allow.
fn most_ports(pairs: u32) -> usize {
    if pairs == 0 { usize::MAX } else { usize::try_from(pairs).unwrap_or(usize::MAX) }
}

fn name(rail: &Rail) -> String {
    format!("{}:{}", rail.hca, rail.port.number)
}

const fn link(link: LinkLayer) -> &'static str {
    match link {
        LinkLayer::InfiniBand => "an InfiniBand port",
        LinkLayer::Ethernet => "an Ethernet port (RoCE)",
    }
}

/// Rail of each of `pairs` queue pairs, in turn; one for each rail at the least.
fn deal(rails: usize, pairs: u32) -> Vec<usize> {
    let pairs = usize::try_from(pairs).unwrap_or(usize::MAX).max(rails);
    (0..rails).cycle().take(if rails == 0 { 0 } else { pairs }).collect()
}

/// Chooses ports: without a filter the first usable port of each device, with one the ports that it
/// names, in the order of the devices; of at most `GASNET_IBV_MAX_HCAS` devices, which `nearest`
/// chooses from one port of each; and at most `GASNET_NUM_QPS`.
pub(crate) fn select(
    found: &[Found],
    filter: Option<&Filter>,
    settings: &PortSettings,
    nearest: impl FnOnce(&[Rail], usize) -> Vec<usize>,
) -> Result<Selection, Error> {
    let mut chooser = Chooser {
        found,
        filter,
        settings,
        rails: Vec::new(),
        warnings: Vec::new(),
        in_vain: Vec::new(),
        details: Vec::new(),
    };
    for index in 0..found.len() {
        chooser.device(index)?;
    }
    if chooser.rails.is_empty() {
        let named = |filter: &Filter| format!(" that {}={} names", filter.name, filter.text);
        let filter = filter.map(named).unwrap_or_default();
        return Err(Error::Nothing { filter, seen: seen(found, settings) });
    }
    chooser.check_filter();
    let left_out = chooser.keep_nearest(nearest);
    chooser.keep_first();
    chooser.check_links()?;
    chooser.check_models();
    let queue_pairs = deal(chooser.rails.len(), settings.num_qps);
    let mut notes = Vec::new();
    if settings.verbose >= 1 {
        notes.append(&mut chooser.warnings);
    }
    if settings.verbose >= 2 {
        notes.extend(chooser.rails.iter().map(used));
        notes.append(&mut chooser.in_vain);
    }
    if settings.verbose >= 3 {
        notes.append(&mut chooser.details);
    }
    Ok(Selection { rails: chooser.rails, queue_pairs, left_out, notes })
}

fn used(rail: &Rail) -> String {
    let mut line = format!("uses {}:{}, MTU {}", rail.hca, rail.port.number, rail.mtu.bytes());
    let Address { lid, gid, sgid_index, global, .. } = rail.address;
    let _ = match global {
        true => write!(line, ", GID {} ({sgid_index})", gid.ip()),
        false => write!(line, ", LID {lid}"),
    };
    let _ = write!(line, ", partition entry {}, {} reads in flight", rail.pkey_index, rail.rd_atom);
    line
}

#[cfg(test)]
pub(crate) mod tests;
