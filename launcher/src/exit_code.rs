//! The launcher's own exit codes: one table for code, messages and the man page.
//!
//! A job that ran gives its own code: the reduced code of a collective exit, else that of the first
//! cause (128 + signal number for a rank that a signal killed). The codes below follow the
//! convention of `env`, `timeout` and container tools.

/// A reason for an exit code that does not come from the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitClass {
    /// The command line is wrong.
    Usage,
    /// The job's time limit.
    Timeout,
    /// The launch itself failed.
    Launch,
    /// Program found, but not executable.
    NotExecutable,
    /// Program not found.
    NotFound,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Reason.
    pub class: ExitClass,
    /// Code.
    pub code: u8,
    /// Meaning, for the man page.
    pub meaning: &'static str,
}

/// All rows, by code.
pub const TABLE: [Row; 5] = [
    Row {
        class: ExitClass::Usage,
        code: 2,
        meaning: "The command line is wrong: unknown option, bad or missing value, no program. Nothing was started.",
    },
    Row {
        class: ExitClass::Timeout,
        code: 124,
        meaning: "The time limit given with --timeout has passed; every rank was ended.",
    },
    Row {
        class: ExitClass::Launch,
        code: 125,
        meaning: "The launch itself failed: a bad value of a GASNET_* variable, a spawner or host that is not available, \
                  a program of another conduit, no cpus left for -c, a report file that cannot be written, no process.",
    },
    Row {
        class: ExitClass::NotExecutable,
        code: 126,
        meaning: "The program was found but cannot be executed: a directory, or no permission.",
    },
    Row {
        class: ExitClass::NotFound,
        code: 127,
        meaning: "The program was not found; the message says where it was looked for.",
    },
];

/// The table as the end of `--help`.
#[must_use]
pub fn help() -> String {
    let rows = TABLE.map(|row| format!("  {:<4} {}\n", row.code, row.meaning));
    format!(
        "Exit codes:\n  the job's own when it ran (128 + signal number for a rank that a signal killed), else\n{}",
        rows.concat()
    )
}

impl ExitClass {
    /// The code.
    #[must_use]
    pub const fn code(self) -> u8 {
        TABLE[self as usize].code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_class_and_codes_differ() {
        for row in TABLE {
            assert_eq!(row.class.code(), row.code, "{:?}", row.class);
            assert!(!row.meaning.is_empty());
        }
        assert!(TABLE.is_sorted_by(|a, b| a.code < b.code));
    }
}
