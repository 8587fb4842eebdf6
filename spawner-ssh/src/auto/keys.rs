//! What each key of `ssh -G` means to the built-in client.

/// What is made of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The client does what it says.
    Done,
    /// It changes nothing for a login without a terminal, as ours are.
    Idle,
    /// These values are what the client does; with others it is the ssh program's turn.
    Only(&'static [&'static str]),
}

use Rule::{Done, Idle, Only};

const NO: Rule = Only(&["no", "false", "none"]);
const UNSET: Rule = Only(&["none"]);

/// The keys. One that is not here must have OpenSSH's default.
const KEYS: [(&str, Rule); 80] = [
    ("addkeystoagent", NO),
    ("addressfamily", Only(&["any", "inet", "inet6"])),
    ("batchmode", Only(&["yes", "true"])),
    ("certificatefile", UNSET),
    ("casignaturealgorithms", Idle), // a host with a line of an authority is handed over
    ("checkhostip", Done),
    ("ciphers", Done),
    ("clearallforwardings", Idle),
    ("compression", NO),
    ("connecttimeout", Done),
    ("controlmaster", NO),
    ("controlpath", UNSET),
    ("controlpersist", Idle),
    ("enableescapecommandline", Idle),
    ("enablesshkeysign", Idle),
    ("escapechar", Idle),
    ("exitonforwardfailure", Idle),
    ("fingerprinthash", Idle),
    ("forkafterauthentication", NO),
    ("forwardagent", NO),
    ("forwardx11", NO),
    ("forwardx11timeout", Idle),
    ("forwardx11trusted", Idle),
    ("gatewayports", Idle),
    ("globalknownhostsfile", Done),
    ("gssapiauthentication", Done),
    ("gssapiclientidentity", Idle),
    ("gssapidelegatecredentials", NO),
    ("gssapikexalgorithms", Idle),
    ("gssapikeyexchange", NO),
    ("gssapirenewalforcesrekey", Idle),
    ("gssapiserveridentity", Idle),
    ("gssapitrustdns", Idle),
    ("hashknownhosts", Idle), // it writes no list
    ("host", Idle),
    ("hostbasedacceptedalgorithms", Idle),
    ("hostbasedauthentication", NO),
    ("hostbasedkeytypes", Idle),
    ("hostkeyalgorithms", Done),
    ("hostkeyalias", Done),
    ("hostname", Done),
    ("identitiesonly", Done),
    ("identityagent", Done),
    ("identityfile", Done),
    ("ignoreunknown", Idle),
    ("kbdinteractiveauthentication", Idle),
    ("challengeresponseauthentication", Idle),
    ("kexalgorithms", Done),
    ("knownhostscommand", UNSET),
    ("localcommand", Idle),
    ("loglevel", Only(&["ERROR", "QUIET", "FATAL"])),
    ("macs", Done),
    ("nohostauthenticationforlocalhost", NO),
    ("numberofpasswordprompts", Idle),
    ("passwordauthentication", Idle),
    ("permitlocalcommand", NO),
    ("pkcs11provider", UNSET),
    ("port", Done),
    ("proxycommand", UNSET),
    ("proxyjump", UNSET),
    ("preferredauthentications", Done),
    ("pubkeyacceptedalgorithms", Done),
    ("pubkeyacceptedkeytypes", Done),
    ("pubkeyauthentication", Only(&["true", "yes", "unbound", "host-bound"])),
    ("remotecommand", UNSET),
    ("requesttty", Only(&["false", "no", "auto"])),
    ("requiredrsasize", Done),
    ("revokedhostkeys", UNSET),
    ("securitykeyprovider", Idle), // such keys are handed over
    ("sendenv", Done),
    ("setenv", Done),
    ("serveralivecountmax", Idle), // links have heartbeats of their own
    ("serveraliveinterval", Idle),
    ("stricthostkeychecking", Done),
    ("syslogfacility", Idle),
    ("tcpkeepalive", Done),
    ("updatehostkeys", Idle), // it writes no list
    ("user", Done),
    ("userknownhostsfile", Done),
    ("xauthlocation", Idle),
];

/// What is made of this key; `None`: it is not known.
pub(super) fn rule(key: &str) -> Option<Rule> {
    let found = KEYS.iter().find(|(name, _)| *name == key);
    found.map(|(_, rule)| *rule)
}

/// Options of the program that `ssh -G` answers with a key, without and with a value.
const ANSWERED: (&str, &str) = ("46ACKTXYakqvx", "BFJSIbceilmopLRDw");
/// Those of which a value follows.
const TAKES: &str = "BbcDEeFIiJLlmOopQRSWw";

/// The first of the user's options whose effect `ssh -G` does not show.
pub(super) fn unanswered(options: &[std::ffi::OsString]) -> Option<String> {
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Some(text.into_owned());
        };
        for (at, letter) in letters.char_indices() {
            if TAKES.contains(letter) {
                if !ANSWERED.1.contains(letter) {
                    return Some(format!("-{letter}"));
                }
                if letters[at + letter.len_utf8()..].is_empty() {
                    words.next();
                }
                break;
            }
            if !ANSWERED.0.contains(letter) {
                return Some(format!("-{letter}"));
            }
        }
    }
    None
}

/// Algorithms of every build of the client.
pub mod able {
    /// Key exchange.
    pub const KEX: [&str; 9] = [
        "curve25519-sha256",
        "curve25519-sha256@libssh.org",
        "ecdh-sha2-nistp256",
        "ecdh-sha2-nistp384",
        "ecdh-sha2-nistp521",
        "diffie-hellman-group-exchange-sha256",
        "diffie-hellman-group16-sha512",
        "diffie-hellman-group18-sha512",
        "diffie-hellman-group14-sha256",
    ];
    /// Encryption.
    pub const CIPHERS: [&str; 5] = [
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
    ];
    /// Integrity.
    pub const MACS: [&str; 4] = [
        "hmac-sha2-256-etm@openssh.com",
        "hmac-sha2-512-etm@openssh.com",
        "hmac-sha2-256",
        "hmac-sha2-512",
    ];
    /// Keys of hosts and users, as they are signed with.
    pub const KEYS: [&str; 6] = [
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "rsa-sha2-512",
        "rsa-sha2-256",
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_ssh_answers() {
        let of =
            |text: &str| unanswered(&text.split_whitespace().map(Into::into).collect::<Vec<_>>());
        for good in ["", "-p 22 -l me -i /x -o A=b", "-4C -oA=b -J n1", "-F none -vv", "-Tp22"] {
            assert_eq!(of(good), None, "{good}");
        }
        for (bad, named) in [
            ("-N", "-N"),
            ("-4f", "-f"),
            ("-E /x", "-E"),
            ("n1", "n1"),
            ("-", "-"),
            ("-p 22 -W x:1", "-W"),
        ] {
            assert_eq!(of(bad).as_deref(), Some(named), "{bad}");
        }
    }

    #[test]
    fn a_key_has_one_rule() {
        for (at, (key, _)) in KEYS.iter().enumerate() {
            assert_eq!(KEYS.iter().position(|(other, _)| other == key), Some(at));
            assert_eq!(*key, key.to_ascii_lowercase());
        }
    }
}
