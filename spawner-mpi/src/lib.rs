//! Jobs whose ranks are started by an MPI's own launcher (`mpirun`, `mpiexec`).
//!
//! Only [`mod@plan`] exists: it says what is missing, so that a user who asks for this spawner learns what to do instead.

pub mod plan;

pub use plan::{PlanError, plan};
