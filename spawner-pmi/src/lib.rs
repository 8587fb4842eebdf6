//! All sides of PMI.
//!
//! * [`launch`], for the launcher: jobs whose ranks another launcher starts (`srun`, `mpiexec`,
//!   `aprun` and their kind).
//! * [`client`], for a rank: the bootstrap services over what such a launcher serves (PMI-1, PMI-2,
//!   PMIx).
//! * [`server`], for our own agents: PMI-1, PMI-2 and PMIx for ranks that are MPI programs.
//!
//! Each is a feature, so that no program carries the parts of another. They share the format of the
//! messages (`wire`), the layouts of PMIx (`pmix`), and [`shared_library`], which opens the libraries of
//! others at run time.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "launch")]
pub mod launch;
#[cfg(any(feature = "client", feature = "server"))]
mod pmix;
#[cfg(feature = "server")]
pub mod server;
#[cfg(any(feature = "client", feature = "server"))]
pub mod shared_library;
#[cfg(any(feature = "client", feature = "server"))]
mod wire;

#[cfg(any(feature = "client", feature = "server"))]
pub use wire::PmiVersion;
