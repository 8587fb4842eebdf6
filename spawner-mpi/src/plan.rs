//! Decides how an MPI launcher would be called.

use std::convert::Infallible;

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// This version cannot drive an MPI launcher.
    #[error(
        "the mpi spawner is not there yet: this version cannot start {ranks} ranks through mpirun. \
         Use -spawner=ssh, which starts them on this host without any MPI"
    )]
    NotThereYet {
        /// Ranks asked for.
        ranks: u32,
    },
}

/// The plan for `ranks` ranks. Called by the launcher when the mpi spawner is chosen.
///
/// # Errors
/// Always, until MPI launchers can be driven: the return type has no success value, so no caller can mistake it.
pub const fn plan(ranks: u32) -> Result<Infallible, PlanError> {
    Err(PlanError::NotThereYet { ranks })
}

#[cfg(test)]
mod tests {
    #[test]
    fn says_what_is_missing_and_what_to_use() {
        let Err(error) = super::plan(4);
        let text = error.to_string();
        assert!(text.contains("not there yet") && text.contains("-spawner=ssh"), "{text}");
    }
}
