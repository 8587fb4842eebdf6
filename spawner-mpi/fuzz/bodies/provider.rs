//! Lines `NAME=value` as an environment: the choice of a provider never panics, and says how it was
//! made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bootstrap::choose;
use spawner_mpi::client::PROVIDERS;

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let pair = |line: &[u8]| {
        let at = line.iter().position(|b| *b == b'=')?;
        Some((
            OsStr::from_bytes(&line[..at]).to_owned(),
            OsStr::from_bytes(&line[at + 1..]).to_owned(),
        ))
    };
    let env = bytes.split(|b| *b == b'\n').filter_map(pair).collect();
    let choice = choose(&env, &PROVIDERS);
    assert!(!choice.trace.is_empty());
}
