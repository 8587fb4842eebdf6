//! A node agent reduced to the collective services: one thread, blocking sends, no ranks to
//! supervise.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a failure here is one of the test"
)]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::thread::JoinHandle;

use bootstrap::collective::{Action, Collective, To};
use bootstrap::frame::{Frame, HEADER_LEN, Kind, MAX_PAYLOAD};
use bootstrap::node_shm::{NodeShm, NodeShmSpec};
use bootstrap::wait::Bounds;
use bootstrap::{BUILD_ID, Bootstrap, HostId, Rank, memfd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};

/// A connected pair: rank's end, agent's end.
pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

/// Sends one frame; a rank that is gone is no failure of the server.
pub(crate) fn send(socket: BorrowedFd<'_>, frame: &Frame<'_>, fd: Option<BorrowedFd<'_>>) {
    let header = frame.header();
    let parts = [IoSlice::new(&header), IoSlice::new(frame.payload)];
    let numbers = fd.map(|fd| [fd.as_raw_fd()]);
    let rights = numbers.as_ref().map(|numbers| ControlMessage::ScmRights(numbers));
    let controls: Vec<_> = rights.into_iter().collect();
    let _ = sendmsg::<()>(socket.as_raw_fd(), &parts, &controls, MsgFlags::MSG_NOSIGNAL, None);
}

/// Receives one packet; empty at the end.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Vec<u8> {
    let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD];
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let len = recvmsg::<()>(socket.as_raw_fd(), &mut parts, None, MsgFlags::empty())
        .map_or(0, |m| m.bytes);
    buffer.truncate(len);
    buffer
}

struct Server {
    sockets: Vec<Option<OwnedFd>>,
    page: NodeShm,
    collective: Collective,
}

impl Server {
    fn size(&self) -> u32 {
        u32::try_from(self.sockets.len()).unwrap()
    }

    fn to(&self, rank: Rank, frame: Frame<'_>, fd: Option<BorrowedFd<'_>>) {
        if let Some(socket) = &self.sockets[rank.0 as usize] {
            send(socket.as_fd(), &Frame { rank: rank.0, ..frame }, fd);
        }
    }

    fn to_all(&self, frame: Frame<'_>, fd: Option<BorrowedFd<'_>>) {
        (0..self.size()).for_each(|rank| self.to(Rank(rank), frame, fd));
    }

    fn carry_out(&self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Release { to: To::Host(_), seq } => {
                    self.to_all(Frame::bare(Kind::Release, seq, 0, 0), None)
                }
                Action::Release { to: To::Rank(to), seq } => {
                    self.to(to, Frame::bare(Kind::Release, seq, 0, 0), None)
                }
                Action::Mapped { seq, pieces, .. } => {
                    let bytes = pieces.concat();
                    let total = u32::try_from(bytes.len()).unwrap();
                    let frame = Frame { total, ..Frame::bare(Kind::Mapped, seq, 0, 0) };
                    self.to_all(frame, Some(memfd::result(&bytes).unwrap().as_fd()));
                }
                Action::Data { to, seq, bytes } => {
                    let head = Frame::bare(Kind::Data, seq, to.0, 0);
                    Frame::pieces(head, &bytes).for_each(|frame| self.to(to, frame, None));
                }
                Action::HostMemory { seq, len, .. } => {
                    let (total, extra) = (len as u32, (len >> 32) as u32);
                    let frame = Frame { total, extra, ..Frame::bare(Kind::HostMemory, seq, 0, 0) };
                    self.to_all(frame, Some(memfd::zeroed(len).unwrap().as_fd()));
                }
                Action::Refuse { to, seq, reason } => {
                    let head = Frame::bare(Kind::Refuse, seq, to.0, 0);
                    Frame::pieces(head, reason.as_bytes())
                        .for_each(|frame| self.to(to, frame, None));
                }
            }
        }
    }

    fn take(&mut self, from: Rank, packet: &[u8]) {
        let frame = Frame::from_packet(packet, self.size()).unwrap();
        match frame.kind {
            Kind::Hello => {
                assert_eq!(frame.payload, BUILD_ID.as_bytes());
                let welcome = Frame::bare(Kind::Welcome, 0, 0, self.size());
                self.to(from, welcome, Some(self.page.fd()));
            }
            Kind::Fini => {
                let actions = self.collective.fini(from).unwrap();
                self.carry_out(actions);
            }
            Kind::Exiting | Kind::Abort => {}
            _ => {
                let actions = self.collective.handle(from, &frame).unwrap();
                self.carry_out(actions);
            }
        }
    }

    fn serve(mut self) {
        while self.sockets.iter().any(Option::is_some) {
            let ready: Vec<usize> = {
                let open =
                    || self.sockets.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)));
                let mut entries: Vec<_> =
                    open().map(|(_, s)| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
                poll(&mut entries, PollTimeout::from(10_000u16)).unwrap();
                let hot = |entry: &PollFd<'_>| entry.any().unwrap_or(false);
                open().zip(&entries).filter(|(_, entry)| hot(entry)).map(|((i, _), _)| i).collect()
            };
            assert!(!ready.is_empty(), "no rank said anything for ten seconds");
            for index in ready {
                let packet =
                    self.sockets[index].as_ref().map(|s| receive(s.as_fd())).unwrap_or_default();
                if packet.is_empty() {
                    self.sockets[index] = None;
                } else {
                    self.take(Rank(u32::try_from(index).unwrap()), &packet);
                }
            }
        }
    }
}

/// A job of `size` agent clients in this process and the thread that serves them until all are
/// gone.
pub(crate) fn job(size: u32, bounds: Bounds) -> (Vec<Box<dyn Bootstrap>>, JoinHandle<()>) {
    let ranks: Vec<Rank> = (0..size).map(Rank).collect();
    let hosts = vec![HostId(0); size as usize];
    let spec = NodeShmSpec { host: HostId(0), hosts: 1, local_ranks: &ranks, host_of: &hosts };
    let page = NodeShm::create(&spec).unwrap();
    let (theirs, ours): (Vec<_>, Vec<_>) = ranks.iter().map(|_| pair()).unzip();
    let sockets = ours.into_iter().map(Some).collect();
    let server = Server { sockets, page, collective: Collective::new(size) };
    let thread = std::thread::spawn(move || server.serve());
    let connect = |(rank, fd): (Rank, OwnedFd)| {
        bootstrap::agent::connect(fd.into_raw_fd(), rank, size, bounds).unwrap()
    };
    (ranks.into_iter().zip(theirs).map(connect).collect(), thread)
}
