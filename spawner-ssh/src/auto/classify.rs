//! Which client logs in: the built-in one where the configuration that counts for a host asks for
//! nothing but what it does as OpenSSH does it, else the ssh program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::effective::Effective;
use super::keys::{Rule, able, rule};
use super::pattern::matches;
use crate::builtin::{AgentAt, Algorithms, Family, Settings, Strict, Wanted};

/// What a configuration is read with.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// The user's home directory and name.
    pub home: PathBuf,
    /// The user's name here.
    pub user: String,
    /// The user's number here.
    pub uid: u32,
    /// This host's name.
    pub here: String,
    /// The environment.
    pub env: Vec<(OsString, OsString)>,
    /// Whether the user has a ticket of Kerberos.
    pub ticket: bool,
}

/// Who logs in to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The built-in client, so.
    Builtin(Box<Settings>),
    /// The ssh program, for this reason.
    Program(String),
}

/// Decides. `default` is what `ssh -G` says when nothing is configured.
#[must_use]
pub fn classify(effective: &Effective, default: &Effective, around: &Around) -> Choice {
    match settings(effective, default, around) {
        Ok(settings) => Choice::Builtin(Box::new(settings)),
        Err(reason) => Choice::Program(reason),
    }
}

/// Every key must be one that the client does, or have the default.
fn check_keys(effective: &Effective, default: &Effective) -> Result<(), String> {
    for key in effective.keys() {
        let values = || effective.all(key);
        let odd = match rule(key) {
            Some(Rule::Done | Rule::Idle) => None,
            Some(Rule::Only(known)) => {
                values().find(|value| !known.iter().any(|known| known.eq_ignore_ascii_case(value)))
            }
            None if values().eq(default.all(key)) => None,
            None => values().next(),
        };
        if let Some(value) = odd {
            return Err(format!("{} {}", name(key), shorten(value)));
        }
    }
    Ok(())
}

fn shorten(value: &str) -> &str {
    value.char_indices().nth(60).map_or(value, |(end, _)| &value[..end])
}

/// A key as people know it.
fn name(key: &str) -> &str {
    const NAMES: [&str; 20] = [
        "ProxyJump",
        "ProxyCommand",
        "ControlMaster",
        "ControlPath",
        "ForwardAgent",
        "ForwardX11",
        "Compression",
        "CertificateFile",
        "PKCS11Provider",
        "RevokedHostKeys",
        "VerifyHostKeyDNS",
        "KnownHostsCommand",
        "BindAddress",
        "BindInterface",
        "LogLevel",
        "BatchMode",
        "PubkeyAuthentication",
        "HostbasedAuthentication",
        "RemoteCommand",
        "PermitLocalCommand",
    ];
    NAMES.iter().find(|name| name.eq_ignore_ascii_case(key)).copied().unwrap_or(key)
}

fn settings(
    effective: &Effective,
    default: &Effective,
    around: &Around,
) -> Result<Settings, String> {
    check_keys(effective, default)?;
    let get = |key: &str| effective.get(key);
    let yes = |key: &str| matches!(get(key), Some("yes" | "true"));
    if yes("gssapiauthentication") && around.ticket {
        return Err("GSSAPIAuthentication and a Kerberos ticket".to_owned());
    }
    if let Some(order) = get("preferredauthentications")
        && !order.starts_with("publickey")
    {
        return Err(format!("PreferredAuthentications {order}"));
    }
    let hostname = get("hostname").unwrap_or_default().to_owned();
    let port = get("port").and_then(|port| port.parse().ok()).ok_or("Port")?;
    let user = get("user").unwrap_or_default().to_owned();
    let tokens = Tokens { around, effective };
    let mut known_hosts = tokens.files("userknownhostsfile")?;
    known_hosts.extend(tokens.files("globalknownhostsfile")?);
    let timeout = get("connecttimeout").filter(|value| *value != "none");
    let timeout = timeout.map(|value| value.parse().map_err(|_| format!("ConnectTimeout {value}")));
    Ok(Settings {
        hostname: Some(hostname),
        port: Some(port),
        user: Some(user),
        family: match get("addressfamily") {
            Some("inet") => Family::V4,
            Some("inet6") => Family::V6,
            _ => Family::Any,
        },
        identities: tokens.identities()?,
        identities_only: yes("identitiesonly"),
        agent: tokens.agent()?,
        known_hosts: Some(known_hosts),
        alias: get("hostkeyalias").filter(|alias| *alias != "none").map(str::to_owned),
        strict: strict(get("stricthostkeychecking").unwrap_or_default())?,
        check_address: yes("checkhostip"),
        least_rsa: get("requiredrsasize").and_then(|bits| bits.parse().ok()).unwrap_or(1024),
        algorithms: Some(algorithms(effective, default)?),
        timeout: timeout.transpose()?,
        keep_alive: get("tcpkeepalive") != Some("no"),
        env: environment(effective, around)?,
        hand_over: true,
    })
}

fn strict(value: &str) -> Result<Strict, String> {
    match value {
        // Nobody answers in batch mode.
        "true" | "yes" | "ask" => Ok(Strict::Yes),
        "accept-new" => Ok(Strict::AcceptNew),
        "false" | "no" | "off" => Ok(Strict::No),
        other => Err(format!("StrictHostKeyChecking {other}")),
    }
}

fn algorithms(effective: &Effective, default: &Effective) -> Result<Algorithms, String> {
    let list = |key: &'static str, able: &[&str]| {
        let text = effective.get(key).unwrap_or_default();
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        if !names.iter().any(|name| able.contains(&name.as_str())) {
            return Err(format!("{key} {}", shorten(text)));
        }
        Ok(Wanted { names, exact: effective.get(key) != default.get(key) })
    };
    let signatures = ["pubkeyacceptedalgorithms", "pubkeyacceptedkeytypes"];
    let signatures = signatures.into_iter().find(|key| effective.get(key).is_some());
    Ok(Algorithms {
        kex: list("kexalgorithms", &able::KEX)?,
        ciphers: list("ciphers", &able::CIPHERS)?,
        macs: list("macs", &able::MACS)?,
        host_keys: list("hostkeyalgorithms", &able::KEYS)?,
        signatures: list(signatures.unwrap_or("pubkeyacceptedalgorithms"), &able::KEYS)?.names,
    })
}

/// What `SendEnv` and `SetEnv` send.
fn environment(effective: &Effective, around: &Around) -> Result<Vec<(String, String)>, String> {
    let patterns: Vec<&str> = effective.all("sendenv").flat_map(str::split_whitespace).collect();
    let mut all = Vec::new();
    for (name, value) in &around.env {
        let Some(text) = name.to_str() else { continue };
        if patterns.iter().any(|pattern| matches(text, pattern)) {
            let value =
                value.to_str().ok_or_else(|| format!("SendEnv {text}, which is no text"))?;
            all.push((text.to_owned(), value.to_owned()));
        }
    }
    for set in effective.all("setenv") {
        let (name, value) = set.split_once('=').ok_or_else(|| format!("SetEnv {set}"))?;
        all.push((name.to_owned(), value.to_owned()));
    }
    Ok(all)
}

/// Expands what stands for something in the names of files.
struct Tokens<'a> {
    around: &'a Around,
    effective: &'a Effective,
}

impl Tokens<'_> {
    fn of(&self, letter: char) -> Option<String> {
        let get = |key| self.effective.get(key).map(str::to_owned);
        let text = |path: &Path| path.to_str().map(str::to_owned);
        match letter {
            '%' => Some("%".to_owned()),
            'd' => text(&self.around.home),
            'h' => get("hostname"),
            'i' => Some(self.around.uid.to_string()),
            'k' => get("hostkeyalias").or_else(|| get("host")).or_else(|| get("hostname")),
            'L' => self.around.here.split('.').next().map(str::to_owned),
            'l' => Some(self.around.here.clone()),
            'n' => get("host"),
            'p' => get("port"),
            'r' => get("user"),
            'u' => Some(self.around.user.clone()),
            _ => None,
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        let own = self.around.env.iter().find(|(own, _)| own == name);
        own.map(|(_, value)| value.as_os_str())
    }

    fn expand(&self, key: &str, value: &str) -> Result<PathBuf, String> {
        let odd = || format!("{key} {value}");
        let (mut path, rest) = match value.strip_prefix('~') {
            None => (String::new(), value),
            Some(rest) if rest.starts_with('/') => {
                (self.around.home.to_str().ok_or_else(odd)?.to_owned(), rest)
            }
            Some(_) => return Err(odd()),
        };
        let mut letters = rest.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '%' => {
                    let what = letters.next().ok_or_else(odd)?;
                    path.push_str(&self.of(what).ok_or_else(odd)?);
                }
                '$' if letters.as_str().starts_with('{') => {
                    let (name, rest) = letters.as_str()[1..].split_once('}').ok_or_else(odd)?;
                    let value = self.variable(name).and_then(OsStr::to_str);
                    path.push_str(value.ok_or_else(odd)?);
                    letters = rest.chars();
                }
                letter => path.push(letter),
            }
        }
        Ok(PathBuf::from(path))
    }

    fn identities(&self) -> Result<Vec<PathBuf>, String> {
        let named = self.effective.all("identityfile").filter(|value| *value != "none");
        let expand = |value| {
            let path = self.expand("IdentityFile", value)?;
            // As ssh: in the directory where it is started.
            Ok(path)
        };
        named.map(expand).collect()
    }

    /// Several files in one line, between blanks.
    fn files(&self, key: &str) -> Result<Vec<PathBuf>, String> {
        let value = self.effective.get(key).unwrap_or("none");
        let words = value.split(' ').filter(|word| *word != "none");
        let one = |word: &str| match word.starts_with(['/', '~']) {
            true => self.expand(key, word),
            false => Err(format!("{key} {value}")),
        };
        words.map(one).collect()
    }

    fn agent(&self) -> Result<AgentAt, String> {
        let own = |name: &str| match self.variable(name).filter(|value| !value.is_empty()) {
            Some(path) => AgentAt::Socket(PathBuf::from(path)),
            None => AgentAt::None,
        };
        match self.effective.get("identityagent") {
            None | Some("SSH_AUTH_SOCK") => Ok(own("SSH_AUTH_SOCK")),
            Some("none") => Ok(AgentAt::None),
            Some(value) => match value.strip_prefix('$').filter(|rest| !rest.starts_with('{')) {
                Some(name) => Ok(own(name)),
                None => self.expand("IdentityAgent", value).map(AgentAt::Socket),
            },
        }
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
