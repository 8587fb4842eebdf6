//! One connection of the client: to the host, its key, the login, the command, and bytes both ways
//! until the end.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::{User, geteuid};
use settings::deadlines::tree::{CONNECT, FAREWELL};
use spawner_ssh::auto::keys::able;
use spawner_ssh::builtin::{
    Algorithms, CODE_FAILED, CODE_PROGRAM, GLOBAL_KNOWN_HOSTS, Request, Settings, Strict, Wanted,
};
use ssh2::{ErrorCode, MethodType};

use crate::connect::{connect, drops_logins, other_words};
use crate::keys::authenticate;
use crate::known_hosts::{self, KnownHosts, Verdict};
use crate::pump::Pump;

const SSH_PORT: u16 = 22;

/// The client's ends of the pipes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) input: BorrowedFd<'a>,
    pub(crate) output: BorrowedFd<'a>,
    pub(crate) err: BorrowedFd<'a>,
}

/// Why there is no login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// That is the last word.
    Failed(String),
    /// The ssh program may do more.
    Program(String),
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// What libssh2 says of itself has nothing to do with the host.
fn own(error: &ssh2::Error) -> Stop {
    Stop::Program(error.to_string())
}

/// Does what is requested; the exit code.
pub(crate) fn run(request: &[u8], ends: Ends<'_>) -> i32 {
    let request: Result<Request, _> = postcard::from_bytes(request);
    let (hand_over, done) = match &request {
        Ok(request) => (request.settings.hand_over, work(request, ends)),
        Err(error) => (false, Err(Stop::Failed(format!("the request is not understood: {error}")))),
    };
    let (code, text) = match done {
        Ok(code) => return code,
        Err(Stop::Program(text)) if hand_over => (CODE_PROGRAM, text),
        Err(Stop::Program(text) | Stop::Failed(text)) => (CODE_FAILED, text),
    };
    let _ = nix::unistd::write(ends.err, format!("ssh: {text}\n").as_bytes());
    code
}

/// Who logs in where.
pub(crate) struct Login<'a> {
    pub(crate) name: &'a str,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) home: PathBuf,
}

fn work(request: &Request, ends: Ends<'_>) -> Result<i32, Stop> {
    let Request { host, settings, command } = request;
    let account = User::from_uid(geteuid()).ok().flatten();
    let (own_name, home) =
        account.map_or((String::new(), PathBuf::new()), |user| (user.name, user.dir));
    let user = settings.user.clone().or_else(|| host.user.clone()).unwrap_or(own_name);
    let port = settings.port.or(host.port).unwrap_or(SSH_PORT);
    let name = settings.hostname.as_deref().unwrap_or(&host.name);
    let login = Login { name, port, user, home };
    let limit = settings.timeout.map_or(CONNECT.limit, Duration::from_secs).min(CONNECT.limit);
    let way = (settings.family, settings.keep_alive);
    let (socket, address) = connect(name, port, way, limit)?;
    let copy = socket.try_clone().map_err(|error| error.to_string())?;
    let mut session = ssh2::Session::new().map_err(|error| own(&error))?;
    session.set_timeout(u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
    session.set_tcp_stream(socket);
    let usual = || vec![login.home.join(".ssh/known_hosts"), PathBuf::from(GLOBAL_KNOWN_HOSTS)];
    let key = HostKey {
        known: KnownHosts::read(settings.known_hosts.clone().unwrap_or_else(usual)),
        settings,
        login: &login,
        address: address.ip(),
    };
    let wanted = settings.algorithms.clone().unwrap_or_else(usual_algorithms);
    restrict(&session, &wanted, &key)?;
    session.handshake().map_err(|error| handshake_failed(&session, &error, &login, address))?;
    check_exact(&session, &wanted)?;
    key.check(&session)?;
    authenticate(&session, &login, settings)?;
    let opened = session.channel_session().and_then(|mut channel| {
        for (name, value) in &settings.env {
            // Which it takes is the server's affair.
            let _ = channel.setenv(name, value);
        }
        channel.exec(command)?;
        Ok(channel)
    });
    let mut channel = opened.map_err(|error| format!("{name} runs no command: {error}"))?;
    session.set_blocking(false);
    let pumped = Pump::new(ends, &copy).and_then(|pump| pump.run(&session, &mut channel));
    pumped.map_err(|error| format!("Connection to {name} was lost: {error}"))?;
    session.set_timeout(u32::try_from(FAREWELL.limit.as_millis()).unwrap_or(u32::MAX));
    session.set_blocking(true);
    let closed = channel.close().and_then(|()| channel.wait_close());
    Ok(closed.and_then(|()| channel.exit_status()).map_err(|error| error.to_string())?)
}

/// What OpenSSH takes without configuration, as far as the client has it.
fn usual_algorithms() -> Algorithms {
    let of = |names: &[&str]| Wanted {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        exact: false,
    };
    Algorithms {
        kex: of(&able::KEX),
        ciphers: of(&able::CIPHERS),
        macs: of(&able::MACS),
        host_keys: of(&able::KEYS),
        signatures: of(&able::KEYS).names,
    }
}

/// Offers the host nothing but what may be used, and keys of a type that is known first.
fn restrict(session: &ssh2::Session, wanted: &Algorithms, key: &HostKey<'_>) -> Result<(), Stop> {
    let set = |kind: MethodType, names: &[String]| {
        let able = session.supported_algs(kind).map_err(|error| own(&error))?;
        let both: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| able.contains(name)).collect();
        if both.is_empty() {
            let text = format!("no algorithm in common with {}", names.join(","));
            return Err(Stop::Program(text));
        }
        session.method_pref(kind, &both.join(",")).map_err(|error| own(&error))
    };
    set(MethodType::Kex, &wanted.kex.names)?;
    for kind in [MethodType::CryptCs, MethodType::CryptSc] {
        set(kind, &wanted.ciphers.names)?;
    }
    for kind in [MethodType::MacCs, MethodType::MacSc] {
        set(kind, &wanted.macs.names)?;
    }
    let rsa: Vec<&str> = ["rsa-sha2-512", "rsa-sha2-256"]
        .into_iter()
        .filter(|name| wanted.signatures.iter().any(|wanted| wanted == name))
        .collect();
    if !rsa.is_empty() {
        let set = session.method_pref(MethodType::SignAlgo, &rsa.join(","));
        set.map_err(|error| own(&error))?;
    }
    let mut keys = wanted.host_keys.names.clone();
    if !wanted.host_keys.exact {
        let types = key.types(session);
        let is_known = |name: &String| {
            let plain = if name.starts_with("rsa-sha2-") { "ssh-rsa" } else { name.as_str() };
            types.iter().any(|kind| kind == plain)
        };
        keys.sort_by_key(|name| !is_known(name));
    }
    set(MethodType::HostKey, &keys)
}

/// Where the user changed a list, the algorithm must be the one that OpenSSH would have: nothing
/// that the client lacks stands before it.
fn check_exact(session: &ssh2::Session, wanted: &Algorithms) -> Result<(), Stop> {
    let cipher = session.methods(MethodType::CryptCs).unwrap_or_default();
    let macs = !cipher.contains("gcm") && !cipher.contains("poly1305");
    for (kind, list, counts) in [
        (MethodType::Kex, &wanted.kex, true),
        (MethodType::CryptCs, &wanted.ciphers, true),
        (MethodType::CryptSc, &wanted.ciphers, true),
        (MethodType::MacCs, &wanted.macs, macs),
        (MethodType::MacSc, &wanted.macs, macs),
        (MethodType::HostKey, &wanted.host_keys, true),
    ] {
        if !counts || !list.exact {
            continue;
        }
        let able = session.supported_algs(kind).map_err(|error| own(&error))?;
        let taken = session.methods(kind).unwrap_or_default();
        if let Some(before) = lacking(&list.names, &able, taken) {
            return Err(Stop::Program(format!("the configuration prefers {before} to {taken}")));
        }
    }
    Ok(())
}

/// The first algorithm before the one that was taken which the client does not have.
fn lacking<'a>(names: &'a [String], able: &[&str], taken: &str) -> Option<&'a str> {
    let before = names.iter().map(String::as_str).take_while(|name| *name != taken);
    // Certificates of hosts are asked for only where a list of known hosts has an authority.
    let ours = |name: &&str| !name.contains("-cert-") && !name.starts_with("sk-");
    before.filter(ours).find(|name| !able.contains(name))
}

/// Numbers of libssh2.
const TIMEOUT: i32 = -9;
const NO_BANNER: i32 = -2;
const DISCONNECTED: [i32; 2] = [-13, -43];

fn handshake_failed(
    session: &ssh2::Session,
    error: &ssh2::Error,
    login: &Login<'_>,
    address: SocketAddr,
) -> Stop {
    let Login { name, port, .. } = login;
    let code = match error.code() {
        ErrorCode::Session(code) => code,
        ErrorCode::SFTP(_) => 0,
    };
    let broken = code == TIMEOUT || code == NO_BANNER || DISCONNECTED.contains(&code);
    let greeted = session.banner().is_some_and(|banner| banner.starts_with("SSH-"));
    if broken && !greeted {
        return Stop::Failed(match other_words(address) {
            Some(said) if drops_logins(&said) => {
                format!("{name} port {port} drops logins: it says `{said}`")
            }
            Some(said) => format!("{name} port {port} does not speak ssh: it says `{said}`"),
            None if code == TIMEOUT => {
                format!("Connection timed out during banner exchange with {name}")
            }
            None => format!("Connection closed by {name} port {port} during the handshake"),
        });
    }
    let text = format!("Connection to {name} port {port}: the handshake failed: {error}");
    if code == TIMEOUT {
        Stop::Failed(format!("Connection timed out: {text}"))
    } else {
        Stop::Program(text)
    }
}

/// Whether a server takes RSA signatures with SHA-2 for sure: libssh2 would fall back to SHA-1.
pub(crate) fn signs_with_sha2(banner: &str) -> bool {
    let version = banner.split_once("-OpenSSH_").map(|(_, version)| version);
    let mut numbers = version.unwrap_or_default().split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    (number(), number()) >= (7, 2)
}

/// The key that the host shows.
struct HostKey<'a> {
    known: KnownHosts,
    settings: &'a Settings,
    login: &'a Login<'a>,
    address: IpAddr,
}

impl HostKey<'_> {
    fn with_port(&self, name: &str) -> String {
        match self.login.port {
            SSH_PORT => name.to_ascii_lowercase(),
            port => format!("[{}]:{port}", name.to_ascii_lowercase()),
        }
    }

    /// The name in lists of known hosts, and where it has a port the one without.
    fn names(&self) -> (String, Option<String>) {
        if let Some(alias) = &self.settings.alias {
            return (alias.to_ascii_lowercase(), None);
        }
        let plain = (self.login.port != SSH_PORT).then(|| self.login.name.to_ascii_lowercase());
        (self.with_port(self.login.name), plain)
    }

    fn types(&self, session: &ssh2::Session) -> Vec<String> {
        let hidden = |names: &str, name: &str| known_hosts::is_hidden(session, names, name);
        let (name, plain) = self.names();
        let types = self.known.types(&name, &hidden);
        match plain {
            Some(plain) if types.is_empty() => self.known.types(&plain, &hidden),
            _ => types,
        }
    }

    /// The key must be known.
    fn check(&self, session: &ssh2::Session) -> Result<(), Stop> {
        let Login { name, port, .. } = self.login;
        let Some((key, _)) = session.host_key() else {
            return Err(Stop::Program(format!("{name} has shown no key")));
        };
        let hidden = |names: &str, name: &str| known_hosts::is_hidden(session, names, name);
        let of = |name: &str| self.known.verdict(name, key, &hidden);
        let (listed, plain) = self.names();
        let verdict = match (of(&listed), plain) {
            (Verdict::New, Some(plain)) if of(&plain) == Verdict::Known => Verdict::Known,
            (verdict, _) => verdict,
        };
        let kind = known_hosts::kind(key).unwrap_or_default();
        let (title, files) = (title(kind), self.known.files());
        match (verdict, self.settings.strict) {
            (Verdict::Known, _) => self.check_more(key, &hidden),
            (Verdict::Marked(marker), _) => Err(Stop::Program(format!(
                "a line with {marker} for {listed} in {files}, which only the ssh program understands"
            ))),
            (Verdict::Changed, Strict::Yes | Strict::AcceptNew) => Err(Stop::Failed(format!(
                "REMOTE HOST IDENTIFICATION HAS CHANGED: {name} port {port} shows another {title} key than the one in {files}"
            ))),
            (Verdict::New, Strict::Yes) => Err(Stop::Failed(format!(
                "No {title} host key is known for {name} port {port} in {files}"
            ))),
            (Verdict::Changed, Strict::No) => {
                Err(Stop::Program(format!("{name} has another key than the one in {files}")))
            }
            (Verdict::New, Strict::AcceptNew | Strict::No) => {
                Err(Stop::Program(format!("{name} is not known yet")))
            }
        }
    }

    /// What else must be right about a key that is known.
    fn check_more(&self, key: &[u8], hidden: known_hosts::Hidden<'_>) -> Result<(), Stop> {
        let name = self.login.name;
        if known_hosts::rsa_bits(key).is_some_and(|bits| bits < self.settings.least_rsa as usize) {
            return Err(Stop::Program(format!("the RSA key of {name} is short")));
        }
        let address = self.with_port(&self.address.to_string());
        let look = self.settings.check_address && self.settings.alias.is_none();
        match look.then(|| self.known.verdict(&address, key, hidden)) {
            Some(Verdict::Changed | Verdict::Marked(_)) => {
                Err(Stop::Program(format!("the address {address} is known with another key")))
            }
            _ => Ok(()),
        }
    }
}

/// A type of key as OpenSSH names it to people.
fn title(kind: &str) -> &'static str {
    match kind {
        "ssh-rsa" => "RSA",
        "ssh-dss" => "DSA",
        "ssh-ed25519" => "ED25519",
        _ if kind.starts_with("ecdsa-") => "ECDSA",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_build_has_the_algorithms_that_are_counted_on() {
        let session = ssh2::Session::new().unwrap();
        for (kind, names) in [
            (MethodType::Kex, &able::KEX[..]),
            (MethodType::CryptCs, &able::CIPHERS),
            (MethodType::MacCs, &able::MACS),
            (MethodType::HostKey, &able::KEYS),
        ] {
            let all = session.supported_algs(kind).unwrap();
            for name in names {
                assert!(all.contains(name), "{name} in {all:?}");
            }
        }
    }

    #[test]
    fn old_servers_are_known_by_their_first_line() {
        for (banner, sha2) in [
            ("SSH-2.0-OpenSSH_9.2p1 Debian-2", true),
            ("SSH-2.0-OpenSSH_10.0", true),
            ("SSH-2.0-OpenSSH_7.2", true),
            ("SSH-2.0-OpenSSH_7.1", false),
            ("SSH-2.0-OpenSSH_", false),
            ("SSH-2.0-dropbear", false),
        ] {
            assert_eq!(signs_with_sha2(banner), sha2, "{banner}");
        }
    }

    #[test]
    fn an_algorithm_is_exact_when_nothing_that_is_lacking_stands_before_it() {
        let names = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let able = ["a", "b", "c"];
        assert_eq!(lacking(&names("a,b"), &able, "b"), None);
        assert_eq!(lacking(&names("a,x,b"), &able, "a"), None);
        assert_eq!(lacking(&names("a,x,b"), &able, "b"), Some("x"));
        assert_eq!(lacking(&names("k-cert-v01,sk-k,a"), &able, "a"), None);
    }
}
