//! The launcher's own exit codes: one table for code, messages and the man page.
//!
//! A job that ran gives its own code: the reduced code of a collective exit, else that of the first
//! cause (128 + signal number for a rank that a signal killed). The codes below follow the
//! convention of `env`, `timeout` and container tools.

/// The command line is wrong.
pub const USAGE: u8 = 2;
/// The job's time limit.
pub const TIMEOUT: u8 = 124;
/// The launch itself failed.
pub const LAUNCH: u8 = 125;
/// Program found, but not executable.
pub const NOT_EXECUTABLE: u8 = 126;
/// Program not found.
pub const NOT_FOUND: u8 = 127;

/// All codes with their meaning, for the man page.
pub const TABLE: [(u8, &str); 5] = [
    (
        USAGE,
        "The command line is wrong: unknown option, bad or missing value, no program. Nothing was started.",
    ),
    (TIMEOUT, "The time limit given with --timeout has passed; every rank was ended."),
    (
        LAUNCH,
        "The launch itself failed: a bad value of a GASNET_* variable, a spawner or host that is not available, \
              a program of another conduit, no cpus left for -c, a report file that cannot be written, no process.",
    ),
    (
        NOT_EXECUTABLE,
        "The program was found but cannot be executed: a directory, or no permission.",
    ),
    (NOT_FOUND, "The program was not found; the message says where it was looked for."),
];

/// The table as the end of `--help`.
#[must_use]
pub fn help() -> String {
    let rows = TABLE.map(|(code, meaning)| format!("  {code:<4} {meaning}\n"));
    format!(
        "Exit codes:\n  the job's own when it ran (128 + signal number for a rank that a signal killed), else\n{}",
        rows.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_differ_and_have_a_meaning() {
        assert!(TABLE.iter().all(|(_, meaning)| !meaning.is_empty()));
        assert!(TABLE.is_sorted_by(|a, b| a.0 < b.0));
    }
}
