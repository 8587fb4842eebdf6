//! Lines `NAME=value` as an environment: no parser and no rendering panics.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use bootstrap::{Env, choose, vars};

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
    let _ = (vars::warnings(&env), choose(&env).trace);
    let printed = vars::print_settings(&env);
    match vars::Settings::from_env(&env) {
        Ok(settings) => {
            let _ = (
                settings.exit_timeout(4),
                settings.memory("GASNET_MAX_SEGSIZE"),
                settings.path("GASNET_SSH_NODEFILE"),
            );
        }
        Err(error) => assert!(printed.contains("ERROR"), "{error}"),
    }
    // Every value also goes to every parser.
    for (_, value) in env.iter() {
        for row in vars::rows() {
            let _ = vars::parse(row.kind, &value.to_string_lossy());
        }
    }
}
