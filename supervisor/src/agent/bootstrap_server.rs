//! Serves the bootstrap calls of this host's ranks: one packet socket per rank, the matching of
//! collective calls by [`bootstrap::collective`], the node memory.
//!
//! Nothing that a rank sends can harm more than its own job: every frame is checked, sends never
//! block (each rank has a queue), and at most [`BATCH`] frames of one rank are served before the
//! others get their turn.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use bootstrap::Rank;
use bootstrap::collective::{
    Action as Answer, Branch, Bytes, Collective, Down, Node, ProtocolError, To, Up,
};
use bootstrap::frame::{Frame, HEADER_LEN, Kind, MAX_PAYLOAD};
use bootstrap::node_shm::{Ack, Activity, ExitDecision, NodeShm, NodeShmSpec, ShmCollectives};
use bootstrap::sys::send_packet;
use nix::sys::socket::sockopt::PassCred;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recv, recvmsg, setsockopt};
use nix::unistd::Pid;

use super::host_ranks::HostRanks;
use super::machine::RankEvent;
use crate::event_loop::{Poller, Token};

/// Frames served of one rank in a row.
const BATCH: usize = 32;

enum Item {
    /// One packet, with a descriptor or without.
    Packet(Vec<u8>, Option<Rc<OwnedFd>>),
    /// A datum that several ranks may share, from this piece on.
    Data { bytes: Bytes, seq: u32, piece: usize },
}

#[derive(Default)]
struct Peer {
    socket: Option<OwnedFd>,
    queue: VecDeque<Item>,
    watched: bool,
    hello: bool,
    /// Broke the protocol: what comes further is read and dropped.
    refused: bool,
    pid: i32,
    /// Number of the last call that it has posted in shared memory.
    posted: u32,
    /// The process that said `Hello`, when it is not the rank's own (a program behind a shell).
    speaker: Option<i32>,
    /// Who has sent the packet that is being served, as the kernel says; before `Hello` alone.
    sender: Option<i32>,
}

/// The bootstrap server of one host. Ranks are addressed by their local numbers.
pub(crate) struct BootstrapServer {
    pub(super) poller: Poller,
    pub(crate) share: HostRanks,
    /// What ranks did, in order, until the owner takes it.
    pub(crate) events: Vec<RankEvent>,
    peers: Vec<Peer>,
    page: Option<NodeShm>,
    page_fd: Option<Rc<OwnedFd>>,
    /// Its messages are to be sent after anything that may have served a call.
    pub(crate) calls: Collective,
    buffer: Vec<u8>,
    /// Packets went to ranks that may wait in shared memory.
    mail: bool,
    /// Number of the call over sockets before which the collectives were read last.
    woken: u32,
}

/// Whether it went; an error: the rank takes nothing any more.
fn send(
    socket: BorrowedFd<'_>,
    header: &[u8],
    payload: &[u8],
    fd: Option<&OwnedFd>,
) -> io::Result<bool> {
    match send_packet(socket, header, payload, fd.map(AsFd::as_fd)) {
        Ok(()) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Takes a packet, and who has sent it where the socket tells that.
fn receive_first(socket: &OwnedFd, buffer: &mut [u8]) -> nix::Result<(usize, Option<i32>)> {
    let mut space = nix::cmsg_space!(UnixCredentials);
    let mut iov = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags)?;
    let sender = message.cmsgs()?.find_map(|one| match one {
        ControlMessageOwned::ScmCredentials(sender) => Some(sender.pid()),
        _ => None,
    });
    Ok((message.bytes, sender))
}

impl Item {
    fn bare(frame: Frame<'_>, fd: Option<Rc<OwnedFd>>) -> Self {
        Self::Packet(frame.header().to_vec(), fd)
    }

    /// Sends as much as goes now; whether that was all.
    fn send(&mut self, socket: BorrowedFd<'_>, rank: u32) -> io::Result<bool> {
        match self {
            Self::Packet(bytes, fd) => send(socket, bytes, &[], fd.as_deref()),
            Self::Data { bytes, seq, piece } => {
                let head = Frame::bare(Kind::Data, *seq, rank, 0);
                for frame in Frame::pieces(head, bytes).skip(*piece) {
                    if !send(socket, &frame.header(), frame.payload, None)? {
                        return Ok(false);
                    }
                    *piece += 1;
                }
                Ok(true)
            }
        }
    }
}

impl BootstrapServer {
    /// A server for the ranks of `share`, whose calls are matched by `calls`.
    pub(crate) fn new(poller: &Poller, share: HostRanks, calls: Collective) -> Self {
        Self {
            poller: poller.clone(),
            peers: Vec::with_capacity(share.ranks.len()),
            share,
            events: Vec::new(),
            page: None,
            page_fd: None,
            calls,
            buffer: vec![0; HEADER_LEN + MAX_PAYLOAD + 1],
            mail: false,
            woken: 0,
        }
    }

    /// As a node of the tree of hosts, with one branch for each link down.
    pub(crate) fn node(
        poller: &Poller,
        share: HostRanks,
        branches: Vec<Branch>,
    ) -> Result<Self, ProtocolError> {
        let (size, host, ranks) = (share.size(), share.host, share.ranks.clone());
        let calls = Collective::node(Node { size, host, ranks, branches, parent: true })?;
        Ok(Self::new(poller, share, calls))
    }

    pub(crate) fn message_from_parent(&mut self, down: Down) -> Result<(), ProtocolError> {
        let answers = self.calls.from_parent(down)?;
        self.answer(answers);
        Ok(())
    }

    /// A message of a child, by its index among the branches.
    pub(crate) fn message_from_child(&mut self, index: usize, up: Up) -> Result<(), ProtocolError> {
        let answers = self.calls.from_child(index, up)?;
        self.answer(answers);
        Ok(())
    }

    pub(crate) fn lost(&mut self, index: usize) {
        let answers = self.calls.lost(index);
        self.answer(answers);
    }

    /// Takes over the socket of the next rank (ranks come in order).
    pub(crate) fn adopt(&mut self, pid: i32, socket: OwnedFd) -> io::Result<()> {
        let rank = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        self.poller.add_read(&socket, Token::Socket(rank))?;
        if let Some(page) = &self.page {
            page.slot(rank).set_pid(pid);
        }
        self.peers.push(Peer { socket: Some(socket), pid, ..Peer::default() });
        Ok(())
    }

    /// Puts the decision into the node memory, when any rank has it.
    pub(crate) fn publish_exit(&self, code: i32, cause: Option<u32>) {
        if let Some(page) = &self.page {
            page.decide(ExitDecision { code, cause: cause.map(Rank) });
        }
    }

    /// The process that acts for `rank`: the one that said `Hello`, else the one that was started.
    /// What a rank shows of itself in the node memory.
    pub(crate) fn activity(&self, rank: u32) -> Activity {
        let page = self.page.as_ref().filter(|page| rank < page.locals());
        page.map(|page| page.slot(rank).activity()).unwrap_or_default()
    }

    pub(crate) fn speaker(&self, rank: u32) -> Option<i32> {
        self.peers.get(rank as usize).map(|peer| peer.speaker.unwrap_or(peer.pid))
    }

    /// Whom SIGQUIT must reach so that `rank` runs its handler: a process, or a group (negative).
    /// `None` when the rank has seen the decision itself.
    pub(crate) fn claim_quit(&self, rank: u32) -> Option<i32> {
        let peer = self.peers.get(rank as usize)?;
        if let Some(page) = self.page.as_ref().filter(|_| peer.hello)
            && !page.slot(rank).claim_ack(Ack::Agent)
        {
            return None;
        }
        let inside = |pid: &i32| {
            nix::unistd::getpgid(Some(Pid::from_raw(*pid)))
                .is_ok_and(|group| group.as_raw() == peer.pid)
        };
        Some(peer.speaker.filter(inside).unwrap_or(-peer.pid))
    }

    /// Serves what a rank has sent; `true` when frames may be left.
    pub(crate) fn readable(&mut self, rank: u32) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut more = true;
        for _ in 0..BATCH {
            let Some(socket) = self.peers.get(rank as usize).and_then(|p| p.socket.as_ref()) else {
                more = false;
                break;
            };
            let hello = self.peers[rank as usize].hello;
            let received = match hello {
                true => recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT),
                false => receive_first(socket, &mut buffer).map(|(count, sender)| {
                    self.peers[rank as usize].sender = sender;
                    count
                }),
            };
            match received {
                Ok(0) => self.hang_up(rank),
                Ok(count) => self.packet(rank, &buffer[..count.min(buffer.len())]),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => {
                    more = false;
                    break;
                }
                Err(_) => self.hang_up(rank),
            }
        }
        self.buffer = buffer;
        more
    }

    /// Serves everything that a rank has sent before it ended.
    pub(crate) fn drain(&mut self, rank: u32) {
        // A socket holds some hundred frames; the bound is for a surviving child that keeps
        // sending.
        for _ in 0..64 {
            if !self.readable(rank) {
                break;
            }
        }
        // A program behind a shell may outlive it, but the rank is over.
        self.hang_up(rank);
    }

    /// Closes a rank's socket, which takes it out of the epoll set, too: nobody else has this end.
    fn hang_up(&mut self, rank: u32) {
        if let Some(peer) = self.peers.get_mut(rank as usize) {
            peer.socket = None;
            peer.queue.clear();
        }
    }

    /// The frame in a packet of `rank`, which it may send now.
    fn frame<'a>(&self, rank: u32, hello: bool, packet: &'a [u8]) -> Result<Frame<'a>, String> {
        let frame =
            Frame::from_packet(packet, self.share.size()).map_err(|error| error.to_string())?;
        let kind = frame.kind;
        if frame.rank != rank {
            return Err(format!(
                "rank {rank} sent a {kind:?} frame in the name of rank {}",
                frame.rank
            ));
        }
        if !hello && kind != Kind::Hello {
            return Err(format!("rank {rank} sent a {kind:?} frame before Hello"));
        }
        Ok(frame)
    }

    fn packet(&mut self, local: u32, packet: &[u8]) {
        let Peer { refused: false, hello, .. } = self.peers[local as usize] else { return };
        let rank = self.share.rank(local);
        let frame = match self.frame(rank, hello, packet) {
            Ok(frame) => frame,
            Err(text) => return self.broken(local, &text),
        };
        let code = frame.arg.cast_signed();
        match frame.kind {
            Kind::Hello if hello => {
                let text =
                    "this rank has opened the bootstrap before; only one process of a rank can";
                self.refuse(local, 0, text);
            }
            Kind::Hello => self.hello(local, code),
            Kind::Exiting => self.events.push(RankEvent::Exiting { rank, code, path: frame.extra }),
            Kind::Fini => {
                self.events.push(RankEvent::Fini { rank, code });
                // The exit path may repeat the farewell of a finished service: once is enough.
                let answers = self.calls.fini(Rank(rank)).unwrap_or_default();
                self.answer(answers);
            }
            Kind::Abort => self.events.push(RankEvent::Abort { rank, code }),
            Kind::Posted => self.take_posts(),
            _ => {
                // Another rank may wait in shared memory in a call that this one does not fit.
                // Whoever posts in this call from now on sees that it was begun over a socket, and
                // says so.
                if std::mem::replace(&mut self.woken, frame.seq) != frame.seq {
                    self.take_posts();
                }
                self.call(local, &frame);
            }
        }
    }

    fn call(&mut self, local: u32, frame: &Frame<'_>) {
        match self.calls.handle(Rank(self.share.rank(local)), frame) {
            Ok(answers) => self.answer(answers),
            Err(error) => self.broken(local, &error.to_string()),
        }
    }

    /// Serves what ranks have posted in shared memory.
    fn take_posts(&mut self) {
        let mut packet = [0; ShmCollectives::POST];
        for local in 0..self.share.count() {
            let Some(peer) = self.peers.get_mut(local as usize).filter(|peer| !peer.refused) else {
                continue;
            };
            let collectives = self.page.as_ref().and_then(NodeShm::collectives);
            let taken = collectives
                .and_then(|collectives| collectives.take(local, peer.posted, &mut packet));
            let Some((seq, len)) = taken else { continue };
            peer.posted = seq;
            match self.posted(self.share.rank(local), seq, &packet[..len]) {
                Ok(frame) => self.call(local, &frame),
                Err(text) => self.broken(local, &text),
            }
        }
    }

    /// The frame that `rank` has posted as call `seq`.
    fn posted<'a>(&self, rank: u32, seq: u32, packet: &'a [u8]) -> Result<Frame<'a>, String> {
        let size = self.share.size();
        let frame = Frame::from_packet(packet, size).map_err(|error| error.to_string())?;
        let Frame { kind, rank: name, .. } = frame;
        if !matches!(kind, Kind::Barrier | Kind::Exchange) || (frame.seq, name) != (seq, rank) {
            return Err(format!(
                "rank {rank} posted a {kind:?} frame of rank {name} as call {seq}, which does not belong there"
            ));
        }
        Ok(frame)
    }

    fn hello(&mut self, local: u32, pid: i32) {
        let fd = match self.page() {
            Ok(fd) => fd,
            Err(text) => return self.broken(local, &text),
        };
        let peer = &mut self.peers[local as usize];
        peer.hello = true;
        // In a container a process has another number than here.
        let pid = peer.sender.filter(|sender| *sender > 1).unwrap_or(pid);
        if let Some(socket) = &peer.socket {
            // What is left on costs a little time, no more.
            let _ = setsockopt(socket, PassCred, &false);
        }
        peer.speaker = (pid > 1 && pid != peer.pid).then_some(pid);
        let rank = self.share.rank(local);
        let welcome = Frame::bare(Kind::Welcome, 0, rank, self.share.size());
        self.send(local, Item::bare(welcome, Some(fd)));
        self.events.push(RankEvent::Hello { rank });
    }

    /// The node memory, made when the first rank asks for it: plain programs never need it.
    fn page(&mut self) -> Result<Rc<OwnedFd>, String> {
        if let Some(fd) = &self.page_fd {
            return Ok(Rc::clone(fd));
        }
        let HostRanks { host, hosts, ranks, host_of, .. } = &self.share;
        let spec = NodeShmSpec { host: *host, hosts: *hosts, local_ranks: ranks, host_of };
        let page = NodeShm::create_with_collectives(&spec).map_err(|error| error.to_string())?;
        for (local, peer) in (0..).zip(&self.peers) {
            page.slot(local).set_pid(peer.pid);
        }
        let fd = page
            .fd()
            .try_clone_to_owned()
            .map_err(|error| format!("cannot pass on the node's shared memory: {error}"))?;
        self.page = Some(page);
        Ok(Rc::clone(self.page_fd.insert(Rc::new(fd))))
    }

    fn broken(&mut self, local: u32, text: &str) {
        self.refuse(local, 0, text);
        self.announce_mail();
        self.peers[local as usize].refused = true;
        let rank = self.share.rank(local);
        self.events.push(RankEvent::Protocol { rank, text: text.to_owned() });
    }

    fn refuse(&mut self, local: u32, seq: u32, reason: &str) {
        let frame = Frame::bare(Kind::Refuse, seq, self.share.rank(local), 0);
        let mut packet = Vec::new();
        frame.with(reason.as_bytes()).encode(&mut packet);
        self.send(local, Item::Packet(packet, None));
        self.mail = true;
    }

    fn answer(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            match answer {
                Answer::Release { to: To::Rank(rank), seq } => {
                    let frame = Frame::bare(Kind::Release, seq, rank.0, 0);
                    self.send_to(rank, Item::bare(frame, None));
                }
                Answer::Release { to: To::Host(_), seq } => {
                    if !self.publish(seq, &[]) {
                        self.everybody(Frame::bare(Kind::Release, seq, 0, 0), None);
                    }
                }
                Answer::Mapped { seq, pieces, .. } => {
                    // What comes in several pieces is too long for the node memory.
                    let published = match &pieces[..] {
                        [bytes] => self.publish(seq, bytes),
                        _ => false,
                    };
                    if !published {
                        let made = bootstrap::memfd::result_in_pieces(&pieces);
                        self.memory(Kind::Mapped, seq, made.map(|(fd, len)| (fd, len as u64)));
                    }
                }
                Answer::HostMemory { seq, len, .. } => {
                    let made = bootstrap::memfd::zeroed(len);
                    self.memory(Kind::HostMemory, seq, made.map(|fd| (fd, len)));
                }
                Answer::Data { to, seq, bytes } => {
                    self.send_to(to, Item::Data { bytes, seq, piece: 0 });
                }
                Answer::Refuse { to, seq, reason } => {
                    if let Some(local) = self.share.local(to.0) {
                        self.refuse(local, seq, &reason);
                    }
                }
            }
        }
        self.announce_mail();
    }

    /// Answers a call in shared memory, when every rank made it there.
    fn publish(&self, seq: u32, bytes: &[u8]) -> bool {
        let Some(collectives) = self.page.as_ref().and_then(NodeShm::collectives) else {
            return false;
        };
        let posted = seq != 0 && self.peers.iter().all(|peer| peer.posted == seq);
        posted && collectives.publish(seq, bytes)
    }

    /// Ranks that wait in shared memory do not look at their sockets unless they are told to.
    fn announce_mail(&mut self) {
        if std::mem::take(&mut self.mail)
            && let Some(collectives) = self.page.as_ref().and_then(NodeShm::collectives)
        {
            collectives.announce_mail();
        }
    }

    fn memory(&mut self, kind: Kind, seq: u32, made: io::Result<(OwnedFd, u64)>) {
        match made {
            Ok((fd, len)) => {
                let frame = Frame::bare(kind, seq, 0, 0).with_len(len);
                self.everybody(frame, Some(&Rc::new(fd)));
            }
            Err(error) => {
                let reason = format!("cannot make shared memory: {error}");
                let answers = self.calls.refuse_all(&reason);
                self.answer(answers);
            }
        }
    }

    fn everybody(&mut self, head: Frame<'_>, fd: Option<&Rc<OwnedFd>>) {
        self.mail = true;
        for local in 0..self.share.count() {
            let rank = self.share.rank(local);
            self.send(local, Item::bare(Frame { rank, ..head }, fd.cloned()));
        }
    }

    fn send_to(&mut self, rank: Rank, item: Item) {
        if let Some(local) = self.share.local(rank.0) {
            self.send(local, item);
        }
    }

    fn send(&mut self, rank: u32, item: Item) {
        if let Some(peer) = self.peers.get_mut(rank as usize)
            && peer.socket.is_some()
        {
            peer.queue.push_back(item);
            if !peer.watched {
                self.writable(rank);
            }
        }
    }

    /// Sends what waits for a rank.
    pub(crate) fn writable(&mut self, rank: u32) {
        let Some(peer) = self.peers.get_mut(rank as usize) else { return };
        let Some(socket) = &peer.socket else { return };
        let name = self.share.rank(rank);
        while let Some(item) = peer.queue.front_mut() {
            match item.send(socket.as_fd(), name) {
                Ok(true) => drop(peer.queue.pop_front()),
                Ok(false) => break,
                // Its last frames may still be unread: the reading side notices the end.
                Err(_) => peer.queue.clear(),
            }
        }
        let want = !peer.queue.is_empty();
        if want != peer.watched && self.poller.also_write(socket, Token::Socket(rank), want).is_ok()
        {
            peer.watched = want;
        }
    }
}

#[cfg(test)]
mod tests;
