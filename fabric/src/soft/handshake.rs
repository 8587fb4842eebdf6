//! The handshake of both sides over sockets that do not block: streams before requests flow.

pub(super) mod messages;

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, SockaddrIn6, connect, setsockopt, socket,
    sockopt,
};
use settings::deadlines::soft::{HELLO as HELLO_TIMEOUT, PARKED};

use self::messages::{
    CHALLENGE, HELLO, JobKey, Nonce, PROOF, Rejection, Target, VERDICT, challenge, check, hello,
    prove, read_hello, read_verdict, verdict,
};
use super::random::random;

/// The congestion control that every Linux has and that does not pace.
const NO_PACING: &str = "reno";

/// What became of a handshake in one turn.
#[derive(Debug)]
pub(super) enum Step {
    /// It waits for the other side.
    Wait,
    /// A requester proved the key and named its queue pairs.
    Known(Target),
    /// The responder takes requests.
    Go,
    /// The responder has no such connection (yet), or cannot be reached.
    No,
    /// The other side does not belong to the job.
    Rejected(Rejection),
}

/// A message of fixed length that arrives in parts.
#[derive(Clone, Copy, Debug)]
struct Packet {
    bytes: [u8; PROOF],
    have: usize,
}

impl Packet {
    const EMPTY: Self = Self { bytes: [0; PROOF], have: 0 };

    /// Reads up to `N` bytes; the packet when it is whole.
    fn read<const N: usize>(&mut self, mut stream: &TcpStream) -> io::Result<Option<[u8; N]>> {
        while self.have < N {
            let Some(room) = self.bytes.get_mut(self.have..N) else { break };
            match stream.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.have += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut out = [0; N];
        out.copy_from_slice(self.bytes.get(..N).unwrap_or(&[0; N]));
        *self = Self::EMPTY;
        Ok(Some(out))
    }
}

/// Writes a packet of the handshake. It fits any fresh socket; when it does not, the stream is
/// given up.
fn write(mut stream: &TcpStream, bytes: &[u8]) -> bool {
    matches!(stream.write(bytes), Ok(count) if count == bytes.len())
}

/// A stream that a peer opened; it has not proved the job key yet.
#[derive(Debug)]
pub(super) struct Accepting {
    pub(super) stream: Arc<TcpStream>,
    pub(super) peer: SocketAddr,
    pub(super) until: Instant,
    packet: Packet,
    nonces: Option<(Nonce, Nonce)>,
}

impl Accepting {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        let until = Instant::now() + HELLO_TIMEOUT.limit;
        Self { stream: Arc::new(stream), peer, until, packet: Packet::EMPTY, nonces: None }
    }

    pub(super) fn turn(&mut self, key: &JobKey) -> Step {
        if self.nonces.is_none() {
            let bytes = match self.packet.read::<HELLO>(&self.stream) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Step::Wait,
                Err(_) => return Step::Rejected(Rejection::Closed),
            };
            let theirs = match read_hello(&bytes) {
                Ok(nonce) => nonce,
                Err(why) => return Step::Rejected(why),
            };
            let own = random();
            if !write(&self.stream, &challenge(key, &theirs, &own)) {
                return Step::Rejected(Rejection::Closed);
            }
            self.nonces = Some((theirs, own));
        }
        let Some((theirs, own)) = self.nonces else { return Step::Wait };
        match self.packet.read::<PROOF>(&self.stream) {
            Ok(Some(proof)) => match check(key, &theirs, &own, &proof) {
                Ok(target) => Step::Known(target),
                Err(why) => Step::Rejected(why),
            },
            Ok(None) => Step::Wait,
            Err(_) => Step::Rejected(Rejection::Closed),
        }
    }
}

/// A known requester whose queue pair is not ready.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) stream: Arc<TcpStream>,
    pub(super) target: Target,
    pub(super) until: Instant,
}

impl Parked {
    pub(super) fn new(stream: Arc<TcpStream>, target: Target) -> Self {
        Self { stream, target, until: Instant::now() + PARKED.limit }
    }

    /// Tells the requester whether its connection exists; false: it is gone.
    pub(super) fn answer(&self, go: bool) -> bool {
        (&*self.stream).write(&verdict(go)).is_ok()
    }

    /// Whether the requester went away.
    pub(super) fn is_closed(&self) -> bool {
        let mut byte = [0];
        match self.stream.peek(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum ConnectState {
    Connecting,
    Challenged(Nonce),
    Proved,
}

/// A stream that we open.
#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) stream: Arc<TcpStream>,
    pub(super) until: Instant,
    target: Target,
    packet: Packet,
    state: ConnectState,
}

/// Prepares a stream for messages. `is_local`: the peer is on this host.
pub(super) fn set_up(stream: &TcpStream, is_local: bool) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    if is_local {
        // There is no path to be fair on; a system whose default paces what it sends would do so
        // here too.
        let _ = setsockopt(stream, sockopt::TcpCongestion, &OsString::from(NO_PACING));
    }
    Ok(())
}

impl Connecting {
    /// Starts to connect.
    pub(super) fn start(to: SocketAddr, is_local: bool, target: Target) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd: OwnedFd = socket(family, SockType::Stream, flags, None)?;
        let connected = match to {
            SocketAddr::V4(to) => connect(fd.as_raw_fd(), &SockaddrIn::from(to)),
            SocketAddr::V6(to) => connect(fd.as_raw_fd(), &SockaddrIn6::from(to)),
        };
        match connected {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stream = TcpStream::from(fd);
        set_up(&stream, is_local)?;
        Ok(Self {
            stream: Arc::new(stream),
            // The peer may let us wait until its queue pair is ready.
            until: Instant::now() + PARKED.limit,
            target,
            packet: Packet::EMPTY,
            state: ConnectState::Connecting,
        })
    }

    pub(super) fn turn(&mut self, key: &JobKey) -> Step {
        loop {
            match self.state {
                ConnectState::Connecting => {
                    if self.stream.take_error().is_ok_and(|error| error.is_some()) {
                        return Step::No;
                    }
                    if self.stream.peer_addr().is_err() {
                        return Step::Wait;
                    }
                    let nonce = random();
                    if !write(&self.stream, &hello(&nonce)) {
                        return Step::No;
                    }
                    self.state = ConnectState::Challenged(nonce);
                }
                ConnectState::Challenged(nonce) => {
                    let answer = match self.packet.read::<CHALLENGE>(&self.stream) {
                        Ok(Some(answer)) => answer,
                        Ok(None) => return Step::Wait,
                        Err(_) => return Step::No,
                    };
                    match prove(key, &nonce, &answer, self.target) {
                        Ok(proof) if write(&self.stream, &proof) => {
                            self.state = ConnectState::Proved
                        }
                        Ok(_) => return Step::No,
                        Err(why) => return Step::Rejected(why),
                    }
                }
                ConnectState::Proved => {
                    return match self
                        .packet
                        .read::<VERDICT>(&self.stream)
                        .map(|it| it.map(read_verdict))
                    {
                        Ok(None) => Step::Wait,
                        Ok(Some(Ok(true))) => Step::Go,
                        Ok(Some(Ok(false))) | Err(_) => Step::No,
                        Ok(Some(Err(why))) => Step::Rejected(why),
                    };
                }
            }
        }
    }
}
