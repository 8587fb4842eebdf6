//! The table: all variables in groups, and questions about it.

use crate::no_effect::{self, NoEffect, Status};
use crate::rows::{launch, limits, standard, verbs};
use crate::variable::Variable;

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
    group("Launching", launch::LAUNCH, no_effect::LAUNCH),
    group("Set by the launcher for each rank", launch::RANK, &[]),
    group("Messages and debugging", standard::DEBUGGING, no_effect::DEBUGGING),
    group("Exit", standard::EXIT, &[]),
    group("Memory, threads and shared memory", standard::MEMORY, no_effect::MEMORY),
    group("Tracing, statistics and heap checks", &[], no_effect::TOOLS),
    group("Collectives, strided transfers and clocks", &[], no_effect::COLLECTIVES),
    group("Adapters, ports and connections", verbs::PORTS, no_effect::PORTS),
    group("Registration of memory", verbs::PINNING, no_effect::PINNING),
    group("Protocol limits and resources", limits::LIMITS, no_effect::LIMITS),
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

/// Whether a `GASNET_*` variable is carried to ranks on other hosts without being named with `-E`:
/// as its row says; unknown names and those without effect are, but what is set unasked is not.
#[must_use]
pub fn propagates(name: &str) -> bool {
    match find(name) {
        Some(row) => row.propagates,
        None => {
            !without_effect().any(|(other, list)| other == name && list.status == Status::Ignored)
        }
    }
}
