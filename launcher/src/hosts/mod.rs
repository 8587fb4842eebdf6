//! Which hosts the job uses, and which rank runs where.
//!
//! The first source that is set counts: `--hosts` or `--hostfile`, then the variables in GASNet's
//! order. Of its hosts, each once unless `GASNET_SSH_KEEPDUP` says otherwise, the first `-N` (else
//! as many as there are ranks) are used. Without any source the job is on this host. How lists are
//! written is [`list`]'s business.

pub mod layout;
pub mod list;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use supervisor::plan::{HostEntry, Map};

use self::layout::{LayoutError, Order};
use self::list::{Grammar, Here, ListError};
use crate::flags::MapRule;

/// Why the hosts asked for cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// `-N` above 1 without hosts.
    #[error(
        "-N {hosts}: no host list is set, so only this host ({here}) is known. Try --hosts n1,n2 or --hostfile FILE, \
         or -N 1, which puts all {ranks} ranks here"
    )]
    NoList {
        /// Value of -N.
        hosts: u32,
        /// This host.
        here: String,
        /// Ranks.
        ranks: u32,
    },
    /// A list without hosts.
    #[error(
        "{source_name} names no host. Write some into it, or leave it out to use this host ({here})"
    )]
    Empty {
        /// Where the list is from.
        source_name: String,
        /// This host.
        here: String,
    },
    /// A file cannot be read.
    #[error(
        "cannot read the file of {source_name}: {source}. Name a readable file, or leave it out"
    )]
    File {
        /// Where the file's name is from.
        source_name: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A list or a map cannot be understood.
    #[error("{source_name}, {source}")]
    List {
        /// Where it is from.
        source_name: String,
        /// What is wrong with it.
        source: ListError,
    },
    /// Ranks do not fit.
    #[error("{source}. Try -n {fits}, or give {source_name} more hosts or slots")]
    Slots {
        /// What does not fit.
        source: LayoutError,
        /// Ranks that would.
        fits: u64,
        /// Where the hosts are from.
        source_name: String,
    },
    /// A map puts too many ranks on a host.
    #[error(
        "--map puts {ranks} ranks on the host {host}, which has {slots} slots: {} too many. Move some, or give the host \
         more slots in {source_name}", .ranks - .slots
    )]
    MapSlots {
        /// Host.
        host: String,
        /// Its ranks.
        ranks: u32,
        /// Its slots.
        slots: u32,
        /// Where the hosts are from.
        source_name: String,
    },
    /// A map with more hosts than `-N`.
    #[error(
        "--map uses {seen} hosts, but -N asks for {wanted}; use fewer in the map, or -N {seen}"
    )]
    MapHosts {
        /// Hosts of the map.
        seen: usize,
        /// Value of -N.
        wanted: u32,
    },
    /// The name of this host is unknown.
    #[error("cannot read this host's name from {NAME_FILE}: {source}")]
    Name {
        /// Why not.
        source: std::io::Error,
    },
}

const NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// How the value of a variable names hosts.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// It is the name of a file.
    File(Grammar),
    /// It is the list.
    Text,
}

/// A variable with hosts.
#[derive(Clone, Copy, Debug)]
struct Source {
    name: &'static str,
    form: Form,
    /// Set by a batch system and not by the user.
    batch: bool,
}

const fn user(name: &'static str, form: Form) -> Source {
    Source { name, form, batch: false }
}

const fn batch(name: &'static str, form: Form) -> Source {
    Source { name, form, batch: true }
}

/// The variables; the first that is set and not empty counts.
const SOURCES: [Source; 10] = [
    user("GASNET_SSH_NODEFILE", Form::File(Grammar::Lines)),
    user("GASNET_SSH_SERVERS", Form::Text),
    user("GASNET_NODEFILE", Form::File(Grammar::Lines)),
    batch("PBS_NODEFILE", Form::File(Grammar::Lines)),
    batch("PE_HOSTFILE", Form::File(Grammar::GridEngine)),
    batch("SSS_HOSTLIST", Form::Text),
    batch("LSB_HOSTS", Form::Text),
    batch("OAR_NODEFILE", Form::File(Grammar::Lines)),
    batch("SLURM_JOB_NODELIST", Form::Text),
    // Its older name.
    batch("SLURM_NODELIST", Form::Text),
];

/// This host's name.
///
/// # Errors
/// The kernel does not tell.
pub fn own_name() -> Result<String, HostsError> {
    let name = std::fs::read_to_string(NAME_FILE).map_err(|source| HostsError::Name { source })?;
    Ok(name.trim().to_owned())
}

/// What the command line says about hosts.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Number of ranks.
    pub ranks: u32,
    /// `-N`.
    pub wanted: Option<u32>,
    /// `--hosts`.
    pub hosts: Option<&'a OsStr>,
    /// `--hostfile`.
    pub hostfile: Option<&'a Path>,
    /// `--map`.
    pub map: &'a MapRule,
    /// `GASNET_SSH_KEEPDUP`.
    pub keep_duplicates: bool,
}

/// The hosts of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Where each rank runs.
    pub map: Map,
    /// Where the hosts are from, as the user would write it; none: nobody named a host.
    pub source: Option<String>,
    /// Whether the user named them, and not a batch system.
    pub asked: bool,
    /// Things to tell the user.
    pub warnings: Vec<String>,
}

/// A list that was read.
struct Listed {
    source: String,
    batch: bool,
    hosts: Vec<HostEntry>,
    notes: Vec<String>,
}

/// Decides for a job on `here`; `variable` looks a variable up. Reads the files that are named,
/// nothing else.
///
/// # Errors
/// A list, file or map that cannot be used, or ranks that do not fit.
pub fn choose(
    request: &Request<'_>,
    here: &str,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Chosen, HostsError> {
    let ranks = request.ranks;
    let mut warnings = Vec::new();
    let wanted = request.wanted.map(|wanted| {
        if wanted > ranks {
            warnings.push(format!(
                "-N {wanted} is more hosts than the job has ranks ({ranks}); reduced to -N {ranks}"
            ));
        }
        wanted.min(ranks)
    });
    let listed = read_list(request, &variable)?;
    // A look at the accounts may ask the network, so only for who needs it.
    let users = listed.as_ref().map_or(&[][..], |list| &list.hosts);
    let users = users.iter().any(|host| host.user.is_some());
    let own = Here {
        name: here.to_owned(),
        batch_name: variable("SLURMD_NODENAME").and_then(|name| name.into_string().ok()),
        user: if users || matches!(request.map, MapRule::File(_)) { own_user() } else { None },
    };
    let (source, asked) =
        listed.as_ref().map_or((None, false), |list| (Some(list.source.clone()), !list.batch));
    let hosts = match listed {
        None => None,
        Some(list) => Some(usable(request, list, wanted, &own, &mut warnings)?),
    };
    let map = match (request.map, hosts) {
        (MapRule::File(path), hosts) => from_file(path, request, wanted, hosts, &own, &source)?,
        (MapRule::Block, Some(hosts)) => {
            spread(hosts, ranks, Order::Block, &source, asked, &mut warnings)?
        }
        (MapRule::Cyclic, Some(hosts)) => {
            spread(hosts, ranks, Order::Cyclic, &source, asked, &mut warnings)?
        }
        (_, None) => match wanted {
            Some(hosts) if hosts > 1 => {
                return Err(HostsError::NoList { hosts, here: own.name, ranks });
            }
            _ => Map::here(here, ranks),
        },
    };
    if source.is_none() && variable("SLURM_JOB_ID").is_some_and(|id| !id.is_empty()) {
        warnings.push(format!(
            "SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not, so the hosts of the batch job are unknown; this host \
             ({here}) is used"
        ));
    }
    let asked = asked || matches!(request.map, MapRule::File(_));
    Ok(Chosen { map, source, asked, warnings })
}

/// Hosts without a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct All {
    /// Each once; at least one.
    pub hosts: Vec<HostEntry>,
    /// Things to tell the user.
    pub notes: Vec<String>,
}

/// All hosts of the list that counts, each once; this host without any list. `text` and `file` are
/// what the command line says.
///
/// # Errors
/// A list or file that cannot be used.
pub fn all(
    text: Option<&OsStr>,
    file: Option<&Path>,
    here: &str,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<All, HostsError> {
    let request = Request {
        ranks: u32::MAX,
        wanted: None,
        hosts: text,
        hostfile: file,
        map: &MapRule::Block,
        keep_duplicates: false,
    };
    let listed = read_list(&request, &variable)?;
    let own = Here {
        name: here.to_owned(),
        batch_name: variable("SLURMD_NODENAME").and_then(|name| name.into_string().ok()),
        user: own_user(),
    };
    let mut notes = Vec::new();
    let hosts = match listed {
        None => vec![HostEntry { here: true, ..HostEntry::new(here) }],
        Some(list) => usable(&request, list, None, &own, &mut notes)?,
    };
    Ok(All { hosts, notes })
}

/// Name of the user whose login this is.
fn own_user() -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten().map(|user| user.name)
}

/// The hosts that the command line itself names, each once; none when it names none. What variables
/// say is not looked at.
///
/// # Errors
/// A list or file that cannot be used, or that is empty.
pub fn named(
    text: Option<&OsStr>,
    file: Option<&Path>,
    here: &str,
) -> Result<Option<All>, HostsError> {
    let Some(Listed { source, hosts, notes, .. }) = read_named(text, file)? else {
        return Ok(None);
    };
    if hosts.is_empty() {
        return Err(HostsError::Empty { source_name: source, here: here.to_owned() });
    }
    let notes = notes.into_iter().map(|note| format!("{source}, {note}")).collect();
    Ok(Some(All { hosts: list::distinct(hosts), notes }))
}

/// The list of the command line.
fn read_named(text: Option<&OsStr>, file: Option<&Path>) -> Result<Option<Listed>, HostsError> {
    if let Some(text) = text {
        return parse("--hosts".to_owned(), false, &text.to_string_lossy(), Grammar::Words)
            .map(Some);
    }
    let Some(path) = file else { return Ok(None) };
    let source = format!("--hostfile {}", path.display());
    let text = read_file(path, &source)?;
    parse(source, false, &text, Grammar::Lines).map(Some)
}

fn read_list(
    request: &Request<'_>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Listed>, HostsError> {
    if let Some(list) = read_named(request.hosts, request.hostfile)? {
        return Ok(Some(list));
    }
    let set = SOURCES.iter().find_map(|source| {
        Some((source, variable(source.name).filter(|value| !value.is_empty())?))
    });
    let Some((Source { name, form, batch }, value)) = set else { return Ok(None) };
    let list = match form {
        Form::Text => parse((*name).to_owned(), *batch, &value.to_string_lossy(), Grammar::Words),
        Form::File(grammar) => {
            let path = PathBuf::from(value);
            let source = format!("{name}={}", path.display());
            let text = read_file(&path, &source)?;
            parse(source, *batch, &text, *grammar)
        }
    };
    list.map(Some)
}

fn read_file(path: &Path, source_name: &str) -> Result<String, HostsError> {
    let bytes = std::fs::read(path)
        .map_err(|source| HostsError::File { source_name: source_name.to_owned(), source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(source: String, batch: bool, text: &str, grammar: Grammar) -> Result<Listed, HostsError> {
    match list::parse(text, grammar) {
        Ok(list) => Ok(Listed { source, batch, hosts: list.hosts, notes: list.notes }),
        Err(error) => Err(HostsError::List { source_name: source, source: error }),
    }
}

/// The hosts of a list that the job may use.
fn usable(
    request: &Request<'_>,
    list: Listed,
    wanted: Option<u32>,
    here: &Here,
    warnings: &mut Vec<String>,
) -> Result<Vec<HostEntry>, HostsError> {
    let Listed { source, batch, mut hosts, notes } = list;
    if hosts.is_empty() {
        return Err(HostsError::Empty { source_name: source, here: here.name.clone() });
    }
    // Files of batch systems have columns that nobody needs to hear of.
    if !batch {
        warnings.extend(notes.into_iter().map(|note| format!("{source}, {note}")));
    }
    if !request.keep_duplicates {
        hosts = list::distinct(hosts);
    }
    let found = hosts.len();
    if let Some(wanted) = wanted.filter(|wanted| *wanted as usize > found) {
        warnings.push(format!(
            "-N {wanted}: {source} names {found} {} only; reduced to -N {found}",
            if found == 1 { "host" } else { "hosts" }
        ));
    }
    // A map file says itself which of them it needs.
    let all = matches!(request.map, MapRule::File(_)).then_some(u32::MAX);
    hosts.truncate(wanted.or(all).unwrap_or(request.ranks) as usize);
    for host in &mut hosts {
        host.here = here.is(host);
    }
    Ok(hosts)
}

fn spread(
    mut hosts: Vec<HostEntry>,
    ranks: u32,
    order: Order,
    source: &Option<String>,
    asked: bool,
    warnings: &mut Vec<String>,
) -> Result<Map, HostsError> {
    let source_name = source.clone().unwrap_or_default();
    let refused = match layout::spread(hosts.clone(), ranks, order) {
        Ok(map) => return Ok(map),
        Err(error) => error,
    };
    let LayoutError::Slots { slots, .. } = refused else {
        return Err(HostsError::Slots { source: refused, fits: 0, source_name });
    };
    if asked {
        return Err(HostsError::Slots { source: refused, fits: slots, source_name });
    }
    // A batch system's slots are not the user's wish: programs that compute little may well share
    // cpus.
    warnings.push(format!("{refused} ({source_name}); the slots are not heeded"));
    hosts.iter_mut().for_each(|host| host.slots = None);
    layout::spread(hosts, ranks, order).map_err(|source| HostsError::Slots {
        source,
        fits: slots,
        source_name,
    })
}

fn from_file(
    path: &Path,
    request: &Request<'_>,
    wanted: Option<u32>,
    hosts: Option<Vec<HostEntry>>,
    here: &Here,
    source: &Option<String>,
) -> Result<Map, HostsError> {
    let source_name = format!("--map {}", path.display());
    let text = read_file(path, &source_name)?;
    let map = list::place(&text, request.ranks, hosts.as_deref(), here)
        .map_err(|source| HostsError::List { source_name: source_name.clone(), source })?;
    let seen = map.hosts.len();
    if let Some(wanted) = wanted.filter(|wanted| (*wanted as usize) < seen) {
        return Err(HostsError::MapHosts { seen, wanted });
    }
    for (host, ranks) in map.hosts.iter().zip(map.shares()) {
        if let Some(slots) = host.slots.filter(|slots| ranks > *slots) {
            let source_name = source.clone().unwrap_or(source_name);
            return Err(HostsError::MapSlots { host: host.to_string(), ranks, slots, source_name });
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests;
