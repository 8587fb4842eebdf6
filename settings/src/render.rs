//! The table for people.

use std::fmt::Write;

use crate::Env;
use crate::parse::{Amount, Nodes, Per, Signals, Value, parse};
use crate::table::GROUPS;
use crate::values;
use crate::variable::{Kind, NoEffect, Preset, Reader, Status, Variable};

/// What the settings are in this environment, one line for each active variable and for each other
/// one that is set: name, `*` when the default holds, value, unit, where the value comes from. A
/// bad value is shown as such. What the launcher sets for each rank is shown only where it is set.
#[must_use]
pub fn print_settings(env: &Env) -> String {
    listed(env, false)
}

/// As [`print_settings`], for every variable of the table, each with its default and a second line
/// that says what it is for; the reason why a name has no effect.
#[must_use]
pub fn explain_settings(env: &Env) -> String {
    listed(env, true)
}

fn listed(env: &Env, all: bool) -> String {
    let mut out = String::new();
    for group in &GROUPS {
        let rows = group.rows.iter().filter_map(|row| line(row, env, all));
        let idle = group.no_effect.iter().flat_map(|list| idle_lines(list, env, all));
        let lines: Vec<String> = rows.chain(idle).collect();
        if !lines.is_empty() {
            let _ = writeln!(out, "# {}", group.title);
            lines.iter().for_each(|line| out.push_str(line));
        }
    }
    out
}

fn line(row: &Variable, env: &Env, all: bool) -> Option<String> {
    let seen = values::seen(row, env);
    let always = row.propagates || row.reader == Reader::Launcher;
    if seen.is_none() && !always && !all {
        return None;
    }
    let default = preset_text(row);
    let (value, marker, origin) = match &seen {
        None => (default.to_owned(), "*", "default".to_owned()),
        Some((name, raw)) => {
            let old = if *name == row.name { String::new() } else { format!(", as {name}") };
            let usual = if all { format!("; default: {default}") } else { String::new() };
            let origin = format!("{}{old}{usual}", env.origin(name));
            (used_text(row, &raw.to_string_lossy()), " ", origin)
        }
    };
    let number = seen.is_some() || matches!(row.preset, Preset::Value(_));
    let value = format!("{value} {}", if number { row.unit } else { "" });
    let first = format!("{:<32} {marker} {:<24} ({origin})\n", row.name, value.trim_end());
    Some(if all { format!("{first}    {}\n", full_doc(row)) } else { first })
}

/// Whether a name has no effect, in a few words.
const fn note(status: Status) -> &'static str {
    match status {
        Status::Later => "no effect in this version",
        Status::Refused => "refused, no effect",
        Status::Obsolete => "obsolete, no effect",
        Status::Ignored => "not used",
    }
}

fn idle_lines<'a>(
    list: &'static NoEffect,
    env: &'a Env,
    all: bool,
) -> impl Iterator<Item = String> + use<'a> {
    list.names.iter().filter_map(move |idle| {
        let (name, note, raw) = (idle.name, note(list.status), env.text(idle.name));
        let (value, marker, origin) = match (raw, idle.usual) {
            (Some(raw), _) => (one_line(&raw), " ", format!("{}, ", env.origin(name))),
            (None, _) if !all => return None,
            (None, "") => ("unset".to_owned(), "*", String::new()),
            (None, usual) => (usual.to_owned(), "*", String::new()),
        };
        let first = format!("{name:<32} {marker} {value:<24} ({origin}{note})\n");
        let why = if list.advice.is_empty() { "" } else { " Here: " };
        Some(if all { format!("{first}    {}{why}{}\n", list.doc, list.advice) } else { first })
    })
}

fn preset_text(row: &Variable) -> &'static str {
    match row.preset {
        Preset::Value(text) | Preset::Computed(text) => text,
        Preset::Unset => "unset",
    }
}

/// The raw text and, where that differs, what it was understood as.
fn used_text(row: &Variable, raw: &str) -> String {
    match parse(row.kind, raw) {
        Err(problem) => format!("ERROR {raw:?}: {problem}; expected {}", row.kind.expected()),
        Ok(value) => match value_text(&value) {
            Some(text) if text != raw => format!("{} = {text}", one_line(raw)),
            _ => one_line(raw),
        },
    }
}

fn one_line(raw: &str) -> String {
    if raw.is_empty() || raw.contains(char::is_control) {
        format!("{raw:?}")
    } else {
        raw.to_owned()
    }
}

fn value_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Int(number) | Value::Size(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::MemSpec(spec) => {
            let per = if spec.per == Per::Host { "/H" } else { "/P" };
            match spec.amount {
                Amount::Bytes(bytes) => format!("{bytes}{per}"),
                Amount::Fraction(part) => format!("{part}{per}"),
            }
        }
        Value::Nodes(Nodes::All) | Value::Signals(Signals::All) => "all".to_owned(),
        Value::Signal(number) => number.to_string(),
        Value::Words(words) => words.join(","),
        Value::Nodes(Nodes::Ranges(_)) | Value::Signals(Signals::Some(_)) | Value::Text(_) => {
            return None;
        }
    })
}

impl Kind {
    /// Name of the form in one or two words, as in the tables.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Int { .. } => "number".to_owned(),
            Self::Size { .. } => "size".to_owned(),
            Self::Real { .. } => "real or a/b".to_owned(),
            Self::Bool | Self::VerboseBool => "yes/no".to_owned(),
            Self::MemSpec { per: true, .. } => "size or part, /P or /H".to_owned(),
            Self::MemSpec { per: false, .. } => "size or part".to_owned(),
            Self::Nodes => "ranks".to_owned(),
            Self::Signal => "signal".to_owned(),
            Self::SignalList => "signals".to_owned(),
            Self::FilePattern => "file".to_owned(),
            Self::Enum(words) | Self::EnumList(words) => words.join(" "),
            Self::PortFilter => "HCA:port+…".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Presence => "set or not".to_owned(),
        }
    }
}

fn full_doc(row: &Variable) -> String {
    let old = if row.aliases.is_empty() {
        String::new()
    } else {
        format!(" Old names: {}.", row.aliases.join(", "))
    };
    format!("{}{old}", row.doc)
}

/// Text that roff takes literally.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

/// The table as the `ENVIRONMENT` section of a manual page, in roff with the `man` macros.
#[must_use]
pub fn man_section() -> String {
    let mut out = String::from(".SH ENVIRONMENT\n");
    for group in &GROUPS {
        let _ = writeln!(out, ".SS {}", roff(group.title));
        for row in group.rows {
            let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
            let default = format!("{}{unit}; default: {}", row.kind.label(), preset_text(row));
            let _ = writeln!(
                out,
                ".TP\n.B {}\n({})\n.br\n{}",
                roff(row.name),
                roff(&default),
                roff(&full_doc(row))
            );
        }
        for list in group.no_effect {
            let names: Vec<&str> = list.names.iter().map(|idle| idle.name).collect();
            let names = names.join(", ");
            let note = match list.status {
                Status::Later => "no effect in this version".to_owned(),
                Status::Refused => format!("refused: {}", list.advice),
                Status::Obsolete => format!("obsolete: {}", list.advice),
                Status::Ignored => "not used".to_owned(),
            };
            let (names, note, doc) = (roff(&names), roff(&note), roff(list.doc));
            let _ = writeln!(out, ".TP\n.B {names}\n({note})\n.br\n{doc}");
        }
    }
    out
}
