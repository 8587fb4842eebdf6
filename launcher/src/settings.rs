//! What the launcher takes from `GASNET_*` variables. The table itself, its parsers and its texts
//! are [`::settings`]; this module decides what the launcher does with them.

use std::time::Duration;

use settings::log::line;
use settings::{Env, Values};

use crate::environment::set_by_launcher;

/// Values that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|one| line(&one.to_string()).into_owned()).collect::<Vec<_>>().join("\n  "))]
pub struct SettingsError(pub Vec<settings::Error>);

/// Variables that passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Warnings: names that are unknown, old or without effect. None with `GASNET_QUIET`.
    pub warnings: Vec<String>,
    /// Their values.
    pub values: Values,
    /// Bound on exit coordination for this number of ranks.
    pub exit_bound: Duration,
}

/// Checks every variable of the table, before anything is started: a bad value would otherwise end
/// every rank, each with its own message. Variables that the launcher sets anew for the ranks are
/// left out.
///
/// # Errors
/// All values that cannot be used.
pub fn check(environment: &Env, ranks: u32) -> Result<Checked, SettingsError> {
    let inherited = environment.clone().into_iter();
    let env: Env = inherited.filter(|(name, _)| !set_by_launcher(name)).collect();
    let values = Values::from_env(&env).map_err(|_| SettingsError(Values::errors(&env)))?;
    let quiet = values.bool("GASNET_QUIET");
    Ok(Checked {
        warnings: if quiet { Vec::new() } else { settings::warnings(&env) },
        exit_bound: values.exit_timeout(ranks).map_err(|error| SettingsError(vec![error]))?,
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)], ranks: u32) -> Result<Checked, SettingsError> {
        check(&pairs.iter().copied().collect(), ranks)
    }

    #[test]
    fn defaults() {
        let checked = with(&[("PATH", "/bin")], 4).expect("nothing set");
        assert!(!checked.values.bool("GASNET_QUIET") && checked.warnings.is_empty());
        assert!(!checked.values.bool("GASNET_SPAWN_VERBOSE"));
        assert_eq!(checked.exit_bound, Duration::from_secs(3));
        assert!(!checked.values.bool("GASNET_SSH_KEEPDUP"));
        let checked = with(&[("GASNET_SSH_KEEPDUP", "1")], 4).expect("good");
        assert!(checked.values.bool("GASNET_SSH_KEEPDUP"));
    }

    #[test]
    fn bad_values_are_named_together() {
        let text = with(&[("GASNET_QUIET", "perhaps"), ("GASNET_EXITTIMEOUT", "soon")], 2)
            .expect_err("bad")
            .to_string();
        for part in ["GASNET_QUIET", "perhaps", "GASNET_EXITTIMEOUT", "soon", "expected"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn unknown_names_are_warned_about_unless_quiet() {
        let checked = with(&[("GASNET_EXITTIMEOUTS", "3")], 2).expect("no value is bad");
        assert_eq!(checked.warnings.len(), 1);
        assert!(checked.warnings[0].contains("GASNET_EXITTIMEOUT?"), "{:?}", checked.warnings);
        let checked = with(&[("GASNET_EXITTIMEOUTS", "3"), ("GASNET_QUIET", "Y")], 2)
            .expect("no value is bad");
        assert!(checked.values.bool("GASNET_QUIET") && checked.warnings.is_empty());
    }

    #[test]
    fn what_is_set_anew_is_not_checked() {
        assert!(
            with(&[("GASNETRUN_RANK", "x"), ("GASNET_IBV_SPAWNER", "beaten by the option")], 1)
                .is_ok()
        );
    }
}
