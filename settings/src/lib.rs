//! The one table of environment variables: names, forms, defaults, and what each is for. Everything else about
//! variables is folded out of it: parsing, `--print-settings`, the man page, the README's table, and warnings about
//! names that mean nothing.
//!
//! * [`Env`]: an environment as a value. [`GROUPS`]: the table. [`Values`]: typed values of one environment.
//! * [`deadlines`]: the one table of deadlines. [`log`] and [`say!`]: messages for people.
//! * [`unknown_names`], [`warnings`]: names that are misspelt, old, or without effect in this version.
//! * [`print_settings`], [`man_section`]: the table for people.
//!
//! Values are never percent-decoded: they travel between launcher and ranks as they are, with any bytes, so nothing
//! has to be encoded, and a value that happens to contain a percent sign keeps it.

pub mod deadlines;
mod env;
pub mod log;
mod names;
mod no_effect;
mod parse;
mod render;
mod rows;
mod values;

pub use env::{Env, variable};
pub use names::{unknown_names, warnings};
pub use no_effect::{NoEffect, Status};
pub use parse::{Amount, MemSpec, Nodes, Per, Signals, Value, parse};
pub use render::{man_section, print_settings};
pub use values::Values;

#[doc(hidden)]
pub use tracing;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Whole number, decimal or hexadecimal after `0x`.
    Int {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
    },
    /// Number of bytes with an optional letter T, G, M, K or B (and `iB` or `B` after it): `64K`, `1.5 GiB`.
    Size {
        /// Bytes that a number without a letter counts in.
        unit: i64,
        /// Least number of bytes.
        min: i64,
        /// Greatest number of bytes.
        max: i64,
    },
    /// Decimal number or fraction `a/b`.
    Real {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
    },
    /// `1 y yes true` or `0 n no false`, any case.
    Bool,
    /// As `Bool`, but everything that is no `no` means yes, even the empty text.
    VerboseBool,
    /// Amount of memory: a fraction of the physical memory between 0 and 1, or a size; at least `min` bytes.
    MemSpec {
        /// Whether `/P` (for each rank) or `/H` (for all ranks of a host together) may follow.
        per: bool,
        /// Least number of bytes.
        min: u64,
    },
    /// Ranks: `0,4-7`; `*` or nothing means all.
    Nodes,
    /// Signal that can be caught: `SIGUSR1`, `usr1` or `10`.
    Signal,
    /// Signals between commas or blanks, or `*` for all.
    SignalList,
    /// Path in which every `%` stands for the rank.
    FilePattern,
    /// One of these words, any case.
    Enum(&'static [&'static str]),
    /// Several of these words in order, any case, between commas, blanks, bars or semicolons.
    EnumList(&'static [&'static str]),
    /// Any text.
    Text,
    /// Being set is what counts, whatever the value.
    Presence,
}

/// What holds when a variable is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// As if this text were set.
    Value(&'static str),
    /// Nothing: the feature is off, or the choice is somebody else's.
    Unset,
    /// A value that depends on the job; the text says how.
    Computed(&'static str),
}

/// Who looks at a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The launching command.
    Launcher,
    /// The node agent.
    Agent,
    /// Every rank.
    Rank,
}

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variable {
    /// Name.
    pub name: &'static str,
    /// Form of its value.
    pub kind: Kind,
    /// What holds when it is not set.
    pub preset: Preset,
    /// Unit of the value, empty if there is none.
    pub unit: &'static str,
    /// Who looks at it.
    pub reader: Reader,
    /// Whether it is carried from the launching environment to ranks on other hosts without being named with `-E`.
    pub propagates: bool,
    /// Older names, looked at when the name itself is not set.
    pub aliases: &'static [&'static str],
    /// What it is for.
    pub doc: &'static str,
}

impl Variable {
    /// A row that ranks read.
    const fn new(name: &'static str, kind: Kind, preset: Preset, doc: &'static str) -> Self {
        let unit = match kind {
            Kind::Size { .. } => "bytes",
            _ => "",
        };
        let reader = Reader::Rank;
        Self { name, kind, preset, unit, reader, propagates: true, aliases: &[], doc }
    }

    /// Read by the launcher only, so there is nothing to carry.
    const fn launcher(mut self) -> Self {
        self.reader = Reader::Launcher;
        self.propagates = false;
        self
    }

    /// Set anew for each rank, so the launching environment's value is never carried.
    const fn local(mut self) -> Self {
        self.propagates = false;
        self
    }

    const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}

/// Rows under a common title.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Title.
    pub title: &'static str,
    /// Rows in the order in which they are shown.
    pub rows: &'static [Variable],
    /// Names that belong here and do nothing.
    pub no_effect: &'static [NoEffect],
}

const fn group(
    title: &'static str,
    rows: &'static [Variable],
    no_effect: &'static [NoEffect],
) -> Group {
    Group { title, rows, no_effect }
}

/// The table.
pub const GROUPS: [Group; 11] = [
    group("Launching", rows::launch::LAUNCH, no_effect::LAUNCH),
    group("Set by the launcher for each rank", rows::launch::RANK, &[]),
    group("Messages and debugging", rows::standard::DEBUGGING, no_effect::DEBUGGING),
    group("Exit", rows::standard::EXIT, &[]),
    group("Memory, threads and shared memory", rows::standard::MEMORY, no_effect::MEMORY),
    group("Tracing, statistics and heap checks", &[], no_effect::TOOLS),
    group("Collectives, strided transfers and clocks", &[], no_effect::COLLECTIVES),
    group("Adapters, ports and connections", rows::verbs::PORTS, no_effect::PORTS),
    group("Registration of memory", rows::verbs::PINNING, no_effect::PINNING),
    group("Protocol limits and resources", rows::limits::LIMITS, no_effect::LIMITS),
    group("Names of other launchers and wrapper scripts", &[], no_effect::FOREIGN),
];

/// All rows in the order of [`GROUPS`].
pub fn rows() -> impl Iterator<Item = &'static Variable> {
    GROUPS.iter().flat_map(|group| group.rows)
}

/// All names that do nothing, each with its list, in the order of [`GROUPS`].
pub fn without_effect() -> impl Iterator<Item = (&'static str, &'static NoEffect)> {
    let lists = GROUPS.iter().flat_map(|group| group.no_effect);
    lists.flat_map(|list| list.names().map(move |name| (name, list)))
}

/// The row of a name; not of an alias, nor of a name that does nothing.
#[must_use]
pub fn find(name: &str) -> Option<&'static Variable> {
    rows().find(|row| row.name == name)
}

/// Whether a `GASNET_*` variable is carried to ranks on other hosts without being named with `-E`: as its
/// row says; unknown names and those without effect are, but what is set unasked is not.
#[must_use]
pub fn propagates(name: &str) -> bool {
    match find(name) {
        Some(row) => row.propagates,
        None => {
            !without_effect().any(|(other, list)| other == name && list.status == Status::Ignored)
        }
    }
}

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name}={value:?}: {problem}; expected {expected}")]
pub struct Error {
    /// Variable, by the name under which it was set.
    pub name: &'static str,
    /// Value seen.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// Accepted forms with an example.
    pub expected: String,
}

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod tests;
