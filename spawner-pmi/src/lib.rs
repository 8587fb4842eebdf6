//! Both sides of PMI.
//!
//! * [`launch`], for the launcher: jobs whose ranks another launcher starts (`srun`, `mpiexec`,
//!   `aprun` and their kind).
//! * [`client`], for a rank: the bootstrap services over what such a launcher serves (PMI-1, PMI-2,
//!   PMIx).
//!
//! Each is a feature, so that neither program carries the other's half.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "launch")]
pub mod launch;
