//! The lowest rank of a host answers the calls of all its ranks, from within its own calls.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::poll::PollFlags;

use super::finalize::Finalization;
use super::join::ProcessManagerBounds;
use super::manager::{ProcessManager, ProcessManagerError};
use super::value::KeyValueSpace;
use bootstrap::client::{Answer, Channel, Reply, Request};
use bootstrap::collective::{
    Action, Branch, Collective, Down, Node, To, TreeMessage, Up, ranks_by_host,
};
use bootstrap::frame::{Frame, HEADER_LEN, Kind, MAX_PAYLOAD};
use bootstrap::memfd;
use bootstrap::node_shm::NodeShm;
use bootstrap::service::{Error, ExitNotifier, Finalizer, HostId, Rank, Shared, call_name};
use bootstrap::sys::{self, Mapping};
use bootstrap::wait::Wait;

/// What the system refuses when it does.
const WAITING: &str = "wait for the ranks of this host";

/// Another rank of this host.
struct Member {
    rank: Rank,
    socket: OwnedFd,
    /// Said its farewell here.
    left: bool,
    /// Its socket is closed.
    closed: bool,
}

/// The other hosts of the job.
struct Others {
    /// The root of the tree of hosts; every leader has one, and all of them see the same messages.
    root: Collective,
    /// First rank of every host.
    leaders: Vec<Rank>,
    space: KeyValueSpace,
    /// Number of the next exchange of messages.
    round: u32,
}

pub(super) struct Leader {
    manager: Box<dyn ProcessManager>,
    page: Arc<NodeShm>,
    host: HostId,
    host_name: String,
    rank: Rank,
    machine: Collective,
    others: Option<Others>,
    members: Vec<Member>,
    inbox: VecDeque<Answer>,
    buffer: Vec<u8>,
    bounds: ProcessManagerBounds,
}

impl Leader {
    pub(super) fn new(
        manager: Box<dyn ProcessManager>,
        host_of: &[HostId],
        host_name: String,
        page: Arc<NodeShm>,
        members: Vec<(Rank, OwnedFd)>,
        bounds: ProcessManagerBounds,
    ) -> Result<Self, Error> {
        let info = manager.job_info();
        let (rank, size) = (info.rank, info.size);
        let host = host_of.get(rank.0 as usize).copied().unwrap_or(HostId(0));
        let hosts = ranks_by_host(host_of);
        let (ranks, parent) = (hosts[host.0 as usize].clone(), hosts.len() > 1);
        let node = |host, ranks, branches, parent| {
            Collective::node(Node { size, host, ranks, branches, parent })
                .map_err(|error| Error::Protocol { during: "start", seen: error.to_string() })
        };
        let machine = node(host, ranks, Vec::new(), parent)?;
        let others = if parent {
            let leaders = hosts.iter().filter_map(|ranks| ranks.first().copied()).collect();
            let branch = |(host, ranks)| Branch { host: HostId(host), ranks };
            let branches = (0..).zip(hosts).map(branch).collect();
            let root = node(HostId(0), Vec::new(), branches, false)?;
            Some(Others { root, leaders, space: KeyValueSpace::new(manager.as_ref()), round: 0 })
        } else {
            None
        };
        let member = |(rank, socket)| Member { rank, socket, left: false, closed: false };
        let members = members.into_iter().map(member).collect();
        let (inbox, buffer) = (VecDeque::new(), Vec::new());
        Ok(Self {
            manager,
            page,
            host,
            host_name,
            rank,
            machine,
            others,
            members,
            inbox,
            buffer,
            bounds,
        })
    }

    /// Gives one frame of a rank of this host to the machine.
    fn handle(&mut self, from: Rank, frame: &Frame<'_>, wait: &Wait<'_>) -> Result<(), Error> {
        let actions = self.machine.handle(from, frame).map_err(|error| wait.protocol(error))?;
        self.settle(actions, wait)
    }

    /// Carries out what the machine asks for. A refusal that other hosts must hear goes there
    /// first: the fence needs the ranks that it is about to end.
    fn settle(&mut self, actions: Vec<Action>, wait: &Wait<'_>) -> Result<(), Error> {
        if self.others.is_none() || !self.machine.is_refused() {
            self.carry_out(actions, wait)?;
            return self.rounds(wait);
        }
        let outcome = self.rounds(wait);
        self.carry_out(actions, wait)?;
        match outcome {
            Err(Error::Deadline { .. }) => Ok(()),
            other => other,
        }
    }

    /// Exchanges messages with the other hosts while there are some.
    fn rounds(&mut self, wait: &Wait<'_>) -> Result<(), Error> {
        loop {
            let mut messages = Vec::new();
            while let Some(message) = self.machine.poll_transmit() {
                // Farewells are between the ranks of a host here.
                if let TreeMessage::Up(message @ (Up::Contribution(_) | Up::Refuse(_))) = message {
                    messages.push(message);
                }
            }
            if messages.is_empty() || self.others.is_none() {
                return Ok(());
            }
            let actions = self.round(&messages, wait)?;
            self.carry_out(actions, wait)?;
        }
    }

    /// One exchange of messages: one datum and one fence.
    fn round(&mut self, messages: &[Up], wait: &Wait<'_>) -> Result<Vec<Action>, Error> {
        let Some(others) = &mut self.others else { return Ok(Vec::new()) };
        let bytes = postcard::to_allocvec(messages).map_err(|error| wait.protocol(error))?;
        others.round += 1;
        let purpose = format!("r{}x", others.round);
        others.space.publish(self.manager.as_mut(), &purpose, self.rank.0, &bytes)?;
        self.fence(messages, wait)?;
        let Some(others) = &mut self.others else { return Ok(Vec::new()) };
        let mut actions = Vec::new();
        for (index, leader) in others.leaders.clone().into_iter().enumerate() {
            let theirs = if leader == self.rank {
                messages.to_vec()
            } else {
                let bytes = others.space.read(self.manager.as_mut(), &purpose, leader)?;
                postcard::from_bytes(&bytes).map_err(|error| wait.protocol(error))?
            };
            for message in theirs {
                others.root.from_child(index, message).map_err(|error| wait.protocol(error))?;
            }
            wait.check()?;
        }
        let mut answers: Vec<Down> = Vec::new();
        while let Some(message) = others.root.poll_transmit() {
            if let TreeMessage::Down { to, message } = message
                && to.contains(&(self.host.0 as usize))
            {
                answers.push(message);
            }
        }
        for answer in answers {
            actions.extend(self.machine.from_parent(answer).map_err(|error| wait.protocol(error))?);
        }
        Ok(actions)
    }

    /// All ranks of this host enter the process manager's fence.
    fn fence(&mut self, messages: &[Up], wait: &Wait<'_>) -> Result<(), Error> {
        for index in 0..self.members.len() {
            let member = &self.members[index];
            if !member.closed {
                let frame = Frame::bare(Kind::Barrier, 0, member.rank.0, 0);
                self.send(index, &frame, None, wait)?;
            }
        }
        let refusal = messages.iter().any(|message| matches!(message, Up::Refuse(_)));
        let page = Arc::clone(&self.page);
        let bounded = Wait::new(wait.during(), self.bounds.refusal).with(&page);
        let wait = if refusal { &bounded } else { wait };
        let finalization = self.manager.finalization();
        let (members, host) = (&mut self.members, &self.host_name);
        let mut watch = || {
            wait.slice()?;
            check_members(finalization, members, host, &page)
        };
        self.manager.fence(&mut watch)
    }

    fn carry_out(&mut self, actions: Vec<Action>, wait: &Wait<'_>) -> Result<(), Error> {
        actions.into_iter().try_for_each(|action| self.carry_out_one(action, wait))
    }

    fn carry_out_one(&mut self, action: Action, wait: &Wait<'_>) -> Result<(), Error> {
        match action {
            // Farewells are counted by this module.
            Action::Release { seq: 0, .. } => {}
            Action::Release { to: To::Rank(to), seq } => {
                self.give(to, &Frame::bare(Kind::Release, seq, to.0, 0), wait)?;
            }
            Action::Release { to: To::Host(_), seq } => {
                self.tell_all(&Frame::bare(Kind::Release, seq, 0, 0), None, wait)?;
                self.answer(seq, Ok(Reply::Release));
            }
            Action::Mapped { seq, pieces, .. } => {
                let (fd, len) = memfd::result_in_pieces(&pieces)
                    .map_err(Error::os("make the result of an exchange"))?;
                let frame = Frame::bare(Kind::Mapped, seq, 0, 0).with_len(len as u64);
                self.tell_all(&frame, Some(&fd), wait)?;
                let map = Mapping::read_only(&fd, len)
                    .map_err(Error::os("map the result of an exchange"))?;
                self.answer(seq, Ok(Reply::Mapped(Shared::Mapped(Arc::new(map)))));
            }
            Action::Data { to, seq, bytes } if to == self.rank => {
                self.answer(seq, Ok(Reply::Data(bytes.to_vec())));
            }
            Action::Data { to, seq, bytes } => {
                for frame in Frame::pieces(Frame::bare(Kind::Data, seq, to.0, 0), &bytes) {
                    self.give(to, &frame, wait)?;
                }
            }
            Action::HostMemory { seq, len, .. } => {
                let fd = memfd::zeroed(len).map_err(Error::os("make host memory"))?;
                let frame = Frame::bare(Kind::HostMemory, seq, 0, 0).with_len(len);
                self.tell_all(&frame, Some(&fd), wait)?;
                self.answer(seq, Ok(Reply::Memory(fd)));
            }
            Action::Refuse { to, seq, reason } if to == self.rank => self.answer(seq, Err(reason)),
            Action::Refuse { to, seq, reason } => {
                let frame = Frame::bare(Kind::Refuse, seq, to.0, 0);
                self.give(to, &frame.with(reason.as_bytes()), wait)?;
            }
        }
        Ok(())
    }

    /// To this rank itself.
    fn answer(&mut self, seq: u32, reply: Result<Reply, Arc<str>>) {
        self.inbox.push_back(Answer { seq, reply });
    }

    fn tell_all(
        &mut self,
        frame: &Frame<'_>,
        fd: Option<&OwnedFd>,
        wait: &Wait<'_>,
    ) -> Result<(), Error> {
        for index in 0..self.members.len() {
            let rank = self.members[index].rank.0;
            self.send(index, &Frame { rank, ..*frame }, fd, wait)?;
        }
        Ok(())
    }

    fn give(&mut self, to: Rank, frame: &Frame<'_>, wait: &Wait<'_>) -> Result<(), Error> {
        if to == self.rank {
            self.answer(frame.seq, Ok(Reply::Release));
            return Ok(());
        }
        match self.members.binary_search_by_key(&to, |member| member.rank) {
            Ok(index) => self.send(index, frame, None, wait),
            Err(_) => Err(wait.protocol(format!("an answer to rank {to} of another host"))),
        }
    }

    /// Sends one frame to a member; one that is gone needs none.
    fn send(
        &mut self,
        index: usize,
        frame: &Frame<'_>,
        fd: Option<&OwnedFd>,
        wait: &Wait<'_>,
    ) -> Result<(), Error> {
        let member = &self.members[index];
        if member.closed {
            return Ok(());
        }
        loop {
            let socket = member.socket.as_fd();
            let fd = fd.map(AsFd::as_fd);
            match sys::send_packet(socket, &frame.header(), frame.payload, fd) {
                Ok(()) => return Ok(()),
                Err(source) => match source.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        let slice = wait.slice()?;
                        sys::ready(&[socket], PollFlags::POLLOUT, slice)
                            .map_err(Error::os(WAITING))?;
                    }
                    // Reading tells how it left.
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => return Ok(()),
                    _ => return Err(Error::os("send to a rank of this host")(source)),
                },
            }
        }
    }

    /// Waits for one slice and takes one frame of each member that has one.
    fn listen(&mut self, wait: &Wait<'_>) -> Result<(), Error> {
        let slice = wait.slice()?;
        let open: Vec<usize> =
            (0..self.members.len()).filter(|index| !self.members[*index].closed).collect();
        let sockets: Vec<_> =
            open.iter().map(|index| self.members[*index].socket.as_fd()).collect();
        for at in sys::ready(&sockets, PollFlags::POLLIN, slice).map_err(Error::os(WAITING))? {
            self.hear(open[at], wait)?;
        }
        Ok(())
    }

    fn hear(&mut self, index: usize, wait: &Wait<'_>) -> Result<(), Error> {
        self.buffer.resize(HEADER_LEN + MAX_PAYLOAD + 1, 0);
        let during = wait.during();
        let rank = self.members[index].rank;
        let len = match sys::receive_packet(self.members[index].socket.as_fd(), &mut self.buffer) {
            Ok((len, None)) => len,
            Ok((_, Some(_))) => {
                return Err(wait.protocol(format!("a descriptor from rank {rank}")));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => return Ok(()),
                io::ErrorKind::ConnectionReset => 0,
                _ => return Err(Error::os("receive from a rank of this host")(error)),
            },
        };
        if len == 0 {
            self.members[index].closed = true;
            let gone = self.members[index].left || has_left(&self.page, rank);
            return if gone {
                self.left(index, wait)
            } else {
                Err(died(self.manager.finalization(), &self.page, rank, &self.host_name))
            };
        }
        let buffer = std::mem::take(&mut self.buffer);
        let frame = Frame::from_packet(&buffer[..len], self.machine.size())
            .map_err(|source| Error::Frame { during, source })?;
        let outcome = match frame.kind {
            Kind::Fini => self.left(index, wait),
            Kind::Exiting | Kind::Abort => Ok(()),
            _ => self.handle(rank, &frame, wait),
        };
        self.buffer = buffer;
        outcome
    }

    /// A member has said its farewell.
    fn left(&mut self, index: usize, wait: &Wait<'_>) -> Result<(), Error> {
        let member = &mut self.members[index];
        if std::mem::replace(&mut member.left, true) {
            return Ok(());
        }
        let rank = member.rank;
        self.depart(rank, wait)
    }

    fn depart(&mut self, rank: Rank, wait: &Wait<'_>) -> Result<(), Error> {
        let actions = self.machine.fini(rank).map_err(|error| wait.protocol(error))?;
        self.carry_out(actions, wait)?;
        if let Some(reason) = self.machine.stuck() {
            let actions = self.machine.refuse_all(&reason);
            self.settle(actions, wait)?;
        }
        Ok(())
    }
}

fn has_left(page: &NodeShm, rank: Rank) -> bool {
    page.local_of(rank).is_some_and(|local| page.slot(local).has_left())
}

/// A rank of this host ended without farewell: that is the end of the job.
fn died(finalization: &Finalization, page: &NodeShm, rank: Rank, host: &str) -> Error {
    finalization.died(page, rank);
    ProcessManagerError::Died { rank, host: host.to_owned() }.into()
}

/// Whether a member died, while this rank waits for something else. Reads nothing: its last words
/// may be in the socket.
fn check_members(
    finalization: &Finalization,
    members: &mut [Member],
    host: &str,
    page: &NodeShm,
) -> Result<(), Error> {
    for member in members.iter_mut().filter(|member| !member.closed && !member.left) {
        let mut head = [0; HEADER_LEN];
        let ended = sys::peek_packet(member.socket.as_fd(), &mut head) == Some(0);
        if ended && !has_left(page, member.rank) {
            member.closed = true;
            return Err(died(finalization, page, member.rank, host));
        }
    }
    Ok(())
}

impl Channel for Leader {
    fn call(&mut self, request: &Request<'_>, page: &Arc<NodeShm>) -> Result<Reply, Error> {
        let during = call_name(request.head.kind);
        let wait = Wait::new(during, self.bounds.services.call).with(page);
        for frame in request.frames() {
            self.handle(self.rank, &frame, &wait)?;
        }
        loop {
            if let Some(answer) = self.inbox.pop_front() {
                return answer.to_call(request.head.seq, during);
            }
            self.listen(&wait)?;
        }
    }

    /// The farewell is between the ranks of a host; then each takes its leave of the process
    /// manager.
    fn fini(&mut self, code: i32, page: &NodeShm) -> Result<(), Error> {
        let wait = Wait::new("fini", self.bounds.services.fini).with(page);
        self.depart(self.rank, &wait)?;
        while self.members.iter().any(|member| !member.left && !member.closed) {
            self.listen(&wait)?;
        }
        self.tell_all(&Frame::bare(Kind::Release, 0, 0, 0), None, &wait)?;
        self.manager.finalization().fini(code);
        Ok(())
    }

    fn cleanup(&mut self) {
        self.buffer = Vec::new();
    }

    fn exit_notifier(&self) -> ExitNotifier {
        ExitNotifier::finalizing(self.rank, self.manager.finalization())
    }
}
