//! How other hosts are reached: the `GASNET_SSH_*` variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use spawner_ssh::plan::Reach;

/// Values that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReachError {
    /// Quotes that are not closed.
    #[error(
        "GASNET_SSH_OPTIONS={seen:?}: a quote is not closed, or a backslash stands at the end; quote as in a shell, for \
         example -o 'LogLevel ERROR' -p 2222"
    )]
    Quoting {
        /// Value.
        seen: OsString,
    },
    /// A command with arguments.
    #[error(
        "GASNET_SSH_CMD={seen:?}: it is the name or path of one program, without arguments; put those into \
         GASNET_SSH_OPTIONS"
    )]
    Command {
        /// Value.
        seen: OsString,
    },
}

/// Reads the variables; empty ones count as unset. `out_degree` is `GASNET_SSH_OUT_DEGREE`.
///
/// # Errors
/// Bad quoting, or a command that is more than a program.
pub fn reach(
    out_degree: u32,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Reach, ReachError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let default = Reach::default();
    let command = set("GASNET_SSH_CMD").unwrap_or(default.command);
    // A path may have blanks, a name has none.
    let bytes = command.as_bytes();
    if !bytes.contains(&b'/') && bytes.iter().any(u8::is_ascii_whitespace) {
        return Err(ReachError::Command { seen: command });
    }
    Ok(Reach {
        command,
        options: set("GASNET_SSH_OPTIONS").map_or(Ok(Vec::new()), |text| words(&text))?,
        out_degree,
        directory: set("GASNET_SSH_REMOTE_PATH").map(PathBuf::from),
        ..Reach::default()
    })
}

/// The words of a text by the quoting rules of a shell.
fn words(text: &OsStr) -> Result<Vec<OsString>, ReachError> {
    let mut words = shlex::bytes::Shlex::new(text.as_bytes());
    let found: Vec<_> = words.by_ref().map(OsString::from_vec).collect();
    if words.had_error {
        return Err(ReachError::Quoting { seen: text.to_owned() });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Result<Reach, ReachError> {
        reach(7, |name| {
            set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn defaults() {
        let nothing = Reach { out_degree: 7, ..Reach::default() };
        assert_eq!(with(&[]), Ok(nothing.clone()));
        let empty = ["GASNET_SSH_CMD", "GASNET_SSH_OPTIONS", "GASNET_SSH_REMOTE_PATH"];
        assert_eq!(with(&empty.map(|name| (name, ""))), Ok(nothing));
    }

    #[test]
    fn words_are_cut_as_a_shell_does() {
        for (text, options) in [
            ("-o LogLevel=Error", &["-o", "LogLevel=Error"][..]),
            ("-o 'LogLevel ERROR' -p\t2222", &["-o", "LogLevel ERROR", "-p", "2222"]),
            (r#"-F "a b\"c" d\ e ''"#, &["-F", "a b\"c", "d e", ""]),
            ("  ", &[]),
        ] {
            let reach = with(&[("GASNET_SSH_OPTIONS", text)]).expect(text);
            assert_eq!(reach.options, options, "{text}");
        }
        for bad in ["'", "-o \"x", "x\\"] {
            let error = with(&[("GASNET_SSH_OPTIONS", bad)]).expect_err(bad).to_string();
            assert!(
                error.contains("GASNET_SSH_OPTIONS") && error.contains("for example"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_command_is_one_program() {
        for good in ["rsh", "/opt/my tools/ssh", "builtin"] {
            assert_eq!(with(&[("GASNET_SSH_CMD", good)]).expect(good).command, good);
        }
        let error = with(&[("GASNET_SSH_CMD", "ssh -v")]).expect_err("arguments").to_string();
        assert!(error.contains("GASNET_SSH_OPTIONS"), "{error}");
    }
}
