//! Jobs whose ranks are started by an MPI's own launcher (`mpirun`, `mpiexec`).
//!
//! The templates, the dialects and the call are those of [`spawner_pmi`]; here is what differs. How the ranks use the MPI
//! is the business of `bootstrap::engine` and of the plugin in `plugin/`, which is built where an MPI is.

pub mod plan;

pub use plan::MPI;
