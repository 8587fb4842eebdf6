//! The environment of the ranks, and the check of the `-E` list.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use settings::Env;

use crate::spawner::{Spawner, VARIABLE};

/// Tells ranks that the launcher has checked the settings and added the installation's defaults.
const CHECKED: &str = "GASNETRUN_CHECKED";

/// Variables: names with values, of any bytes.
pub type Variables = Vec<(OsString, OsString)>;

/// An entry of `-E` or `--env` that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// A value without a name: the option, the entry.
    #[error(
        "{0} {1:?}: a value needs a name in front of it; write NAME=VALUE, or NAME to forward it as it is"
    )]
    Nameless(&'static str, OsString),
    /// What the launcher says to the ranks.
    #[error("{0} {1:?}: the launcher sets this variable for each rank itself; leave it out")]
    Own(&'static str, OsString),
}

/// What the user says about the ranks' environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// Values of `-E`.
    pub lists: &'a [OsString],
    /// Values of `--env`, one variable each.
    pub each: &'a [OsString],
}

impl<'a> Asked<'a> {
    /// Whether nothing is said.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.lists.is_empty() && self.each.is_empty()
    }

    /// The entries with their option, each a name or an assignment; those of `--env` come last.
    fn entries(self) -> impl Iterator<Item = (&'static str, &'a OsStr)> {
        let all = self.lists.iter().flat_map(|list| list.as_bytes().split(|b| *b == b','));
        let lists = all.filter(|entry| !entry.is_empty()).map(OsStr::from_bytes);
        let each = self.each.iter().map(OsString::as_os_str);
        lists.map(|entry| ("-E", entry)).chain(each.map(|entry| ("--env", entry)))
    }
}

/// Name and value of an entry that assigns.
pub(crate) fn assignment(entry: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = entry.as_bytes();
    let at = bytes.iter().position(|b| *b == b'=')?;
    Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
}

/// Carries out the assignments of `-E` and `--env`, as if the launcher had been started with them.
///
/// # Errors
/// [`EnvironmentError`], with the entry.
pub fn assign(asked: Asked<'_>, environment: &mut Env) -> Result<(), EnvironmentError> {
    for (option, entry) in asked.entries() {
        if entry.is_empty() {
            return Err(EnvironmentError::Nameless(option, entry.to_owned()));
        }
        let Some((name, value)) = assignment(entry) else { continue };
        if name.is_empty() {
            return Err(EnvironmentError::Nameless(option, entry.to_owned()));
        }
        if set_by_launcher(name) {
            return Err(EnvironmentError::Own(option, entry.to_owned()));
        }
        environment.set(name, value);
    }
    Ok(())
}

/// What became of the `-E` lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Names that are set, sorted, each once.
    pub set: Vec<OsString>,
    /// Names that are not set: skipped.
    pub unset: Vec<OsString>,
    /// Names that `ALL` leaves out, because shells on other hosts would complain.
    pub left_out: Vec<OsString>,
}

/// Checks what is asked against the environment: names of any other bytes, or `ALL` (`-E`). Names
/// that are [assigned](assign) there are set, and `NAME*` of `--env` is all that begin so.
///
/// Ranks on this host get every variable anyway; ranks on other hosts get these by [`for_hosts`].
#[must_use]
pub fn forwarded(asked: Asked<'_>, environment: &Env) -> Forwarded {
    let known: BTreeSet<&OsStr> = environment.iter().map(|(name, _)| name).collect();
    if asked.lists.iter().any(|list| list == "ALL") {
        let broken: BTreeSet<&OsStr> = environment
            .iter()
            .filter(|(name, value)| is_broken_function(name, value))
            .map(|(name, _)| name)
            .collect();
        let (left_out, set) =
            known.into_iter().map(OsStr::to_owned).partition(|name| broken.contains(&**name));
        return Forwarded { set, unset: Vec::new(), left_out };
    }
    let names = asked.entries().flat_map(|(option, entry)| match assignment(entry) {
        Some((name, _)) => vec![name],
        None => match entry.as_bytes().strip_suffix(b"*").filter(|_| option == "--env") {
            Some(begin) => {
                let begins = |name: &&&OsStr| name.as_bytes().starts_with(begin);
                known.iter().filter(begins).copied().collect()
            }
            None => vec![entry],
        },
    });
    let names: BTreeSet<&OsStr> = names.collect();
    let (set, unset) = names.into_iter().partition::<Vec<_>, _>(|name| known.contains(name));
    let owned = |names: Vec<&OsStr>| names.into_iter().map(OsStr::to_owned).collect();
    Forwarded { set: owned(set), unset: owned(unset), left_out: Vec::new() }
}

/// Whether every bash that finds this variable prints an error: it is taken for an exported function,
/// but its name or its end cannot be one.
fn is_broken_function(name: &OsStr, value: &OsStr) -> bool {
    let function = name.as_bytes().strip_prefix(b"BASH_FUNC_");
    let function = function.and_then(|rest| rest.strip_suffix(b"%%"));
    let Some(function) = function.filter(|_| value.as_bytes().starts_with(b"() {")) else {
        return false;
    };
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"_.:-+@,".contains(b) || !b.is_ascii();
    let named = !function.is_empty() && function.iter().all(fits);
    !named || !value.as_bytes().trim_ascii_end().ends_with(b"}")
}

/// Whether the launcher or its agent sets this variable for the ranks, whatever it was before: what
/// an outer job says about its own rank must not reach the ranks of this one.
#[must_use]
pub fn set_by_launcher(name: &OsStr) -> bool {
    let known = |name: &str| name.starts_with("GASNETRUN_") && settings::find(name).is_some();
    name == VARIABLE || name.to_str().is_some_and(known)
}

/// Whether a variable reaches ranks on other hosts without being named: all of GASNet's, but those
/// that only the launcher reads, those that describe another launch, and what the row of a name
/// says otherwise. Settings of an adapter's driver go along, as in GASNet.
fn goes_along(name: &OsStr) -> bool {
    let Some(text) = name.to_str() else { return name.as_bytes().starts_with(b"GASNET_") };
    let ours = text.starts_with("GASNET_") && !text.starts_with("GASNET_SSH_");
    ["MLX4_", "MLX5_"].iter().any(|p| text.starts_with(p)) || (ours && settings::propagates(text))
}

/// What ranks on other hosts get on top of what a login there sets: `GASNET_*`, the names of `-E`,
/// and what [`of_ranks`] adds. Sorted by name; no name occurs twice. Sent through the channel to
/// the agents and never put on a command line.
#[must_use]
pub fn for_hosts(own: &Env, forwarded: &Forwarded, spawner: Spawner, level: u8) -> Variables {
    let listed: BTreeSet<&OsStr> = forwarded.set.iter().map(OsString::as_os_str).collect();
    let ranks = of_ranks(own, spawner, level);
    let added = |name: &OsStr| !own.iter().any(|(own, _)| own == name) || set_by_launcher(name);
    let taken = ranks
        .into_iter()
        .filter(|(name, _)| goes_along(name) || listed.contains(name.as_os_str()) || added(name));
    // The first of equal names counts, as with getenv.
    let mut by_name = BTreeMap::new();
    for (name, value) in taken {
        by_name.entry(name).or_insert(value);
    }
    by_name.into_iter().collect()
}

/// The ranks' environment: the launcher's own, the chosen spawner, and what the verbosity sets. The
/// agent adds the per-rank variables. The user's locale and everything else stay as they are.
#[must_use]
pub fn of_ranks(own: &Env, spawner: Spawner, level: u8) -> Variables {
    let mut variables: Variables =
        own.clone().into_iter().filter(|(name, _)| !set_by_launcher(name)).collect();
    let mut default = |name: &str, value: &str| {
        if !variables.iter().any(|(n, _)| n == name) {
            variables.push((name.into(), value.into()));
        }
    };
    if level >= 1 {
        default("GASNET_VERBOSEENV", "1");
    }
    if level >= 2 {
        default("GASNET_SPAWN_VERBOSE", "1");
    }
    // Open MPI would warn about every fork of a rank that also uses MPI.
    default("OMPI_MCA_mpi_warn_on_fork", "0");
    variables.push((VARIABLE.into(), spawner.name().into()));
    variables.push((CHECKED.into(), "1".into()));
    variables
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Env {
        pairs.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))).collect()
    }

    const fn asked(lists: &[OsString]) -> Asked<'_> {
        Asked { lists, each: &[] }
    }

    #[test]
    fn single_variables_may_have_commas_and_count_last() {
        let mut environment = variables(&[("MY_A", "1"), ("MY_B", "2"), ("B", "3")]);
        let (lists, each) = (["A=x,B".into()], ["A=1,2".into(), "MY_*".into(), "NO*".into()]);
        let asked = Asked { lists: &lists, each: &each };
        assert_eq!(assign(asked, &mut environment), Ok(()));
        assert_eq!(environment.get("A"), Some(OsStr::new("1,2")));
        let seen = forwarded(asked, &environment);
        assert_eq!(
            (seen.set, seen.unset.len()),
            (["A", "B", "MY_A", "MY_B"].map(OsString::from).to_vec(), 0)
        );
        for bad in ["", "=1"] {
            let asked = Asked { lists: &[], each: &[bad.into()] };
            let error = assign(asked, &mut environment).expect_err(bad).to_string();
            assert!(error.starts_with("--env"), "{error}");
        }
    }

    #[test]
    fn lists() {
        let environment =
            variables(&[("B", "1"), ("A", "x\ny"), ("BASH_FUNC_module%%", "() {\n}")]);
        let list = OsString::from_vec(b"BASH_FUNC_module%%,,A,\xff,A,UNSET".to_vec());
        let seen = forwarded(asked(std::slice::from_ref(&list)), &environment);
        assert_eq!(seen.set, ["A", "BASH_FUNC_module%%"]);
        assert_eq!(seen.unset, [OsString::from("UNSET"), OsString::from_vec(vec![0xff])]);
        for all in [&["ALL".into()][..], &["A".into(), "ALL".into()]] {
            assert_eq!(forwarded(asked(all), &environment).set, ["A", "B", "BASH_FUNC_module%%"]);
        }
        assert_eq!(forwarded(asked(&[]), &environment), Forwarded::default());
    }

    /// As bash sees them: what begins as no function is a variable, whatever its name.
    #[test]
    fn all_leaves_out_what_every_bash_would_complain_of() {
        let good = [
            ("BASH_FUNC_module%%", "() {  eval x\n}"),
            ("BASH_FUNC_ml::a-b.c%%", "() { :; }\n"),
            ("BASH_FUNC_a b%%", "no function"),
            ("BASH_FUNC_x()", "() { :; }"),
            ("A-B", "() { "),
        ];
        let bad = [
            ("BASH_FUNC_a b%%", "() { :; }"),
            ("BASH_FUNC_a/b%%", "() { :; }"),
            ("BASH_FUNC_%%", "() { :; }"),
            ("BASH_FUNC_x%%", "() { broken"),
            ("BASH_FUNC_x%%", "() { :; }; echo more"),
        ];
        let left_out = |(name, value): (&str, &str)| {
            let environment = variables(&[(name, value)]);
            let all = forwarded(asked(&["ALL".into()]), &environment);
            // Who names it gets it.
            let named = forwarded(asked(&[name.into()]), &environment);
            assert_eq!((all.set.len() + all.left_out.len(), named.set.len()), (1, 1), "{name}");
            !all.left_out.is_empty()
        };
        assert_eq!(good.map(left_out), [false; 5]);
        assert_eq!(bad.map(left_out), [true; 5]);
    }

    #[test]
    fn lists_add_up_and_assign() {
        let mut environment = variables(&[("A", "old"), ("B", "1"), ("A", "second")]);
        let lists = ["A=new,C=x=y".into(), "B,D=".into()];
        assert_eq!(assign(asked(&lists), &mut environment), Ok(()));
        for (name, value) in [("A", "new"), ("B", "1"), ("C", "x=y"), ("D", "")] {
            assert_eq!(environment.get(name), Some(OsStr::new(value)), "{name}");
        }
        let seen = forwarded(asked(&lists), &environment);
        assert_eq!(
            (seen.set, seen.unset),
            (["A", "B", "C", "D"].map(OsString::from).to_vec(), Vec::new())
        );
        let refused = |list: &str| assign(asked(&[list.into()]), &mut variables(&[])).unwrap_err();
        assert_eq!(refused("A=1,=2"), EnvironmentError::Nameless("-E", "=2".into()));
        let own = "GASNETRUN_RANK=2";
        assert_eq!(refused(own), EnvironmentError::Own("-E", own.into()));
    }

    #[test]
    fn other_hosts_get_what_is_ours_and_what_is_named() {
        let own = variables(&[
            ("PATH", "/bin"),
            ("LINES", "a\nb"),
            ("GASNET_QUIET", "1"),
            ("GASNET_OF_TOMORROW", "1"),
            ("GASNET_SSH_SERVERS", "n1"),
            ("GASNET_NODEFILE", "/x"),
            ("GASNET_SPAWN_ARGS", "M"),
            ("GASNETRUN_RANK", "7"),
            ("GASNET_IBV_SPAWNER", "SSH"),
            ("MLX5_SINGLE_THREADED", "1"),
            ("SLURM_JOB_ID", "1"),
            ("LINES", "second"),
        ]);
        let names = |list: Option<&str>| {
            let list: Vec<OsString> = list.into_iter().map(OsString::from).collect();
            let forwarded = forwarded(asked(&list), &own);
            let all = for_hosts(&own, &forwarded, Spawner::Ssh, 1);
            assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted, each once");
            all.into_iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect::<Vec<_>>()
        };
        let always = [
            "GASNETRUN_CHECKED=1",
            "GASNET_IBV_SPAWNER=ssh",
            "GASNET_OF_TOMORROW=1",
            "GASNET_QUIET=1",
            "GASNET_VERBOSEENV=1",
            "MLX5_SINGLE_THREADED=1",
            "OMPI_MCA_mpi_warn_on_fork=0",
        ];
        assert_eq!(names(None), always);
        let named = names(Some("LINES,GASNET_NODEFILE,GASNETRUN_RANK,UNSET"));
        assert_eq!(named.len(), always.len() + 2);
        assert!(named.contains(&"LINES=a\nb".to_owned()), "{named:?}");
        assert!(named.contains(&"GASNET_NODEFILE=/x".to_owned()), "{named:?}");
        assert_eq!(names(Some("ALL")).len(), 13, "{:?}", names(Some("ALL")));
    }

    #[test]
    fn ranks_get_everything_and_defaults_do_not_override() {
        let own = variables(&[
            ("GASNETRUN_RANK", "7"),
            ("GASNETRUN_OF_THE_USER", "1"),
            ("GASNET_IBV_SPAWNER", "SSH"),
            ("LANG", "de_DE"),
            ("GASNET_VERBOSEENV", "0"),
        ]);
        let ranks = of_ranks(&own, Spawner::Ssh, 2);
        let get = |name: &str| {
            let values: Vec<_> =
                ranks.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect();
            assert!(values.len() <= 1, "{name} twice");
            values.into_iter().next()
        };
        assert_eq!(get("GASNET_IBV_SPAWNER"), Some("ssh".into()));
        assert_eq!(get("LANG"), Some("de_DE".into()));
        assert_eq!(get("GASNET_VERBOSEENV"), Some("0".into()));
        assert_eq!(get("GASNET_SPAWN_VERBOSE"), Some("1".into()));
        assert_eq!(get("OMPI_MCA_mpi_warn_on_fork"), Some("0".into()));
        assert_eq!((get("GASNETRUN_RANK"), get("GASNETRUN_OF_THE_USER")), (None, Some("1".into())));
        assert_eq!(of_ranks(&own, Spawner::Ssh, 0).len(), 6);
    }
}
