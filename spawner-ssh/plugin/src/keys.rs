//! The user's keys, in the order of OpenSSH: the agent's that files name, the agent's others, the
//! files' own.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::unistd::geteuid;
use spawner_ssh::builtin::{AgentAt, Settings};

use crate::known_hosts::{kind, part, rsa_bits};
use crate::session::{Login, Stop, signs_with_sha2};

/// Most bytes of a file with a key.
const MAX_FILE: u64 = 1 << 20;

/// A file that may hold a key.
#[derive(Debug)]
struct File {
    path: PathBuf,
    /// The public key, as far as it is known.
    public: Option<Vec<u8>>,
    /// Why the private one cannot be used here.
    unusable: Option<&'static str>,
}

/// Logs in.
pub(crate) fn authenticate(
    session: &ssh2::Session,
    login: &Login<'_>,
    settings: &Settings,
) -> Result<(), Stop> {
    let usual = ["id_rsa", "id_ecdsa", "id_ed25519"].map(|name| login.home.join(".ssh").join(name));
    let named = if settings.identities.is_empty() && !settings.hand_over {
        &usual[..]
    } else {
        &settings.identities[..]
    };
    let policy = Policy::of(settings, session.banner().unwrap_or_default());
    let mut tried = Vec::new();
    let mut files = Vec::new();
    for path in named {
        match File::read(path)? {
            Some(file) if policy.allows(file.public.as_deref())? => files.push(file),
            Some(_) => tried.push(format!("{} (of a kind that is not accepted)", path.display())),
            None if settings.identities.contains(path) && !settings.hand_over => {
                tried.push(format!("{} (no such key)", path.display()));
            }
            None => {}
        }
    }
    let user = login.user.as_str();
    if by_agent(session, user, (settings, &policy), &mut files, &mut tried)? {
        return Ok(());
    }
    for file in files {
        let name = file.path.display();
        if let Some(why) = file.unusable {
            tried.push(format!("{name} ({why})"));
            continue;
        }
        tried.push(name.to_string());
        let done = session.userauth_pubkey_file(user, None, &file.path, None);
        if done.is_ok() && session.authenticated() {
            return Ok(());
        }
    }
    let methods = session.auth_methods(user).unwrap_or("publickey").to_owned();
    let tried = if tried.is_empty() { "no key".to_owned() } else { tried.join(", ") };
    let name = login.name;
    Err(Stop::Program(format!("{user}@{name}: Permission denied ({methods}); tried {tried}")))
}

/// Keys of the agent; those of `files` that it has are taken out of these.
fn by_agent(
    session: &ssh2::Session,
    user: &str,
    (settings, policy): (&Settings, &Policy),
    files: &mut Vec<File>,
    tried: &mut Vec<String>,
) -> Result<bool, Stop> {
    let socket = match &settings.agent {
        AgentAt::None => return Ok(false),
        AgentAt::Socket(path) => path.clone(),
        AgentAt::Usual => match ::settings::variable("SSH_AUTH_SOCK") {
            Some(path) if !path.is_empty() => PathBuf::from(path),
            _ => return Ok(false),
        },
    };
    if let Some(problem) = spawner_ssh::agent::problem(&socket) {
        tried.push(format!("the ssh agent at {} ({problem})", socket.display()));
        return Ok(false);
    }
    tried.push("the keys of the ssh agent".to_owned());
    let Ok(mut agent) = session.agent() else { return Ok(false) };
    let ready = agent.set_identity_path(&socket).and_then(|()| agent.connect());
    if ready.and_then(|()| agent.list_identities()).is_err() {
        return Ok(false);
    }
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for key in agent.identities().unwrap_or_default() {
        if !policy.allows(Some(key.blob()))? {
            continue;
        }
        match files.iter().position(|file| file.public.as_deref() == Some(key.blob())) {
            Some(at) => {
                files.remove(at);
                first.push(key);
            }
            None if !settings.identities_only => others.push(key),
            None => {}
        }
    }
    let mut all = first.iter().chain(&others);
    Ok(all.any(|key| agent.userauth(user, key).is_ok()) && session.authenticated())
}

/// Which keys count.
struct Policy {
    accepted: Option<Vec<String>>,
    least_rsa: usize,
    /// The server signs RSA with SHA-2.
    sha2: bool,
}

impl Policy {
    fn of(settings: &Settings, banner: &str) -> Self {
        let accepted = settings.algorithms.as_ref().map(|all| all.signatures.clone());
        let sha2 = signs_with_sha2(banner);
        Self { accepted, least_rsa: settings.least_rsa as usize, sha2 }
    }

    /// Whether this key may be used. Certificates and keys of a token are not ours.
    fn allows(&self, public: Option<&[u8]>) -> Result<bool, Stop> {
        let Some(public) = public else { return Ok(true) };
        let Some(kind) = kind(public) else { return Ok(false) };
        if kind.contains("-cert-") || kind.starts_with("sk-") {
            return Err(Stop::Program(format!("a key of the kind {kind}")));
        }
        let accepted = |name: &str| match &self.accepted {
            Some(all) => all.iter().any(|one| one == name),
            None => name != "ssh-dss",
        };
        if kind == "ssh-rsa" && !self.sha2 {
            return Err(Stop::Program("an RSA key, and a server of another kind".to_owned()));
        }
        Ok(match rsa_bits(public) {
            Some(bits) => {
                bits >= self.least_rsa && (accepted("rsa-sha2-512") || accepted("rsa-sha2-256"))
            }
            None => accepted(kind),
        })
    }
}

impl File {
    /// What is there; `None` for no key at all.
    fn read(path: &Path) -> Result<Option<Self>, Stop> {
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let certificate = beside("-cert.pub");
        if certificate.exists() {
            return Err(Stop::Program(format!("the certificate {}", certificate.display())));
        }
        let public = text(&beside(".pub")).and_then(|text| public_of(&text));
        let Some(own) = text(path) else {
            let file = |public| Self {
                path: path.to_owned(),
                public: Some(public),
                unusable: Some("no private key"),
            };
            return Ok(public.map(file));
        };
        let (inside, unusable) = private_of(&own);
        let open = std::fs::metadata(path)
            .is_ok_and(|found| found.uid() == geteuid().as_raw() && found.mode() & 0o077 != 0);
        let unusable = unusable.or(open.then_some("others may read it"));
        Ok(Some(Self { path: path.to_owned(), public: inside.or(public), unusable }))
    }
}

fn text(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let fits = found.is_file() && found.len() <= MAX_FILE;
    fits.then(|| std::fs::read_to_string(path).ok())?
}

/// The key of a line such as `ssh-ed25519 AAAA… comment`.
fn public_of(text: &str) -> Option<Vec<u8>> {
    let mut words = text.split_ascii_whitespace();
    let (name, key) = (words.next()?, words.next()?);
    STANDARD.decode(key).ok().filter(|key| kind(key) == Some(name))
}

/// The public key of a file with a private one, as far as it shows, and why it cannot be used.
fn private_of(text: &str) -> (Option<Vec<u8>>, Option<&'static str>) {
    const LOCKED: &str = "it needs a passphrase";
    if let Some((_, body)) = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----") {
        let body = body.split_once("-----").map_or(body, |(body, _)| body);
        let body: String = body.split_ascii_whitespace().collect();
        let Some((locked, public)) = STANDARD.decode(body).ok().as_deref().and_then(opened) else {
            return (None, Some("it is damaged"));
        };
        return (Some(public), locked.then_some(LOCKED));
    }
    if text.contains("-----BEGIN DSA PRIVATE KEY-----") {
        return (None, Some("DSA"));
    }
    if text.contains("PRIVATE KEY-----") {
        return (None, text.contains("ENCRYPTED").then_some(LOCKED));
    }
    (public_of(text), Some("no private key"))
}

/// Whether a passphrase protects it, and the public key.
fn opened(bytes: &[u8]) -> Option<(bool, Vec<u8>)> {
    let rest = bytes.strip_prefix(b"openssh-key-v1\0")?;
    let (cipher, rest) = part(rest)?;
    let (_, rest) = part(rest)?;
    let (_, rest) = part(rest)?;
    let (_, rest) = rest.split_first_chunk::<4>()?;
    let (public, _) = part(rest)?;
    Some((cipher != b"none", public.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn keygen(path: &Path, words: &[&str]) -> bool {
        let mut make = std::process::Command::new("ssh-keygen");
        make.args(["-q", "-f"]).arg(path).args(words);
        make.status().is_ok_and(|status| status.success())
    }

    #[test]
    fn files_of_ssh_keygen() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        if !keygen(&path("plain"), &["-t", "ed25519", "-N", ""]) {
            return testkit::skip("files with keys", "no ssh-keygen");
        }
        let read = |name: &str| File::read(&path(name)).unwrap().unwrap();
        assert_eq!(read("plain").unusable, None);
        let public = read("plain").public.unwrap();
        assert_eq!(kind(&public), Some("ssh-ed25519"));
        std::fs::remove_file(path("plain.pub")).unwrap();
        assert_eq!(read("plain").public, Some(public), "it is in the file itself");
        std::fs::set_permissions(path("plain"), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read("plain").unusable, Some("others may read it"));
        assert!(keygen(&path("locked"), &["-t", "rsa", "-b", "2048", "-N", "secret"]));
        let locked = read("locked");
        assert_eq!(locked.unusable, Some("it needs a passphrase"));
        assert_eq!(locked.public.as_deref().and_then(rsa_bits), Some(2048));
        assert!(keygen(&path("pem"), &["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "secret"]));
        assert_eq!(read("pem").unusable, Some("it needs a passphrase"));
        assert_eq!(read("pem.pub").unusable, Some("no private key"));
        std::fs::write(path("odd"), "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END").unwrap();
        assert_eq!(read("odd").unusable, Some("it is damaged"));
        assert!(File::read(&path("missing")).unwrap().is_none());
        std::fs::write(path("pem-cert.pub"), "").unwrap();
        assert!(matches!(File::read(&path("pem")), Err(Stop::Program(_))));
    }

    #[test]
    fn what_may_be_used() {
        let field =
            |text: &[u8]| [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat();
        let policy =
            Policy { accepted: Some(vec!["ssh-ed25519".to_owned()]), least_rsa: 0, sha2: true };
        assert!(policy.allows(None).unwrap());
        assert!(policy.allows(Some(&field(b"ssh-ed25519"))).unwrap());
        assert!(!policy.allows(Some(&field(b"ecdsa-sha2-nistp256"))).unwrap());
        assert!(!policy.allows(Some(b"x")).unwrap());
        let rsa = [field(b"ssh-rsa"), field(&[3]), field(&[0x80; 128])].concat();
        assert!(!policy.allows(Some(&rsa)).unwrap());
        let of = |name: &str, least_rsa| Policy {
            accepted: Some(vec![name.to_owned()]),
            least_rsa,
            sha2: true,
        };
        assert!(of("rsa-sha2-256", 1024).allows(Some(&rsa)).unwrap());
        assert!(!of("rsa-sha2-256", 2048).allows(Some(&rsa)).unwrap());
        assert!(!of("ssh-rsa", 0).allows(Some(&rsa)).unwrap(), "only with SHA-2");
        let old = Policy { sha2: false, ..of("rsa-sha2-256", 0) };
        assert!(matches!(old.allows(Some(&rsa)), Err(Stop::Program(_))));
        for other in ["ssh-ed25519-cert-v01@openssh.com", "sk-ssh-ed25519@openssh.com"] {
            assert!(matches!(policy.allows(Some(&field(other.as_bytes()))), Err(Stop::Program(_))));
        }
    }
}
