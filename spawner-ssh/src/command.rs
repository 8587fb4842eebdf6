//! The words that log in to a host, and the script that finds or receives our program there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use settings::deadlines::tree::CONNECT;

use crate::{HostEntry, Ssh, StageMode, auto};

/// First word of our program when it is to be an agent.
pub const AGENT_WORD: &str = "--node-agent";
/// Second word: the lines of the script come first on standard input, unread.
pub const LINES_WORD: &str = "lines";
/// Lines that the script reads before it does anything.
pub const LINES: usize = 2;

/// What the login shell over there is told to do. Any shell must understand it: one line, one pair
/// of single quotes, and inside them neither a backslash (fish) nor an exclamation mark (csh). What
/// differs from job to job comes by standard input, read word by word, so nothing needs quoting and
/// nothing shows in a list of processes.
///
/// Lines in: mode, path of the agent; when it asks for them, SHA-256 and bytes of our program,
/// whether to keep it; when it asks for that, the program. Lines out: see `marker`. Its directories
/// are those of `stage::cache`.
pub const SCRIPT: &str = concat!(
    "exec /bin/sh -c '",
    "IFS= read -r m; IFS= read -r p; ",
    r#"case "$m" in auto|never) if test -x "$p"; then exec "$p" --node-agent; fi;; esac; "#,
    r#"case "$m" in never) echo GASNETRUN-MISSING ""; exit 127;; esac; "#,
    r#"echo GASNETRUN-STAGE ""; IFS= read -r h; IFS= read -r n; IFS= read -r k; umask 077; o=; r=126; "#,
    // A directory of ours in which programs run.
    r#"case "$k" in keep) j=kept;; *) j=job;; esac; j=$j.$(uname -n).$$.$(date +%s); "#,
    r#"for c in "$XDG_CACHE_HOME/gasnetrun" "${TMPDIR:-/tmp}/gasnetrun-$(id -u)"; do "#,
    r#"case "$c" in /gasnetrun) continue;; /*) ;; *) continue;; esac; d="$c/$j"; "#,
    r#"e=$({ mkdir -p "$c" && if test -L "$c"; then echo a link; false; fi && "#,
    r#"{ test -O "$c" || { echo of another user, who was there first; false; }; } && "#,
    // Where everybody may rename what is there, it is nobody's.
    r#"case "$(ls -ldL "${c%/*}")" in d???????w[tT]*) ;; d???????w*) echo open to everybody; false;; esac && "#,
    r#"chmod 700 "$c" && mkdir "$d" && "#,
    r#"echo : > "$d/x" && chmod 700 "$d/x" && { test -x "$d/x" || { echo mounted noexec; false; }; }; } 2>&1) "#,
    r#"&& { rm "$d/x"; o=1; break; }; rm -rf "$d"; "#,
    r#"echo "gasnetrun_ibv: cannot execute an agent from $c: $e" >&2; done; "#,
    r#"case "$o" in "") exit 126;; esac; f="$c/$h"; a="$d/gasnetrun_ibv"; "#,
    // Whether a file is what was meant.
    r#"v() { if command -v sha256sum >/dev/null 2>&1; then case "$(sha256sum < "$a")" in "$h "*) ;; *) return 1;; esac; "#,
    r#"else test "$(wc -c < "$a")" -eq "$n"; fi; }; "#,
    r#"{ case "$m" in always) false;; esac && ln "$f" "$a" 2>/dev/null && "#,
    // What is kept is ours, or whoever it belongs to could change it.
    r#"if test -L "$a"; then false; else test -O "$a"; fi && chmod 700 "$a" && v && touch "$f"; } || "#,
    r#"{ rm -f "$a"; echo GASNETRUN-SEND ""; head -c "$n" > "$a" && "#,
    r#"{ v || { echo "gasnetrun_ibv: cannot execute the agent: it arrived damaged" >&2; false; }; } && "#,
    r#"chmod 700 "$a" && ln -f "$a" "$f"; } && { "$a" --node-agent; r=$?; }; "#,
    r#"case "$k" in keep) ;; *) rm -rf "$d";; esac; exit $r'"#
);

/// What the login shell may run before the script: the agent itself, which saves a shell. Only
/// where its path has no letter that means something to any shell.
fn short_way(ssh: &Ssh) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
    let path =
        ssh.agent.to_str().filter(|path| path.starts_with('/') && path.bytes().all(plain))?;
    let there = format!("test -x {path} && exec {path} {AGENT_WORD} {LINES_WORD}; ");
    (ssh.stage != StageMode::Always).then_some(there)
}

/// Whether [`remote_command`] is more than the script, unless the `whole` script is wanted.
#[must_use]
pub fn has_short_way(ssh: &Ssh) -> bool {
    short_way(ssh).is_some()
}

/// What the login shell is told. `whole`: the script and nothing else, because the shell did not
/// understand the short way (`&&` means nothing to fish before 3.0), or what it leads to does not
/// fit.
#[must_use]
pub fn remote_command(ssh: &Ssh, whole: bool) -> String {
    let short = short_way(ssh).filter(|_| !whole);
    short.unwrap_or_default() + SCRIPT
}

/// The [`LINES`] that the script reads first. `misfit`: what is there does not fit.
#[must_use]
pub fn script_input(ssh: &Ssh, misfit: bool) -> Vec<u8> {
    let mode = if misfit { "cached" } else { ssh.stage.name() };
    let mode = if ssh.stage == StageMode::Always { StageMode::Always.name() } else { mode };
    // A path that no line can hold is one that is not there.
    let path = Some(ssh.agent.as_bytes()).filter(|path| !path.contains(&b'\n'));
    [mode.as_bytes(), b"\n", path.unwrap_or_default(), b"\n"].concat()
}

/// The lines that it reads when it wants our program, which has this SHA-256 (in hex) and size.
#[must_use]
pub fn stage_input(ssh: &Ssh, digest: &str, size: u64) -> Vec<u8> {
    let keep = if ssh.keep { "keep" } else { "" };
    format!("{digest}\n{size}\n{keep}\n").into_bytes()
}

/// The remote shell's program; by default the ssh program takes over what the built-in client does
/// not do.
#[must_use]
pub fn program(ssh: &Ssh) -> &OsStr {
    if ssh.command == auto::NAME { OsStr::new("ssh") } else { &ssh.command }
}

/// Whether the remote shell takes OpenSSH's options: its file name begins with `ssh`.
fn is_openssh(command: &OsStr) -> bool {
    Path::new(command).file_name().is_some_and(|name| name.as_bytes().starts_with(b"ssh"))
}

/// Words behind the remote shell's own: the user's options first, because the first of a kind wins.
fn words(ssh: &Ssh, host: &HostEntry, told: &str) -> Vec<OsString> {
    let mut words = ssh.options.clone();
    if is_openssh(program(ssh)) {
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
    words.extend([OsString::from(&host.name), told.into()]);
    words
}

/// The words of the process for `host`, the program first; its login shell is `told` that.
#[must_use]
pub fn process(ssh: &Ssh, host: &HostEntry, told: &str) -> Vec<OsString> {
    if host.here {
        return vec!["/proc/self/exe".into(), AGENT_WORD.into()];
    }
    let mut all = vec![program(ssh).to_owned()];
    all.extend(words(ssh, host, told));
    all
}

/// The words that ask the ssh program for the configuration that counts for `host`.
pub(crate) fn question(ssh: &Ssh, host: &HostEntry) -> Vec<OsString> {
    let mut all = vec![program(ssh).to_owned(), "-G".into()];
    all.extend(words(ssh, host, ""));
    all.pop();
    all
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::diagnosis::{Class, Failure};

    fn ssh(command: &str, options: &[&str]) -> Ssh {
        Ssh {
            command: command.into(),
            options: options.iter().map(OsString::from).collect(),
            out_degree: 32,
            agent: "/opt/a b/gasnetrun_ibv".into(),
            stage: StageMode::Auto,
            keep: false,
            cache: 0,
        }
    }

    #[test]
    fn the_users_options_come_first_and_the_host_before_the_script() {
        let host = HostEntry { user: Some("me".into()), port: Some(7), ..HostEntry::new("n1") };
        let words = words(&ssh("/usr/bin/ssh", &["-o", "BatchMode=no"]), &host, SCRIPT);
        assert_eq!(words[..2], ["-o", "BatchMode=no"]);
        assert!(words.iter().any(|word| word == "BatchMode=yes"));
        let tail = ["-p", "7", "-l", "me", "n1", SCRIPT];
        assert_eq!(words[words.len() - tail.len()..], tail);
        let plain = super::words(&ssh("/opt/rsh-like", &[]), &HostEntry::new("n1"), SCRIPT);
        assert_eq!(plain, ["n1", SCRIPT]);
    }

    #[test]
    fn the_script_is_for_every_shell() {
        let inner = SCRIPT.strip_prefix("exec /bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!inner.contains(['\'', '\\', '!', '\n']), "{inner}");
    }

    fn digest_of(text: &str) -> String {
        use sha2::Digest as _;
        sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Does what it is `told` as a login shell of the kind named would; its output.
    fn run(shell: &str, told: &str, input: &[u8], directory: &Path) -> Option<String> {
        use std::io::Write;
        let mut child = Command::new(shell)
            .args(["-c", told])
            .env("TMPDIR", directory)
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What the script prints when `bytes` are its input.
    fn lines(shell: &str, bytes: &[&[u8]], directory: &Path) -> Option<String> {
        run(shell, SCRIPT, &bytes.concat(), directory)
    }

    #[test]
    fn the_script_runs_what_is_there_sends_for_what_is_not_and_keeps_only_that() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let agent = directory.path().join("an agent");
        std::fs::write(&agent, "#!/bin/sh\necho \"here $1\"; cat\n").unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut ssh = ssh("ssh", &[]);
        let sent = "#!/bin/sh\necho \"sent $1\"; cat\n";
        let (digest, size) = (digest_of(sent), sent.len() as u64);
        let mut shells = 0;
        for shell in ["sh", "bash", "zsh", "tcsh", "csh", "fish"] {
            let scratch = tempfile::tempdir().unwrap();
            ssh.agent = agent.clone().into();
            ssh.stage = StageMode::Auto;
            let input = script_input(&ssh, false);
            let Some(output) = lines(shell, &[&input, b"frames"], scratch.path()) else { continue };
            shells += 1;
            assert_eq!(output, "here --node-agent\nframes", "{shell}");
            // Missing: it is sent, and the next time it is there.
            ssh.agent = "/nowhere/at all".into();
            let (input, stage) = (script_input(&ssh, false), stage_input(&ssh, &digest, size));
            let all = [&input[..], &stage, sent.as_bytes(), b"frames"];
            let output = lines(shell, &all, scratch.path()).unwrap();
            let asked = "GASNETRUN-STAGE \nGASNETRUN-SEND \nsent --node-agent\nframes";
            assert_eq!(output, asked, "{shell}");
            let output = lines(shell, &[&input, &stage, b"frames"], scratch.path()).unwrap();
            assert_eq!(output, "GASNETRUN-STAGE \nsent --node-agent\nframes", "{shell}");
            // What is kept is checked, what arrives, too.
            let kept = scratch.path().join(format!("gasnetrun-{}", nix::unistd::geteuid()));
            std::fs::write(kept.join(&digest), "#!/bin/sh\necho broken\n").unwrap();
            let output = lines(shell, &all, scratch.path()).unwrap();
            assert_eq!(output, asked, "{shell}");
            if nix::unistd::geteuid().is_root() {
                // The right content, but another user's: he could change it while it runs.
                let other = Some(65_534);
                std::os::unix::fs::chown(kept.join(&digest), other, other).unwrap();
                assert_eq!(lines(shell, &all, scratch.path()).unwrap(), asked, "{shell}");
            } else {
                eprintln!("SKIP a file of another user: only root can make one");
            }
            let wrong = sent.replace("sent", "SENT");
            std::fs::remove_file(kept.join(&digest)).unwrap();
            let all = [&input[..], &stage, wrong.as_bytes(), b"frames"];
            let output = lines(shell, &all, scratch.path()).unwrap();
            assert_eq!(output, "GASNETRUN-STAGE \nGASNETRUN-SEND \n", "{shell}");
            assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 0, "nothing is left of it");
            // Not what is there, but what was sent.
            ssh.agent = agent.clone().into();
            let input = script_input(&ssh, true);
            let all = [&input[..], &stage, sent.as_bytes(), b"frames"];
            assert_eq!(lines(shell, &all, scratch.path()).unwrap(), asked, "{shell}");
            ssh.stage = StageMode::Always;
            let input = script_input(&ssh, false);
            let all = [&input[..], &stage, sent.as_bytes(), b"frames"];
            assert_eq!(lines(shell, &all, scratch.path()).unwrap(), asked, "{shell}");
            assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 1, "only what is kept");
            assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            ssh.keep = true;
            let stage = stage_input(&ssh, &digest, size);
            let all = [&input[..], &stage, sent.as_bytes(), b"frames"];
            assert_eq!(lines(shell, &all, scratch.path()).unwrap(), asked, "{shell}");
            assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 2, "and a directory with -k");
            ssh.keep = false;
            ssh.stage = StageMode::Never;
            ssh.agent = "/nowhere/at all".into();
            let output = lines(shell, &[&script_input(&ssh, false)], scratch.path()).unwrap();
            assert_eq!(output, "GASNETRUN-MISSING \n", "{shell}");
        }
        assert!(shells > 0, "no shell at all");
    }

    #[test]
    fn a_login_shell_runs_the_agent_itself_where_it_can_and_the_script_where_not() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let agent = directory.path().join("an-agent");
        std::fs::write(&agent, "#!/bin/sh\necho \"here $*\"; cat\n").unwrap();
        std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut shells = 0;
        for shell in ["sh", "bash", "zsh", "tcsh", "csh", "fish"] {
            let there = Ssh { agent: agent.clone().into(), ..ssh("ssh", &[]) };
            let told = remote_command(&there, false);
            let input = script_input(&there, false);
            assert_eq!(input.iter().filter(|byte| **byte == b'\n').count(), LINES);
            let input = [&input[..], b"frames"].concat();
            let Some(output) = run(shell, &told, &input, directory.path()) else { continue };
            shells += 1;
            let lines = String::from_utf8_lossy(&input).into_owned();
            assert_eq!(output, format!("here --node-agent lines\n{lines}"), "{shell}");
            // Missing: the script has the lines.
            let missing = Ssh { agent: "/nowhere/x".into(), stage: StageMode::Never, ..there };
            let (told, input) = (remote_command(&missing, false), script_input(&missing, false));
            assert_ne!(told, SCRIPT);
            let output = run(shell, &told, &input, directory.path()).unwrap();
            assert_eq!(output, "GASNETRUN-MISSING \n", "{shell}");
        }
        assert!(shells > 0, "no shell at all");
        for agent in ["a/b", "/a b", "/a$b", "/a'b", "/a;b", "/ä"] {
            let odd = Ssh { agent: agent.into(), ..ssh("ssh", &[]) };
            assert!(!has_short_way(&odd) && remote_command(&odd, false) == SCRIPT, "{agent}");
        }
        assert!(!has_short_way(&Ssh { stage: StageMode::Always, ..ssh("ssh", &[]) }));
        let there = Ssh { agent: "/a/b".into(), ..ssh("ssh", &[]) };
        assert!(has_short_way(&there) && remote_command(&there, true) == SCRIPT);
    }

    #[test]
    fn the_script_says_why_there_is_no_place_for_an_agent() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut ssh = ssh("ssh", &[]);
        ssh.agent = "/nowhere".into();
        let (digest, size) = (digest_of(""), 0);
        let input = [script_input(&ssh, false), stage_input(&ssh, &digest, size)].concat();
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).env("TMPDIR", &file).env_remove("XDG_CACHE_HOME");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), &input).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(126), "{said}");
        let failure = Failure::of_shell(&said, "", Some(crate::End::Code(126)));
        assert_eq!(failure.class, Class::AgentBroken);
        assert!(failure.seen.contains("Not a directory"), "{}", failure.seen);
    }

    #[test]
    fn the_script_uses_no_place_that_others_can_change() {
        use std::os::unix::fs::PermissionsExt;
        let said = |directory: &Path| {
            let mut ssh = ssh("ssh", &[]);
            ssh.agent = "/nowhere".into();
            let stage = stage_input(&ssh, &digest_of(""), 0);
            let input = [script_input(&ssh, false), stage].concat();
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT]).env("TMPDIR", directory).env_remove("XDG_CACHE_HOME");
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), &input).unwrap();
            let output = child.wait_with_output().unwrap();
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let scratch = tempfile::tempdir().unwrap();
        let open = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(scratch.path(), open(0o777)).unwrap();
        assert!(said(scratch.path()).contains("open to everybody"));
        std::fs::set_permissions(scratch.path(), open(0o1777)).unwrap();
        assert!(!said(scratch.path()).contains("open to everybody"));
        let kept = scratch.path().join(format!("gasnetrun-{}", nix::unistd::geteuid()));
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&kept, Some(65_534), None).unwrap();
            assert!(said(scratch.path()).contains("of another user, who was there first"));
        } else {
            eprintln!("SKIP a directory of another user: only root can make one");
        }
    }
}
