//! Provider: client of the node agent that started this rank.
//!
//! The rank inherits one end of a `SOCK_SEQPACKET` pair; one packet is one [`Frame`]. Descriptors
//! (node memory, results, host memory) come along as `SCM_RIGHTS`. Once it has the
//! node memory, the client never sleeps longer than [`Wait::slice`] says without looking at the exit
//! decision there.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
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
        .map_err(Error::os("use the node agent's socket"))?;
    join(socket, (rank, size), None, BUILD_ID, bounds)
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

/// As [`connect`], for rank and size of the job. With a `fence` the socket leads to the first rank
/// of this host, which does for it what an agent does. `greeting` is what the peer wants to hear.
///
/// # Errors
/// As [`connect`].
pub fn join(
    socket: PeerSocket,
    (rank, size): (Rank, u32),
    fence: Option<Box<dyn Fence>>,
    greeting: &str,
    bounds: Bounds,
) -> Result<Box<dyn Bootstrap>, Error> {
    let (local, buffer, mail) = (0, Vec::new(), 0);
    let mut channel = Socket { socket, rank, local, size, bounds, buffer, mail, fence };
    let wait = Wait::new("hello", bounds.hello);
    let page = channel.hello(greeting, &wait)?;
    let Some(place) = page.rank_info(rank) else {
        return Err(wait.protocol(format!("a node's shared memory without rank {rank}")));
    };
    if place.size != size {
        let there = place.size;
        let seen = format!("a node's shared memory for {there} ranks, the environment says {size}");
        return Err(wait.protocol(seen));
    }
    channel.local = place.local;
    page.slot(place.local).set_pid(std::process::id().cast_signed());
    Ok(Box::new(Client::new(channel, place, Arc::new(page))))
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
    /// Enters the fence whenever the first rank of this host asks for it, until it says something
    /// else. A fence ends early with the job, with that rank, or when a refusal comes from there.
    fn fences(&mut self, wait: &Wait<'_>) -> Result<(), Error> {
        loop {
            self.ready(PollFlags::POLLIN, wait)?;
            let mut head = [0; HEADER_LEN];
            let seen = sys::peek_packet(self.socket.as_fd(), &mut head);
            if seen != Some(HEADER_LEN) || head[3] != Kind::Barrier as u8 {
                return Ok(());
            }
            self.receive(wait)?;
            let Some(fence) = &mut self.fence else { return Ok(()) };
            let (socket, mut refused) = (&self.socket, false);
            let outcome = fence.fence(&mut || {
                wait.slice()?;
                let seen = sys::peek_packet(socket.as_fd(), &mut head);
                refused = seen.is_some_and(|len| len > 0) && head[3] == Kind::Refuse as u8;
                if refused || seen == Some(0) { Err(wait.lost()) } else { Ok(()) }
            });
            if !refused {
                outcome?;
            }
        }
    }

    fn hello(&mut self, greeting: &str, wait: &Wait<'_>) -> Result<NodeShm, Error> {
        let frame = Frame::bare(Kind::Hello, 0, self.rank.0, std::process::id());
        self.send(&frame.with(greeting.as_bytes()), wait)?;
        let size = self.size;
        let (frame, fd) = self.receive(wait)?;
        refused(&frame, wait)?;
        match (frame.kind, fd) {
            (Kind::Welcome, Some(fd)) if frame.arg == size => {
                NodeShm::open(fd).map_err(|source| match source {
                    NodeShmError::Os { source, .. } => {
                        Error::Os { operation: "map the node's shared memory", source }
                    }
                    NodeShmError::Layout { .. } => wait.protocol(source),
                })
            }
            (Kind::Welcome, Some(_)) => {
                let there = frame.arg;
                Err(wait.protocol(format!("a job of {there} ranks, the environment says {size}")))
            }
            (_, fd) => Err(unexpected(&frame, fd.is_some(), wait)),
        }
    }

    /// Waits until the socket is ready for `events`, in slices.
    fn ready(&self, events: PollFlags, wait: &Wait<'_>) -> Result<(), Error> {
        loop {
            let ready = sys::ready(&[self.socket.as_fd()], events, wait.slice()?);
            if !ready.map_err(Error::os("wait for the node agent"))?.is_empty() {
                return Ok(());
            }
        }
    }

    /// Tries an `operation` on the socket until it succeeds, in between until there is room for it.
    fn until_done<T>(
        &self,
        (operation, events): (&'static str, PollFlags),
        wait: &Wait<'_>,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Result<T, Error> {
        loop {
            let source = match attempt(self.socket.as_fd()) {
                Ok(done) => return Ok(done),
                Err(source) => source,
            };
            match source.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock => self.ready(events, wait)?,
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    return Err(self.last_words(wait));
                }
                _ => return Err(Error::Os { operation, source }),
            }
        }
    }

    fn send(&self, frame: &Frame<'_>, wait: &Wait<'_>) -> Result<(), Error> {
        self.until_done(("send to the node agent", PollFlags::POLLOUT), wait, |socket| {
            sys::send_packet(socket, &frame.header(), frame.payload, None)
        })
    }

    /// The connection broke: the refusal that the peer sent before it left, if it did.
    fn last_words(&self, wait: &Wait<'_>) -> Error {
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
        wait.lost()
    }

    fn receive(&mut self, wait: &Wait<'_>) -> Result<(Frame<'_>, Option<OwnedFd>), Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        // One byte more than any frame: a longer packet is seen as such.
        buffer.resize(HEADER_LEN + MAX_PAYLOAD + 1, 0);
        let what = ("receive from the node agent", PollFlags::POLLIN);
        let (len, fd) =
            self.until_done(what, wait, |socket| sys::receive_packet(socket, &mut buffer))?;
        if len == 0 {
            return Err(wait.lost());
        }
        self.buffer = buffer;
        let frame = Frame::from_packet(&self.buffer[..len], self.size);
        Ok((frame.map_err(|source| Error::Frame { during: wait.during(), source })?, fd))
    }

    /// Receives the other pieces of a datum of exactly `expect` bytes, whose first one is at hand.
    fn assemble(
        &mut self,
        mut data: Vec<u8>,
        request: &Request<'_>,
        wait: &Wait<'_>,
    ) -> Result<Vec<u8>, Error> {
        let (expect, seq) = (request.expect, request.head.seq);
        while data.len() < expect {
            let (frame, fd) = self.receive(wait)?;
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
fn refused(frame: &Frame<'_>, wait: &Wait<'_>) -> Result<(), Error> {
    if frame.kind != Kind::Refuse {
        return Ok(());
    }
    Err(Error::Refused {
        during: wait.during(),
        reason: String::from_utf8_lossy(frame.payload).into_owned(),
    })
}

fn unexpected(frame: &Frame<'_>, with_fd: bool, wait: &Wait<'_>) -> Error {
    let Frame { kind, seq, total, offset, .. } = frame;
    let with = if with_fd { "with" } else { "without" };
    wait.protocol(format!(
        "unexpected {kind:?} frame {with} descriptor: call {seq}, {} bytes at {offset} of {total}",
        frame.payload.len()
    ))
}

fn map_result(fd: &OwnedFd, len: usize, wait: &Wait<'_>) -> Result<Reply, Error> {
    let os = Error::os("map the result of an exchange");
    if !memfd::is_frozen(fd).map_err(&os)? {
        return Err(wait.protocol("a result that could still change"));
    }
    Mapping::read_only(fd, len).map(|map| Reply::Mapped(Shared::Mapped(Arc::new(map)))).map_err(os)
}

fn check_memory(fd: OwnedFd, len: usize, wait: &Wait<'_>) -> Result<Reply, Error> {
    let there = nix::sys::stat::fstat(&fd).map_err(Error::os("look at the host memory"))?.st_size;
    if usize::try_from(there) != Ok(len) {
        return Err(wait.protocol(format!("host memory of {there} bytes instead of {len}")));
    }
    Ok(Reply::Memory(fd))
}

/// An answer on the collectives.
fn published_reply(
    published: Published,
    request: &Request<'_>,
    wait: &Wait<'_>,
    page: &Arc<NodeShm>,
) -> Result<Reply, Error> {
    let Published { len, place } = published;
    if len != request.expect {
        let expect = request.expect;
        let seen = format!("a result of {len} bytes on the collectives instead of {expect}");
        return Err(wait.protocol(seen));
    }
    if request.head.kind == Kind::Barrier {
        return Ok(Reply::Release);
    }
    if len == 0 {
        return Ok(Reply::Mapped(Shared::Owned(Vec::new())));
    }
    match SlotRef::new(page, published) {
        Some(lent) => Ok(Reply::Mapped(Shared::Slot(lent))),
        None => Err(wait.protocol(format!("a result at place {place} of the collectives"))),
    }
}

impl Channel for Socket {
    fn call(&mut self, request: &Request<'_>, page: &Arc<NodeShm>) -> Result<Reply, Error> {
        let wait = Wait::new(call_name(request.head.kind), self.bounds.call).with(page);
        // The first rank of a host without an agent serves no collectives.
        if let Some(collectives) = page.collectives().filter(|_| self.fence.is_none()) {
            if request.fits_shm() {
                return self.on_shm(request, collectives, &wait, page);
            }
            collectives.apart(request.head.seq);
        }
        for frame in request.frames() {
            self.send(&frame, &wait)?;
        }
        if self.fence.is_some() {
            self.fences(&wait)?;
        }
        self.reply(request, &wait)
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
        wait: &Wait<'_>,
        page: &Arc<NodeShm>,
    ) -> Result<Reply, Error> {
        let (seq, rank) = (request.head.seq, self.rank);
        if request.frames().any(|frame| collectives.post(self.local, &frame)) {
            self.send(&Frame::bare(Kind::Posted, seq, rank.0, 0), wait)?;
        }
        loop {
            let bell = collectives.bell();
            if let Some(published) = collectives.answer(seq) {
                return published_reply(published, request, wait, page);
            }
            if self.mail != collectives.mail() {
                self.mail = collectives.mail();
                if self.has_packet(wait)? {
                    return self.reply(request, wait);
                }
            }
            collectives.sleep(bell, wait.slice()?);
            // A whole slice has passed: the agent may be gone.
            if bell == collectives.bell() && self.has_packet(wait)? {
                return self.reply(request, wait);
            }
        }
    }

    /// Whether the agent has sent a packet.
    fn has_packet(&self, wait: &Wait<'_>) -> Result<bool, Error> {
        match sys::peek_packet(self.socket.as_fd(), &mut [0; HEADER_LEN]) {
            Some(0) => Err(wait.lost()),
            seen => Ok(seen.is_some()),
        }
    }

    /// The agent's answer in packets.
    fn reply(&mut self, request: &Request<'_>, wait: &Wait<'_>) -> Result<Reply, Error> {
        let (head, expect) = (request.head, request.expect);
        let (frame, fd) = self.receive(wait)?;
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
                self.assemble(first, request, wait).map(Reply::Data)
            }
            (_, fd) => Err(unexpected(&frame, fd.is_some(), wait)),
        }
    }

    /// The farewell to the agent.
    fn part(&mut self, code: i32, page: &NodeShm) -> Result<(), Error> {
        let wait = Wait::new("fini", self.bounds.fini).with(page);
        let frame = Frame::bare(Kind::Fini, 0, self.rank.0, code.cast_unsigned());
        self.send(&frame, &wait)?;
        loop {
            match self.receive(&wait) {
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
