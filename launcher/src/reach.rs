//! How other hosts are reached: the `GASNET_SSH_*` variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use bootstrap::collective::depth;
use bootstrap::rank::MAX_DEPTH;
use settings::Values;
use spawner_ssh::builtin::{self, NAME as BUILTIN};
use supervisor::plan::{Reach, Ssh};

/// Of this program, as messages begin with it.
pub const NAME: &str = "gasnetrun_ibv";

/// Values that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReachError {
    /// Quotes that are not closed.
    #[error(
        "GASNET_SSH_OPTIONS={0:?}: a quote is not closed, or a backslash stands at the end; quote as in a shell, for \
         example -o 'LogLevel ERROR' -p 2222"
    )]
    Quoting(OsString),
    /// Options that our own client does not know.
    #[error("GASNET_SSH_OPTIONS with GASNET_SSH_CMD={BUILTIN}: {0}")]
    Options(String),
    /// Its library is missing, or is another one.
    #[error(
        "GASNET_SSH_CMD={BUILTIN}: the built-in ssh client cannot be used ({0}). Use GASNET_SSH_CMD=ssh, or build the \
         client with `cargo build -p gasnetrun-ibv-ssh`, which needs OpenSSL (packages libssl-dev and pkg-config)"
    )]
    NoBuiltin(String),
    /// A command with arguments.
    #[error(
        "GASNET_SSH_CMD={0:?}: it is the name or path of one program, without arguments; put those into \
         GASNET_SSH_OPTIONS"
    )]
    Command(OsString),
    /// Too many logins one after the other.
    #[error(
        "GASNET_SSH_OUT_DEGREE={degree}: {hosts} hosts would be a tree of {levels} levels, each reached through the one \
         above; {MAX_DEPTH} are the most. Use 2 ({} levels) or more, or leave it at 32",
        depth(*hosts, 2)
    )]
    Deep {
        /// Value of the variable.
        degree: u32,
        /// Hosts of the job.
        hosts: usize,
        /// Levels they would take.
        levels: u32,
    },
}

/// Reads the variables, for a job on so many hosts; empty ones count as unset.
///
/// # Errors
/// Bad quoting, a command that is more than a program, or a tree of too many levels.
pub fn reach(settings: &Values, hosts: usize) -> Result<Reach, ReachError> {
    let command = settings.path("GASNET_SSH_CMD").map_or(Ssh::default().command, OsString::from);
    // A path may have blanks, a name has none.
    let bytes = command.as_bytes();
    if !bytes.contains(&b'/') && bytes.iter().any(u8::is_ascii_whitespace) {
        return Err(ReachError::Command(command));
    }
    let options = settings.path("GASNET_SSH_OPTIONS").unwrap_or_default();
    let options = words(options.as_os_str())?;
    if command == BUILTIN {
        builtin::check_options(&options).map_err(ReachError::Options)?;
        builtin::open().map_err(ReachError::NoBuiltin)?;
    }
    let out_degree = u32::try_from(settings.int("GASNET_SSH_OUT_DEGREE")).unwrap_or(u32::MAX);
    let levels = depth(hosts, out_degree as usize);
    if levels > MAX_DEPTH {
        return Err(ReachError::Deep { degree: out_degree, hosts, levels });
    }
    let cache = settings.size("GASNET_SSH_STAGE_CACHE");
    let ssh = Ssh { command, options, out_degree, cache, ..Ssh::default() };
    Ok(Reach {
        ssh,
        directory: settings.path("GASNET_SSH_REMOTE_PATH"),
        same_program: settings.bool("GASNET_IBV_SAME_PROGRAM"),
        start_timeout: None,
    })
}

/// The words of a text by the quoting rules of a shell.
fn words(text: &OsStr) -> Result<Vec<OsString>, ReachError> {
    let mut words = shlex::bytes::Shlex::new(text.as_bytes());
    let found: Vec<_> = words.by_ref().map(OsString::from_vec).collect();
    if words.had_error {
        return Err(ReachError::Quoting(text.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &str)]) -> Result<Reach, ReachError> {
        of_hosts(4, set)
    }

    fn of_hosts(hosts: usize, set: &[(&str, &str)]) -> Result<Reach, ReachError> {
        reach(&Values::from_env(&set.iter().copied().collect()).expect("good values"), hosts)
    }

    #[test]
    fn a_tree_of_too_many_levels_is_refused() {
        let most = MAX_DEPTH as usize;
        let chain = [("GASNET_SSH_OUT_DEGREE", "1")];
        assert!(of_hosts(most, &chain).is_ok());
        let error = of_hosts(most + 1, &chain).expect_err("too deep").to_string();
        let says = "GASNET_SSH_OUT_DEGREE=1: 65 hosts would be a tree of 65 levels";
        assert!(error.starts_with(says) && error.contains("Use 2 (6 levels)"), "{error}");
        for degree in ["0", "2", "32"] {
            let set = [("GASNET_SSH_OUT_DEGREE", degree)];
            assert!(of_hosts(bootstrap::rank::MAX_HOSTS as usize, &set).is_ok(), "{degree}");
        }
    }

    #[test]
    fn defaults() {
        let ssh = Ssh { out_degree: 32, cache: 1 << 30, ..Ssh::default() };
        let nothing = Reach { ssh, same_program: true, ..Reach::default() };
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
            assert_eq!(reach.ssh.options, options, "{text}");
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
        for good in ["rsh", "/opt/my tools/ssh", "/opt/builtin"] {
            assert_eq!(with(&[("GASNET_SSH_CMD", good)]).expect(good).ssh.command, good);
        }
        let own = [("GASNET_SSH_CMD", BUILTIN), ("GASNET_SSH_OPTIONS", "-i /x")];
        match with(&own) {
            Ok(reach) => assert_eq!(reach.ssh.command, BUILTIN),
            Err(error) => assert!(matches!(error, ReachError::NoBuiltin(_)), "{error}"),
        }
        let unknown = with(&[("GASNET_SSH_CMD", BUILTIN), ("GASNET_SSH_OPTIONS", "-J x")]);
        assert!(matches!(unknown, Err(ReachError::Options(_))), "{unknown:?}");
        let error = with(&[("GASNET_SSH_CMD", "ssh -v")]).expect_err("arguments").to_string();
        assert!(error.contains("GASNET_SSH_OPTIONS"), "{error}");
    }
}
