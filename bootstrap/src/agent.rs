//! Provider: client of the node agent that started this rank.
//!
//! The rank inherits one end of a `SOCK_SEQPACKET` pair; one packet is one [`Frame`]. Descriptors
//! (node memory, results, host memory) come along as `SCM_RIGHTS`. The client never sleeps longer
//! than [`SLICE`](settings::deadlines::bootstrap::SLICE) without looking at the exit decision in
//! the node memory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::poll::PollFlags;
use nix::sys::socket::SockType;
use settings::Env;

use crate::client::{Channel, Client, Reply, Request};
use crate::frame::{BUILD_ID, Frame, HEADER_LEN, Kind, MAX_PAYLOAD};
use crate::memfd;
use crate::node_shm::{NodeShm, NodeShmError, Published, ShmCollectives, SlotRef};
use crate::provider::{Announced, Provider, contradiction, names, number};
use crate::service::{Bootstrap, Error, ExitNotifier, Finalizer, Rank, Shared, call_name};
use crate::sys::{self, Mapping, PeerSocket};
use crate::wait::{Bounds, Wait, Watch};

/// The agent's announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) fd: i32,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
}

/// The node agent of `gasnetrun_ibv`.
pub const PROVIDER: Provider = Provider {
    name: "agent",
    find: |env, trace| Ok(parent(env, trace)?.map(|parent| Box::new(parent) as Box<dyn Announced>)),
};

impl Announced for Parent {
    fn describe(&self) -> String {
        let Self { fd, rank, size } = self;
        format!("agent on descriptor {fd}: rank {rank} of {size}")
    }

    fn connect(&self, _: &Env) -> Result<Box<dyn Bootstrap>, Error> {
        connect(self.fd, self.rank, self.size, Bounds::default())
    }
}

/// Looks for the agent.
pub(crate) fn parent(env: &Env, trace: &mut Vec<String>) -> Result<Option<Parent>, Error> {
    let Some(value) = env.text(names::AGENT_FD) else {
        trace.push(format!("{} is not set", names::AGENT_FD));
        return Ok(None);
    };
    trace.push(format!("{}={value:?}: started by gasnetrun_ibv", names::AGENT_FD));
    let sign = names::AGENT_FD;
    let fd = number(env, names::AGENT_FD, sign)?;
    let (rank, size) = (number(env, names::RANK, sign)?, number(env, names::SIZE, sign)?);
    let fd = i32::try_from(fd)
        .map_err(|_| contradiction(env, names::AGENT_FD, "is no descriptor number"))?;
    if rank >= size {
        return Err(contradiction(
            env,
            names::RANK,
            &format!("is outside the job of {size} ranks"),
        ));
    }
    Ok(Some(Parent { fd, rank: Rank(rank), size }))
}

/// Connects over an inherited descriptor number: says `Hello`, receives the node memory.
///
/// # Errors
/// The descriptor is not the agent's socket or is in use already, the agent refuses (for example
/// another release), does not answer in time, or answers with something else.
pub fn connect(
    fd: i32,
    rank: Rank,
    size: u32,
    bounds: Bounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let socket = PeerSocket::adopt(fd, SockType::SeqPacket, names::AGENT_FD)
        .map_err(|source| Error::Os { operation: "use the node agent's socket", source })?;
    begin(Socket::new(socket, rank, size, bounds, None), BUILD_ID)
}

/// What a rank has beside its socket where a process manager started it.
pub trait Fence: Send {
    /// Enters the process manager's fence of the whole job. `watch` is asked several times a
    /// second.
    ///
    /// # Errors
    /// The process manager fails, or what `watch` says.
    fn fence(&mut self, watch: &mut Watch<'_>) -> Result<(), Error>;

    /// How this rank leaves.
    fn finalizer(&self) -> &'static dyn Finalizer;
}

/// A rank of a host without an agent: the first rank there does for it what an agent does.
pub struct Member {
    /// This rank.
    pub rank: Rank,
    /// Ranks of the job.
    pub size: u32,
    /// What it has beside its socket.
    pub fence: Box<dyn Fence>,
}

/// As [`connect`], to the first rank of this host. `greeting` is what it wants to hear.
///
/// # Errors
/// As [`connect`].
pub fn join(
    socket: PeerSocket,
    member: Member,
    greeting: &str,
    bounds: Bounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let Member { rank, size, fence } = member;
    begin(Socket::new(socket, rank, size, bounds, Some(fence)), greeting)
}

fn begin(mut channel: Socket, greeting: &str) -> Result<Box<dyn Bootstrap>, Error> {
    let (rank, size) = (channel.rank, channel.size);
    let page = channel.hello(greeting)?;
    let Some(place) = page.rank_info(rank) else {
        let seen = format!("a node's shared memory without rank {rank}");
        return Err(Error::Protocol { during: "hello", seen });
    };
    if place.size != size {
        let seen =
            format!("a node's shared memory for {} ranks, the environment says {size}", place.size);
        return Err(Error::Protocol { during: "hello", seen });
    }
    channel.local = place.local;
    page.slot(place.local).set_pid(std::process::id().cast_signed());
    let page = Arc::new(page);
    Ok(Box::new(Client::new(channel, place, page)))
}

struct Socket {
    socket: PeerSocket,
    rank: Rank,
    /// Its number among the ranks of this host, once the page is there.
    local: u32,
    size: u32,
    bounds: Bounds,
    buffer: Vec<u8>,
    /// [`ShmCollectives::mail`] when the socket was looked at last.
    mail: u32,
    /// Where a process manager started this rank; then the socket leads to the first rank of this
    /// host.
    fence: Option<Box<dyn Fence>>,
}

impl Socket {
    const fn new(
        socket: PeerSocket,
        rank: Rank,
        size: u32,
        bounds: Bounds,
        fence: Option<Box<dyn Fence>>,
    ) -> Self {
        Self { socket, rank, local: 0, size, bounds, buffer: Vec::new(), mail: 0, fence }
    }

    /// Enters the fence whenever the first rank of this host asks for it, until it says something
    /// else. A fence ends early with the job, with that rank, or when a refusal comes from there.
    fn fences(&mut self, wait: &Wait, page: &NodeShm) -> Result<(), Error> {
        loop {
            self.ready(PollFlags::POLLIN, wait, Some(page))?;
            let mut head = [0; HEADER_LEN];
            let seen = sys::peek_packet(self.socket.as_fd(), &mut head);
            if seen != Some(HEADER_LEN) || head[3] != Kind::Barrier as u8 {
                return Ok(());
            }
            self.receive(wait, Some(page))?;
            let Some(fence) = &mut self.fence else { return Ok(()) };
            let (socket, mut refused) = (&self.socket, false);
            let outcome = fence.fence(&mut || {
                wait.slice(Some(page))?;
                let seen = sys::peek_packet(socket.as_fd(), &mut head);
                refused = seen.is_some_and(|len| len > 0) && head[3] == Kind::Refuse as u8;
                if refused || seen == Some(0) { Err(wait.lost(Some(page))) } else { Ok(()) }
            });
            if !refused {
                outcome?;
            }
        }
    }

    fn hello(&mut self, greeting: &str) -> Result<NodeShm, Error> {
        let wait = Wait::new("hello", self.bounds.hello);
        let mut frame = Frame::bare(Kind::Hello, 0, self.rank.0, std::process::id());
        frame.payload = greeting.as_bytes();
        frame.total = u32::try_from(greeting.len()).unwrap_or(u32::MAX);
        self.send(&frame, &wait, None)?;
        let size = self.size;
        let (frame, fd) = self.receive(&wait, None)?;
        refused(&frame, &wait)?;
        match (frame.kind, fd) {
            (Kind::Welcome, Some(fd)) if frame.arg == size => {
                NodeShm::open(fd).map_err(|source| match source {
                    NodeShmError::Os { source, .. } => {
                        Error::Os { operation: "map the node's shared memory", source }
                    }
                    NodeShmError::Layout { .. } => {
                        Error::Protocol { during: "hello", seen: source.to_string() }
                    }
                })
            }
            (Kind::Welcome, Some(_)) => {
                let seen = format!("a job of {} ranks, the environment says {size}", frame.arg);
                Err(Error::Protocol { during: "hello", seen })
            }
            (_, fd) => Err(unexpected(&frame, fd.is_some(), &wait)),
        }
    }

    /// Waits until the socket is ready for `events`, in slices.
    fn ready(&self, events: PollFlags, wait: &Wait, page: Option<&NodeShm>) -> Result<(), Error> {
        loop {
            let ready = sys::ready(&[self.socket.as_fd()], events, wait.slice(page)?);
            let os = |source| Error::Os { operation: "wait for the node agent", source };
            if !ready.map_err(os)?.is_empty() {
                return Ok(());
            }
        }
    }

    fn send(&self, frame: &Frame<'_>, wait: &Wait, page: Option<&NodeShm>) -> Result<(), Error> {
        loop {
            match sys::send_packet(self.socket.as_fd(), &frame.header(), frame.payload, None) {
                Ok(()) => return Ok(()),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => self.ready(PollFlags::POLLOUT, wait, page)?,
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                        return Err(self.last_words(wait, page));
                    }
                    _ => {
                        return Err(Error::Os {
                            operation: "send to the node agent",
                            source: error,
                        });
                    }
                },
            }
        }
    }

    /// The connection broke: the refusal that the peer sent before it left, if it did.
    fn last_words(&self, wait: &Wait, page: Option<&NodeShm>) -> Error {
        let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD + 1];
        // A socket that was reset says so once, then gives what is in it.
        for _ in 0..2 {
            let Ok((len, _)) = sys::receive_packet(self.socket.as_fd(), &mut buffer) else {
                continue;
            };
            if let Ok(frame) = Frame::from_packet(&buffer[..len], self.size)
                && let Err(error) = refused(&frame, wait)
            {
                return error;
            }
        }
        wait.lost(page)
    }

    fn receive(
        &mut self,
        wait: &Wait,
        page: Option<&NodeShm>,
    ) -> Result<(Frame<'_>, Option<OwnedFd>), Error> {
        // One byte more than any frame: a longer packet is seen as such.
        if self.buffer.is_empty() {
            self.buffer = vec![0; HEADER_LEN + MAX_PAYLOAD + 1];
        }
        let (len, fd) = loop {
            match sys::receive_packet(self.socket.as_fd(), &mut self.buffer) {
                Ok((0, _)) => return Err(wait.lost(page)),
                Ok(received) => break received,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => self.ready(PollFlags::POLLIN, wait, page)?,
                    io::ErrorKind::ConnectionReset => return Err(self.last_words(wait, page)),
                    _ => {
                        return Err(Error::Os {
                            operation: "receive from the node agent",
                            source: error,
                        });
                    }
                },
            }
        };
        let during = wait.during();
        let frame = Frame::from_packet(&self.buffer[..len], self.size);
        Ok((frame.map_err(|source| Error::Frame { during, source })?, fd))
    }

    /// Receives the pieces of a datum of exactly `expect` bytes, the first of which is at hand.
    fn assemble(
        &mut self,
        first: Vec<u8>,
        request: &Request<'_>,
        wait: &Wait,
        page: &NodeShm,
    ) -> Result<Vec<u8>, Error> {
        let (expect, seq) = (request.expect, request.head.seq);
        let mut data = first;
        while data.len() < expect {
            let (frame, fd) = self.receive(wait, Some(page))?;
            refused(&frame, wait)?;
            let fits = frame.kind == Kind::Data
                && frame.seq == seq
                && frame.total as usize == expect
                && frame.offset as usize == data.len()
                && !frame.payload.is_empty();
            if !fits || fd.is_some() {
                return Err(unexpected(&frame, fd.is_some(), wait));
            }
            data.extend_from_slice(frame.payload);
        }
        Ok(data)
    }
}

/// The agent's refusal as error; it may carry the number of this call or of the one before.
fn refused(frame: &Frame<'_>, wait: &Wait) -> Result<(), Error> {
    if frame.kind != Kind::Refuse {
        return Ok(());
    }
    Err(Error::Refused {
        during: wait.during(),
        reason: String::from_utf8_lossy(frame.payload).into_owned(),
    })
}

fn unexpected(frame: &Frame<'_>, with_fd: bool, wait: &Wait) -> Error {
    let Frame { kind, seq, total, offset, .. } = frame;
    let with = if with_fd { "with" } else { "without" };
    let seen = format!(
        "unexpected {kind:?} frame {with} descriptor: call {seq}, {} bytes at {offset} of {total}",
        frame.payload.len()
    );
    Error::Protocol { during: wait.during(), seen }
}

fn map_result(fd: &OwnedFd, len: usize, wait: &Wait) -> Result<Reply, Error> {
    let os = |source| Error::Os { operation: "map the result of an exchange", source };
    if !memfd::is_frozen(fd).map_err(os)? {
        let seen = "a result that could still change".to_owned();
        return Err(Error::Protocol { during: wait.during(), seen });
    }
    Mapping::read_only(fd, len).map(|map| Reply::Mapped(Shared::Mapped(Arc::new(map)))).map_err(os)
}

fn check_memory(fd: OwnedFd, len: usize, wait: &Wait) -> Result<Reply, Error> {
    let os = |errno: nix::Error| Error::Os {
        operation: "look at the host memory",
        source: errno.into(),
    };
    let there = nix::sys::stat::fstat(&fd).map_err(os)?.st_size;
    if usize::try_from(there) != Ok(len) {
        let seen = format!("host memory of {there} bytes instead of {len}");
        return Err(Error::Protocol { during: wait.during(), seen });
    }
    Ok(Reply::Memory(fd))
}

/// An answer on the collectives.
fn published_reply(
    published: Published,
    request: &Request<'_>,
    wait: &Wait,
    page: &Arc<NodeShm>,
) -> Result<Reply, Error> {
    if published.len != request.expect {
        let (there, expect) = (published.len, request.expect);
        let seen = format!("a result of {there} bytes on the collectives instead of {expect}");
        return Err(Error::Protocol { during: wait.during(), seen });
    }
    if request.head.kind == Kind::Barrier {
        return Ok(Reply::Release);
    }
    if published.len == 0 {
        return Ok(Reply::Mapped(Shared::Owned(Vec::new())));
    }
    match SlotRef::new(page, published) {
        Some(lent) => Ok(Reply::Mapped(Shared::Slot(lent))),
        None => {
            let seen = format!("a result at place {} of the collectives", published.place);
            Err(Error::Protocol { during: wait.during(), seen })
        }
    }
}

impl Channel for Socket {
    fn call(&mut self, request: &Request<'_>, page: &Arc<NodeShm>) -> Result<Reply, Error> {
        let wait = Wait::new(call_name(request.head.kind), self.bounds.call);
        // The first rank of a host without an agent serves no collectives.
        if let Some(collectives) = page.collectives().filter(|_| self.fence.is_none()) {
            if request.fits_shm() {
                return self.on_shm(request, collectives, &wait, page);
            }
            collectives.apart(request.head.seq);
        }
        for frame in request.frames() {
            self.send(&frame, &wait, Some(page))?;
        }
        if self.fence.is_some() {
            self.fences(&wait, page)?;
        }
        self.reply(request, &wait, page)
    }

    fn fini(&mut self, code: i32, page: &NodeShm) -> Result<(), Error> {
        let outcome = self.part(code, page);
        if let Some(fence) = &self.fence {
            fence.finalizer().fini(code);
        }
        outcome
    }

    fn cleanup(&mut self) {
        self.buffer = Vec::new();
    }

    fn exit_notifier(&self) -> ExitNotifier {
        let rank = self.rank.0;
        match &self.fence {
            Some(fence) => ExitNotifier::finalizing(self.rank, fence.finalizer()),
            None => ExitNotifier { socket: self.socket.as_fd().as_raw_fd(), rank, finalizer: None },
        }
    }
}

impl Socket {
    /// Makes a call on the collectives.
    fn on_shm(
        &mut self,
        request: &Request<'_>,
        collectives: ShmCollectives<'_>,
        wait: &Wait,
        page: &Arc<NodeShm>,
    ) -> Result<Reply, Error> {
        let (seq, rank) = (request.head.seq, self.rank);
        if request.frames().any(|frame| collectives.post(self.local, &frame)) {
            self.send(&Frame::bare(Kind::Posted, seq, rank.0, 0), wait, Some(page))?;
        }
        loop {
            let bell = collectives.bell();
            if let Some(published) = collectives.answer(seq) {
                return published_reply(published, request, wait, page);
            }
            if self.mail != collectives.mail() {
                self.mail = collectives.mail();
                if self.has_packet(wait, page)? {
                    return self.reply(request, wait, page);
                }
            }
            collectives.sleep(bell, wait.slice(Some(page))?);
            // A whole slice has passed: the agent may be gone.
            if bell == collectives.bell() && self.has_packet(wait, page)? {
                return self.reply(request, wait, page);
            }
        }
    }

    /// Whether the agent has sent a packet.
    fn has_packet(&self, wait: &Wait, page: &NodeShm) -> Result<bool, Error> {
        match sys::peek_packet(self.socket.as_fd(), &mut [0; HEADER_LEN]) {
            Some(0) => Err(wait.lost(Some(page))),
            seen => Ok(seen.is_some()),
        }
    }

    /// The agent's answer in packets.
    fn reply(
        &mut self,
        request: &Request<'_>,
        wait: &Wait,
        page: &NodeShm,
    ) -> Result<Reply, Error> {
        let (head, expect) = (request.head, request.expect);
        let (frame, fd) = self.receive(wait, Some(page))?;
        refused(&frame, wait)?;
        if frame.seq != head.seq {
            return Err(unexpected(&frame, fd.is_some(), wait));
        }
        let whole = frame.total as usize == expect;
        match (frame.kind, fd) {
            (Kind::Release, None) => Ok(Reply::Release),
            (Kind::Mapped, Some(fd)) if whole => map_result(&fd, expect, wait),
            (Kind::HostMemory, Some(fd))
                if (frame.total, frame.extra) == (head.total, head.extra) =>
            {
                check_memory(fd, expect, wait)
            }
            (Kind::Data, None)
                if whole && frame.offset == 0 && (expect == 0 || !frame.payload.is_empty()) =>
            {
                let mut first = Vec::with_capacity(expect);
                first.extend_from_slice(frame.payload);
                self.assemble(first, request, wait, page).map(Reply::Data)
            }
            (_, fd) => Err(unexpected(&frame, fd.is_some(), wait)),
        }
    }
}

impl Socket {
    /// The farewell to the agent.
    fn part(&mut self, code: i32, page: &NodeShm) -> Result<(), Error> {
        let wait = Wait::new("fini", self.bounds.fini);
        let frame = Frame::bare(Kind::Fini, 0, self.rank.0, code.cast_unsigned());
        self.send(&frame, &wait, Some(page))?;
        loop {
            match self.receive(&wait, Some(page)) {
                // The agent may hang up instead of answering: both mean that it knows.
                Err(Error::Lost { .. }) => return Ok(()),
                Err(error) => return Err(error),
                Ok((frame, None)) if frame.kind == Kind::Release && frame.seq == 0 => return Ok(()),
                // A refusal of a call that this rank will not make any more.
                Ok((frame, None)) if frame.kind == Kind::Refuse => {}
                Ok((frame, fd)) => return Err(unexpected(&frame, fd.is_some(), &wait)),
            }
        }
    }
}
