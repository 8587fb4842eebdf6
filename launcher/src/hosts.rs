//! Which hosts the job may use. In this version: this one only, and whoever asks for others is told so.
//!
//! Host lists are read in GASNet's order of precedence; the first that is set counts. Of it, as many distinct hosts count
//! as the job would use: `-N`, else the number of ranks.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Why the hosts asked for cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// `-N` above 1.
    #[error(
        "-N {hosts}: other hosts are not reachable yet: the ssh spawner starts ranks on this host only. \
         Try -N 1, which puts all {ranks} ranks here"
    )]
    Several {
        /// Value of -N.
        hosts: u32,
        /// Ranks.
        ranks: u32,
    },
    /// A list names another host.
    #[error(
        "{variable} names the host {other:?}, but other hosts are not reachable yet: the ssh spawner starts ranks on \
         this host ({here}) only. Unset {variable} to start all {ranks} ranks here"
    )]
    Other {
        /// Variable.
        variable: &'static str,
        /// Host in its list.
        other: String,
        /// This host.
        here: String,
        /// Ranks.
        ranks: u32,
    },
    /// A host file cannot be read.
    #[error("cannot read the host file {} named by {variable}: {source}. Correct {variable}, or unset it to use this host", .path.display())]
    File {
        /// Variable.
        variable: &'static str,
        /// Path.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The name of this host is unknown.
    #[error("cannot read this host's name from {NAME_FILE}: {source}")]
    Name {
        /// Why not.
        source: std::io::Error,
    },
}

const NAME_FILE: &str = "/proc/sys/kernel/hostname";
const SOURCES: [(&str, Form); 3] = [
    ("GASNET_SSH_NODEFILE", Form::File),
    ("GASNET_SSH_SERVERS", Form::Text),
    ("GASNET_NODEFILE", Form::File),
];

#[derive(Clone, Copy)]
enum Form {
    File,
    Text,
    Count,
}

/// This host's name.
///
/// # Errors
/// The kernel does not tell.
pub fn own_name() -> Result<String, HostsError> {
    let name = std::fs::read_to_string(NAME_FILE).map_err(|source| HostsError::Name { source })?;
    Ok(name.trim().to_owned())
}

/// Checks `-N` and the host lists for a job of `ranks` ranks; returns warnings. `variable` looks a variable up.
///
/// # Errors
/// Another host is asked for, or a host file cannot be read.
pub fn check(
    here: &str,
    ranks: u32,
    hosts: Option<u32>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<String>, HostsError> {
    let mut warnings = Vec::new();
    let wanted = hosts.unwrap_or(ranks);
    if wanted > ranks {
        warnings.push(format!(
            "-N {wanted} is more hosts than the job has ranks ({ranks}); reduced to -N {ranks}"
        ));
    }
    let wanted = wanted.min(ranks);
    if hosts.is_some() && wanted > 1 {
        return Err(HostsError::Several { hosts: wanted, ranks });
    }
    let set = SOURCES
        .iter()
        .find_map(|(name, form)| Some((*name, *form, variable(name).filter(|v| !v.is_empty())?)));
    if let Some((variable, form, value)) = &set {
        let names = match form {
            Form::Text | Form::Count => split_servers(value),
            Form::File => read_host_file(variable, PathBuf::from(&value))?,
        };
        let mut seen = BTreeSet::new();
        let used = names.iter().filter(|name| seen.insert(name.as_str())).take(wanted as usize);
        if let Some(other) = used.into_iter().find(|name| !is_here(name, here)) {
            return Err(HostsError::Other {
                variable,
                other: other.clone(),
                here: here.to_owned(),
                ranks,
            });
        }
        if names.is_empty() {
            warnings
                .push(format!("{variable} is set but names no host; this host ({here}) is used"));
        }
    }
    if set.is_none() && hosts.is_none() {
        warnings.extend(batch_hosts(here, ranks, variable));
    }
    Ok(warnings)
}

/// What batch systems say about the hosts of their job. Their lists are not asked for by the user, so other hosts in them
/// are a warning only.
const BATCH: [(&str, Form); 6] = [
    ("PBS_NODEFILE", Form::File),
    ("PE_HOSTFILE", Form::File),
    ("LSB_HOSTS", Form::Text),
    ("OAR_NODEFILE", Form::File),
    ("SLURM_JOB_NUM_NODES", Form::Count),
    ("SLURM_NNODES", Form::Count),
];

fn batch_hosts(
    here: &str,
    ranks: u32,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<String> {
    let (source, form, value) = BATCH
        .iter()
        .find_map(|(name, form)| Some((*name, *form, variable(name).filter(|v| !v.is_empty())?)))?;
    let others = match form {
        Form::Count => value.to_str()?.trim().parse::<u32>().ok()?.saturating_sub(1) as usize,
        Form::Text => count_others(&split_servers(&value), here),
        // A file that cannot be read says nothing; the user did not name it.
        Form::File => count_others(&read_host_file(source, PathBuf::from(&value)).ok()?, here),
    };
    (others > 0 && ranks > 1).then(|| {
        format!(
            "the batch job has {others} other {} ({source}), but other hosts are not reachable yet: all {ranks} ranks \
             start on this host ({here}). -N 1 says that this is meant",
            if others == 1 { "host" } else { "hosts" }
        )
    })
}

fn count_others(names: &[String], here: &str) -> usize {
    names.iter().filter(|name| !is_here(name, here)).collect::<BTreeSet<_>>().len()
}

/// Splits at blanks and commas only: `host:port` and IPv6 addresses stay whole.
fn split_servers(value: &OsStr) -> Vec<String> {
    let text = value.to_string_lossy();
    text.split([',', ' ', '\t', '\n'])
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
        .collect()
}

fn read_host_file(variable: &'static str, path: PathBuf) -> Result<Vec<String>, HostsError> {
    let bytes =
        std::fs::read(&path).map_err(|source| HostsError::File { variable, path, source })?;
    Ok(host_lines(&String::from_utf8_lossy(&bytes)))
}

/// First word of every line that is neither blank nor a comment.
fn host_lines(text: &str) -> Vec<String> {
    let words = text.lines().filter_map(|line| line.split_whitespace().next());
    words.filter(|word| !word.starts_with('#')).map(ToOwned::to_owned).collect()
}

/// Whether a name means this host: its own name, short or qualified, or a loopback name. Nothing is looked up in the
/// network.
fn is_here(name: &str, here: &str) -> bool {
    let name = name.rsplit_once('@').map_or(name, |(_, host)| host);
    let short = |name: &str| name.split('.').next().unwrap_or(name).to_ascii_lowercase();
    let is_address = name.parse::<std::net::IpAddr>().ok();
    match is_address {
        Some(address) => address.is_loopback(),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || name.eq_ignore_ascii_case("localhost.localdomain")
                || name.eq_ignore_ascii_case(here)
                || (short(name) == short(here) && (!name.contains('.') || !here.contains('.')))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(
        set: &[(&str, &str)],
        ranks: u32,
        hosts: Option<u32>,
    ) -> Result<Vec<String>, HostsError> {
        check("n1.cluster", ranks, hosts, |name| {
            set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn number_of_hosts() {
        assert!(with(&[], 4, None).expect("fine").is_empty());
        assert!(with(&[], 4, Some(1)).expect("fine").is_empty());
        assert_eq!(with(&[], 1, Some(3)).expect("reduced").len(), 1);
        assert!(matches!(with(&[], 2, Some(3)), Err(HostsError::Several { hosts: 2, ranks: 2 })));
    }

    #[test]
    fn lists_that_mean_this_host() {
        for list in ["n1", "N1.cluster", "localhost,127.0.0.1 ::1", "me@n1", "", " , "] {
            assert!(with(&[("GASNET_SSH_SERVERS", list)], 4, None).is_ok(), "{list}");
        }
        assert!(
            with(&[("GASNET_SSH_SERVERS", "n1 n2")], 4, Some(1)).is_ok(),
            "only the first host is used"
        );
    }

    #[test]
    fn lists_that_name_others() {
        for list in ["n2", "n1 n2", "n1.other", "10.0.0.1", "n1:22"] {
            let error = with(&[("GASNET_SSH_SERVERS", list)], 4, None).expect_err(list).to_string();
            assert!(error.contains("GASNET_SSH_SERVERS") && error.contains("Unset"), "{error}");
        }
        let both = [("GASNET_SSH_SERVERS", "n1"), ("GASNET_SSH_NODEFILE", "/nonexistent/hosts")];
        assert!(matches!(
            with(&both, 4, None),
            Err(HostsError::File { variable: "GASNET_SSH_NODEFILE", .. })
        ));
    }

    #[test]
    fn batch_systems_that_offer_more_hosts_are_a_warning() {
        let slurm = [("SLURM_JOB_NUM_NODES", "3")];
        let warnings = with(&slurm, 4, None).expect("no error");
        assert!(
            warnings[0].contains("2 other hosts") && warnings[0].contains("-N 1"),
            "{warnings:?}"
        );
        assert!(with(&slurm, 4, Some(1)).expect("meant").is_empty());
        assert!(with(&[("SLURM_JOB_NUM_NODES", "1")], 4, None).expect("one host").is_empty());
        assert_eq!(with(&[("LSB_HOSTS", "n1 n1 n2 n2")], 4, None).expect("no error").len(), 1);
        assert!(with(&[("PBS_NODEFILE", "/nonexistent")], 4, None).expect("no error").is_empty());
    }

    #[test]
    fn host_files() {
        assert_eq!(host_lines("# c\n\n n1 slots=4\n\tn2#x\r\n  # d\nn1\n"), ["n1", "n2#x", "n1"]);
    }
}
