//! Jobs whose ranks are started by a PMI launcher (`srun`, `aprun`, hydra).
//!
//! Only [`mod@plan`] exists: it says what is missing, so that a user who asks for this spawner learns what to do instead.

pub mod plan;

pub use plan::{PlanError, plan};
