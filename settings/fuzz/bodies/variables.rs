//! Lines `NAME=value` as an environment: no parser and no rendering panics.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use settings::{Env, Values};

/// One input.
pub(crate) fn run(bytes: &[u8]) {
    let pair = |line: &[u8]| {
        let at = line.iter().position(|b| *b == b'=')?;
        Some((
            OsStr::from_bytes(&line[..at]).to_owned(),
            OsStr::from_bytes(&line[at + 1..]).to_owned(),
        ))
    };
    let env: Env = bytes.split(|b| *b == b'\n').filter_map(pair).collect();
    let _ = settings::warnings(&env);
    let printed = settings::print_settings(&env);
    match Values::from_env(&env) {
        Ok(values) => {
            let _ = (
                values.exit_timeout(4),
                values.memory("GASNET_MAX_SEGSIZE"),
                values.path("GASNET_SSH_NODEFILE"),
            );
        }
        Err(error) => assert!(printed.contains("ERROR"), "{error}"),
    }
    // Every value also goes to every parser.
    for (_, value) in env.iter() {
        for row in settings::rows() {
            let _ = settings::parse(row.kind, &value.to_string_lossy());
        }
    }
}
