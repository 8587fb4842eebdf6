//! Why a host cannot take part: classes of failure, read from what the remote shell said.

use serde::{Deserialize, Serialize};
use settings::deadlines::tree::RETRY;

use crate::End;

/// An enum and the table of what belongs to each variant.
macro_rules! classes {
    ($($(#[$about:meta])* $Class:ident: $step:ident, $retry:literal => $advice:literal;)*) => {
        /// What is wrong with a host. Each class belongs to one step of its start.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Class { $($(#[$about])* $Class),* }

        /// One rule for each class, in their order.
        pub const RULES: &[Rule] = &[
            $(Rule { class: Class::$Class, step: Step::$step, retry: $retry, advice: $advice }),*
        ];
    };
}

/// What is done about a class of failure.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The class.
    pub class: Class,
    /// The step that did not succeed.
    pub step: Step,
    /// Whether it may go away by itself, so that the host is tried again.
    pub retry: bool,
    /// What to try.
    pub advice: &'static str,
}

classes! {
    /// The remote shell itself cannot be started here.
    Command: Connect, false =>
        "GASNET_SSH_CMD must name a program that works like `ssh HOST COMMAND`; install an ssh \
         client, or set it";
    /// It does not understand its options or configuration.
    Options: Connect, false => "correct GASNET_SSH_OPTIONS or the ssh configuration";
    /// Its name means nothing.
    Resolve: Resolve, false => "correct the name in the host list";
    /// Nothing listens.
    Refused: Connect, true => "start sshd there, or name its port in the host list (host:port)";
    /// No way to it.
    Unreachable: Connect, false => "check that the host is up and that this network leads to it";
    /// No answer in time.
    Timeout: Connect, true =>
        "check that the host is up and that no firewall drops ssh; --start-timeout waits longer";
    /// The connection ended before anybody logged in.
    Dropped: Connect, true =>
        "its sshd may limit logins (MaxStartups) or refuse this address (hosts.deny, AllowUsers), or \
         the port is none of an sshd";
    /// Somebody else listens there.
    NotSsh: Connect, false => "name the port of its ssh server in the host list (host:port)";
    /// It is not known, or has another key than it had.
    HostKey: HostKey, false =>
        "log in once by hand and check the key, or correct known_hosts; the policy is that of \
         your ssh configuration";
    /// It does not let us in.
    Authentication: Authentication, false =>
        "a login without a question must work: `ssh -o BatchMode=yes HOST true` (ssh-agent, \
         authorized_keys, user@host)";
    /// The login works, but runs no command.
    Shell: RemoteShell, false =>
        "`ssh HOST true` must succeed: look at the login shell and at what its start-up files do";
    /// More output than any login prints, and no agent.
    Noise: RemoteShell, false =>
        "the start-up files of the login shell print too much when no terminal is there";
    /// There is no agent over there.
    AgentMissing: AgentStart, false =>
        "install gasnetrun_ibv there in the same place as here, or use --stage auto";
    /// There is one that cannot run.
    AgentBroken: AgentStart, false =>
        "the launcher's program must run there: same architecture, same or newer C library, a \
         file system that allows it";
    /// It is of another version.
    Version: Version, false => "install the same version there as here, or use --stage always";
    /// It does not speak our messages, or broke off before the ranks were started.
    AgentSilent: AgentStart, true =>
        "run `ssh HOST gasnetrun_ibv --version` and look for crashes there";
    /// The working directory is missing.
    Directory: Program, false =>
        "make the directory there, or name another with --wdir or GASNET_SSH_REMOTE_PATH";
    /// The program is missing or cannot be executed.
    Program: Program, false =>
        "the program must be there in the same place, executable, and built for that machine; \
         --stage auto sends it";
    /// It was to be sent and could not be.
    Staging: Program, false =>
        "make room for the program, or name a directory for it with XDG_CACHE_HOME or TMPDIR \
         where the login there sets its environment; or put the program there and use --stage \
         never";
    /// A shared library of the program is missing.
    Library: Program, false =>
        "install the library there, or say where it is: -E LD_LIBRARY_PATH sends yours, an rpath \
         in the program works as well";
    /// A limit of the system on descriptors or processes is too low for its ranks.
    Limits: Program, false =>
        "raise the limit there (/etc/security/limits.conf, LimitNOFILE=, LimitNPROC= and TasksMax= \
         of an sshd that systemd starts), or start fewer ranks on that host";
    /// It has fewer cpus, cores or sockets than its ranks are to be bound to.
    Cpus: Program, false =>
        "ask for less with -c or --bind-to (-c 0 leaves binding alone), put fewer ranks on that host \
         (-n, or -N and more hosts), or see which cpus a login there may use (taskset -cp $$)";
    /// It was there and is not any more.
    Lost: Bootstrap, false => "look whether the host, its network or its agent went down";
    /// Anything else.
    Other: Connect, false => "run `ssh -v HOST true` by hand";
}

impl Class {
    /// What is done about it.
    #[must_use]
    pub const fn rule(self) -> &'static Rule {
        &RULES[self as usize]
    }
}

settings::named! {
    /// How far the start of a host has come; a failure belongs to the step that did not succeed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Step {
        /// Its turn has not come.
        Waiting = "waiting",
        /// Name to address.
        Resolve = "resolve",
        /// Connection.
        Connect = "connect",
        /// Key of the host.
        HostKey = "host key",
        /// Login.
        Authentication = "authentication",
        /// Command on the other side.
        RemoteShell = "remote shell",
        /// The agent's first word.
        AgentStart = "agent start",
        /// The agent's version.
        Version = "version match",
        /// Working directory and program.
        Program = "program check",
        /// Ready to start its ranks.
        Ready = "ready",
        /// All its ranks were started.
        Ranks = "ranks started",
        /// One of its ranks has opened the bootstrap.
        Bootstrap = "first bootstrap call",
    }
}

/// What OpenSSH and shells say, and what it means. The first that is found in any line counts.
pub const PATTERNS: [(&str, Class); 48] = [
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", Class::HostKey),
    ("Host key verification failed", Class::HostKey),
    ("No matching host key fingerprint", Class::HostKey),
    ("host key is known for", Class::HostKey),
    ("no program `ssh`", Class::Command),
    ("does not speak ssh", Class::NotSsh),
    ("banner line contains invalid characters", Class::NotSsh),
    (": invalid format", Class::NotSsh),
    ("Could not resolve hostname", Class::Resolve),
    ("Name or service not known", Class::Resolve),
    ("Temporary failure in name resolution", Class::Resolve),
    ("No address associated with", Class::Resolve),
    ("Too many authentication failures", Class::Authentication),
    ("Permission denied (", Class::Authentication),
    ("No supported authentication methods", Class::Authentication),
    ("Authentication failed", Class::Authentication),
    ("This account is currently not available", Class::Shell),
    ("account has expired", Class::Authentication),
    ("Connection refused", Class::Refused),
    ("No route to host", Class::Unreachable),
    ("Network is unreachable", Class::Unreachable),
    ("Host is down", Class::Unreachable),
    ("Connection timed out during banner exchange", Class::Timeout),
    ("Connection timed out", Class::Timeout),
    ("Operation timed out", Class::Timeout),
    ("kex_exchange_identification", Class::Dropped),
    ("ssh_exchange_identification", Class::Dropped),
    ("Exceeded MaxStartups", Class::Dropped),
    ("Not allowed at this time", Class::Dropped),
    ("Connection reset by", Class::Dropped),
    ("Connection closed by", Class::Dropped),
    ("Connection to", Class::Dropped),
    ("Broken pipe", Class::Dropped),
    ("Unable to negotiate with", Class::Options),
    ("Bad configuration option", Class::Options),
    ("command-line line", Class::Options),
    ("unknown option --", Class::Options),
    ("Bad port", Class::Options),
    ("terminating, ", Class::Options),
    ("Exec format error", Class::AgentBroken),
    ("cannot execute", Class::AgentBroken),
    ("error while loading shared libraries", Class::AgentBroken),
    ("GLIBC_", Class::AgentBroken),
    ("No space left on device", Class::AgentBroken),
    ("node agent", Class::AgentSilent),
    ("command not found", Class::Shell),
    ("not found", Class::Shell),
    ("No such file or directory", Class::Shell),
];

/// The first pattern in what was said.
fn known(stderr: &str) -> Option<&'static (&'static str, Class)> {
    PATTERNS.iter().find(|(text, _)| stderr.contains(text))
}

/// Class of what was seen: captured standard error, and how the remote shell ended.
#[must_use]
pub fn classify(stderr: &str, end: Option<End>) -> Class {
    match (known(stderr), end) {
        (Some((_, class)), _) => *class,
        (None, Some(End::Code(126))) => Class::AgentBroken,
        (None, Some(End::Code(127))) => Class::Shell,
        (None, Some(End::Code(255))) => Class::Dropped,
        (None, Some(End::Code(_))) => Class::Shell,
        (None, Some(End::Signal(_)) | None) => Class::Other,
    }
}

/// A host that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Class.
    pub class: Class,
    /// What was seen, one line.
    pub seen: String,
}

impl Failure {
    /// A failure with its own words.
    #[must_use]
    pub fn new(class: Class, seen: impl Into<String>) -> Self {
        Self { class, seen: seen.into() }
    }

    /// A remote shell that ended before its agent spoke: `stderr` is what it said, `noise` what it
    /// printed.
    #[must_use]
    pub fn of_shell(stderr: &str, noise: &str, end: Option<End>) -> Self {
        let class = classify(stderr, end);
        let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = known(stderr)
            .and_then(|(text, _)| lines().find(|line| line.contains(text)))
            .or_else(|| lines().next_back())
            .or_else(|| noise.lines().map(str::trim).rfind(|line| !line.is_empty()));
        let how = match end {
            Some(End::Code(code)) => format!("the remote shell ended with code {code}"),
            Some(End::Signal(signal)) => format!("the remote shell was killed by signal {signal}"),
            None => "the remote shell closed its output".to_owned(),
        };
        Self { class, seen: line.map_or(how, |line| shorten(line, 300)) }
    }
}

fn shorten(text: &str, most: usize) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).take(most).collect();
    text.trim().to_owned()
}

/// When a host is tried again after its `attempt`-th failure (from 1), milliseconds; `None`: never.
/// `random` spreads the attempts of many hosts.
#[must_use]
pub fn retry_after(class: Class, attempt: u32, random: u64) -> Option<u64> {
    const ATTEMPTS: u32 = 4;
    if !class.rule().retry || attempt >= ATTEMPTS {
        return None;
    }
    let pause = RETRY.ms() << attempt.min(16);
    Some(pause / 2 + random % pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_one_rule_with_advice() {
        for (at, rule) in RULES.iter().enumerate() {
            assert_eq!(RULES.iter().position(|other| other.class == rule.class), Some(at));
            assert!(!rule.advice.is_empty());
        }
        for (_, class) in PATTERNS {
            assert_eq!(class.rule().class, class);
        }
    }

    #[test]
    fn the_page_on_the_tree_has_the_same_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design/tree.md");
        let page = std::fs::read_to_string(path).unwrap();
        let table = page.split("| class | step | tried again |\n|---|---|---|\n").nth(1).unwrap();
        let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
        let row = |rule: &Rule| {
            let again = if rule.retry { "yes" } else { "no" };
            format!("| {:?} | {} | {again} |", rule.class, rule.step.name())
        };
        assert_eq!(rows, RULES.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn what_openssh_says() {
        let seen = [
            ("ssh: Could not resolve hostname nx: Name or service not known", Class::Resolve),
            ("ssh: connect to host n1 port 22: Connection refused", Class::Refused),
            ("ssh: connect to host n1 port 22: No route to host", Class::Unreachable),
            ("ssh: connect to host n1 port 22: Connection timed out", Class::Timeout),
            (
                "Connection timed out during banner exchange\r\nConnection to 1.2.3.4 port 22 timed out",
                Class::Timeout,
            ),
            ("kex_exchange_identification: Connection closed by remote host", Class::Dropped),
            ("kex_exchange_identification: read: Connection reset by peer", Class::Dropped),
            (
                "kex_exchange_identification: banner line contains invalid characters\r\nbanner exchange: Connection to 1.2.3.4 port 80: invalid format",
                Class::NotSsh,
            ),
            ("ssh: n1 port 22 drops logins: it says `Exceeded MaxStartups`", Class::Dropped),
            ("ssh: n1 port 80 does not speak ssh: it says `HTTP/1.1 400`", Class::NotSsh),
            ("Host key verification failed.", Class::HostKey),
            (
                "No ED25519 host key is known for n1 and you have requested strict checking.",
                Class::HostKey,
            ),
            ("me@n1: Permission denied (publickey,password).", Class::Authentication),
            ("command-line: line 0: Bad configuration option: x", Class::Options),
            ("/tmp/x/gasnetrun_ibv: cannot execute: required file not found", Class::AgentBroken),
            ("sh: 1: gasnetrun_ibv: Exec format error", Class::AgentBroken),
        ];
        for (text, class) in seen {
            assert_eq!(classify(text, Some(End::Code(255))), class, "{text}");
        }
        assert_eq!(classify("", Some(End::Code(127))), Class::Shell);
        assert_eq!(classify("", Some(End::Signal(9))), Class::Other);
    }

    #[test]
    fn the_telling_line_is_shown() {
        let text = "Warning: Permanently added n1\r\nme@n1: Permission denied (publickey).\r\n";
        let failure = Failure::of_shell(text, "", Some(End::Code(255)));
        assert_eq!(failure.seen, "me@n1: Permission denied (publickey).");
        let silent = Failure::of_shell("", "motd\n", Some(End::Code(1)));
        assert_eq!((silent.class, silent.seen.as_str()), (Class::Shell, "motd"));
    }

    #[test]
    fn only_what_may_go_away_is_tried_again_and_not_for_ever() {
        assert_eq!(retry_after(Class::HostKey, 1, 5), None);
        assert_eq!(retry_after(Class::Authentication, 1, 5), None);
        assert_eq!(retry_after(Class::Resolve, 1, 5), None);
        let mut last = 0;
        for attempt in 1..4 {
            let pause = retry_after(Class::Refused, attempt, 0).unwrap();
            assert!(pause > last);
            last = pause;
        }
        assert_eq!(retry_after(Class::Refused, 4, 0), None);
    }
}
