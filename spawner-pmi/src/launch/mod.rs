//! Jobs whose ranks are started by another launcher: `srun`, `mpiexec`, `aprun` and their kind.
//!
//! * [`mod@plan`]: which launcher, and the words of its call. [`template`]: `PMIRUN_CMD` and
//!   `MPIRUN_CMD`. [`dialect`]: the table of what launchers understand. All pure.
//! * [`machine`]: what is looked at on the machine for it.
//!
//! The launcher supervises the other launcher as it does a plain program. How the ranks find each
//! other is the business of the client side.

pub mod dialect;
pub mod machine;
pub mod plan;
pub mod template;

pub use machine::System;
pub use plan::{Call, Family, Machine, PMI, Part, PlanError, Wanted, plan};
