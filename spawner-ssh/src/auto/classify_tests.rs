//! The table: one line of a configuration, and who logs in.

use super::*;

const DEFAULT: &str = include_str!("default.txt");

fn around() -> Around {
    let env = [("SSH_AUTH_SOCK", "/run/agent"), ("LANG", "C"), ("LC_ALL", "C"), ("DIR", "/d")];
    Around {
        home: "/home/me".into(),
        user: "me".into(),
        uid: 7,
        here: "head.cluster".into(),
        env: env.map(|(name, value)| (name.into(), value.into())).into(),
        ticket: false,
    }
}

/// The defaults with these lines in place of those with the same keys.
fn with(lines: &str) -> Effective {
    let keys: Vec<&str> = lines.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let rest = DEFAULT.lines().filter(|line| !keys.contains(&line.split(' ').next().unwrap()));
    let asked = ["batchmode yes", "loglevel ERROR", "requesttty false", "connecttimeout 30"];
    let asked = asked.into_iter().filter(|line| !keys.contains(&line.split(' ').next().unwrap()));
    let names: Vec<&str> = asked.clone().map(|line| line.split(' ').next().unwrap()).collect();
    let rest = rest.filter(|line| !names.contains(&line.split(' ').next().unwrap()));
    let all: Vec<&str> = rest.chain(asked).chain(lines.lines()).collect();
    Effective::parse(&all.join("\n")).unwrap()
}

fn choose(lines: &str) -> Choice {
    classify(&with(lines), &Effective::parse(DEFAULT).unwrap(), &around())
}

fn builtin(lines: &str) -> Settings {
    match choose(lines) {
        Choice::Builtin(settings) => *settings,
        Choice::Program(reason) => panic!("{lines}: {reason}"),
    }
}

#[test]
fn what_only_the_ssh_program_does() {
    for line in [
        "proxyjump jump",
        "proxycommand nc %h %p",
        "controlpath /tmp/%C",
        "controlmaster auto",
        "gssapikeyexchange yes",
        "gssapidelegatecredentials yes",
        "hostbasedauthentication yes",
        "pubkeyauthentication no",
        "preferredauthentications password,publickey",
        "certificatefile /x-cert.pub",
        "pkcs11provider /lib/x.so",
        "revokedhostkeys /etc/ssh/revoked",
        "knownhostscommand /bin/x",
        "verifyhostkeydns true",
        "permitlocalcommand yes",
        "remotecommand id",
        "tunnel point-to-point",
        "localforward 80 [x]:80",
        "forwardagent yes",
        "forwardx11 yes",
        "addkeystoagent true",
        "compression yes",
        "bindaddress 1.2.3.4",
        "bindinterface eth0",
        "connectionattempts 2",
        "rekeylimit 1000 0",
        "ipqos ef",
        "batchmode no",
        "loglevel DEBUG",
        "requesttty force",
        "stdinnull yes",
        "sessiontype none",
        "visualhostkey yes",
        "canonicalizehostname true",
        "nohostauthenticationforlocalhost yes",
        "stricthostkeychecking perhaps",
        "identityfile ~other/key",
        "identityfile /k_%C",
        "identityfile /k_${NOWHERE}",
        "userknownhostsfile a file",
        "ciphers 3des-cbc",
        "kexalgorithms sntrup761x25519-sha512@openssh.com",
        "macs umac-64@openssh.com",
        "hostkeyalgorithms ssh-dss",
        "pubkeyacceptedalgorithms ssh-rsa",
        "somethingnew yes",
    ] {
        let Choice::Program(reason) = choose(line) else { panic!("{line}: the built-in client") };
        let key = line.split(' ').next().unwrap();
        assert!(reason.to_ascii_lowercase().contains(key), "{line}: {reason}");
    }
    let ticket = Around { ticket: true, ..around() };
    let default = Effective::parse(DEFAULT).unwrap();
    let choice = classify(&with("gssapiauthentication yes"), &default, &ticket);
    assert!(matches!(choice, Choice::Program(reason) if reason.contains("Kerberos")));
}

#[test]
fn what_the_client_does_as_openssh() {
    for line in [
        "gssapiauthentication yes",
        "hashknownhosts yes",
        "updatehostkeys false",
        "serveraliveinterval 60",
        "proxyjump none",
        "controlpath none",
        "passwordauthentication no",
        "preferredauthentications publickey,password",
        "ignoreunknown UseKeychain",
        "casignaturealgorithms ssh-ed25519",
        "loglevel QUIET",
    ] {
        builtin(line);
    }
    let settings =
        builtin("hostname n1.cluster\nport 2222\nuser you\nhostkeyalias n1\naddressfamily inet6");
    assert_eq!(settings.hostname.as_deref(), Some("n1.cluster"));
    assert_eq!((settings.port, settings.user.as_deref()), (Some(2222), Some("you")));
    assert_eq!((settings.alias.as_deref(), settings.family), (Some("n1"), Family::V6));
    assert!(settings.hand_over && settings.keep_alive && !settings.identities_only);
    for (value, strict) in [
        ("true", Strict::Yes),
        ("ask", Strict::Yes),
        ("accept-new", Strict::AcceptNew),
        ("false", Strict::No),
        ("off", Strict::No),
    ] {
        assert_eq!(builtin(&format!("stricthostkeychecking {value}")).strict, strict);
    }
    let settings =
        builtin("connecttimeout 7\ntcpkeepalive no\nrequiredrsasize 2048\ncheckhostip yes");
    assert_eq!((settings.timeout, settings.least_rsa), (Some(7), 2048));
    assert!(!settings.keep_alive && settings.check_address);
}

#[test]
fn names_of_files_are_expanded() {
    let settings =
        builtin("identityfile ~/.ssh/id_%u_%L\nidentityfile ${DIR}/%h%%\nidentitiesonly yes");
    let files: Vec<_> = settings.identities.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(files, ["/home/me/.ssh/id_me_head", "/d/n1%"]);
    assert!(settings.identities_only);
    assert!(builtin("identityfile none").identities.is_empty());
    let settings = builtin("userknownhostsfile /a ~/b_%h\nglobalknownhostsfile none");
    let known = settings.known_hosts.unwrap();
    assert_eq!(known, [PathBuf::from("/a"), PathBuf::from("/home/me/b_n1")]);
    for (line, agent) in [
        ("port 22", AgentAt::Socket("/run/agent".into())),
        ("identityagent none", AgentAt::None),
        ("identityagent SSH_AUTH_SOCK", AgentAt::Socket("/run/agent".into())),
        ("identityagent $DIR", AgentAt::Socket("/d".into())),
        ("identityagent $NOWHERE", AgentAt::None),
        ("identityagent ~/agent", AgentAt::Socket("/home/me/agent".into())),
    ] {
        assert_eq!(builtin(line).agent, agent, "{line}");
    }
}

#[test]
fn lists_that_the_user_changed_are_kept_to_exactly() {
    let of = |lines: &str| builtin(lines).algorithms.unwrap();
    let usual = of("port 22");
    assert!(!usual.kex.exact && !usual.ciphers.exact && !usual.macs.exact);
    let own = of("ciphers aes256-gcm@openssh.com,chacha20-poly1305@openssh.com");
    assert!(own.ciphers.exact && !own.macs.exact);
    assert_eq!(own.ciphers.names.len(), 2);
}

#[test]
fn variables_are_sent() {
    let settings = builtin("sendenv LANG\nsendenv LC_*\nsetenv A=b=c");
    let sent: Vec<_> = settings.env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(sent, [("LANG", "C"), ("LC_ALL", "C"), ("A", "b=c")]);
    assert!(builtin("port 22").env.is_empty());
}

/// Where a program is installed, everything that it prints must be understood.
#[test]
fn the_ssh_of_this_machine_needs_no_program_by_default() {
    let ask = |words: &[&str]| {
        let output = std::process::Command::new("ssh").args(words).output().ok()?;
        Effective::parse(&String::from_utf8_lossy(&output.stdout))
    };
    let asked = ["-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ForwardX11=no", "-T"];
    let empty = ["-F", "/dev/null", "-G", "n1"];
    let Some(default) = ask(&empty) else {
        return testkit::skip("the ssh of this machine", "no ssh is installed");
    };
    let effective = ask(&[&asked[..], &empty].concat()).expect("the same program");
    let choice = classify(&effective, &default, &around());
    assert!(matches!(choice, Choice::Builtin(_)), "{choice:?}");
}
