//! From settings to a working network, by collective steps.
//!
//! * `fabric_caps`: what every rank tells all others before a fabric is chosen. `open`: the choice,
//!   ports, sizes.
//! * `start`: ranks are connected.

mod fabric_caps;
pub(super) mod open;
pub(super) mod start;
