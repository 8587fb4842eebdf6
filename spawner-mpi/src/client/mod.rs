//! A rank of a job that an MPI launcher started; and all providers there are, for whoever takes
//! any.

mod plugin;
mod provider;

#[cfg(test)]
mod tests;

use bootstrap::{Provider, agent, solo};
use spawner_pmi::client::{PMI, PMIX};

pub use provider::MPI;

/// Every provider, in the order in which they are preferred: no MPI is initialised for a launch
/// that needs none.
pub const PROVIDERS: [Provider; 5] = [agent::PROVIDER, PMI, PMIX, MPI, solo::PROVIDER];
