//! Programs that want a terminal.

use std::process::Command;

/// What runs a line of the shell in a terminal of `rows` and `columns`; its output is the terminal's. It
/// needs `script`, and ends when its input does, so that must be a pipe which somebody holds.
#[must_use]
pub fn in_terminal(line: &str, [rows, columns]: [u16; 2]) -> Command {
    let mut script = Command::new("script");
    // The terminal has no size by itself.
    let sized = format!("stty rows {rows} columns {columns}; exec {line}");
    script.args(["--quiet", "--command", &sized, "/dev/null"]).env("TERM", "xterm");
    script
}
