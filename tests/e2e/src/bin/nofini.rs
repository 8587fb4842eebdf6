//! Opens the bootstrap and ends with status 0 without finishing it: the launcher must call that a
//! failure.

use e2e::sys::leave;

fn main() -> Result<(), bootstrap::Error> {
    let _open = bootstrap::connect(&spawner_mpi::client::PROVIDERS)?;
    leave(0)
}
