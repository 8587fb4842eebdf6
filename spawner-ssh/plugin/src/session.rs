//! One connection of the client: to the host, its key, the login, the command, and bytes both ways
//! until the end.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{User, geteuid};
use settings::deadlines::tree::{CONNECT, FAREWELL};
use spawner_ssh::builtin::{CODE_FAILED, Request};
use ssh2::{
    BlockDirections, Channel, CheckResult, ErrorCode, HostKeyType, KnownHostFileKind, MethodType,
};

const SSH_PORT: u16 = 22;
const GLOBAL_KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";
/// Bytes moved at a time.
const PIECE: usize = 64 * 1024;

/// The client's ends of the pipes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) input: BorrowedFd<'a>,
    pub(crate) output: BorrowedFd<'a>,
    pub(crate) err: BorrowedFd<'a>,
}

/// Does what is requested; the exit code.
pub(crate) fn run(request: &[u8], ends: Ends<'_>) -> i32 {
    let request = postcard::from_bytes(request);
    let request = request.map_err(|error| format!("the request is not understood: {error}"));
    request.and_then(|request| work(&request, ends)).unwrap_or_else(|text| {
        let line = format!("ssh: {text}\n");
        let _ = nix::unistd::write(ends.err, line.as_bytes());
        CODE_FAILED
    })
}

/// Who logs in where.
struct Login<'a> {
    name: &'a str,
    port: u16,
    user: String,
    home: PathBuf,
}

fn work(request: &Request, ends: Ends<'_>) -> Result<i32, String> {
    let Request { host, settings, command } = request;
    let account = User::from_uid(geteuid()).ok().flatten();
    let (own, home) = account.map_or((String::new(), PathBuf::new()), |user| (user.name, user.dir));
    let user = settings.user.clone().or_else(|| host.user.clone()).unwrap_or(own);
    let port = settings.port.or(host.port).unwrap_or(SSH_PORT);
    let login = Login { name: &host.name, port, user, home };
    let limit = settings.timeout.map_or(CONNECT.limit, Duration::from_secs).min(CONNECT.limit);
    let socket = connect(&login, limit)?;
    let copy = socket.try_clone().map_err(|error| error.to_string())?;
    let mut session = ssh2::Session::new().map_err(|error| error.to_string())?;
    session.set_timeout(u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
    session.set_tcp_stream(socket);
    let known = KnownHosts::read(settings.known_hosts.as_deref(), &login.home);
    prefer(&session, &known, &login)?;
    session.handshake().map_err(|error| match error.code() {
        ErrorCode::Session(TIMEOUT) => {
            format!("Connection timed out during banner exchange with {}", login.name)
        }
        _ => {
            format!("Connection closed by {} port {port} during the handshake: {error}", login.name)
        }
    })?;
    known.check(&session, &login)?;
    authenticate(&session, &login, &settings.identities)?;
    let opened = session.channel_session().and_then(|mut channel| {
        channel.exec(command)?;
        Ok(channel)
    });
    let mut channel = opened.map_err(|error| format!("{} runs no command: {error}", login.name))?;
    session.set_blocking(false);
    let pumped = Pump::new(ends, &copy).and_then(|pump| pump.run(&session, &mut channel));
    pumped.map_err(|error| format!("Connection to {} was lost: {error}", login.name))?;
    session.set_timeout(u32::try_from(FAREWELL.limit.as_millis()).unwrap_or(u32::MAX));
    session.set_blocking(true);
    let closed = channel.close().and_then(|()| channel.wait_close());
    closed.and_then(|()| channel.exit_status()).map_err(|error| error.to_string())
}

/// Numbers of libssh2.
const TIMEOUT: i32 = -9;
const AGAIN: i32 = -37;

fn connect(login: &Login<'_>, limit: Duration) -> Result<TcpStream, String> {
    let (name, port) = (login.name, login.port);
    let found = (name, port).to_socket_addrs();
    let found: Vec<SocketAddr> =
        found.map_err(|error| format!("Could not resolve hostname {name}: {error}"))?.collect();
    let mut problem = "it has no address".to_owned();
    for address in found {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => {
                // Frames are short and awaited.
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                problem = "Connection timed out".to_owned();
            }
            Err(error) => problem = error.to_string(),
        }
    }
    Err(format!("connect to host {name} port {port}: {problem}"))
}

/// What is known about hosts, line by line: one that cannot be understood spoils no other.
struct KnownHosts {
    lines: Vec<String>,
    files: Vec<PathBuf>,
}

impl KnownHosts {
    fn read(own: Option<&Path>, home: &Path) -> Self {
        let user = own.map_or_else(|| home.join(".ssh/known_hosts"), Path::to_owned);
        let files = vec![user, PathBuf::from(GLOBAL_KNOWN_HOSTS)];
        let texts = files.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        Self { lines: lines.collect(), files }
    }

    /// Types of the keys that may be those of this host, as they are written; a hidden name may be
    /// any host's.
    fn types(&self, login: &Login<'_>) -> Vec<&str> {
        let with_port = format!("[{}]:{}", login.name, login.port);
        let is_ours = |names: &str| {
            names.starts_with('|')
                || names.split(',').any(|name| name == login.name || name == with_port)
        };
        let mut types = Vec::new();
        for line in &self.lines {
            let mut words = line.split_ascii_whitespace();
            if let (Some(names), Some(kind)) = (words.next(), words.next())
                && is_ours(names)
                && !types.contains(&kind)
            {
                types.push(kind);
            }
        }
        types
    }

    /// The key that the host has shown must be known.
    fn check(&self, session: &ssh2::Session, login: &Login<'_>) -> Result<(), String> {
        let Login { name, port, .. } = login;
        let Some((key, kind)) = session.host_key() else {
            return Err(format!("Connection closed by {name}: it has shown no key"));
        };
        let mut known = session.known_hosts().map_err(|error| error.to_string())?;
        for line in self.lines.iter().filter(|line| !line.starts_with('@')) {
            // Keys of a kind that the library does not know are none of ours.
            let _ = known.read_str(line, KnownHostFileKind::OpenSSH);
        }
        let kind = match kind {
            HostKeyType::Rsa => "RSA",
            HostKeyType::Dss => "DSA",
            HostKeyType::Ed25519 => "ED25519",
            HostKeyType::Unknown => "unknown",
            _ => "ECDSA",
        };
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let files = files.join(" and ");
        match known.check_port(name, *port, key) {
            CheckResult::Match => Ok(()),
            CheckResult::Mismatch => Err(format!(
                "REMOTE HOST IDENTIFICATION HAS CHANGED: {name} port {port} shows another {kind} key than the one in {files}"
            )),
            CheckResult::NotFound | CheckResult::Failure => {
                Err(format!("No {kind} host key is known for {name} port {port} in {files}"))
            }
        }
    }
}

/// Asks the host for a key of a kind that is known.
fn prefer(session: &ssh2::Session, known: &KnownHosts, login: &Login<'_>) -> Result<(), String> {
    let said = |error: ssh2::Error| error.to_string();
    let able = session.supported_algs(MethodType::HostKey).map_err(said)?;
    let mut order: Vec<&str> = Vec::new();
    for kind in known.types(login) {
        let of_kind: &[&str] = match kind {
            "ssh-rsa" => &["rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"],
            _ => std::slice::from_ref(&kind),
        };
        order.extend(of_kind.iter().filter_map(|kind| able.iter().find(|able| *able == kind)));
    }
    order.extend(able.iter().filter(|able| !order.contains(able)).copied().collect::<Vec<_>>());
    session.method_pref(MethodType::HostKey, &order.join(",")).map_err(said)
}

/// Keys of the agent and of files; those that the user names come first.
fn authenticate(
    session: &ssh2::Session,
    login: &Login<'_>,
    named: &[PathBuf],
) -> Result<(), String> {
    let user = login.user.as_str();
    let mut tried = Vec::new();
    let mut file = |path: &Path| {
        tried.push(path.display().to_string());
        session.userauth_pubkey_file(user, None, path, None).is_ok()
    };
    let usual = ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| login.home.join(".ssh").join(name));
    let done = named.iter().any(|path| file(path))
        || by_agent(session, user)
        || (named.is_empty() && usual.iter().filter(|path| path.is_file()).any(|path| file(path)));
    if done && session.authenticated() {
        return Ok(());
    }
    let methods = session.auth_methods(user).unwrap_or("publickey").to_owned();
    let tried = if tried.is_empty() { "no key file".to_owned() } else { tried.join(" ") };
    Err(format!(
        "{user}@{}: Permission denied ({methods}); tried the keys of an agent and {tried}",
        login.name
    ))
}

fn by_agent(session: &ssh2::Session, user: &str) -> bool {
    let Ok(mut agent) = session.agent() else { return false };
    if agent.connect().and_then(|()| agent.list_identities()).is_err() {
        return false;
    }
    let identities = agent.identities().unwrap_or_default();
    identities.iter().any(|identity| agent.userauth(user, identity).is_ok())
}

/// Bytes on their way from one side to the other.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl Buffer {
    fn new() -> Self {
        Self { bytes: vec![0; PIECE], at: 0, end: 0 }
    }

    const fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// Reads when it is empty. `None`: nothing now; 0: the end.
    fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<Option<usize>> {
        let got = now(read(&mut self.bytes))?;
        (self.at, self.end) = (0, got.unwrap_or(0));
        Ok(got)
    }

    /// Writes what is there; whether anything went.
    fn drain(
        &mut self,
        write: impl FnOnce(&[u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        let gone = now(write(&self.bytes[self.at..self.end]))?.unwrap_or(0);
        self.at += gone;
        Ok(gone > 0)
    }
}

/// `None` for what succeeds later.
fn now(result: std::io::Result<usize>) -> std::io::Result<Option<usize>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        result => result.map(Some),
    }
}

struct Pump<'a> {
    ends: Ends<'a>,
    socket: &'a TcpStream,
    down: Buffer,
    up: Buffer,
    err: Buffer,
    input_over: bool,
    told: bool,
}

impl<'a> Pump<'a> {
    fn new(ends: Ends<'a>, socket: &'a TcpStream) -> std::io::Result<Self> {
        for fd in [ends.input, ends.output, ends.err] {
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let [down, up, err] = [Buffer::new(), Buffer::new(), Buffer::new()];
        Ok(Self { ends, socket, down, up, err, input_over: false, told: false })
    }

    /// Until the other side has closed its output and all of it is written.
    fn run(mut self, session: &ssh2::Session, channel: &mut Channel) -> std::io::Result<()> {
        loop {
            let moved = self.downwards(channel)? | self.upwards(channel)?;
            if channel.eof() && self.up.is_empty() && self.err.is_empty() && !moved {
                return Ok(());
            }
            if !moved {
                self.wait(session.block_directions())?;
            }
        }
    }

    fn downwards(&mut self, channel: &mut Channel) -> std::io::Result<bool> {
        let mut moved = false;
        if self.down.is_empty() && !self.input_over {
            let read = |bytes: &mut [u8]| Ok(nix::unistd::read(self.ends.input, bytes)?);
            match self.down.fill(read)? {
                Some(0) => self.input_over = true,
                got => moved |= got.is_some(),
            }
        }
        moved |= self.down.drain(|bytes| channel.write(bytes))?;
        if self.input_over && self.down.is_empty() && !self.told {
            match channel.send_eof() {
                Ok(()) => (self.told, moved) = (true, true),
                Err(error) if error.code() == ErrorCode::Session(AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(moved)
    }

    fn upwards(&mut self, channel: &mut Channel) -> std::io::Result<bool> {
        let mut moved = false;
        if self.up.is_empty() {
            moved |= self.up.fill(|bytes| channel.read(bytes))?.is_some_and(|count| count > 0);
        }
        if self.err.is_empty() {
            let mut stream = channel.stderr();
            moved |= self.err.fill(|bytes| stream.read(bytes))?.is_some_and(|count| count > 0);
        }
        let write = |to: BorrowedFd<'_>, bytes: &[u8]| Ok(nix::unistd::write(to, bytes)?);
        moved |= self.up.drain(|bytes| write(self.ends.output, bytes))?;
        moved |= self.err.drain(|bytes| write(self.ends.err, bytes))?;
        Ok(moved)
    }

    /// For anything that lets bytes move. The link may take any time: it has its own deadlines, and
    /// when it gives up it closes its ends, which wakes us.
    fn wait(&self, blocked: BlockDirections) -> std::io::Result<()> {
        let mut socket = PollFlags::empty();
        if self.up.is_empty() || !self.down.is_empty() {
            socket |= PollFlags::POLLIN;
        }
        if matches!(blocked, BlockDirections::Outbound | BlockDirections::Both) {
            socket |= PollFlags::POLLOUT;
        }
        let when = |wanted: bool, flags| if wanted { flags } else { PollFlags::empty() };
        let reads = !self.input_over && self.down.is_empty();
        let mut fds = vec![
            PollFd::new(self.socket.as_fd(), socket),
            PollFd::new(self.ends.output, when(!self.up.is_empty(), PollFlags::POLLOUT)),
            PollFd::new(self.ends.err, when(!self.err.is_empty(), PollFlags::POLLOUT)),
        ];
        if reads {
            fds.push(PollFd::new(self.ends.input, PollFlags::POLLIN));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let gone = fds[1].revents().is_some_and(|seen| seen.contains(PollFlags::POLLERR));
        if gone {
            return Err(std::io::Error::new(ErrorKind::BrokenPipe, "nobody reads its output"));
        }
        Ok(())
    }
}
