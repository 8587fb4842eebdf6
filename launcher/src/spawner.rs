//! Chooses the spawner: `-spawner=` beats `GASNET_IBV_SPAWNER`, which beats the default.

use std::ffi::OsStr;

/// How the ranks of a job are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spawner {
    /// The node agent; on this host without any ssh.
    Ssh,
    /// An MPI's launcher.
    Mpi,
    /// A PMI launcher.
    Pmi,
}

/// Why there is no spawner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnerError {
    /// An unknown name.
    #[error("{from}: unknown spawner {seen:?}; try ssh (mpi and pmi are known but not there yet)")]
    Unknown {
        /// Where the name came from.
        from: &'static str,
        /// Name.
        seen: String,
    },
    /// `fork`.
    #[error(
        "{from}: the fork spawner starts programs of GASNet's smp conduit only; try ssh, which needs no ssh on this host"
    )]
    Fork {
        /// Where the name came from.
        from: &'static str,
    },
    /// The mpi spawner cannot do it.
    #[error(transparent)]
    Mpi(#[from] spawner_mpi::PlanError),
    /// The pmi spawner cannot do it.
    #[error(transparent)]
    Pmi(#[from] spawner_pmi::PlanError),
}

impl SpawnerError {
    /// Whether the mistake is on the command line itself.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unknown { from, .. } | Self::Fork { from } if *from == OPTION)
    }
}

/// The variable that names the spawner; ranks see the choice in it.
pub const VARIABLE: &str = "GASNET_IBV_SPAWNER";
const OPTION: &str = "-spawner";

impl Spawner {
    /// All spawners.
    pub const ALL: [Self; 3] = [Self::Ssh, Self::Mpi, Self::Pmi];

    /// Name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ssh => "ssh",
            Self::Mpi => "mpi",
            Self::Pmi => "pmi",
        }
    }

    /// Chooses. `variable` is the value of [`VARIABLE`]; empty counts as unset.
    ///
    /// # Errors
    /// A name that is no spawner's, or `fork`.
    pub fn choose(option: Option<&OsStr>, variable: Option<&OsStr>) -> Result<Self, SpawnerError> {
        let (from, name) = match (option, variable.filter(|value| !value.is_empty())) {
            (Some(name), _) => (OPTION, name),
            (None, Some(name)) => (VARIABLE, name),
            (None, None) => return Ok(Self::Ssh),
        };
        let known = Self::ALL.into_iter().find(|spawner| name.eq_ignore_ascii_case(spawner.name()));
        known.ok_or_else(|| {
            if name.eq_ignore_ascii_case("fork") {
                SpawnerError::Fork { from }
            } else {
                SpawnerError::Unknown { from, seen: name.to_string_lossy().into_owned() }
            }
        })
    }

    /// Refuses what the spawner cannot do in this version.
    ///
    /// # Errors
    /// The spawner's own refusal.
    pub fn check(self, ranks: u32) -> Result<(), SpawnerError> {
        match self {
            Self::Ssh => Ok(()),
            Self::Mpi => match spawner_mpi::plan(ranks) {
                Err(error) => Err(error.into()),
            },
            Self::Pmi => match spawner_pmi::plan(ranks) {
                Err(error) => Err(error.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(option: Option<&str>, variable: Option<&str>) -> Result<Spawner, SpawnerError> {
        Spawner::choose(option.map(OsStr::new), variable.map(OsStr::new))
    }

    #[test]
    fn precedence() {
        assert_eq!(choose(None, None), Ok(Spawner::Ssh));
        assert_eq!(choose(None, Some("")), Ok(Spawner::Ssh));
        assert_eq!(choose(None, Some("PMI")), Ok(Spawner::Pmi));
        assert_eq!(choose(Some("Mpi"), Some("pmi")), Ok(Spawner::Mpi));
        assert_eq!(choose(Some("ssh"), Some("nonsense")), Ok(Spawner::Ssh));
    }

    #[test]
    fn refusals_name_their_source() {
        assert!(choose(Some("fork"), None).expect_err("fork").is_usage());
        assert!(choose(Some(""), Some("ssh")).expect_err("empty").is_usage());
        let error = choose(None, Some("sssh")).expect_err("unknown");
        assert!(!error.is_usage() && error.to_string().starts_with(VARIABLE), "{error}");
        assert!(
            Spawner::Ssh.check(2).is_ok()
                && Spawner::Mpi.check(2).is_err()
                && Spawner::Pmi.check(2).is_err()
        );
    }
}
