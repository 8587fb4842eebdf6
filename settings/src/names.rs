//! Names in an environment that do not do what their user may think.

use crate::Env;
use crate::port_filter;
use crate::table::{GROUPS, rows, without_effect};
use crate::values;
use crate::variable::{Group, Idle, NoEffect, Status};

/// Prefixes of names that are ours, so that an unknown one is a mistake.
const PREFIXES: [&str; 2] = ["GASNET_", "GASNETRUN_"];

/// How alike, from 0 to 1, a known name must be to be offered.
const ALIKE: f64 = 0.8;

/// Every `GASNET_*` and `GASNETRUN_*` name that the table does not know, with the known name that
/// is most like it, if any is. In order of the names.
#[must_use]
pub fn unknown_names(env: &Env) -> Vec<(String, Option<&'static str>)> {
    let ours = |name: &String| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let names = env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).filter(ours);
    let mut unknown: Vec<_> =
        names.filter(|name| !is_known(name)).map(|name| (near_match(&name), name)).collect();
    unknown.sort_by(|a, b| a.1.cmp(&b.1));
    unknown.dedup();
    unknown.into_iter().map(|(near, name)| (name, near)).collect()
}

fn is_known(name: &str) -> bool {
    rows().any(|row| row.name == name || row.aliases.contains(&name))
        || without_effect().any(|(other, _)| other == name)
        || port_filter::is_member(name)
}

fn near_match(name: &str) -> Option<&'static str> {
    // The common prefix would make everything alike.
    let bare = |name: &str| {
        PREFIXES.iter().find_map(|p| name.strip_prefix(p).map(str::to_owned)).unwrap_or_default()
    };
    let wanted = bare(&name.to_ascii_uppercase());
    let idle = without_effect().filter(|(_, list)| list.status != Status::Ignored);
    let offered = rows().map(|row| row.name).chain(idle.map(|(name, _)| name));
    let scored = offered
        .filter(|name| !bare(name).is_empty())
        .map(|name| (strsim::normalized_damerau_levenshtein(&wanted, &bare(name)), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= ALIKE).map(|(_, name)| name)
}

/// One line for each set variable that has no effect or an old name, and for each unknown name.
/// Values are not looked at.
#[must_use]
pub fn warnings(env: &Env) -> Vec<String> {
    let mut lines: Vec<String> = GROUPS.iter().flat_map(|group| about(group, env)).collect();
    for (name, near) in unknown_names(env) {
        let hint = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        lines.push(format!("environment variable {name} is unknown and has no effect{hint}"));
    }
    lines
}

fn about(group: &Group, env: &Env) -> Vec<String> {
    let seen = group.rows.iter().filter_map(|row| Some((values::seen(row, env)?.0, row.name)));
    let old = seen
        .filter(|(name, now)| name != now)
        .map(|(name, now)| format!("environment variable {name} is an old name, use {now}"));
    let names =
        group.no_effect.iter().flat_map(|list| list.names.iter().map(move |idle| (idle, list)));
    let idle = names.filter_map(|(idle, list)| idle_warning(idle, list, &env.text(idle.name)?));
    old.chain(idle).collect()
}

/// What is said about a name that does nothing and is set.
fn idle_warning(idle: &Idle, list: &NoEffect, raw: &str) -> Option<String> {
    let (name, advice) = (idle.name, list.advice);
    Some(match list.status {
        Status::Ignored => return None,
        Status::Refused if idle.is_usual(raw) => return None,
        // Set to nothing, it always meant its default.
        Status::Obsolete if raw.is_empty() => return None,
        Status::Later => {
            format!("environment variable {name} is known, but has no effect in this version")
        }
        Status::Refused => format!("environment variable {name}={raw} is refused: {advice}"),
        Status::Obsolete => {
            format!("environment variable {name} is obsolete and has no effect: {advice}")
        }
    })
}
