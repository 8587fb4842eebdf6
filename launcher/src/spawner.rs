//! Chooses the spawner: `-spawner=` beats `GASNET_IBV_SPAWNER`, which beats the default.

use std::ffi::OsStr;

settings::named! {
    /// How the ranks of a job are started. The names are in lower case.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Spawner {
        /// The node agent; on this host without any ssh.
        Ssh = "ssh",
        /// An MPI's launcher.
        Mpi = "mpi",
        /// A PMI launcher.
        Pmi = "pmi",
    }
}

/// Why there is no spawner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnerError {
    /// An unknown name: where it came from, the name.
    #[error("{0}: unknown spawner {1:?}; try ssh, mpi or pmi")]
    Unknown(&'static str, String),
    /// `fork`: where it came from.
    #[error(
        "{0}: the fork spawner starts programs of GASNet's smp conduit only; try ssh, which needs no ssh on this host"
    )]
    Fork(&'static str),
}

impl SpawnerError {
    /// Whether the mistake is on the command line itself.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Unknown(from, _) | Self::Fork(from) if *from == OPTION)
    }
}

/// The variable that names the spawner; ranks see the choice in it.
pub const VARIABLE: &str = "GASNET_IBV_SPAWNER";
const OPTION: &str = "-spawner";

impl Spawner {
    /// Chooses. `variable` is the value of [`VARIABLE`]; empty counts as unset. `None` when nobody
    /// names a spawner.
    ///
    /// # Errors
    /// A name that is no spawner's, or `fork`.
    pub fn choose(
        option: Option<&OsStr>,
        variable: Option<&OsStr>,
    ) -> Result<Option<Self>, SpawnerError> {
        let (from, name) = match (option, variable.filter(|value| !value.is_empty())) {
            (Some(name), _) => (OPTION, name),
            (None, Some(name)) => (VARIABLE, name),
            (None, None) => return Ok(None),
        };
        let known = Self::ALL.iter().find(|spawner| name.eq_ignore_ascii_case(spawner.name()));
        known.copied().map(Some).ok_or_else(|| {
            if name.eq_ignore_ascii_case("fork") {
                SpawnerError::Fork(from)
            } else {
                SpawnerError::Unknown(from, name.to_string_lossy().into_owned())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        option: Option<&str>,
        variable: Option<&str>,
    ) -> Result<Option<Spawner>, SpawnerError> {
        Spawner::choose(option.map(OsStr::new), variable.map(OsStr::new))
    }

    #[test]
    fn precedence() {
        assert_eq!(choose(None, None), Ok(None));
        assert_eq!(choose(None, Some("")), Ok(None));
        assert_eq!(choose(None, Some("PMI")), Ok(Some(Spawner::Pmi)));
        assert_eq!(choose(Some("Mpi"), Some("pmi")), Ok(Some(Spawner::Mpi)));
        assert_eq!(choose(Some("ssh"), Some("nonsense")), Ok(Some(Spawner::Ssh)));
    }

    #[test]
    fn refusals_name_their_source() {
        assert!(choose(Some("fork"), None).expect_err("fork").is_usage());
        assert!(choose(Some(""), Some("ssh")).expect_err("empty").is_usage());
        let error = choose(None, Some("sssh")).expect_err("unknown");
        assert!(!error.is_usage() && error.to_string().starts_with(VARIABLE), "{error}");
    }
}
