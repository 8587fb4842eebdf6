//! The table: all variables in groups, and questions about it.

use crate::rows::{idle, launch, limits, standard, verbs};
use crate::variable::{Group, Idle, NoEffect, Status, Variable};

/// The table.
pub const GROUPS: [Group; 11] = [
    launch::LAUNCH,
    launch::RANK,
    standard::DEBUGGING,
    standard::EXIT,
    standard::MEMORY,
    idle::TOOLS,
    idle::COLLECTIVES,
    verbs::PORTS,
    verbs::PINNING,
    limits::LIMITS,
    idle::FOREIGN,
];

/// All rows in the order of [`GROUPS`].
pub fn rows() -> impl Iterator<Item = &'static Variable> {
    GROUPS.iter().flat_map(|group| group.rows)
}

/// All names that do nothing, each with its list, in the order of [`GROUPS`].
pub fn without_effect() -> impl Iterator<Item = (&'static str, &'static NoEffect)> {
    idle().map(|(idle, list)| (idle.name, list))
}

/// As [`without_effect`], with what may be set without effect.
pub(crate) fn idle() -> impl Iterator<Item = (&'static Idle, &'static NoEffect)> {
    let lists = GROUPS.iter().flat_map(|group| group.no_effect);
    lists.flat_map(|list| list.names.iter().map(move |idle| (idle, list)))
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
