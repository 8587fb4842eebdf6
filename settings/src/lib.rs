//! The one table of environment variables: names, forms, defaults, and what each is for. Everything
//! else about variables is folded out of it: parsing, `--print-settings`, the man page, the
//! README's table, and warnings about names that mean nothing.
//!
//! * [`Env`]: an environment as a value. [`GROUPS`]: the table. [`Values`]: typed values of one
//!   environment.
//! * [`deadlines`]: the one table of deadlines. [`log`] and [`say!`]: messages for people. [`named!`]:
//!   enumerations with names.
//! * [`unknown_names`], [`warnings`]: names that are misspelt, old, or without effect in this
//!   version.
//! * [`print_settings`], [`explain_settings`], [`man_section`]: the table for people.
//! * [`Defaults`]: defaults of an installation.
//!
//! Values are never percent-decoded: they travel between launcher and ranks as they are, with any
//! bytes, so nothing has to be encoded, and a value that happens to contain a percent sign keeps
//! it.

pub mod deadlines;
mod env;
mod error;
mod installed;
pub mod log;
mod named;
mod names;
mod parse;
mod port_filter;
mod render;
mod rows;
mod table;
mod values;
mod variable;

pub use env::{Env, variable};
pub use error::Error;
pub use installed::{Defaults, DefaultsError};
pub use names::{unknown_names, warnings};
pub use parse::{Amount, MemSpec, Nodes, Per, Signals, Value, parse};
pub use port_filter::{PortEntry, PortFilter, PortFilterError};
pub use render::{explain_settings, man_section, print_settings};
pub use table::{GROUPS, find, propagates, rows, without_effect};
pub use values::Values;
pub use variable::{Group, Idle, Kind, NoEffect, Preset, Reader, Status, Variable};

#[doc(hidden)]
pub use tracing;

#[cfg(test)]
mod document_tests;
#[cfg(test)]
mod tests;
