use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::*;

const SIZE: u32 = 3;

/// A server whose ranks have said `Hello`, their ends of the sockets, and the page as they see it.
struct Served {
    boot: BootstrapServer,
    ranks: Vec<OwnedFd>,
    page: NodeShm,
}

fn served() -> Served {
    let host = bootstrap::HostId(0);
    let ranks = (0..SIZE).map(Rank).collect();
    let share = HostRanks { host, hosts: 1, ranks, host_of: vec![host; 3], cpus: Vec::new() };
    let mut boot = BootstrapServer::new(
        &Poller::new(std::time::Instant::now()).unwrap(),
        share,
        Collective::new(SIZE),
    );
    let mut ends = Vec::new();
    for rank in 0..SIZE {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        boot.adopt(1000, ours).unwrap();
        say(&theirs, &Frame::bare(Kind::Hello, 0, rank, 1000));
        boot.readable(rank);
        let events = std::mem::take(&mut boot.events);
        assert!(matches!(events[..], [RankEvent::Hello { .. }]), "{events:?}");
        assert_eq!(heard(&theirs).unwrap().0, Kind::Welcome);
        ends.push(theirs);
    }
    let fd = boot.page_fd.as_ref().unwrap().try_clone().unwrap();
    Served { boot, ranks: ends, page: NodeShm::open(fd).unwrap() }
}

fn say(socket: &OwnedFd, frame: &Frame<'_>) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    assert_eq!(nix::unistd::write(socket, &bytes), Ok(bytes.len()));
}

/// Kind, number and text of the next packet.
fn heard(socket: &OwnedFd) -> Option<(Kind, u32, String)> {
    let mut buffer = vec![0; HEADER_LEN + MAX_PAYLOAD];
    let len = nix::unistd::read(socket, &mut buffer).ok()?;
    let frame = Frame::from_packet(&buffer[..len], SIZE).unwrap();
    Some((frame.kind, frame.seq, String::from_utf8_lossy(frame.payload).into_owned()))
}

impl Served {
    fn collectives(&self) -> ShmCollectives<'_> {
        self.page.collectives().unwrap()
    }

    /// What happens when `rank` says that there is something in shared memory.
    fn posted(&mut self, rank: u32) -> Vec<RankEvent> {
        say(&self.ranks[rank as usize], &Frame::bare(Kind::Posted, 1, rank, 0));
        self.boot.readable(rank);
        std::mem::take(&mut self.boot.events)
    }
}

fn exchange(seq: u32, rank: u32) -> Frame<'static> {
    Frame { total: 3, payload: b"abc", ..Frame::bare(Kind::Exchange, seq, rank, 0) }
}

#[test]
fn a_malformed_post_is_refused_and_named_and_harms_nobody_else() {
    let all = Frame { total: 3, payload: b"abc", ..Frame::bare(Kind::Alltoall, 1, 1, 0) };
    let cases = [
        (exchange(1, 9), "speaks of rank 9, the job has 3 ranks"),
        (Frame { total: 2, ..exchange(1, 1) }, "payload of 3 bytes at offset 0 in a datum of 2"),
        (Frame { offset: u32::MAX, ..exchange(1, 1) }, "is out of bounds"),
        (exchange(1, 2), "rank 1 posted a Exchange frame of rank 2 as call 1"),
        (Frame::bare(Kind::Fini, 1, 1, 0), "rank 1 posted a Fini frame"),
        (Frame::bare(Kind::Posted, 1, 1, 0), "rank 1 posted a Posted frame"),
        (all, "rank 1 posted a Alltoall frame"),
        (exchange(7, 1), "7"),
    ];
    for (frame, text) in cases {
        let mut served = served();
        let _ = served.collectives().post(0, &exchange(1, 0));
        let _ = served.collectives().post(1, &frame);
        let _ = served.collectives().post(2, &exchange(1, 2));
        let mail = served.collectives().mail();
        match &served.posted(1)[..] {
            [RankEvent::Protocol { rank: 1, text: seen }] if seen.contains(text) => {}
            other => panic!("{text}: {other:?}"),
        }
        let (kind, _, reason) = heard(&served.ranks[1]).unwrap();
        assert!(kind == Kind::Refuse && reason.contains(text), "{kind:?} {reason}");
        assert_ne!(
            served.collectives().mail(),
            mail,
            "a rank that waits in shared memory is told to look"
        );
        // The others were heard, and wait for a rank that is heard no more.
        assert_eq!((served.boot.peers[0].posted, served.boot.peers[2].posted), (1, 1));
        assert!(heard(&served.ranks[0]).is_none() && heard(&served.ranks[2]).is_none());
        let _ = served.collectives().post(1, &exchange(1, 1));
        assert!(served.posted(1).is_empty() && served.collectives().answer(1).is_none());
    }
}

#[test]
fn the_board_is_looked_at_once_for_each_call_over_sockets() {
    let mut served = served();
    // Rank 0 posts, rank 1 makes another call over its socket: the first packet of that shows the
    // misfit.
    assert!(!served.collectives().post(0, &exchange(1, 0)));
    served.collectives().apart(1);
    let rows = Frame { total: 6, payload: b"abcdef", ..Frame::bare(Kind::Alltoall, 1, 1, 0) };
    say(&served.ranks[1], &rows);
    served.boot.readable(1);
    assert_eq!(served.boot.peers[0].posted, 1);
    let refused = [0, 1].map(|rank| heard(&served.ranks[rank]));
    let (kind, _, reason) = refused.into_iter().flatten().next().unwrap();
    assert!(kind == Kind::Refuse, "{kind:?}");
    assert!(reason.contains("rank 0") && reason.contains("rank 1"), "{reason}");
    // A later post in the same call says itself that it does not fit, so further packets need no
    // look.
    assert!(!served.collectives().post(2, &exchange(1, 2)), "as the first in shared memory");
    assert!(served.collectives().post(2, &Frame::bare(Kind::Barrier, 1, 2, 0)));
}
