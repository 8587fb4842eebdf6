//! What differs between MPI launchers and those of PMI.

pub mod plan;

pub use plan::MPI;
