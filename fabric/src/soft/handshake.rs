//! The handshake of both sides over sockets that do not block: streams before requests flow.

pub(super) mod messages;

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use settings::deadlines::soft::{HELLO as HELLO_TIMEOUT, PARKED};

use self::messages::{
    CHALLENGE, HELLO, JobKey, Mode, Nonce, PROOF, Rejection, Target, VERDICT, challenge, check,
    hello, nonce_of, prove, read_hello, read_verdict, verdict,
};
use super::descriptors;
use super::memory::without_waiting;
use super::random::random;
use super::record::Secrets;
use super::stream::Stream;

/// The congestion control that every Linux has and that does not pace.
const NO_PACING: &str = "reno";

/// A message of fixed length that arrives in parts.
#[derive(Clone, Copy, Debug)]
struct Packet {
    bytes: [u8; PROOF],
    have: usize,
}

impl Packet {
    const EMPTY: Self = Self { bytes: [0; PROOF], have: 0 };

    /// Reads up to `N` bytes; the packet when it is whole.
    fn read<const N: usize>(
        &mut self,
        mut stream: &TcpStream,
    ) -> Result<Option<[u8; N]>, Rejection> {
        while let Some(room) = self.bytes.get_mut(self.have..N).filter(|room| !room.is_empty()) {
            match without_waiting(|| stream.read(room)) {
                Ok(None) => return Ok(None),
                Ok(Some(count)) if count != 0 => self.have += count,
                _ => return Err(Rejection::Closed),
            }
        }
        let whole = self.bytes.first_chunk::<N>().copied();
        *self = Self::EMPTY;
        Ok(whole)
    }
}

/// Writes a packet of the handshake. It fits any fresh socket; when it does not, the stream is
/// given up.
fn write(mut stream: &TcpStream, bytes: &[u8]) -> Result<(), Rejection> {
    let whole = stream.write(bytes).is_ok_and(|count| count == bytes.len());
    whole.then_some(()).ok_or(Rejection::Closed)
}

/// A stream that a peer opened; it has not proved the job key yet.
#[derive(Debug)]
pub(super) struct Accepting {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) until: Instant,
    packet: Packet,
    nonces: Option<(Nonce, Nonce)>,
}

/// What a device proves, and how its streams go on.
pub(super) type Own<'a> = (&'a JobKey, Mode);

impl Accepting {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        let until = Instant::now() + HELLO_TIMEOUT.limit;
        Self { stream, peer, until, packet: Packet::EMPTY, nonces: None }
    }

    /// Whether it has begun as peers do.
    pub(super) const fn is_greeted(&self) -> bool {
        self.nonces.is_some()
    }

    /// Why it is given up when its time has passed.
    pub(super) const fn late(&self) -> Rejection {
        if self.is_greeted() { Rejection::Slow } else { Rejection::Silent }
    }

    /// What the requester wants, when it has proved the key; `None`: not yet.
    pub(super) fn turn(&mut self, (key, mode): Own<'_>) -> Result<Option<Target>, Rejection> {
        if self.nonces.is_none() {
            let Some(bytes) = self.packet.read::<HELLO>(&self.stream)? else { return Ok(None) };
            let ((theirs, wanted), own) = (read_hello(&bytes)?, random());
            // Also to a requester of another mode: it learns so why it is refused.
            write(&self.stream, &challenge(key, mode, &theirs, &own))?;
            if wanted != mode {
                return Err(Rejection::Mode(mode));
            }
            self.nonces = Some((theirs, own));
        }
        let Some((theirs, own)) = self.nonces else { return Ok(None) };
        let proof = self.packet.read::<PROOF>(&self.stream)?;
        proof.map(|proof| check(key, mode, &theirs, &own, &proof)).transpose()
    }

    /// The stream as it goes on after the proof.
    pub(super) fn proved(self, (key, mode): Own<'_>) -> Stream {
        match (mode, self.nonces) {
            (Mode::Encrypted, Some((theirs, own))) => {
                let Secrets { requests, responses } = Secrets::derive(key, &theirs, &own);
                Stream::encrypted(self.stream, &responses, &requests)
            }
            _ => Stream::plain(self.stream),
        }
    }
}

/// A known requester whose queue pair is not ready.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) stream: Arc<Stream>,
    pub(super) target: Target,
    pub(super) until: Instant,
}

impl Parked {
    pub(super) fn new(stream: Stream, target: Target) -> Self {
        Self { stream: Arc::new(stream), target, until: Instant::now() + PARKED.limit }
    }

    /// Tells the requester whether its connection exists; false: it is gone.
    pub(super) fn answer(&self, go: bool) -> bool {
        write(self.stream.tcp(), &verdict(go)).is_ok()
    }

    pub(super) fn is_closed(&self) -> bool {
        let waits = without_waiting(|| self.stream.tcp().peek(&mut [0]));
        matches!(waits, Ok(Some(0)) | Err(_))
    }
}

#[derive(Clone, Copy, Debug)]
enum ConnectState {
    Connecting,
    Challenged(Nonce),
    Proved(Nonce, Nonce),
}

#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) stream: TcpStream,
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
    pub(super) fn start(to: SocketAddr, is_local: bool, target: Target) -> io::Result<Self> {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let fd = descriptors::make(|| Ok(socket(family, SockType::Stream, flags, None)?))?;
        let connected = connect(fd.as_raw_fd(), &SockaddrStorage::from(to));
        match connected {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stream = TcpStream::from(fd);
        set_up(&stream, is_local)?;
        Ok(Self {
            stream,
            // The peer may let us wait until its queue pair is ready.
            until: Instant::now() + PARKED.limit,
            target,
            packet: Packet::EMPTY,
            state: ConnectState::Connecting,
        })
    }

    /// Whether the responder takes requests; if not, it has no such connection (yet), or cannot be
    /// reached. `None`: it has not said so yet.
    pub(super) fn turn(&mut self, (key, mode): Own<'_>) -> Result<Option<bool>, Rejection> {
        if let ConnectState::Connecting = self.state {
            if self.stream.take_error().is_ok_and(|error| error.is_some()) {
                return Ok(Some(false));
            }
            if self.stream.peer_addr().is_err() {
                return Ok(None);
            }
            let nonce = random();
            write(&self.stream, &hello(mode, &nonce))?;
            self.state = ConnectState::Challenged(nonce);
        }
        if let ConnectState::Challenged(nonce) = self.state {
            let answer = self.packet.read::<CHALLENGE>(&self.stream)?;
            let Some(answer) = answer else { return Ok(None) };
            write(&self.stream, &prove(key, mode, &nonce, &answer, self.target)?)?;
            self.state = ConnectState::Proved(nonce, nonce_of(&answer));
        }
        self.packet.read::<VERDICT>(&self.stream)?.map(read_verdict).transpose()
    }

    /// The stream as it goes on after the verdict.
    pub(super) fn proved(self, (key, mode): Own<'_>) -> Stream {
        match (mode, self.state) {
            (Mode::Encrypted, ConnectState::Proved(own, theirs)) => {
                let Secrets { requests, responses } = Secrets::derive(key, &own, &theirs);
                Stream::encrypted(self.stream, &requests, &responses)
            }
            _ => Stream::plain(self.stream),
        }
    }
}
