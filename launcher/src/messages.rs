//! Messages for people, on standard error: prefixed, and written with one call each so that lines never mix.

use std::io::Write;

/// Writes `text` to standard error with the launcher's prefix. A closed standard error is no reason to fail.
pub fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("gasnetrun_ibv: {text}\n").as_bytes());
}

/// Writes a warning.
pub fn warn(text: &str) {
    say(&format!("warning: {text}"));
}
