//! A rank of a job that Slurm, Hydra, Open MPI or another process manager started: the bootstrap
//! services over PMI-1, PMI-2 and PMIx.
//!
//! * [`PMI`], [`PMIX`]: the providers.
//! * [`process_manager`]: what all of them are made of, the one for MPI included.
//! * [`c_interface`]: what the library with the C interface of PMI-1 is made of.
//! * `fuzz_harness`: a rank against any server (feature `testing`).

mod announced;
pub mod c_interface;
#[cfg(feature = "testing")]
pub mod fuzz_harness;
mod pmi;
mod pmix;
pub mod process_manager;
mod stream;

#[cfg(test)]
mod tests;

pub use announced::allows;
pub use pmi::PMI;
pub use pmix::PMIX;

pub use crate::wire::PmiVersion;
