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
    let mut out = String::new();
    for group in &GROUPS {
        let rows = group.rows.iter().filter_map(|row| line(row, env));
        let idle = group.no_effect.iter().flat_map(|list| idle_lines(list, env));
        let lines: Vec<String> = rows.chain(idle).collect();
        if !lines.is_empty() {
            let _ = writeln!(out, "# {}", group.title);
            lines.iter().for_each(|line| out.push_str(line));
        }
    }
    out
}

fn line(row: &Variable, env: &Env) -> Option<String> {
    let seen = values::seen(row, env);
    let always = row.propagates || row.reader == Reader::Launcher;
    if seen.is_none() && !always {
        return None;
    }
    let (value, marker, origin) = match &seen {
        None => (preset_text(row).to_owned(), "*", "default".to_owned()),
        Some((name, raw)) => {
            let old = if *name == row.name { String::new() } else { format!(", as {name}") };
            (used_text(row, &raw.to_string_lossy()), " ", format!("environment{old}"))
        }
    };
    let number = seen.is_some() || matches!(row.preset, Preset::Value(_));
    let value = format!("{value} {}", if number { row.unit } else { "" });
    Some(format!("{:<32} {marker} {:<24} ({origin})\n", row.name, value.trim_end()))
}

fn idle_lines(list: &'static NoEffect, env: &Env) -> impl Iterator<Item = String> {
    let note = match list.status {
        Status::Later => "no effect in this version",
        Status::Obsolete => "obsolete, no effect",
        Status::Ignored => "not used",
    };
    let set = list.names.iter().filter_map(|name| Some((name, env.text(name)?)));
    set.map(move |(name, raw)| {
        format!("{name:<32}   {:<24} (environment, {note})\n", one_line(&raw))
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
            let names = list.names.join(", ");
            let note = match list.status {
                Status::Later => "no effect in this version".to_owned(),
                Status::Obsolete => format!("obsolete: {}", list.advice),
                Status::Ignored => "not used".to_owned(),
            };
            let (names, note, doc) = (roff(&names), roff(&note), roff(list.doc));
            let _ = writeln!(out, ".TP\n.B {names}\n({note})\n.br\n{doc}");
        }
    }
    out
}
