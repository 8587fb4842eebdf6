//! The agent client against agents that lie, stall or vanish: every case is a clear error, none
//! hangs.
#![expect(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

#[expect(dead_code, reason = "these tests script their agent by hand")]
mod server;

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

use bootstrap::frame::{Frame, Kind, MAX_PAYLOAD};
use bootstrap::node_shm::{ExitDecision, NodeShm, NodeShmSpec};
use bootstrap::wait::Bounds;
use bootstrap::{BUILD_ID, Bootstrap, Error, ExitPath, HostId, Rank, agent, memfd};
use server::{pair, receive, send};
use settings::Env;

const SIZE: u32 = 2;

/// What an agent does after the rank's first packet.
type Script = fn(BorrowedFd<'_>);

fn page() -> NodeShm {
    let (ranks, hosts) = ([Rank(0), Rank(1)], [HostId(0); 2]);
    NodeShm::create(&NodeShmSpec {
        host: HostId(0),
        hosts: 1,
        local_ranks: &ranks,
        host_of: &hosts,
    })
    .unwrap()
}

fn bounds(milliseconds: u64) -> Bounds {
    let limit = Duration::from_millis(milliseconds);
    let Bounds { hello, call, fini } = Bounds::default();
    Bounds { hello: hello.within(limit), call, fini: fini.within(limit) }
}

/// Connects rank 1 to an agent that follows `script`.
fn connect(
    bounds: Bounds,
    script: impl FnOnce(BorrowedFd<'_>) + Send + 'static,
) -> (Result<Box<dyn Bootstrap>, Error>, std::thread::JoinHandle<()>) {
    let (theirs, ours) = pair();
    let thread = std::thread::spawn(move || script(ours.as_fd()));
    (agent::connect(theirs.into_raw_fd(), Rank(1), SIZE, bounds), thread)
}

/// Greets rank 1 properly.
fn welcome(socket: BorrowedFd<'_>, page: &NodeShm) {
    let packet = receive(socket);
    let hello = Frame::from_packet(&packet, SIZE).unwrap();
    assert_eq!((hello.kind, hello.rank, hello.arg), (Kind::Hello, 1, std::process::id()));
    assert_eq!(hello.payload, BUILD_ID.as_bytes());
    send(socket, &Frame::bare(Kind::Welcome, 0, 1, SIZE), Some(page.fd()));
}

/// What a call on rank 1 yields when the agent answers with `answer`.
fn after<T>(
    call: impl FnOnce(&mut dyn Bootstrap) -> Result<T, Error>,
    answer: impl FnOnce(BorrowedFd<'_>) + Send + 'static,
) -> Result<T, Error> {
    let (rank, thread) = connect(Bounds::default(), |socket| {
        welcome(socket, &page());
        receive(socket);
        answer(socket);
        // Stay until the client has gone, so that it sees the answer and not the end.
        while !receive(socket).is_empty() {}
    });
    let mut rank = rank.unwrap();
    let outcome = call(rank.as_mut());
    drop(rank);
    thread.join().unwrap();
    outcome
}

fn file_of(bytes: &[u8]) -> OwnedFd {
    let mut file = tempfile_in_memory();
    file.write_all(bytes).unwrap();
    file.into()
}

/// Memory that is not sealed.
fn tempfile_in_memory() -> std::fs::File {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    nix::sys::memfd::memfd_create(c"test", flags).unwrap().into()
}

fn protocol<T>(outcome: Result<T, Error>, part: &str) {
    match outcome {
        Err(Error::Protocol { seen, .. }) if seen.contains(part) => {}
        Err(error) => panic!("{error} instead of a protocol error about {part}"),
        Ok(_) => panic!("success instead of a protocol error about {part}"),
    }
}

#[test]
fn hello_ends_with_the_deadline_when_nobody_answers() {
    let (outcome, thread) = connect(bounds(100), |socket| while !receive(socket).is_empty() {});
    let Err(Error::Deadline { during: "hello", deadline: "bootstrap.hello", waited_ms }) =
        outcome.map(drop)
    else {
        panic!("no deadline")
    };
    assert!(waited_ms >= 100);
    thread.join().unwrap();
}

#[test]
fn hello_is_checked() {
    let answers: [(Script, &str); 5] = [
        (
            |socket| send(socket, &Frame::bare(Kind::Welcome, 0, 1, SIZE), None),
            "without descriptor",
        ),
        (
            |socket| send(socket, &Frame::bare(Kind::Welcome, 0, 1, 3), Some(page().fd())),
            "a job of 3 ranks",
        ),
        (|socket| send(socket, &Frame::bare(Kind::Release, 0, 1, 0), None), "Release"),
        (
            |socket| {
                send(
                    socket,
                    &Frame::bare(Kind::Welcome, 0, 1, SIZE),
                    Some(file_of(&[7; 4096]).as_fd()),
                )
            },
            "wrong magic",
        ),
        (
            |socket| {
                send(
                    socket,
                    &Frame::bare(Kind::Welcome, 0, 1, SIZE),
                    Some(file_of(&[7; 8]).as_fd()),
                )
            },
            "8 bytes",
        ),
    ];
    for (answer, part) in answers {
        let (outcome, thread) = connect(Bounds::default(), move |socket| {
            receive(socket);
            answer(socket);
        });
        protocol(outcome.map(drop), part);
        thread.join().unwrap();
    }
}

#[test]
fn hello_passes_on_a_refusal_and_notices_the_end() {
    let (outcome, thread) = connect(Bounds::default(), |socket| {
        receive(socket);
        let head = Frame::bare(Kind::Refuse, 0, 1, 0);
        Frame::pieces(head, b"another release").for_each(|frame| send(socket, &frame, None));
    });
    thread.join().unwrap();
    assert_eq!(
        outcome.map(drop).unwrap_err().to_string(),
        "bootstrap: hello refused: another release"
    );
    let (outcome, thread) = connect(Bounds::default(), |socket| drop(receive(socket)));
    thread.join().unwrap();
    assert!(matches!(outcome.map(drop), Err(Error::Lost { during: "hello" })));
}

#[test]
fn answers_to_calls_are_checked() {
    let with_total = |kind, seq, total| Frame { total, ..Frame::bare(kind, seq, 1, 0) };
    protocol(
        after(|b| b.barrier(), |s| send(s, &Frame::bare(Kind::Release, 2, 1, 0), None)),
        "call 2",
    );
    protocol(
        after(|b| b.barrier(), |s| send(s, &Frame::bare(Kind::Welcome, 1, 1, 0), None)),
        "Welcome",
    );
    protocol(
        after(|b| b.barrier(), |s| send(s, &Frame::bare(Kind::Release, 1, 1, 0), Some(s))),
        "with descriptor",
    );
    protocol(
        after(|b| b.exchange(&[1]), move |s| send(s, &with_total(Kind::Mapped, 1, 2), None)),
        "without descriptor",
    );
    protocol(
        after(
            |b| b.exchange(&[1]),
            move |s| {
                send(
                    s,
                    &with_total(Kind::Mapped, 1, 3),
                    Some(memfd::result(&[0; 3]).unwrap().as_fd()),
                );
            },
        ),
        "of 3",
    );
    protocol(
        after(
            |b| b.exchange(&[1]),
            move |s| {
                send(s, &with_total(Kind::Mapped, 1, 2), Some(file_of(&[0; 2]).as_fd()));
            },
        ),
        "could still change",
    );
    let short = after(
        |b| b.exchange(&[1]),
        move |s| {
            send(s, &with_total(Kind::Mapped, 1, 2), Some(memfd::result(&[0; 1]).unwrap().as_fd()));
        },
    );
    assert!(matches!(short, Err(Error::Os { .. })), "{short:?}");
    protocol(
        after(|b| b.exchange(&[1]), |s| send(s, &Frame::bare(Kind::Release, 1, 1, 0), None)),
        "a release in answer",
    );
    protocol(
        after(
            |b| b.host_memory(8),
            move |s| {
                send(
                    s,
                    &with_total(Kind::HostMemory, 1, 8),
                    Some(memfd::zeroed(4).unwrap().as_fd()),
                );
            },
        ),
        "4 bytes instead of 8",
    );
    protocol(
        after(
            |b| b.host_memory(8),
            move |s| {
                send(
                    s,
                    &with_total(Kind::HostMemory, 1, 9),
                    Some(memfd::zeroed(9).unwrap().as_fd()),
                );
            },
        ),
        "HostMemory",
    );
}

#[test]
fn pieces_of_an_answer_are_checked() {
    let long = vec![5; MAX_PAYLOAD + 10];
    let broadcast = |b: &mut dyn Bootstrap| b.broadcast(Rank(0), &mut vec![0; MAX_PAYLOAD + 10]);
    let data = long.clone();
    let good = after(broadcast, move |s| {
        Frame::pieces(Frame::bare(Kind::Data, 1, 1, 0), &data)
            .for_each(|frame| send(s, &frame, None));
    });
    good.unwrap();
    for change in [
        |frame: Frame<'static>| Frame { offset: frame.offset - 1, ..frame },
        |frame: Frame<'static>| Frame { seq: 2, ..frame },
        |frame: Frame<'static>| Frame { total: frame.total + 1, ..frame },
        |frame: Frame<'static>| Frame { payload: &[], ..frame },
        |frame: Frame<'static>| Frame { kind: Kind::Exchange, ..frame },
    ] {
        let data: &'static [u8] = long.clone().leak();
        let outcome = after(broadcast, move |s| {
            let frames: Vec<_> = Frame::pieces(Frame::bare(Kind::Data, 1, 1, 0), data).collect();
            send(s, &frames[0], None);
            send(s, &change(frames[1]), None);
        });
        protocol(outcome, "unexpected");
    }
}

#[test]
fn packets_that_are_no_frames_are_refused() {
    let raw = |bytes: Vec<u8>| {
        after(
            |b| b.barrier(),
            move |s| {
                nix::sys::socket::send(s.as_raw_fd(), &bytes, nix::sys::socket::MsgFlags::empty())
                    .unwrap();
            },
        )
    };
    let mut release = Frame::bare(Kind::Release, 1, 1, 0).header().to_vec();
    for bytes in [
        vec![1],
        vec![0; 32],
        release[..31].to_vec(),
        [release.clone(), vec![0]].concat(),
        vec![0; 80_000],
    ] {
        assert!(matches!(raw(bytes), Err(Error::Frame { during: "barrier", .. })));
    }
    raw(release.clone()).unwrap();
    release[2] = 9;
    let error = raw(release).unwrap_err().to_string();
    assert!(error.contains("protocol version 9"), "{error}");
}

#[test]
fn a_wait_ends_when_the_agent_goes_or_the_end_is_decided() {
    let (theirs, ours) = pair();
    let thread = std::thread::spawn(move || {
        let page = page();
        welcome(ours.as_fd(), &page);
        receive(ours.as_fd());
        page.decide(ExitDecision { code: 9, cause: Some(Rank(0)) });
        while !receive(ours.as_fd()).is_empty() {}
    });
    let mut rank = agent::connect(theirs.into_raw_fd(), Rank(1), SIZE, Bounds::default()).unwrap();
    let Err(Error::Ending { during: "barrier", decision }) = rank.barrier() else {
        panic!("no decision")
    };
    assert_eq!((decision.code, decision.cause), (9, Some(Rank(0))));
    drop(rank);
    thread.join().unwrap();

    let (rank, thread) = connect(Bounds::default(), |socket| {
        welcome(socket, &page());
        receive(socket);
    });
    let outcome = rank.unwrap().barrier();
    thread.join().unwrap();
    assert!(matches!(outcome, Err(Error::Lost { during: "barrier" })), "{outcome:?}");
}

#[test]
fn a_refusal_of_an_earlier_call_is_heard_in_the_next() {
    let (rank, thread) = connect(Bounds::default(), |socket| {
        welcome(socket, &page());
        let head = Frame::bare(Kind::Refuse, 1, 1, 0);
        Frame::pieces(head, b"no match").for_each(|frame| send(socket, &frame, None));
        while !receive(socket).is_empty() {}
    });
    let mut rank = rank.unwrap();
    assert_eq!(rank.barrier().unwrap_err().to_string(), "bootstrap: barrier refused: no match");
    drop(rank);
    thread.join().unwrap();
}

#[test]
fn fini_is_answered_hung_up_on_or_bounded() {
    let answers: [Script; 2] =
        [|socket| send(socket, &Frame::bare(Kind::Release, 0, 1, 0), None), |_hang_up| ()];
    for answer in answers {
        let (rank, thread) = connect(Bounds::default(), move |socket| {
            welcome(socket, &page());
            let packet = receive(socket);
            let fini = Frame::from_packet(&packet, SIZE).unwrap();
            assert_eq!((fini.kind, fini.arg.cast_signed()), (Kind::Fini, -3));
            answer(socket);
        });
        rank.unwrap().fini(-3).unwrap();
        thread.join().unwrap();
    }
    let bound = Bounds { hello: Bounds::default().hello, ..bounds(300) };
    let (rank, thread) = connect(bound, |socket| {
        welcome(socket, &page());
        while !receive(socket).is_empty() {}
    });
    let mut rank = rank.unwrap();
    let start = Instant::now();
    let outcome = rank.fini(0);
    assert!(
        matches!(outcome, Err(Error::Deadline { deadline: "bootstrap.fini", .. })),
        "{outcome:?}"
    );
    assert!(start.elapsed() >= Duration::from_millis(300));
    drop(rank);
    thread.join().unwrap();
}

#[test]
fn announcements_go_beside_a_call() {
    let (tell, arrived) = std::sync::mpsc::channel();
    let (rank, thread) = connect(Bounds::default(), move |socket| {
        welcome(socket, &page());
        let seen = [(); 4].map(|()| {
            let packet = receive(socket);
            let frame = Frame::from_packet(&packet, SIZE).unwrap();
            tell.send(()).unwrap();
            (frame.kind, frame.arg.cast_signed(), frame.extra)
        });
        let expected = [
            (Kind::Barrier, 0, 0),
            (Kind::Exiting, 7, ExitPath::Signal as u32),
            (Kind::Fini, -1, 0),
            (Kind::Abort, 255, 0),
        ];
        assert_eq!(seen, expected);
        send(socket, &Frame::bare(Kind::Release, 1, 1, 0), None);
    });
    let mut rank = rank.unwrap();
    let exit_notifier = rank.exit_notifier();
    assert!(exit_notifier.is_connected());
    let caller = std::thread::spawn(move || {
        let outcome = rank.barrier();
        (rank, outcome)
    });
    arrived.recv().unwrap();
    exit_notifier.exiting(7, ExitPath::Signal);
    exit_notifier.fini(-1);
    exit_notifier.abort(255);
    thread.join().unwrap();
    let (_rank, outcome) = caller.join().unwrap();
    outcome.unwrap();
}

#[test]
fn wrong_arguments_are_refused_before_anything_is_sent() {
    let (rank, thread) = connect(Bounds::default(), |socket| {
        welcome(socket, &page());
        assert!(receive(socket).is_empty(), "a frame was sent");
    });
    let mut rank = rank.unwrap();
    let argument = |outcome: Result<(), Error>| {
        assert!(matches!(outcome, Err(Error::Argument { .. })), "{outcome:?}")
    };
    argument(rank.broadcast(Rank(2), &mut [0]));
    argument(rank.host_broadcast(Rank(7), &mut [0]));
    argument(rank.neighbourhood_broadcast(Rank(2), &mut [0]));
    argument(rank.alltoall(&[0; 5], 2).map(drop));
    argument(rank.alltoall(&[], usize::MAX).map(drop));
    drop(rank);
    thread.join().unwrap();
}

#[test]
fn inherited_descriptors_are_looked_at() {
    let with = |fd: i32| {
        let fd = fd.to_string();
        let pairs =
            [("GASNETRUN_AGENT_FD", fd.as_str()), ("GASNETRUN_RANK", "0"), ("GASNETRUN_SIZE", "1")];
        let env: Env = pairs.into_iter().collect();
        bootstrap::connect_from(&env, &bootstrap::PROVIDERS).map(drop).unwrap_err().to_string()
    };
    assert!(with(1).contains("standard stream"));
    assert!(with(9999).contains("unset GASNETRUN_AGENT_FD"));
    let file = tempfile_in_memory();
    assert!(with(file.as_raw_fd()).contains("is not a packet socket"));
    let (theirs, ours) = pair();
    let thread = std::thread::spawn(move || {
        welcome(ours.as_fd(), &page());
        while !receive(ours.as_fd()).is_empty() {}
    });
    let number = theirs.into_raw_fd();
    let rank = agent::connect(number, Rank(1), SIZE, Bounds::default()).unwrap();
    assert!(with(number).contains("already in use"));
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
    assert_ne!(
        u32::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000,
        0,
        "not close-on-exec: {info}"
    );
    drop(rank);
    thread.join().unwrap();
}

#[test]
fn announcements_to_a_stopped_agent_are_bounded() {
    let (tell, done) = std::sync::mpsc::channel::<()>();
    let (rank, thread) = connect(Bounds::default(), move |socket| {
        welcome(socket, &page());
        // Reads nothing more until the other side has given up on it.
        done.recv().unwrap();
    });
    let rank = rank.unwrap();
    let bound = settings::deadlines::bootstrap::ANNOUNCE.limit;
    let waited = |_| {
        let start = Instant::now();
        rank.exit_notifier().exiting(1, ExitPath::Explicit);
        start.elapsed()
    };
    // Until the socket is full; the first announcement that finds it so waits for the bound and
    // comes back.
    let longest = (0..100_000).map(waited).find(|waited| *waited >= bound / 2).unwrap();
    assert!(longest >= bound / 2, "{longest:?}");
    tell.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn the_environment_leads_to_the_agent() {
    let (theirs, ours) = pair();
    let thread = std::thread::spawn(move || {
        welcome(ours.as_fd(), &page());
        receive(ours.as_fd());
        send(ours.as_fd(), &Frame::bare(Kind::Release, 1, 1, 0), None);
    });
    let fd = theirs.into_raw_fd().to_string();
    let pairs =
        [("GASNETRUN_AGENT_FD", fd.as_str()), ("GASNETRUN_RANK", "1"), ("GASNETRUN_SIZE", "2")];
    let mut rank =
        bootstrap::connect_from(&pairs.into_iter().collect(), &bootstrap::PROVIDERS).unwrap();
    assert_eq!(
        (rank.rank_info().rank, rank.rank_info().size, rank.rank_info().local),
        (Rank(1), SIZE, 1)
    );
    assert_eq!(rank.node_shm().slot(1).pid(), std::process::id().cast_signed());
    rank.barrier().unwrap();
    drop(rank);
    thread.join().unwrap();
}
