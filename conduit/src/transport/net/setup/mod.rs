//! From settings to a working network, by collective steps.
//!
//! * `fabric_caps`: what every rank tells all others before a fabric is chosen. `open`: the choice,
//!   ports, sizes.
//! * `pinnable`: how large a segment may be.
//! * `start`: ranks are connected.

mod fabric_caps;
pub(super) mod open;
mod pinnable;
mod pinnable_file;
pub(super) mod start;
