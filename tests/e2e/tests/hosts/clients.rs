//! The default, `GASNET_SSH_CMD=auto`: a table of configurations, lists of known hosts, keys and
//! agents. Whoever logs in, the built-in client or the ssh program, the verdict is that of ssh.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use testkit::{Bed, Outcome};

use crate::builtin;

const NAME: &str = "who logs in by default";

/// Who is expected to log in.
enum By {
    Builtin,
    /// The ssh program, with this in the reason.
    Program(&'static str),
}
use By::{Builtin, Program};

/// One line of the table. `DIR` stands for the directory of the keys and sockets, `KEY1` and `KEY2`
/// for the keys of `n1` and `n2`.
struct Case {
    name: &'static str,
    /// Lines of the configuration in front of the usual ones.
    config: &'static str,
    known: &'static str,
    host: &'static str,
    /// Commands in front of the launcher; they see the directory as `$DIR`.
    before: &'static str,
    by: By,
    /// What is printed, or the step that fails and something that both say.
    verdict: Result<&'static str, (&'static str, &'static str)>,
}

const CASE: Case = Case {
    name: "",
    config: "",
    known: "n1 KEY1",
    host: "n1",
    before: "",
    by: Builtin,
    verdict: Ok("root"),
};

const KEY_STEP: &str = "host key";
const DENIED: (&str, &str) = ("authentication", "Permission denied (publickey)");

fn hosts_and_keys() -> Vec<Case> {
    let strict =
        |name, config, known, by, verdict| Case { name, config, known, by, verdict, ..CASE };
    let changed = Err((KEY_STEP, ""));
    vec![
        strict("a known host", "", "n1 KEY1", Builtin, Ok("root")),
        strict("an unknown one, yes", "StrictHostKeyChecking yes", "", Builtin, changed),
        strict("an unknown one, ask", "StrictHostKeyChecking ask", "", Builtin, changed),
        strict(
            "an unknown one, new",
            "StrictHostKeyChecking accept-new",
            "",
            Program("not known"),
            Ok("root"),
        ),
        strict(
            "an unknown one, no",
            "StrictHostKeyChecking no",
            "",
            Program("not known"),
            Ok("root"),
        ),
        strict("another key, yes", "StrictHostKeyChecking yes", "n1 KEY2", Builtin, changed),
        strict("another key, new", "StrictHostKeyChecking accept-new", "n1 KEY2", Builtin, changed),
        strict(
            "another key, no",
            "StrictHostKeyChecking no",
            "n1 KEY2",
            Program("another key"),
            Ok("root"),
        ),
        strict("several keys of a host", "", "n1 KEY2\nn1 KEY1", Builtin, Ok("root")),
        strict("hidden names", "", "HIDDEN n1 KEY1", Builtin, Ok("root")),
        strict("hidden names, another key", "", "HIDDEN n1 KEY2", Builtin, changed),
        strict("patterns", "", "n?,!n2 KEY1", Builtin, Ok("root")),
        strict("patterns with an exception", "", "n*,!n1 KEY1", Builtin, changed),
        strict("a revoked key", "", "n1 KEY1\n@revoked * KEY1", Program("@revoked"), changed),
        strict(
            "another revoked key",
            "",
            "n1 KEY1\n@revoked * KEY2",
            Program("@revoked"),
            Ok("root"),
        ),
        strict(
            "an authority",
            "",
            "n1 KEY1\n@cert-authority n1 KEY2",
            Program("@cert-authority"),
            Ok("root"),
        ),
        strict(
            "an authority alone",
            "",
            "@cert-authority n1 KEY2",
            Program("@cert-authority"),
            changed,
        ),
        strict(
            "damaged lines",
            "",
            "n1\nn1 ssh-ed25519 ???\n|1|x n1\n@x y z\nn1 KEY1",
            Builtin,
            Ok("root"),
        ),
        strict("nothing but damaged lines", "", "n1\nn1 ssh-ed25519 ???\n", Builtin, changed),
        strict("no list", "UserKnownHostsFile /nowhere/at/all", "", Builtin, changed),
        strict(
            "two lists",
            "UserKnownHostsFile /nowhere/at/all DIR/known",
            "n1 KEY1",
            Builtin,
            Ok("root"),
        ),
        strict("an alias of the key", "HostKeyAlias front", "front KEY1", Builtin, Ok("root")),
        strict("an alias of the key, unknown", "HostKeyAlias front", "n1 KEY1", Builtin, changed),
        strict("the address, too", "CheckHostIP yes", "n1,198.18.77.1 KEY1", Builtin, Ok("root")),
        Case {
            host: "n1:2222",
            ..strict("a port in the list", "", "[n1]:2222 KEY1", Builtin, Ok("root"))
        },
        Case {
            host: "n1:2222",
            ..strict("a port beside the list", "", "n1 KEY1", Builtin, Ok("root"))
        },
        Case {
            host: "n1:2222",
            ..strict("another port in the list", "", "[n1]:2223 KEY1", Builtin, changed)
        },
        Case {
            host: "n1:2222",
            ..strict("another key of the port", "", "[n1]:2222 KEY2", Builtin, changed)
        },
    ]
}

fn configurations() -> Vec<Case> {
    let of = |name, config, by| Case { name, config, by, ..CASE };
    vec![
        Case {
            host: "front",
            known: "[n1]:2222 KEY1",
            verdict: Ok("gx"),
            ..of(
                "HostName, Port and User",
                "Host front\n HostName n1\n Port 2222\n User gx\n IdentityFile DIR/good\n",
                Builtin,
            )
        },
        Case {
            known: "n1 KEY1\nn2 KEY2",
            ..of("a jump host", "Host n1\n ProxyJump root@n2", Program("ProxyJump root@n2"))
        },
        of(
            "a proxy",
            "ProxyCommand perl -MIO::Socket -e '$|=1; $s=IO::Socket::INET->new(\"%h:%p\"); if (fork) { while (sysread $s,$b,9999) { syswrite STDOUT,$b } } else { while (sysread STDIN,$b,9999) { syswrite $s,$b } shutdown $s,1 }'",
            Program("ProxyCommand"),
        ),
        of(
            "a shared connection",
            "ControlMaster auto\nControlPath DIR/%C",
            Program("ControlMaster auto"),
        ),
        of(
            "a command that decides",
            "Match exec \"test -e /\"\n Compression no",
            Program("Match exec"),
        ),
        of("ciphers that it has", "Ciphers aes256-gcm@openssh.com,aes128-ctr", Builtin),
        of(
            "a list that begins with another",
            "MACs umac-128@openssh.com,hmac-sha2-256\nCiphers aes128-ctr",
            Program("prefers umac-128@openssh.com"),
        ),
        of(
            "an exchange that it does not have",
            "KexAlgorithms sntrup761x25519-sha512@openssh.com",
            Program("kexalgorithms"),
        ),
        of("variables", "SendEnv LANG LC_*\nSetEnv A=b", Builtin),
        of("addresses of one family", "AddressFamily inet", Builtin),
        Case {
            verdict: Err(("resolve", "")),
            ..of("no address of this family", "AddressFamily inet6", Builtin)
        },
        of("GSSAPI without a ticket", "GSSAPIAuthentication yes", Builtin),
        Case {
            before: "export KRB5CCNAME=/tmp/ticket",
            ..of("GSSAPI with one", "GSSAPIAuthentication yes", Program("Kerberos"))
        },
        Case {
            host: "n1:2223",
            ..of("a server with other algorithms only", "", Program("handshake failed"))
        },
        Case {
            host: "root@n1:9",
            verdict: Err(("connect", "Connection refused")),
            ..of("nobody listens", "", Builtin)
        },
        Case { host: "nx", verdict: Err(("resolve", "nx")), ..of("no such host", "", Builtin) },
        Case { host: "n1:8080", verdict: Err(("connect", "")), ..of("a web server", "", Builtin) },
    ]
}

fn identities() -> Vec<Case> {
    const AGENT: &str = "eval $(ssh-agent) >/dev/null 2>&1; trap 'kill $SSH_AGENT_PID' EXIT; \
        add() { env SSH_ASKPASS=$DIR/ask SSH_ASKPASS_REQUIRE=force ssh-add -q \"$@\" 2>/dev/null; }; ";
    let of = |name, config, before, by, verdict| Case { name, config, before, by, verdict, ..CASE };
    let retried = Program("Permission denied");
    let with = |rest: &'static str| -> &'static str {
        Box::leak(format!("{AGENT}{rest}").into_boxed_str())
    };
    vec![
        of(
            "a key that others may read",
            "IdentityFile DIR/open",
            "",
            Program("others may read it"),
            Err(DENIED),
        ),
        of(
            "a locked key",
            "IdentityFile DIR/locked",
            "",
            Program("it needs a passphrase"),
            Err(DENIED),
        ),
        of(
            "a locked key in an agent",
            "IdentityFile DIR/locked",
            with("add $DIR/locked"),
            Builtin,
            Ok("root"),
        ),
        of(
            "only that",
            "IdentityFile DIR/locked\nIdentitiesOnly yes",
            with("add $DIR/locked"),
            Builtin,
            Ok("root"),
        ),
        of(
            "an agent with another key only",
            "IdentityFile none",
            with("add $DIR/wrong"),
            retried,
            Err(DENIED),
        ),
        of(
            "an agent's key that is none of the files",
            "IdentityFile DIR/wrong\nIdentitiesOnly yes",
            with("add $DIR/good"),
            Program("Permission denied"),
            Err(DENIED),
        ),
        of(
            "an agent that refuses",
            "IdentityFile DIR/locked",
            with("export SSH_ASKPASS=/bin/false; add -c $DIR/locked"),
            Program("Permission denied"),
            Err(DENIED),
        ),
        of("an agent's key alone", "IdentityFile none", with("add $DIR/good"), Builtin, Ok("root")),
        of(
            "an agent's socket that is not there",
            "IdentityFile none",
            "export SSH_AUTH_SOCK=/nowhere/agent",
            Program("no such file"),
            Err(("authentication", "the ssh agent at /nowhere/agent: no such file")),
        ),
        of(
            "an agent's socket that is none",
            "IdentityFile none",
            "export SSH_AUTH_SOCK=$DIR/good",
            Program("no socket"),
            Err(("authentication", ": no socket")),
        ),
        of(
            "an empty agent",
            "IdentityFile none",
            with(""),
            Program("an agent without keys"),
            Err(("authentication", "an agent without keys")),
        ),
        of(
            "no agent, but a key",
            "IdentityFile DIR/good",
            "export SSH_AUTH_SOCK=/nowhere/agent",
            Builtin,
            Ok("root"),
        ),
        of(
            "an agent by its name",
            "IdentityFile none\nIdentityAgent $AGENT",
            with("add $DIR/good; export AGENT=$SSH_AUTH_SOCK; export SSH_AUTH_SOCK=/nowhere"),
            Builtin,
            Ok("root"),
        ),
        of(
            "several keys",
            "IdentityFile DIR/missing\nIdentityFile DIR/wrong\nIdentityFile DIR/good",
            "",
            Builtin,
            Ok("root"),
        ),
        of("a wrong key", "IdentityFile DIR/wrong", "", Program("Permission denied"), Err(DENIED)),
        of("no key", "IdentityFile none", "", Program("tried no key"), Err(DENIED)),
        of("a damaged key", "IdentityFile DIR/damaged", "", Program("it is damaged"), Err(DENIED)),
        of(
            "a certificate beside the key",
            "IdentityFile DIR/certified",
            "",
            Program("the certificate"),
            Ok("root"),
        ),
        of(
            "another user without this key",
            "User gx\nIdentityFile DIR/wrong",
            "",
            Program("Permission denied"),
            Err(("authentication", "gx@")),
        ),
    ]
}

struct Table<'a> {
    bed: &'a Bed,
    directory: PathBuf,
    keys: [String; 2],
}

impl Table<'_> {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn new(bed: &Bed) -> Table<'_> {
        let directory = PathBuf::from(bed.share()).join("clients");
        std::fs::create_dir(&directory).expect("a new directory");
        let key = |host: &str| {
            let path = bed.cluster.directory().join(format!("ssh/host_{host}.pub"));
            let text = std::fs::read_to_string(path).expect("a key");
            text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
        };
        let table = Table { bed, keys: [key("n1"), key("n2")], directory };
        let write = |name: &str, text: &str, mode: u32| {
            let path = table.directory.join(name);
            std::fs::write(&path, text).expect("written");
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, permissions).expect("changed");
        };
        let own = bed.cluster.directory().join("ssh/id_root");
        let good = std::fs::read_to_string(own).expect("a key");
        for (name, mode) in
            [("good", 0o600), ("open", 0o644), ("locked", 0o600), ("certified", 0o600)]
        {
            write(name, &good, mode);
        }
        write("damaged", &good[..good.len() / 2], 0o600);
        write("ask", "#!/bin/sh\necho secret\n", 0o755);
        let [wrong, locked, certified] =
            ["wrong", "locked", "certified"].map(|name| table.path(name));
        bed.shell("head", &format!(
            "ssh-keygen -q -t ed25519 -N '' -f {wrong} && ssh-keygen -q -p -P '' -N secret -f {locked} && \
             ssh-keygen -y -f {certified} > {certified}.pub && ssh-keygen -q -s {wrong} -I x -n root {certified}.pub"
        ));
        table
    }

    /// Runs a case by a client, given as the value of `GASNET_SSH_CMD`.
    fn run(&self, case: &Case, client: &str) -> Outcome {
        let fill = |text: &str| {
            let text = text.replace("DIR", &self.directory.display().to_string());
            text.replace("KEY1", &self.keys[0]).replace("KEY2", &self.keys[1])
        };
        let (known, config) = (self.path("known"), self.path("config"));
        let (hide, lines) = match case.known.strip_prefix("HIDDEN ") {
            Some(lines) => (true, lines),
            None => (false, case.known),
        };
        std::fs::write(&known, fill(lines) + "\n").expect("written");
        if hide {
            self.bed.shell("head", &format!("ssh-keygen -q -H -f {known} 2>/dev/null"));
        }
        let identity = if case.config.contains("IdentityFile") {
            String::new()
        } else {
            format!("IdentityFile {}\n", self.path("good"))
        };
        let usual = format!(
            "Host *\n{identity}UserKnownHostsFile {known}\nGlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\n"
        );
        std::fs::write(&config, format!("{}\n{usual}", fill(case.config))).expect("written");
        let script = format!("DIR={}; {}\n\"$@\"", self.directory.display(), case.before);
        let (client, options) =
            (format!("GASNET_SSH_CMD={client}"), format!("GASNET_SSH_OPTIONS=-F {config}"));
        let words = ["-v", "-n", "1", "--hosts", case.host, "id", "-un"];
        let set = [client.as_str(), &options];
        self.bed.job_under(&["sh", "-c", &script, "sh"], &set, &words).run()
    }

    /// What is wrong with an outcome.
    fn fault(case: &Case, outcome: &Outcome, client: &str) -> Option<String> {
        let (out, err) = (outcome.out(), outcome.err());
        let wrong = match &case.verdict {
            Ok(name) => {
                (out.trim() != *name || outcome.code() != 0).then(|| format!("printed {out:?}"))
            }
            Err((step, seen)) => {
                let step = format!("at the step `{step}`");
                let said = err.contains(&step) && err.contains(seen) && outcome.code() == 125;
                (!said).then(|| format!("not {step} with {seen:?}"))
            }
        };
        let by = (client == "auto").then(|| match case.by {
            Builtin => "login by the built-in ssh client: ".to_owned(),
            Program(_) => "login by the ssh program (".to_owned(),
        });
        let line = by.as_ref().map(|by| err.lines().find(|line| line.contains(by)));
        let client = match (&case.by, line) {
            (_, Some(None)) => by.map(|by| format!("nothing of {by:?}")),
            (Program(reason), Some(Some(line))) if !line.contains(reason) => {
                Some(format!("no {reason:?} in {line}"))
            }
            _ => None,
        };
        wrong.or(client)
    }
}

#[test]
fn the_verdict_is_that_of_ssh_whoever_logs_in() {
    if builtin::launcher().is_none() {
        return;
    }
    let Some(bed) = Bed::up(NAME, "n1 n2") else { return };
    let table = Table::new(&bed);
    let other = "-o MACs=umac-128@openssh.com -o Ciphers=aes128-ctr";
    for (port, options) in [(2222, ""), (2223, other)] {
        bed.shell("n1", &format!(
            "/usr/sbin/sshd -f /etc/ssh/sshd_config -h /etc/ssh/host_n1 -o PidFile=/run/sshd.{port} -p {port} {options}"
        ));
    }
    let server = "use IO::Socket; $l = IO::Socket::INET->new(LocalPort => 8080, Listen => 9, ReuseAddr => 1); \
        exit if fork; open STDIN, \"</dev/null\"; open STDOUT, \">/dev/null\"; open STDERR, \">/dev/null\"; \
        open P, \">/run/web\"; print P \"$$\\n\"; close P; \
        while ($c = $l->accept) { $x = <$c>; print $c \"HTTP/1.1 400 Bad Request\\r\\n\\r\\n\"; close $c }";
    bed.shell(
        "n1",
        &format!("setsid perl -e '{server}'; while ! test -s /run/web; do sleep 0.01; done"),
    );
    let mut faults = Vec::new();
    for case in hosts_and_keys().into_iter().chain(configurations()).chain(identities()) {
        for client in ["auto", "ssh"] {
            let outcome = table.run(&case, client);
            if let Some(fault) = Table::fault(&case, &outcome, client) {
                faults.push(format!("{} by {client}: {fault}\n{}", case.name, outcome.err()));
            }
        }
    }
    let web = Case {
        host: "n1:8080",
        verdict: Err(("connect", "does not speak ssh: it says `HTTP/1.1 400 Bad Request`")),
        ..CASE
    };
    faults.extend(Table::fault(&web, &table.run(&web, "auto"), "auto"));
    bed.shell("n1", "kill $(cat /run/web /run/sshd.2222 /run/sshd.2223)");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    bed.assert_clean();
}

#[test]
fn the_doctor_and_a_job_say_who_logs_in_to_each_host() {
    if builtin::launcher().is_none() {
        return;
    }
    let Some(bed) = Bed::up("who logs in to each host", "n1 n2 n3") else { return };
    let config = format!("{}/config", bed.share());
    let own = "Host n2\n ProxyJump root@n1\nHost *\n Include /etc/ssh/ssh_config\n";
    std::fs::write(&config, own).expect("written");
    let options = format!("GASNET_SSH_OPTIONS=-F {config}");
    let outcome = bed.run(&[&options], &["-v", "-n", "3", "--hosts", "n1,n2,n3", "true"]);
    outcome.expect(0);
    let by = [
        "login by the built-in ssh client: n1 n3\n",
        "login by the ssh program (ProxyJump root@n1): n2\n",
    ];
    for line in by {
        assert!(outcome.err().contains(line), "{line} in {}", outcome.err());
    }
    let outcome = bed.run(&[&options], &["doctor", "n1", "n2", "n3"]);
    outcome.expect(0);
    let by_host = [
        "2 of 3 hosts (n1 n3): the built-in ssh client\n",
        "1 of 3 hosts (n2): the ssh program (ProxyJump root@n1)\n",
    ];
    for line in by_host {
        assert!(outcome.out().contains(line), "{line} in {}", outcome.out());
    }
    // Also of hosts that other hosts start.
    let chain = "GASNET_SSH_OUT_DEGREE=1";
    let outcome = bed.run(&[&options, chain], &["-v", "-n", "3", "--hosts", "n1,n2,n3", "true"]);
    outcome.expect(0);
    for line in [
        "login by the built-in ssh client: n1\n",
        "login by the ssh program (ProxyJump root@n1), from other hosts: n2\n",
        "login by the built-in ssh client, from other hosts: n3\n",
    ] {
        assert!(outcome.err().contains(line), "{line} in {}", outcome.err());
    }
    let outcome = bed.run(&[&options, chain], &["doctor", "n1", "n2", "n3"]);
    outcome.expect(0);
    for line in by_host {
        assert!(outcome.out().contains(line), "{line} in {}", outcome.out());
    }
    // Without a program `ssh`: what is configured cannot be read, and nothing else is guessed.
    let path = ["PATH=/nowhere"];
    let outcome = bed.run(&path, &["-n", "1", "--hosts", "n1", "/bin/true"]);
    outcome.expect(125);
    let said = "no program `ssh` was found in PATH, and the built-in client does not read /etc/ssh/ssh_config";
    assert!(outcome.err().contains(said), "{}", outcome.err());
    let options = "GASNET_SSH_OPTIONS=-F none -i /etc/ssh/id_root";
    let words = ["-v", "-n", "1", "--hosts", "n1", "/bin/true"];
    let outcome = bed.run(&[path[0], options], &words);
    outcome.expect(0);
    assert!(outcome.err().contains("login by the built-in ssh client: n1"), "{}", outcome.err());
}

/// Hosts that are down take no longer than ssh lets them, and Ctrl-C ends a job that waits for them.
#[test]
fn hosts_that_are_down_are_given_up_in_time_and_a_signal_ends_the_wait() {
    if builtin::launcher().is_none() {
        return;
    }
    let Some(bed) = Bed::up("dead hosts by default", "n1 n2") else { return };
    bed.cluster.verb(&["drop", "n2"]);
    let options = "GASNET_SSH_OPTIONS=-o ConnectTimeout=1";
    let words = ["-v", "-n", "2", "--hosts", "n1,n2", "true"];
    let outcome = bed.run(&[options, "GASNET_SSH_CMD=auto"], &words);
    outcome.expect(125);
    let failed = "1 of 2 hosts (n2), at the step `connect`";
    assert!(outcome.err().contains(failed), "{}", outcome.err());
    assert!(!outcome.err().contains("the ssh program"), "a dead host is dead: {}", outcome.err());
    let running = bed.job(&[], &words).start();
    running.wait_stderr("Reached", 0);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let launcher = bed.agents("head").into_iter().next().expect("it runs").pid;
    assert!(testkit::process::send(launcher, nix::sys::signal::Signal::SIGINT));
    let outcome = running.wait();
    outcome.expect(130);
    bed.cluster.verb(&["pass", "n2"]);
    bed.assert_clean();
}
