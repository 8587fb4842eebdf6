//! Which hosts the job uses, and which rank runs where.
//!
//! The first source that is set counts: `--hosts` or `--hostfile`, then the variables in GASNet's
//! order. Of its hosts, each once unless `GASNET_SSH_KEEPDUP` says otherwise, the first `-N` (else
//! as many as there are ranks) are used. Without any source the job is on this host. How lists are
//! written is [`list`]'s business.

pub mod layout;
pub mod list;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use supervisor::plan::{HostEntry, Map};

use self::layout::{Layout, TooFewSlots};
use self::list::Grammar::{self, GridEngine, Lines, Words};
use self::list::{Here, List, ListError};
use crate::flags::{Flags, MapRule};

/// Why the hosts asked for cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// `-N` above 1 without hosts: its value, this host, number of ranks.
    #[error(
        "-N {0}: no host list is set, so only this host ({1}) is known. Try --hosts n1,n2 or --hostfile FILE, \
         or -N 1, which puts all {2} ranks here"
    )]
    NoList(u32, String, u32),
    /// A list without hosts: where it is from, this host.
    #[error("{0} names no host. Write some into it, or leave it out to use this host ({1})")]
    Empty(String, String),
    /// A file cannot be read: where its name is from, why not.
    #[error("cannot read the file of {0}: {1}. Name a readable file, or leave it out")]
    File(String, std::io::Error),
    /// A list or a map cannot be understood: where it is from, what is wrong with it.
    #[error("{0}, {1}")]
    List(String, ListError),
    /// Ranks do not fit on the hosts of a source.
    #[error("{0}. Try -n {fits}, or give {1} more hosts or slots", fits = .0.slots)]
    Slots(TooFewSlots, String),
    /// Ranks do not fit with `--ranks-per-host`: why, its value, where the hosts are from.
    #[error("--ranks-per-host {1}: {0}. Try a larger number, or give {2} more hosts or slots")]
    PerHost(TooFewSlots, u32, String),
    /// `--ranks-per-host` needs more than this host: its value, ranks, hosts needed, this host.
    #[error(
        "--ranks-per-host {0}: {1} ranks need {2} hosts, but no host list is set, so only this host ({3}) is known. \
         Try --hosts n1,n2 or --hostfile FILE, or --ranks-per-host {1}"
    )]
    PerHostHere(u32, u32, u32, String),
    /// `--ranks-per-host` with a map that says it all.
    #[error("--ranks-per-host and --map FILE both say which host has which ranks; leave one out")]
    PerHostMap,
    /// A map puts too many ranks on a host: its name, its ranks, its slots, where the hosts are
    /// from.
    #[error(
        "--map puts {1} ranks on the host {0}, which has {2} slots: {more} too many. Move some, or give the host \
         more slots in {3}", more = .1 - .2
    )]
    MapSlots(String, u32, u32, String),
    /// A map with more hosts than `-N`: hosts of the map, value of `-N`.
    #[error("--map uses {0} hosts, but -N asks for {1}; use fewer in the map, or -N {0}")]
    MapHosts(usize, u32),
    /// `--spares` with a map that names the hosts: its value.
    #[error("--spares {0}: the file of --map names the hosts itself; leave one of them out")]
    SparesMap(u32),
    /// `--spares` with too few hosts: its value, where the hosts are from, how many are there.
    #[error(
        "--spares {0}: {1} names {2} hosts, and at least one must be left for the ranks; name more, or keep fewer back"
    )]
    Spares(u32, String, usize),
    /// `--spares` without a list of hosts: its value.
    #[error("--spares {0}: no host list is set; try --hosts n1,n2,n3 or --hostfile FILE")]
    SparesNoList(u32),
    /// The name of this host is unknown.
    #[error("cannot read this host's name from {NAME_FILE}: {0}")]
    Name(std::io::Error),
}

const NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// The variables with hosts; the first that is set and not empty counts. A list of [`Words`] is the
/// value itself, others are in the file that it names. `true`: a batch system sets it, not the
/// user.
pub(crate) const SOURCES: [(&str, Grammar, bool); 10] = [
    ("GASNET_SSH_NODEFILE", Lines, false),
    ("GASNET_SSH_SERVERS", Words, false),
    ("GASNET_NODEFILE", Lines, false),
    ("PBS_NODEFILE", Lines, true),
    ("PE_HOSTFILE", GridEngine, true),
    ("SSS_HOSTLIST", Words, true),
    ("LSB_HOSTS", Words, true),
    ("OAR_NODEFILE", Lines, true),
    ("SLURM_JOB_NODELIST", Words, true),
    // Its older name.
    ("SLURM_NODELIST", Words, true),
];

/// This host's name.
///
/// # Errors
/// The kernel does not tell.
pub fn own_name() -> Result<String, HostsError> {
    let name = std::fs::read_to_string(NAME_FILE).map_err(HostsError::Name)?;
    Ok(name.trim().to_owned())
}

/// The hosts of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Where each rank runs.
    pub map: Map,
    /// Hosts that may take the place of others, best first.
    pub spares: Vec<HostEntry>,
    /// Where the hosts are from, as the user would write it; none: nobody named a host.
    pub source: Option<String>,
    /// Whether the user named them, and not a batch system.
    pub asked: bool,
    /// Things to tell the user.
    pub warnings: Vec<String>,
}

/// A list that was read: where it is from, and whether that is a batch system.
struct Listed {
    source: String,
    batch: bool,
    list: List,
}

impl Listed {
    /// A look at the accounts may ask the network, so only for who needs it.
    fn has_users(&self) -> bool {
        self.list.hosts.iter().any(|host| host.user.is_some())
    }
}

/// Decides for a job of so many ranks on `here`; `variable` looks a variable up, and
/// `keep_duplicates` is `GASNET_SSH_KEEPDUP`. Reads the files that are named, nothing else.
///
/// # Errors
/// A list, file or map that cannot be used, or ranks that do not fit.
pub fn choose(
    flags: &Flags,
    ranks: u32,
    keep_duplicates: bool,
    here: &str,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Chosen, HostsError> {
    let mut warnings = Vec::new();
    if let Some(wanted) = flags.host_count.filter(|wanted| *wanted > ranks) {
        warnings.push(format!(
            "-N {wanted} is more hosts than the job has ranks ({ranks}); reduced to -N {ranks}"
        ));
    }
    let wanted = flags.host_count.map(|wanted| wanted.min(ranks));
    let listed = read(flags.hosts.as_deref(), flags.hostfile.as_deref(), &variable)?;
    let by_file = matches!(flags.map, MapRule::File(_));
    if by_file && flags.ranks_per_host.is_some() {
        return Err(HostsError::PerHostMap);
    }
    let own = own(here, &variable, by_file || listed.as_ref().is_some_and(Listed::has_users));
    let source = listed.as_ref().map(|listed| listed.source.clone());
    let asked = by_file || listed.as_ref().is_some_and(|listed| !listed.batch);
    // A map file says itself which of the hosts it needs.
    let needed = flags.ranks_per_host.map_or(ranks, |each| ranks.div_ceil(each));
    let most = wanted.unwrap_or(if by_file { u32::MAX } else { ranks });
    let hosts = listed
        .map(|listed| usable(listed, keep_duplicates, wanted, &own, &mut warnings))
        .transpose()?
        .map(|hosts| if flags.oversubscribe { without_slots(hosts) } else { hosts });
    let (hosts, spares) = kept_back(flags, hosts, most, wanted.is_some(), &source)?;
    let map = match (&flags.map, hosts, wanted) {
        (MapRule::File(path), hosts, _) => from_file(path, ranks, wanted, hosts, &own, &source)?,
        (rule, Some(hosts), _) => {
            let source = source.as_deref().unwrap_or_default();
            let needed = wanted.unwrap_or(needed);
            let rules = Rules { rule, each: flags.ranks_per_host, needed, asked, source };
            spread(hosts, ranks, &rules, &mut warnings)?
        }
        (_, None, Some(hosts @ 2..)) => return Err(HostsError::NoList(hosts, own.name, ranks)),
        (_, None, _) if needed > 1 && flags.ranks_per_host.is_some_and(|each| each < ranks) => {
            let each = flags.ranks_per_host.unwrap_or(ranks);
            return Err(HostsError::PerHostHere(each, ranks, needed, own.name));
        }
        (_, None, _) => Map::here(here, ranks),
    };
    if source.is_none() && variable("SLURM_JOB_ID").is_some_and(|id| !id.is_empty()) {
        warnings.push(format!(
            "SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not, so the hosts of the batch job are unknown; this host \
             ({here}) is used"
        ));
    }
    Ok(Chosen { map, spares, source, asked, warnings })
}

/// The hosts for ranks, at most `most`, and those that `--spares` keeps back: the next ones where
/// `-N` says how many are used (`counted`), else the last ones of the list.
fn kept_back(
    flags: &Flags,
    hosts: Option<Vec<HostEntry>>,
    most: u32,
    counted: bool,
    source: &Option<String>,
) -> Result<(Option<Vec<HostEntry>>, Vec<HostEntry>), HostsError> {
    let Some(spares) = flags.spares else {
        let used = hosts.map(|hosts| hosts.into_iter().take(most as usize).collect());
        return Ok((used, Vec::new()));
    };
    if matches!(flags.map, MapRule::File(_)) {
        return Err(HostsError::SparesMap(spares));
    }
    let mut hosts = hosts.ok_or(HostsError::SparesNoList(spares))?;
    let (found, kept) = (hosts.len(), spares as usize);
    let enough = if counted { most as usize + kept <= found } else { kept < found };
    if !enough {
        return Err(HostsError::Spares(spares, source.clone().unwrap_or_default(), found));
    }
    let used = if counted { most as usize } else { (found - kept).min(most as usize) };
    let mut rest = hosts.split_off(used);
    rest.truncate(kept);
    Ok((Some(hosts), rest))
}

/// All hosts of the list that counts, each once; none without any list. `text` and `file` are what
/// the command line says.
///
/// # Errors
/// A list or file that cannot be used, or that is empty.
pub fn all(
    text: Option<&OsStr>,
    file: Option<&Path>,
    here: &str,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<List>, HostsError> {
    let Some(listed) = read(text, file, &variable)? else { return Ok(None) };
    let (own, mut notes) = (own(here, &variable, listed.has_users()), Vec::new());
    let hosts = usable(listed, false, None, &own, &mut notes)?;
    Ok(Some(List { hosts, notes }))
}

/// This host and, if it matters, whose login this is.
fn own(here: &str, variable: impl Fn(&str) -> Option<OsString>, users: bool) -> Here {
    let account = || nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    Here {
        name: here.to_owned(),
        batch_name: variable("SLURMD_NODENAME").and_then(|name| name.into_string().ok()),
        user: users.then(account).flatten().map(|user| user.name),
    }
}

/// The list of the command line, else of the first variable with one.
fn read(
    text: Option<&OsStr>,
    file: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Listed>, HostsError> {
    let text = text.map(|text| ("--hosts", text.to_owned(), Words, false));
    let file = || file.map(|file| ("--hostfile", file.into(), Lines, false));
    let set = |(name, grammar, batch): &(&'static str, Grammar, bool)| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        Some((*name, value, *grammar, *batch))
    };
    let given = text.or_else(file).or_else(|| SOURCES.iter().find_map(set));
    let Some((name, value, grammar, batch)) = given else { return Ok(None) };
    let (source, text) = if grammar == Words {
        (name.to_owned(), value.to_string_lossy().into_owned())
    } else {
        let sign = if name.starts_with('-') { ' ' } else { '=' };
        let source = format!("{name}{sign}{}", value.display());
        let text = read_file(Path::new(&value), &source)?;
        (source, text)
    };
    match list::parse(&text, grammar) {
        Ok(list) => Ok(Some(Listed { source, batch, list })),
        Err(error) => Err(HostsError::List(source, error)),
    }
}

fn read_file(path: &Path, source: &str) -> Result<String, HostsError> {
    let bytes = std::fs::read(path).map_err(|error| HostsError::File(source.to_owned(), error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The hosts of a list that a job may use, of which `wanted` are wanted.
fn usable(
    listed: Listed,
    keep_duplicates: bool,
    wanted: Option<u32>,
    here: &Here,
    warnings: &mut Vec<String>,
) -> Result<Vec<HostEntry>, HostsError> {
    let Listed { source, batch, list: List { mut hosts, notes } } = listed;
    if hosts.is_empty() {
        return Err(HostsError::Empty(source, here.name.clone()));
    }
    // Files of batch systems have columns that nobody needs to hear of.
    if !batch {
        warnings.extend(notes.into_iter().map(|note| format!("{source}, {note}")));
    }
    if !keep_duplicates {
        hosts = list::distinct(hosts);
    }
    let found = hosts.len();
    if let Some(wanted) = wanted.filter(|wanted| *wanted as usize > found) {
        warnings.push(format!(
            "-N {wanted}: {source} names {found} {} only; reduced to -N {found}",
            if found == 1 { "host" } else { "hosts" }
        ));
    }
    for host in &mut hosts {
        host.here = here.is(host);
    }
    Ok(hosts)
}

fn without_slots(mut hosts: Vec<HostEntry>) -> Vec<HostEntry> {
    hosts.iter_mut().for_each(|host| host.slots = None);
    hosts
}

/// What decides how ranks are spread over the hosts of a list.
struct Rules<'a> {
    rule: &'a MapRule,
    /// `--ranks-per-host`.
    each: Option<u32>,
    /// Hosts that are wanted with it.
    needed: u32,
    /// Whether the user named the hosts, and not a batch system.
    asked: bool,
    /// Where they are from.
    source: &'a str,
}

impl Rules<'_> {
    fn layout(&self) -> Layout {
        match (self.rule, self.each) {
            (MapRule::Cyclic, _) => Layout::Cyclic,
            (MapRule::Slots, _) | (_, Some(_)) => Layout::Fill,
            _ => Layout::Block,
        }
    }

    /// The hosts as far as `--ranks-per-host` lets them be used.
    fn limited(&self, mut hosts: Vec<HostEntry>) -> Vec<HostEntry> {
        let Some(each) = self.each else { return hosts };
        // A host with fewer slots than that leaves more for others.
        if hosts.iter().all(|host| host.slots.is_none_or(|slots| slots >= each)) {
            hosts.truncate(self.needed as usize);
        }
        for host in &mut hosts {
            host.slots = Some(host.slots.map_or(each, |slots| slots.min(each)));
        }
        hosts
    }

    fn refused(&self, why: TooFewSlots) -> HostsError {
        let source = self.source.to_owned();
        match self.each {
            Some(each) => HostsError::PerHost(why, each, source),
            None => HostsError::Slots(why, source),
        }
    }
}

fn spread(
    hosts: Vec<HostEntry>,
    ranks: u32,
    rules: &Rules<'_>,
    warnings: &mut Vec<String>,
) -> Result<Map, HostsError> {
    let layout = rules.layout();
    let refused = match layout::spread(rules.limited(hosts.clone()), ranks, layout) {
        Ok(map) => return Ok(map),
        Err(refused) if rules.asked => return Err(rules.refused(refused)),
        Err(refused) => refused,
    };
    // A batch system's slots are not the user's wish: programs that compute little may well share
    // cpus.
    let map = layout::spread(rules.limited(without_slots(hosts)), ranks, layout)
        .map_err(|refused| rules.refused(refused))?;
    warnings.push(format!("{refused} ({}); the slots are not heeded", rules.source));
    Ok(map)
}

fn from_file(
    path: &Path,
    ranks: u32,
    wanted: Option<u32>,
    hosts: Option<Vec<HostEntry>>,
    here: &Here,
    source: &Option<String>,
) -> Result<Map, HostsError> {
    let name = format!("--map {}", path.display());
    let text = read_file(path, &name)?;
    let map = list::place(&text, ranks, hosts.as_deref(), here)
        .map_err(|error| HostsError::List(name.clone(), error))?;
    let seen = map.hosts.len();
    if let Some(wanted) = wanted.filter(|wanted| (*wanted as usize) < seen) {
        return Err(HostsError::MapHosts(seen, wanted));
    }
    for (host, ranks) in map.hosts.iter().zip(map.shares()) {
        if let Some(slots) = host.slots.filter(|slots| ranks > *slots) {
            let source = source.clone().unwrap_or(name);
            return Err(HostsError::MapSlots(host.to_string(), ranks, slots, source));
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests;
