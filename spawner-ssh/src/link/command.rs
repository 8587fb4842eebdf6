//! The process behind a link.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::agent::sys;
use crate::plan::HostEntry;
use crate::tree::deadlines::CONNECT;
use crate::tree::message::{Ssh, Stage};

/// First word of our program when it is to be an agent.
pub const AGENT_WORD: &str = "--node-agent";

/// What the login shell over there is told to do. Any shell must understand it: one line, one pair of single quotes, and
/// inside them neither a backslash (fish) nor an exclamation mark (csh). What differs from job to job comes by standard
/// input, read word by word, so nothing needs quoting and nothing shows in a list of processes.
///
/// Lines in: mode, path of the agent, bytes of its program, whether to keep it. Lines out: see `marker`.
pub(super) const SCRIPT: &str = concat!(
    "exec /bin/sh -c '",
    "IFS= read -r m; IFS= read -r p; IFS= read -r n; IFS= read -r k; ",
    r#"case "$m" in always) ;; *) if test -x "$p"; then exec "$p" --node-agent; fi;; esac; "#,
    r#"case "$m" in never) echo GASNETRUN-MISSING ""; exit 127;; esac; "#,
    r#"umask 077; d=$(mktemp -d "${TMPDIR:-/tmp}/gasnetrun.XXXXXXXX") || exit 125; "#,
    r#"echo GASNETRUN-STAGE ""; r=126; "#,
    r#"if head -c "$n" > "$d/gasnetrun_ibv" && chmod 700 "$d/gasnetrun_ibv"; "#,
    r#"then "$d/gasnetrun_ibv" --node-agent; r=$?; fi; "#,
    r#"case "$k" in keep) ;; *) rm -rf "$d";; esac; exit $r'"#
);

/// The lines that the script reads.
pub(super) fn script_input(ssh: &Ssh, always: bool, size: u64) -> Vec<u8> {
    let mode = if always { Stage::Always } else { ssh.stage };
    // A path that no line can hold is one that is not there.
    let path = Some(ssh.agent.as_bytes()).filter(|path| !path.contains(&b'\n'));
    let keep = if ssh.keep { "keep" } else { "" };
    let mut lines = format!("{}\n", mode.name()).into_bytes();
    lines.extend_from_slice(path.unwrap_or_default());
    lines.extend_from_slice(format!("\n{size}\n{keep}\n").as_bytes());
    lines
}

/// Whether the remote shell takes OpenSSH's options: its file name begins with `ssh`.
fn is_openssh(command: &OsStr) -> bool {
    Path::new(command).file_name().is_some_and(|name| name.as_bytes().starts_with(b"ssh"))
}

/// Words behind the remote shell's own: the user's options first, because the first of a kind wins.
fn words(ssh: &Ssh, host: &HostEntry) -> Vec<OsString> {
    let mut words = ssh.options.clone();
    if is_openssh(&ssh.command) {
        let timeout = format!("ConnectTimeout={}", CONNECT.limit.as_secs());
        for option in ["BatchMode=yes", "ForwardX11=no", "LogLevel=ERROR", &timeout] {
            words.extend(["-o".into(), option.into()]);
        }
        words.push("-T".into());
    }
    if let Some(port) = host.port {
        words.extend(["-p".into(), port.to_string().into()]);
    }
    if let Some(user) = &host.user {
        words.extend(["-l".into(), user.into()]);
    }
    words.extend([OsString::from(&host.name), SCRIPT.into()]);
    words
}

/// The process for `host`, ready to be started.
pub(super) fn command(ssh: &Ssh, host: &HostEntry) -> Command {
    let mut command = if host.here {
        let mut command = Command::new("/proc/self/exe");
        command.arg(AGENT_WORD);
        command
    } else {
        let mut command = Command::new(&ssh.command);
        command.args(words(ssh, host));
        command
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::die_with_us(&mut command);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(command: &str, options: &[&str]) -> Ssh {
        Ssh {
            command: command.into(),
            options: options.iter().map(OsString::from).collect(),
            out_degree: 32,
            agent: "/opt/a b/gasnetrun_ibv".into(),
            stage: Stage::Auto,
            keep: false,
        }
    }

    #[test]
    fn the_users_options_come_first_and_the_host_before_the_script() {
        let host = HostEntry { user: Some("me".into()), port: Some(7), ..HostEntry::new("n1") };
        let words = words(&ssh("/usr/bin/ssh", &["-o", "BatchMode=no"]), &host);
        assert_eq!(words[..2], ["-o", "BatchMode=no"]);
        assert!(words.iter().any(|word| word == "BatchMode=yes"));
        let tail = ["-p", "7", "-l", "me", "n1", SCRIPT];
        assert_eq!(words[words.len() - tail.len()..], tail);
        let plain = super::words(&ssh("/opt/rsh-like", &[]), &HostEntry::new("n1"));
        assert_eq!(plain, ["n1", SCRIPT]);
    }

    #[test]
    fn the_script_is_for_every_shell() {
        let inner = SCRIPT.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!inner.contains(['\'', '\\', '!', '\n']), "{inner}");
    }

    /// Runs the script as a login shell of the kind named would; its output.
    fn run(shell: &str, input: &[u8], directory: &Path) -> Option<String> {
        use std::io::Write;
        let mut child = Command::new(shell)
            .args(["-c", SCRIPT])
            .env("TMPDIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    fn the_script_runs_what_is_there_sends_for_what_is_not_and_leaves_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let agent = directory.path().join("an agent");
        std::fs::write(&agent, "#!/bin/sh\necho \"here $1\"; cat\n").unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut ssh = ssh("ssh", &[]);
        let sent = "#!/bin/sh\necho \"sent $1\"; cat\n";
        let mut shells = 0;
        for shell in ["sh", "bash", "zsh", "tcsh", "csh", "fish"] {
            ssh.agent = agent.clone().into();
            ssh.stage = Stage::Auto;
            let input = [&script_input(&ssh, false, 0)[..], b"frames"].concat();
            let Some(output) = run(shell, &input, directory.path()) else { continue };
            shells += 1;
            assert_eq!(output, "here --node-agent\nframes", "{shell}");
            ssh.agent = "/nowhere/at all".into();
            let size = sent.len() as u64;
            let input = [&script_input(&ssh, false, size)[..], sent.as_bytes(), b"frames"].concat();
            let output = run(shell, &input, directory.path()).unwrap();
            assert_eq!(output, "GASNETRUN-STAGE \nsent --node-agent\nframes", "{shell}");
            ssh.stage = Stage::Never;
            let output = run(shell, &script_input(&ssh, false, 0), directory.path()).unwrap();
            assert_eq!(output, "GASNETRUN-MISSING \n", "{shell}");
        }
        assert!(shells > 0, "no shell at all");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "only the agent");
    }
}
