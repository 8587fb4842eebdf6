//! Both sides of MPI.
//!
//! * [`launch`], for the launcher: jobs whose ranks an MPI's own launcher starts (`mpirun`,
//!   `mpiexec`). The templates, the dialects and the call are those of [`spawner_pmi`]; here is
//!   what differs.
//! * [`client`], for a rank: the bootstrap services over MPI, through the plugin in `plugin/`,
//!   which is built where an MPI is; and the list of all providers.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "launch")]
pub mod launch;
